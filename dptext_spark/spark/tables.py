"""Parquet in, Parquet out: the job around the sanitized frame."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from dptext_spark import errors
from dptext_spark.calibration import record
from dptext_spark.calibration.record import Excerpt
from dptext_spark.config import PrivatizeOptions, Release, TableOptions
from dptext_spark.errors import ConfigError, InputError, JobError
from dptext_spark.jvm import ensure_java
from dptext_spark.privatizer import COUNTERS
from dptext_spark.report import ColumnCounts, Report
from dptext_spark.spark.distribution import BundleFiles
from dptext_spark.spark.frames import Plan, TableColumns, check_ids, counter, quoted


class Storage:
    """Paths of any scheme that Hadoop knows, through its own file system."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def _at(self, path: str) -> tuple[Any, Any]:
        try:
            place = self._jvm.org.apache.hadoop.fs.Path(path)
            system = place.getFileSystem(self._conf)
            return system, system.makeQualified(place)
        except (Py4JJavaError, PySparkException) as error:
            raise ConfigError(
                f"The path {path} cannot be used",
                got=_condition(error),
                do="Correct it, or give Spark the library for its scheme (spark-submit --packages)",
            ) from None

    def exists(self, path: str) -> bool:
        """Say whether anything is at ``path``."""
        system, place = self._at(path)
        return bool(system.exists(place))

    def qualified(self, path: str) -> str:
        """Give the full path with scheme."""
        return str(self._at(path)[1].toString())

    def real(self, path: str) -> str:
        """Give the full path with symbolic links of local files followed: one place has one such path."""
        uri = self._at(path)[1].toUri()
        return f"file:{os.path.realpath(uri.getPath())}" if uri.getScheme() == "file" else str(uri.toString())

    def matches(self, pattern: str) -> list[str]:
        """Give the paths that a path or pattern stands for; itself where nothing is there."""
        system, place = self._at(pattern)
        return [str(status.getPath().toString()) for status in system.globStatus(place) or ()] or [pattern]

    def url_path(self, path: str) -> str:
        """Give the URL-encoded path without scheme and host."""
        return str(self._at(path)[1].toUri().getRawPath())

    def is_file(self, path: str) -> bool:
        """Say whether ``path`` is a file."""
        system, place = self._at(path)
        return bool(system.exists(place) and system.getFileStatus(place).isFile())

    def delete(self, path: str) -> None:
        """Remove a file or a folder with all that is in it."""
        system, place = self._at(path)
        system.delete(place, True)

    def make_folder(self, path: str) -> None:
        """Make a folder, and those above it, unless it is there."""
        system, place = self._at(path)
        system.mkdirs(place)

    def rename(self, source: str, target: str) -> None:
        """Rename; the target must not exist.

        Raises:
            JobError: The file system refused.
        """
        system, place = self._at(source)
        _, goal = self._at(target)
        if system.exists(goal) or not system.rename(place, goal):
            raise JobError(
                f"{source} could not be renamed to {target}", do="See whether another run wrote it"
            )

    def read(self, path: str) -> str:
        """Read a text file.

        Raises:
            ConfigError: There is none, or it is no text.
        """
        system, place = self._at(path)
        try:
            stream = system.open(place)
            try:
                return bytes(stream.readAllBytes()).decode()
            finally:
                stream.close()
        except (Py4JJavaError, PySparkException, UnicodeDecodeError) as error:
            raise ConfigError(f"The file {path} cannot be read", got=_condition(error)) from None

    def write(self, path: str, text: str) -> None:
        """Write a file, replacing what is there."""
        system, place = self._at(path)
        # A local file system would put a hidden checksum beside it, which an edited report contradicts.
        system.setWriteChecksum(False)
        try:
            stream = system.create(place, True)
            stream.write(bytearray(text.encode()))
            stream.close()
        finally:
            system.setWriteChecksum(True)


def session(app: str) -> SparkSession:
    """Get the session of spark-submit, or start one on this machine's cores.

    Raises:
        ConfigError: There is no Java runtime.
    """
    builder = SparkSession.builder.appName(app)
    if "PYSPARK_GATEWAY_PORT" not in os.environ and SparkSession.getActiveSession() is None:
        ensure_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        for name, value in _LOCAL_SETTINGS.items():
            builder = builder.config(name, value)
    return builder.getOrCreate()


