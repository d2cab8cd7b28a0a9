"""The folder of a calibration or an evaluation: whether it is free, and what is written into it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dptext_spark.calibration import record
from dptext_spark.calibration.findings import CalibrationReport
from dptext_spark.errors import ConfigError
from dptext_spark.evaluation import answer
from dptext_spark.report import drawing
from dptext_spark.spark.measuring.blocks import name_batches
from dptext_spark.spark.measuring.waves import Waves
from dptext_spark.spark.table.storage import Places, Storage

PARTS: Final = ".parts"
"""Folder, inside the output, of what is done already while a run is not finished."""


@dataclass(frozen=True, kw_only=True)
class MeasuredFolder:
    """The output of a run that measures, at a place without a slash at the end."""

    what: ClassVar[str]
    file: ClassVar[str]  # which comes last: where it is, the folder is whole
    tables: ClassVar[tuple[str, ...]]
    drawn: ClassVar[tuple[str, ...]]
    other: ClassVar[str] = "with other options"

    storage: Storage
    place: str

    @classmethod
    def check_free(cls, places: Places, place: str, identity: str | None, *, overwrite: bool) -> None:
        """Refuse a folder that is neither free nor that of a run of this identity, to be continued.

        Any identity will do where it is None, not yet known.

        Raises:
            ConfigError: It is neither.
        """
        if not places.exists(place):
            return
        started = places.exists(f"{place}/{PARTS}")
        article = "an" if cls.what[0] in "aeiou" else "a"
        if not (started or places.exists(f"{place}/{cls.file}")):
            raise ConfigError(
                f"The output {place} exists and is not {article} {cls.what}", do="Choose another --output"
            )
        if overwrite:
            return
        if not started:
            raise ConfigError(
                f"The {cls.what} {place} exists",
                do="Choose another --output, or replace it with --overwrite",
            )
        if identity is not None and not places.exists(f"{place}/{PARTS}/{identity}"):
            raise ConfigError(
                f"The output {place} holds parts of {article} {cls.what} {cls.other}",
                allowed="the options that it was started with, which continue it",
                do="Give those, choose another --output, or start anew with --overwrite",
            )

    def claim(self, identity: str, *, overwrite: bool) -> str:
        """See whether the folder is free or another run's to continue, and give the parts of this run.

        Raises:
            ConfigError: It is neither.
        """
        self.check_free(self.storage, self.place, identity, overwrite=overwrite)
        parts = f"{self.place}/{PARTS}"
        own = f"{parts}/{identity}"
        if self.storage.exists(parts) and not self.storage.exists(own):
            self.storage.delete(parts)
        return own

    def clear(self) -> None:
        """Remove what was here before, now that this run has measured; its findings first."""
        for path in (f"{self.place}/{name}" for name in (self.file, *self.tables, *self.drawn)):
            if self.storage.exists(path):
                self.storage.delete(path)

    def end(self, findings: str, page: str, draw: Callable[[Path], object]) -> None:
        """Write the findings and, where its libraries are installed, the page; the parts go last.

        Args:
            findings: JSON.
            page: The module that draws.
            draw: Draws into a folder of this machine that has findings and tables.
        """
        self.storage.write(f"{self.place}/{self.file}", findings)
        if not drawing.missing_library(page):
            self._draw(draw)
        self.storage.delete(f"{self.place}/{PARTS}")

    def _draw(self, draw: Callable[[Path], object]) -> None:
        """Draw from a copy of the tables where they are not on this machine."""
        place = self.storage.real(self.place)
        if place.startswith("file:"):
            draw(Path(place.removeprefix("file:")))
            return
        with TemporaryDirectory(prefix=f"dptext-{self.what}-") as folder:
            for name in (self.file, *self.tables):
                if self.storage.exists(f"{self.place}/{name}"):
                    self.storage.fetch(f"{self.place}/{name}", Path(folder, name))
            draw(Path(folder))
            for name in self.drawn:
                self.storage.put(Path(folder, name), f"{self.place}/{name}")


@dataclass(frozen=True, kw_only=True)
class CalibrationFolder(MeasuredFolder):
    """The output of a calibration of a mechanism."""

    what = "calibration"
    file = record.FILE
    tables = ("words", "outputs", "transitions", "examples", "summary")
    drawn = (record.PAGE, record.PLOTS)

    mechanism: str

    def write(self, waves: Waves, name: str, df: DataFrame, *words: str) -> None:
        """Write a table, with words for their rows in the columns ``words``."""
        if words:
            kinds = {f.name: "string" if f.name in words else f.dataType.simpleString() for f in df.schema}
            schema = ", ".join(f"`{column}` {kind}" for column, kind in kinds.items())
            df = df.mapInArrow(partial(name_batches, waves.bundle, words), schema)
        named = F.lit(self.mechanism).alias("mechanism")
        waves.write(df.select(named, *df.columns), f"{self.place}/{name}")

    def finish(self, report: CalibrationReport, *, examples: Sequence[str]) -> None:
        """Write calibration.json and the page."""

        def draw(folder: Path) -> None:
            from dptext_spark.calibration.page import write_report  # slow to load, and not everywhere

            write_report(folder, words_of_choice=examples)

        self.end(report.to_json(), drawing.PAGE, draw)


@dataclass(frozen=True, kw_only=True)
class EvaluationFolder(MeasuredFolder):
    """The output of an evaluation."""

    what = "evaluation"
    file = answer.FILE
    tables = answer.TABLES
    drawn = (answer.PAGE,)
    other = "with other options, or of other rows"

    def finish(self, findings: str) -> None:
        """Write evaluation.json and the page."""

        def draw(folder: Path) -> None:
            from dptext_spark.evaluation.answer_page import write_answer  # slow to load, and not everywhere

            write_answer(folder)

        self.end(findings, drawing.ANSWER, draw)
