"""The folder of a calibration or an evaluation: whether it is free, and its facts and page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dptext_spark.bars import stage
from dptext_spark.errors import ConfigError
from dptext_spark.report import drawing
from dptext_spark.report.facts import Facts, Report
from dptext_spark.report.text import rendered
from dptext_spark.tables.output import write_whole
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


def write_results(
    storage: Storage,
    place: str,
    file: str,
    make: Callable[[str], tuple[Facts, Iterable[Any], Mapping[str, Any]]],
    *,
    run: str,
    overwrite: bool,
    remark: str = "",
) -> Report:
    """Write a folder of results, which takes its name when it is whole.

    Args:
        storage, place: Where it goes.
        file: Of the facts.
        make: Writes tables into a folder, and gives the facts, what is said of them, and the page's data.
        run, overwrite: See :func:`write_whole`.
        remark: Of the output, said where it is named.
    """
    reports, drawn = list[Report](), not drawing.missing_library(drawing.PAGE)

    def write(folder: str) -> None:
        facts, said, page = make(folder)
        end = f"Page{remark}: {place}/{drawing.HTML}" if drawn else f"Output{remark}: {place}"
        reports.append(Report(facts=facts, text=rendered([*said, end])))
        with stage("Writing the report"):
            storage.write(f"{folder}/{file}", reports[0].to_json())
            if drawn:
                _draw(storage, folder, page)

    write_whole(storage, place, write, run=run, overwrite=overwrite)
    return reports[0]


def _draw(storage: Storage, folder: str, page: Mapping[str, Any]) -> None:
    from dptext_spark.report.page import write_page  # slow to load, and not everywhere

    place = storage.real(folder)
    if place.startswith("file:"):
        write_page(Path(place.removeprefix("file:")), page)
        return
    with TemporaryDirectory(prefix="dptext-page-") as here:
        write_page(Path(here), page)
        for name in (drawing.HTML, drawing.PLOTS):
            storage.put(Path(here, name), f"{folder}/{name}")