_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_LOCAL_SETTINGS: Final = {
    # Four attempts for each task: with fewer, a worker process that dies takes the job with it.
    "spark.master": "local[*,4]",
    # Perturbing costs far more than reading: small partitions keep all cores busy to the end.
    "spark.sql.files.minPartitionNum": str(8 * (os.cpu_count() or 1)),
    # Spark's 200 suit a cluster; cached tables keep that many partitions however small they are.
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "true",
    "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={_LOGGING}"',
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run over a table: what is read, where it goes, and what names the rows.

    Attributes:
        options: The run's options.
        storage: Where its paths lie.
        df: The input.
        row_id: Column expression that names the rows.
        row_id_words: The same in words.
    """

    options: TableOptions
    storage: Storage
    df: DataFrame
    row_id: Column
    row_id_words: str

    @classmethod
    def open(cls, app: str, options: TableOptions, columns: TableColumns, slots: str | None = None) -> Job:
        """Start Spark and check paths and columns; no row is read.

        Raises:
            DptextError: Options or input are wrong.
        """
        spark = session(app)
        storage = Storage(spark)
        with plain_errors("The paths of input, output or report could not be looked up"):
            _check_output(storage, options)
        df = _read(spark, options.input)
        columns.check(df, slots)
        row_id, row_id_words = _row_id(storage, df, options)
        return cls(options=options, storage=storage, df=df, row_id=row_id, row_id_words=row_id_words)

    @property
    def checked_id(self) -> str | None:
        """The id column that is to be checked, if any."""
        return None if self.options.trust_id else self.options.id

    def write(self, result: DataFrame) -> None:
        """Write the output; what is under its name is always whole.

        Raises:
            JobError: Spark or the file system failed.
        """
        _write(self.storage, result, self.options)

    def write_beside(self, what: str, path: str, text: str) -> None:
        """Write a file that belongs to the output, which is there already.

        Raises:
            JobError: It cannot be written.
        """
        with plain_errors(f"The output was written, but its {what} could not be"):
            self.storage.write(path, text)


def run_privatize(options: PrivatizeOptions) -> Report:
    """Run ``dptext privatize``: check, read once, write once, report.

    The table appears under its name when it is complete, and not at all if the run fails.

    Returns:
        The report, which lies beside the output too (unless it is a dry run).

    Raises:
        DptextError: Options or input are wrong (before any data is read), or the job failed.
    """
    release = Release(options)
    slots = release.policy.slots_column
    columns = TableColumns(text=options.text, tokens=options.tokens, keep=options.keep, id=options.id)
    job = Job.open("dptext privatize", options, columns, slots)
    report = Report(
        calibration=_calibration(job.storage, options, release),
        options=options.to_json(),
        guarantee=release.guarantee,
        policy=release.policy,
        embedding=release.embedding,
        release_words=release.release_words,
        row_id=job.row_id_words,
        kept=options.keep,
        columns={},
    )
    with plain_errors():
        if job.checked_id is not None:
            check_ids(job.df, job.checked_id)
        if options.dry_run:
            return report
        plan = Plan(
            bundle=BundleFiles.send(job.df.sparkSession, release.embedding),
            mechanism=release.mechanism,
            noise=release.noise,
            policy=release.policy,
            release_words=release.release_words,
        )
        observation = Observation("dptext")
        job.write(columns.sanitize(job.df, plan, job.row_id, slots=slots, observation=observation))
    found = observation.get
    counts = column_counts(columns.sanitized, COUNTERS, found)
    report = replace(
        report, rows=found["rows"], columns={name: ColumnCounts(**c) for name, c in counts.items()}
    )
    job.write_beside("report", options.report_path, report.to_json())
    return report


def _calibration(storage: Storage, options: PrivatizeOptions, release: Release) -> Excerpt | None:
    if options.calibration is None:
        return None
    return Excerpt.of(
        options.calibration,
        record.read(options.calibration, storage.read),
        embedding=release.embedding,
        mechanism=release.mechanism,
        release_words=release.release_words,
    )


def column_counts(
    columns: Iterable[str], counters: Iterable[str], found: Mapping[str, Any]
) -> dict[str, dict[str, int]]:
    """Sort the observed sums by column and counter."""
    # The sum over no rows is null.
    return {name: {c: found[counter(name, c)] or 0 for c in counters} for name in columns}


def _check_output(storage: Storage, options: TableOptions) -> None:
    places = [("Input", "--input", options.input), ("Output", "--output", options.output), *options.files]
    for (other, _, source), (what, option, target) in combinations(places, 2):
        _check_apart(storage, f"{what} and {other.lower()}", option, source, target)
    for what, option, path in options.files:
        if not options.overwrite and storage.exists(path):
            raise ConfigError(
                f"The {what.lower()} {path} exists",
                do=f"Choose another place with {option}, or replace it with --overwrite",
            )
    if not storage.exists(options.output):
        return
    if not options.overwrite:
        raise ConfigError(
            f"The output {options.output} exists",
            do="Choose another --output, or replace it with --overwrite",
        )
    if not storage.exists(f"{options.output}/_SUCCESS"):
        raise ConfigError(
            f"The output {options.output} is not a table that a finished job wrote",
            allowed="with --overwrite, a folder with a _SUCCESS file",
            do="Remove it by hand if it may go",
        )


def _check_apart(storage: Storage, what: str, option: str, source: str, target: str) -> None:
    goal = storage.real(target)
    for place in map(storage.real, storage.matches(source)):
        if f"{place}/".startswith(f"{goal}/") or f"{goal}/".startswith(f"{place}/"):
            raise ConfigError(
                f"{what} lie inside one another", got=f"{place} and {goal}", do=f"Choose another {option}"
            )


def _read(spark: SparkSession, path: str) -> DataFrame:
    try:
        df = spark.read.parquet(path)
        _check_complete(df, path)
        return df
    except AnalysisException as error:
        raise InputError(
            f"The input {path} cannot be read as a table",
            allowed="a Parquet file, or a folder of Parquet files",
            got=str(error.getCondition()),
        ) from None
    except (PySparkException, Py4JJavaError) as error:
        raise InputError(
            f"The input {path} is not Parquet, or is damaged",
            allowed="a Parquet file, or a folder of Parquet files",
            got=_condition(error),
        ) from None


def _check_complete(df: DataFrame, path: str) -> None:
    """Refuse a folder of which Spark would leave files out without a word."""
    everything = df.sparkSession.read.option("recursiveFileLookup", "true").schema(df.schema).parquet(path)
    if unread := set(everything.inputFiles()).difference(df.inputFiles()):
        raise InputError(
            f"The input {path} has files in subfolders that are not part of the table",
            allowed="files in the folder itself, or in subfolders named COLUMN=VALUE, not both",
            got=f"{len(unread)} more files",
            do="Give each folder to a run of its own, or name the subfolders so",
        )


def _row_id(storage: Storage, df: DataFrame, options: TableOptions) -> tuple[Column, str]:
    if options.id is not None:
        return quoted(options.id), f"Rows are named by column {options.id}."
    root = storage.url_path(options.input)
    if storage.is_file(options.input):
        root = root.rpartition("/")[0]
    prefix = re.escape(root)
    files = df.inputFiles()
    if not all(re.match(rf"[^/]*:(//[^/]*)?{prefix}/", file) for file in files):
        raise ConfigError(
            "Rows cannot be named by file and position under this --input",
            allowed="a file or a folder",
            got=options.input,
            do="Name the rows with --id, or give the folder",
        )
    metadata = df.metadataColumn("_metadata")  # unlike a name it cannot mean a column of the table
    path = F.regexp_replace(metadata["file_path"], rf"^[^/]*:(//[^/]*)?{prefix}/", "")
    return (
        F.concat_ws("\n", metadata["row_index"].cast("string"), path),
        "Rows are named by their file's path below the input and their position in it: a copy of the "
        "table in other files gets other noise. Name them by a column with --id where there is one.",
    )


def _write(storage: Storage, result: DataFrame, options: TableOptions) -> None:
    """Write beside the output, then rename: what is under the output's name is always whole."""
    parent, _, name = storage.qualified(options.output).rpartition("/")
    run = result.sparkSession.sparkContext.applicationId
    making, old = f"{parent}/.{name}.{run}.part", f"{parent}/.{name}.{run}.old"
    try:
        result.write.mode("overwrite").parquet(making)
        replaced = options.overwrite and storage.exists(options.output)
        if replaced:
            storage.rename(options.output, old)
        try:
            storage.rename(making, options.output)
        except BaseException:
            if replaced:
                storage.rename(old, options.output)
            raise
        storage.delete(old)
    finally:
        storage.delete(making)


@contextmanager
def plain_errors(what: str = "The Spark job failed and no output was written") -> Iterator[None]:
    """Turn Spark's exceptions into this package's; worker errors come through in one line."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = re.search(r"dptext_spark\.errors\.(\w+): (.+)", str(error))
        if found:
            raise getattr(errors, found[1], JobError)(found[2].rstrip(".")) from None
        raise JobError(what, got=_condition(error), do="See Spark's log") from None


def _condition(error: Exception) -> str:
    """Name a Spark error without its text, which can quote data."""
    if isinstance(error, PySparkException) and (condition := error.getCondition()):
        return str(condition)
    # Only where Spark itself puts it: brackets further on may be a row's.
    if found := re.match(r"[^\n]*\n: [\w.]+: \[([A-Z_0-9.]+)\] ", str(error)):
        return found[1]
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getClass().getName())
    return type(error).__name__
