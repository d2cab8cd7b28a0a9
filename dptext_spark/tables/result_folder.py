"""The folder of a calibration or an evaluation: whether it is free, and its facts and page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import SparkSession

from dptext_spark.bars import stage
from dptext_spark.errors import ConfigError
from dptext_spark.options import CalibrateOptions, EvaluateOptions
from dptext_spark.report.facts import Facts, Report, versions
from dptext_spark.report.text import missing_library, rendered
from dptext_spark.tables.output import write_whole
from dptext_spark.tables.storage import LocalFiles, Storage


def check_free(places: LocalFiles, place: str, file: str, *, overwrite: bool) -> None:
    """Refuse an output that exists, unless it has this ``file`` of facts and is to be replaced."""
    what = file.removesuffix(".json")
    if not places.exists(place):
        return
    if not places.exists(f"{place}/{file}"):
        raise ConfigError(
            f"The output {place} exists and is no {what}", do="Choose another --output"
        )
    if not overwrite:
        raise ConfigError(
            f"The {what} {place} exists",
            do="Choose another --output, or replace it with --overwrite",
        )


def write_results(
    spark: SparkSession,
    storage: Storage,
    options: CalibrateOptions | EvaluateOptions,
    make: Callable[[str], Facts],
    *,
    file: str,
    text: Callable[[Facts], Iterable[Any]],
    page: Callable[[Facts], dict[str, Any]],
    private: bool = False,
) -> Report:
    """Write a folder of results, which takes its name when it is whole.

    ``make`` writes tables into a folder and returns the facts, which go into ``file``; ``text`` and ``page``
    render them for a terminal and for the page's template. What is ``private`` is its owner's alone, where
    the file system knows of owners.
    """
    place = options.output.rstrip("/")
    remark = ", which is private" if private else ""
    reports, drawn = list[Report](), not missing_library()

    def write(folder: str) -> None:
        storage.make_folder(folder, private=private)
        facts = {**make(folder), "options": options.to_json(), "versions": versions()}
        end = f"Page{remark}: {place}/report.html" if drawn else f"Output{remark}: {place}"
        reports.append(Report(facts=facts, text=rendered([*text(facts), end])))
        with stage("Writing the report"):
            storage.write(f"{folder}/{file}", reports[0].to_json(), private=private)
            if drawn:
                from dptext_spark.report.page import write_page  # slow to load, and not everywhere

                with TemporaryDirectory(prefix="dptext-page-") as here:
                    write_page(Path(here), page(facts))
                    for name in ("report.html", "plots"):
                        storage.put(Path(here, name), f"{folder}/{name}", private=private)

    write_whole(spark, place, write, overwrite=options.overwrite, replace="--overwrite")
    return reports[0]
