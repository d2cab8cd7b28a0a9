"""What every section of the benchmarks is given, and how it prints what it found."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.lists import made, make_lists

SOURCES: Final = {"glove-300d": "glove_840b_300d_33k", "glove-50d": "glove_6b_50d"}
"""Bundles, and the folders of the data that they are built from."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a section measures with.

    Attributes:
        data: Folder of the data.
        bundles: Folder of bundles, which are built there once; other large files may lie there too.
        small: Whether the section is only tried: in seconds, on whatever size the data has.
    """

    data: Path
    bundles: Path
    small: bool

    def bundle(self, name: str, *, lists: bool = False) -> Embedding:
        """Open a bundle of ``SOURCES``; built where it is not there, with an index where one is wanted."""
        folder = self.bundles / name
        if not folder.exists():
            self.bundles.mkdir(parents=True, exist_ok=True)
            build_embedding(self.data / SOURCES[name] / "vectors.npy", folder)
        embedding = Embedding.open(folder, verify=False)
        if lists and not made(embedding):
            make_lists(embedding)
        return embedding


def reason(said: str) -> str:
    """Take the last line of what a process said before it failed; no paths, and not too long."""
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "")
    return re.sub(r"[^\s'\"]*/[^\s'\"]*", "…", last.strip())[:200]


def section(measure: Callable[..., dict[str, Any]]) -> click.Command:
    """Make a command of a function that measures: it takes a :class:`Given` and options of its own."""

    @click.command()
    @click.option("--data", type=click.Path(exists=True, path_type=Path), required=True)
    @click.option("--bundles", type=click.Path(path_type=Path), help="Keep bundles there; else nowhere.")
    @click.option("--small", is_flag=True, help="Try it in seconds; the figures mean nothing.")
    @wraps(measure)
    def command(data: Path, bundles: Path | None, small: bool, **options: Any) -> None:
        with tempfile.TemporaryDirectory(prefix="dptext-benchmark-") as folder:
            given = Given(data=data.resolve(), bundles=bundles or Path(folder), small=small)
            click.echo(json.dumps(measure(given, **options), indent=2))

    return command
