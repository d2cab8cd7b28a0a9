"""The folder of a calibration or an evaluation: whether it is free, and its findings and page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from dptext_spark.errors import ConfigError
from dptext_spark.report import drawing
from dptext_spark.tables.storage import Places, Storage


def check_free(places: Places, place: str, file: str, *, overwrite: bool) -> None:
    """Refuse an output that exists, unless it has this ``file`` of findings and is to be replaced.

    Raises:
        ConfigError: The output is not free.
    """
    what = file.removesuffix(".json")
    if not places.exists(place):
        return
    if not places.exists(f"{place}/{file}"):
        article = "an" if what[0] in "aeiou" else "a"
        raise ConfigError(
            f"The output {place} exists and is not {article} {what}", do="Choose another --output"
        )
    if not overwrite:
        raise ConfigError(
            f"The {what} {place} exists", do="Choose another --output, or replace it with --overwrite"
        )


def finish(
    storage: Storage,
    folder: str,
    findings: str,
    *,
    files: Sequence[str],
    drawn: Sequence[str],
    page: str,
    draw: Callable[[Path], object],
) -> None:
    """Write the findings and, where its libraries are installed, the page.

    Args:
        storage, folder: Where to, next to the tables.
        findings: JSON, for the first of ``files``, of which the page is drawn.
        files, drawn: What drawing reads and may be missing, and what it makes.
        page, draw: The module that draws, and what draws into a folder of this machine.
    """
    storage.write(f"{folder}/{files[0]}", findings)
    if drawing.missing_library(page):
        return
    place = storage.real(folder)
    if place.startswith("file:"):
        draw(Path(place.removeprefix("file:")))
        return
    with TemporaryDirectory(prefix="dptext-page-") as here:
        for name in files:
            if storage.exists(f"{folder}/{name}"):
                storage.fetch(f"{folder}/{name}", Path(here, name))
        draw(Path(here))
        for name in drawn:
            storage.put(Path(here, name), f"{folder}/{name}")
