"""The ``dptext`` command; ``jobs/*.py`` are the same commands for spark-submit."""

from __future__ import annotations

import inspect
import logging
import os
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from dptext_spark import interrupts
from dptext_spark.bars import hidden_progress
from dptext_spark.errors import ConfigError, DptextError, JobError, nearest
from dptext_spark.options import COMMANDS, Options
from dptext_spark.options.validation import repeatable
from dptext_spark.parameters import GroupedOption, number_of, parameters, read_number
from dptext_spark.spark.settings import session_settings
from dptext_spark.version import __version__

_RUN: Final = "Running"

_UNFINISHED: Final = "dptext.unfinished"
"""Where a command keeps what is to be said of a run that is interrupted."""


class _Command(click.Command):
    """A command whose errors are one message."""

    def invoke(self, ctx: click.Context) -> Any:
        # What libraries log of connections that break off is no message of ours.
        logging.getLogger().addHandler(logging.NullHandler())
        try:
            with interrupts.handled():
                return self._invoke(ctx)
        except DptextError as error:
            click.echo(f"dptext {ctx.info_name}: {error}", err=True)
            ctx.exit(1 if isinstance(error, JobError) else 2)
        except interrupts.Interrupted as signal:
            left = ctx.meta.get(_UNFINISHED, "")
            end = "The run had come to its end, and what it wrote is whole." if signal.finished else left
            click.echo(f"dptext {ctx.info_name}: {signal}. {end}".rstrip(), err=True)
            ctx.exit(signal.exit_code)

    def _invoke(self, ctx: click.Context) -> Any:
        """Run; exceptions of Spark's that no job expected become one message too."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("py4j", "pyspark"):
                raise error from None  # the traceback would show what it came of, and Spark's may quote rows
            from dptext_spark.spark.failures import plain

            raise plain(error, "The job failed") from None


class Job(_Command):
    """The command of a class of options, which may come from a TOML file too."""

    def __init__(self, model: type[Options]) -> None:
        self.model = model
        self.own = list(parameters(model))
        super().__init__(
            model.command,
            params=[*self.own, *_run_options(model)],
            help=inspect.getdoc(model),
            epilog=f"\b\nExample:\n  dptext {model.command} {model.usage}" if model.usage else None,
            callback=self._run,
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        fields = self.model.fields().items()
        numbers = {f"--{name}" for name, field in fields if repeatable(field) and number_of(field)}
        several = {
            param.opts[0]: getattr(param, "values", ()) for param in self.own if param.opts[0] in numbers
        }
        return super().parse_args(ctx, _spread(args, several))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                sections.setdefault(getattr(param, "heading", _RUN), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def _run(
        self,
        config: Path | None,
        quiet: bool,
        as_json: bool,
        verbose: bool = False,
        spark_conf: Sequence[str] = (),
        **values: Any,
    ) -> None:
        names = {str(p.name): p.opts[0].removeprefix("--") for p in self.own}
        file = {} if config is None else read_config(config, {*names.values()})
        given = {names[name]: value for name, value in values.items() if value not in (None, ())}
        options = self.model.of(file | given)
        run = import_module(self.model.runner.format(command=self.model.command)).run
        click.get_current_context().meta[_UNFINISHED] = options.unfinished
        wanted = session_settings(_pairs(spark_conf), verbose=verbose)
        with interrupts.handled(), hidden_progress(quiet), wanted:
            report = run(options)
        if as_json:
            click.echo(report.to_json(), nl=False)
        elif not quiet:
            click.echo(report.describe())
        if (said := options.finish(report)) and not quiet:
            click.echo(f"\n{said}", err=as_json)


def _run_options(model: type[Options]) -> Iterator[click.Option]:
    """Make the options that say how a command runs and what it prints, whatever it does."""
    yield GroupedOption(
        ["--config"],
        heading=_RUN,
        values=["PATH"],
        type=click.Path(path_type=Path),
        help="TOML file of the options above; an option given here wins over the file",
    )
    flag = partial(GroupedOption, heading=_RUN, is_flag=True)
    yield flag(["--quiet", "-q"], help="print errors and warnings only")
    if model.on_spark:
        yield flag(["--verbose", "-v"], help="print what Spark logs from level INFO on")
    yield flag(["--json", "as_json"], help="print the report as JSON on stdout, and nothing else there")
    if model.on_spark:
        yield GroupedOption(
            ["--spark-conf"],
            heading=_RUN,
            multiple=True,
            metavar="NAME=VALUE",
            help="setting of the Spark session, such as spark.driver.memory=4g; repeatable",
        )


def _pairs(settings: Sequence[str]) -> dict[str, str]:
    """Read ``NAME=VALUE`` settings; a message must not quote a value, which may be a password.

    Raises:
        ConfigError: One is something else.
    """
    pairs = {name: value for name, sign, value in (text.partition("=") for text in settings) if sign}
    if len(pairs) < len(settings) or not all(name.startswith("spark.") for name in pairs):
        raise ConfigError(
            "Option --spark-conf has a wrong value",
            allowed="NAME=VALUE, each NAME once and beginning with spark.",
            got="a value that is not shown",
        )
    return pairs


def _spread(args: Sequence[str], several: Mapping[str, Sequence[str]]) -> list[str]:
    """Repeat options that several numbers may follow: ``--epsilon 5 10`` and ``--epsilon 5,10``.

    Args:
        args: Of the command line.
        several: Those options, and the names that may stand where a number does.
    """
    parts = [part for arg in args for part in (arg.split("=", 1) if arg.split("=")[0] in several else [arg])]
    spread: list[str] = []
    option = None
    for part in parts:
        numbers = part.split(",")
        names = several.get(option or "", ())
        if option is None or any(read_number(n, float) is n and n not in names for n in numbers):
            option = part if part in several else None
            spread.append(part)
            continue
        if spread[-1] == option:
            spread.pop()
        spread += [repeated for number in numbers for repeated in (option, number)]
    return spread


def read_config(path: Path, allowed: Collection[str]) -> dict[str, Any]:
    """Read a TOML file whose keys are option names, ``allowed`` those of the command.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or has an unknown key.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"The configuration file {path} cannot be read", got=str(error.strerror)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The configuration file {path} is not TOML", got=str(error)) from None
    if unknown := [key for key in values if key not in allowed]:
        raise ConfigError(
            f"The configuration file {path} has unknown options",
            allowed=", ".join(sorted(allowed)),
            got=", ".join(unknown),
            do=nearest(unknown, allowed) or "Remove them",
        )
    return values


_ORDER: Final = (
    *("demo", "embedding", "try"),  # start
    *("calibrate", "evaluate", "account", "audit"),  # measure
    *("privatize", "vectors", "ledger"),  # release
)


class _Commands(click.Group):
    """The commands in the order in which a user needs them; others come last."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_ORDER, *sorted(self.commands.keys() - {*_ORDER})]


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="dptext")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Sanitize text columns on Spark under metric differential privacy."""
    if os.environ.get("NO_COLOR"):
        ctx.color = False


for _model in COMMANDS.values():
    main.add_command(Job(_model))


@main.command("demo", cls=_Command)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("dptext-demo"),
    show_default=True,
    help="folder for the demo's tables",
)
def demo_command(output: Path) -> None:
    """Try all of it on data of the package."""
    from dptext_spark import demo

    demo.run(output)


if __name__ == "__main__":
    sys.exit(main())
