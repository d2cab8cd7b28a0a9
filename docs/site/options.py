"""Prints the site's page of all commands and options, from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import click

from dptext_spark.cli import HELP_ALL, main
from dptext_spark.options import COMMANDS

BEGIN: Final = """# Commands and options

`dptext COMMAND --help-all` prints the same. `jobs/COMMAND.py` takes these options under `spark-submit`, and
a file for `--config` has them as keys.
"""


class Tables(click.HelpFormatter):
    """Writes each section of a help as a table."""

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.write(f"\n**{name}**\n\n| option | meaning |\n|---|---|\n")
        yield

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 0, col_spacing: int = 0
    ) -> None:
        for row in rows:
            option, meaning = (cell.replace("|", "\\|") for cell in row)
            self.write(f"| `{option}` | {with_code(meaning)} |\n")


def with_code(text: str) -> str:
    """Return a description with the options that it names as code."""
    return re.sub(r"(?<![\w-])(--[a-z][\w-]*)", r"`\1`", text)


def section_of(name: str) -> str:
    """Return the section of a command: what it does, an example, and tables of its options."""
    job = main.commands[name]
    ctx = click.Context(job, info_name=f"dptext {name}")
    ctx.meta[HELP_ALL] = True
    tables = Tables()
    job.format_options(ctx, tables)
    about = "\n\n".join(part.replace("\n", " ") for part in str(job.help).split("\n\n"))
    example = ""
    if name in COMMANDS:
        example = f"\n```sh\ndptext {name} {COMMANDS[name].usage}\n```\n"
    return f"\n## dptext {name}\n\n{about}\n{example}{tables.getvalue()}"


def page() -> str:
    """Return the page of all commands."""
    return BEGIN + "".join(map(section_of, main.commands))


if __name__ == "__main__":
    click.echo(page(), nl=False)
