"""Hold this checkout against another version of it: does every command write the same, byte for byte?

    scripts/same-bytes REVISION [WORD...]

Both run the commands of ``commands.py`` (all, or those with one of the words) in folders of their own, with
one key and the same input, and all that they leave is compared: tables, bundles, reports, calibrations, and
what is printed, errors and help included.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from tests.helpers.comparison import compared, settled

ROOT: Final = Path(__file__).resolve().parents[2]
_SHOWN_LINES: Final = 12


def run(checkout: Path, place: Path, words: Sequence[str]) -> None:
    """Run the commands with the package of a checkout."""
    place.mkdir()
    script = ROOT / "scripts" / "versions" / "commands.py"
    with (place.parent / f"{place.name}.log").open("wb") as log:
        subprocess.run(
            [sys.executable, str(script), *words],
            cwd=place,
            env=os.environ | {"PYTHONPATH": str(checkout)},
            stdout=log,
            stderr=subprocess.STDOUT,
            check=True,
        )


def shown(before: Path, after: Path) -> list[str]:
    """The first lines in which two texts differ."""
    if before.suffix not in (".txt", ".json", ".html"):
        return []
    one, other = (path.read_text(encoding="utf-8", errors="replace").splitlines() for path in (before, after))
    changes = difflib.unified_diff(one, other, n=0, lineterm="")
    lines = [line for line in changes if line[:2] not in ("--", "++", "@@")]
    return [line[:200] for line in lines[:_SHOWN_LINES]]


@click.command()
@click.argument("revision")
@click.argument("words", nargs=-1)
def main(revision: str, words: Sequence[str]) -> None:
    """Compare with REVISION; the exit code is 1 where anything differs."""
    with tempfile.TemporaryDirectory(prefix="dptext-same-bytes-") as folder:
        places = Path(folder, "before"), Path(folder, "after")
        other = Path(folder, "checkout")
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", other, revision], cwd=ROOT, check=True
        )
        try:
            for checkout, place in zip((other, ROOT), places, strict=True):
                run(checkout, place, words)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", other], cwd=ROOT, check=True)
        different, said = compared(*places)
        before, after = map(settled, places)
        for name in different:
            click.echo(f"DIFFERENT {name}")
            if name in before and name in after:
                click.echo("".join(f"    {line}\n" for line in shown(before[name], after[name])), nl=False)
        click.echo(f"{said}: {len(different)} different")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
