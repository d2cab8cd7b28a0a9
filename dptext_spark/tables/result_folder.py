"""The folder of a calibration or an evaluation: whether it is free, and its facts and page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dptext_spark.errors import ConfigError
from dptext_spark.report import drawing
from dptext_spark.report.facts import Report
from dptext_spark.tables.storage import Places, Storage


def check_free(places: Places, place: str, file: str, *, overwrite: bool) -> None:
    """Refuse an output that exists, unless it has this ``file`` of facts and is to be replaced.

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


def finish(storage: Storage, folder: str, file: str, report: Report, page: Mapping[str, Any]) -> None:
    """Write the facts as this ``file``, and where its libraries are installed the page with its figures."""
    storage.write(f"{folder}/{file}", report.to_json())
    if drawing.missing_library(drawing.PAGE):
        return
    from dptext_spark.report.page import write_page  # slow to load, and not everywhere

    place = storage.real(folder)
    if place.startswith("file:"):
        write_page(Path(place.removeprefix("file:")), page)
        return
    with TemporaryDirectory(prefix="dptext-page-") as here:
        write_page(Path(here), page)
        for name in (drawing.HTML, drawing.PLOTS):
            storage.put(Path(here, name), f"{folder}/{name}")
