"""The folder of a calibration: whether it is free, and what is written into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dptext_spark.calibration.findings import CalibrationReport
from dptext_spark.calibration.record import FILE, PAGE, PLOTS
from dptext_spark.errors import ConfigError
from dptext_spark.report import drawing
from dptext_spark.spark.measuring.blocks import name_batches
from dptext_spark.spark.measuring.waves import Waves
from dptext_spark.spark.table.storage import Places, Storage

PARTS: Final = ".parts"
"""Folder, inside the calibration's, of what is done already while a run is not finished."""

_TABLES: Final = ("words", "outputs", "transitions", "examples", "summary")
_ALL: Final = (FILE, *_TABLES, PAGE, PLOTS)


def check_free(places: Places, place: str, identity: str, *, overwrite: bool) -> None:
    """Refuse a folder that is neither free nor that of a run of this identity, to be continued.

    Raises:
        ConfigError: It is neither.
    """
    if not places.exists(place):
        return
    started = places.exists(f"{place}/{PARTS}")
    if not (started or places.exists(f"{place}/{FILE}")):
        raise ConfigError(f"The output {place} exists and is not a calibration", do="Choose another --output")
    if overwrite:
        return
    if not started:
        raise ConfigError(
            f"The calibration {place} exists",
            do="Choose another --output, or replace it with --overwrite",
        )
    if not places.exists(f"{place}/{PARTS}/{identity}"):
        raise ConfigError(
            f"The output {place} holds parts of a calibration with other options",
            allowed="the options that it was started with, which continue it",
            do="Give those, choose another --output, or start anew with --overwrite",
        )


@dataclass(frozen=True, kw_only=True)
class CalibrationFolder:
    """The output of a calibration of a mechanism, at a place without a slash at the end."""

    storage: Storage
    place: str
    mechanism: str

    def claim(self, identity: str, *, overwrite: bool) -> str:
        """See whether the folder is free or another run's to continue, and give the parts of this run.

        Raises:
            ConfigError: It is neither.
        """
        check_free(self.storage, self.place, identity, overwrite=overwrite)
        parts = f"{self.place}/{PARTS}"
        own = f"{parts}/{identity}"
        if self.storage.exists(parts) and not self.storage.exists(own):
            self.storage.delete(parts)
        return own

    def clear(self) -> None:
        """Remove the calibration that was here before, now that this one is measured; its findings first."""
        for path in (f"{self.place}/{name}" for name in _ALL):
            if self.storage.exists(path):
                self.storage.delete(path)

    def write(self, waves: Waves, name: str, df: DataFrame, *words: str) -> None:
        """Write a table, with words for their rows in the columns ``words``."""
        if words:
            kinds = {f.name: "string" if f.name in words else f.dataType.simpleString() for f in df.schema}
            schema = ", ".join(f"`{column}` {kind}" for column, kind in kinds.items())
            df = df.mapInArrow(partial(name_batches, waves.bundle, words), schema)
        named = F.lit(self.mechanism).alias("mechanism")
        waves.write(df.select(named, *df.columns), f"{self.place}/{name}")

    def finish(self, report: CalibrationReport, *, examples: Sequence[str]) -> None:
        """Write calibration.json and the page; the parts go last."""
        self.storage.write(f"{self.place}/{FILE}", report.to_json())
        if not drawing.missing_library(drawing.PAGE):
            self._write_page(examples)
        self.storage.delete(f"{self.place}/{PARTS}")

    def _write_page(self, examples: Sequence[str]) -> None:
        """Write report.html and its figures, from a copy of the tables where they are not on this machine."""
        from dptext_spark.calibration.page import write_report  # slow to load, and not everywhere

        place = self.storage.real(self.place)
        if place.startswith("file:"):
            write_report(Path(place.removeprefix("file:")), words_of_choice=examples)
            return
        with TemporaryDirectory(prefix="dptext-calibration-") as folder:
            for name in (FILE, *_TABLES):
                if self.storage.exists(f"{self.place}/{name}"):
                    self.storage.fetch(f"{self.place}/{name}", Path(folder, name))
            write_report(Path(folder), words_of_choice=examples)
            for name in (PAGE, PLOTS):
                self.storage.put(Path(folder, name), f"{self.place}/{name}")
