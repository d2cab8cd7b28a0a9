"""The folder of a calibration, evaluation or estimates: whether it is free, its facts and page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from pyspark.sql import SparkSession

from dptext_spark.bars import stage
from dptext_spark.display import rendered
from dptext_spark.errors import ConfigError
from dptext_spark.options import CalibrateOptions, EstimateOptions, EvaluateOptions
from dptext_spark.report.facts import Facts, Report, versions
from dptext_spark.report.text import missing_library
from dptext_spark.tables.output import whole_table
from dptext_spark.tables.storage import LocalFiles, Storage, check_target

ResultOptions: TypeAlias = CalibrateOptions | EstimateOptions | EvaluateOptions


def check_free(storage: LocalFiles, options: ResultOptions, file: str) -> None:
    """Refuse an output that exists, unless it has this ``file`` of facts and is to be replaced.

    Nothing is said of an output that ``storage`` cannot see.
    """
    place = options.output.rstrip("/")
    what = file.removesuffix(".json")
    if not (storage.sees(place) and storage.exists(place)):
        check_target(place)
        return
    if not storage.exists(f"{place}/{file}"):
        raise ConfigError(
            f"The output {place} exists and is no {what}", do="Choose another --output"
        )
    if not options.overwrite:
        raise ConfigError(
            f"The {what} {place} exists",
            do="Choose another --output, or replace it with --overwrite",
        )


@contextmanager
def result_folder(
    spark: SparkSession,
    storage: Storage,
    options: ResultOptions,
    *,
    private: bool = False,
) -> Iterator[str]:
    """Yield the folder to write results to, which takes its name at the end.

    It is claimed at once, before results are measured. What is ``private`` is its owner's alone,
    where the file system knows of owners.
    """
    place = options.output.rstrip("/")
    with whole_table(spark, place, overwrite=options.overwrite, replace="--overwrite") as folder:
        storage.make_folder(folder, private=private)
        yield folder


def write_report(
    storage: Storage,
    folder: str,
    options: ResultOptions,
    results: Facts,
    *,
    file: str,
    text: Callable[[Facts], Iterable[Any]],
    page: Callable[[Facts], dict[str, Any]],
    private: bool = False,
) -> Report:
    """Write the facts of ``results`` into ``file`` of a folder, and the page; return the report.

    ``text`` and ``page`` render the facts for a terminal and for the page's template.
    """
    place = options.output.rstrip("/")
    is_drawn = not missing_library()
    remark = ", which is private" if private else ""
    end = f"Output{remark}: {place}"
    if is_drawn:
        end = f"Page{remark}: {place}/report.html"
    facts = {**results, "options": options.to_json(), "versions": versions()}
    report = Report(facts=facts, text=rendered([*text(facts), end]))
    with stage("Writing the report"):
        storage.write(f"{folder}/{file}", report.to_json(), private=private)
        if is_drawn:
            from dptext_spark.report.page import write_page  # slow to load, and not everywhere

            with TemporaryDirectory(prefix="dptext-page-") as here:
                write_page(Path(here), page(facts))
                for name in ("report.html", "plots"):
                    storage.put(Path(here, name), f"{folder}/{name}", private=private)
    return report
