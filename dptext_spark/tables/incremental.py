"""A table that grows: files that are new since the last run are added to the output, exactly once.

Spark's Structured Streaming knows which files were taken: it writes down the files of a batch
before the batch runs, and after a crash it gives the same batch again. The files that a batch adds
bear its number, so what a crash left of it is found and removed; once its counts are written the
batch is not run again. The output is a plain Parquet folder: no reader has to know of any of this.

The checkpoint holds ``dptext.json``, what the release is made of; ``batches/N.json``, the counts of
batch N, which say that the batch is in the output; ``sizes/N.json``, the sizes of files that are in
it, by digests of their paths; and ``stream/``, Spark's own account of files, their modification
times, and batches.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.bars import progress
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.noise import NoiseKey
from dptext_spark.options import PrivatizeOptions
from dptext_spark.release import Release
from dptext_spark.spark.failures import spark_errors
from dptext_spark.tables.columns import LONGEST, MEDIAN, Worker
from dptext_spark.tables.formats.files import FileFormat
from dptext_spark.tables.formats.format import Format
from dptext_spark.tables.formats.parquet import Parquet
from dptext_spark.tables.partitioning import POSITION, Partitioning
from dptext_spark.tables.storage import LocalFiles, file_url, spark_log
from dptext_spark.tables.table import Entered, Table

# Options that change neither which words come out nor where; the bundle counts by its fingerprint,
# and what passes through by its columns.
_FREE: Final = {
    *(
        "budget",
        "changed-files",
        "count-unique",
        "dry-run",
        "embedding",
        "epsilon-from-private-rows",
    ),
    *("except", "format"),
    *("incremental", "ledger", "mode", "new-text", "output-format", "read-option", "reports"),
    "write-option",
}
_FREE_PAIRS: Final = ("compression=", "maxfilespertrigger=")
CUT_OFF: Final = (
    "The Spark job failed; the output has the batches before, and the same command goes on"
)
_RECORD: Final = "dptext.json"
_COUNTS: Final = "batches/*.json"
_SIZES: Final = "sizes/*.json"
_SHOWN: Final = 3


class GrowingTable(Table):
    """A table to whose output each run adds the files that are new."""

    options: PrivatizeOptions
    written: FileFormat
    grows = True

    @classmethod
    def check_output(
        cls, storage: LocalFiles, options: Any, written: Format, spark: SparkSession | None = None
    ) -> None:
        """Refuse an output that is not the checkpoint's."""
        path = str(options.incremental).rstrip("/")
        if not storage.exists(f"{path}/{_RECORD}"):
            super().check_output(storage, options, written, spark)
        elif storage.below(path, _COUNTS) and not storage.exists(options.output):
            raise ConfigError(
                f"The output {options.output}, to which new files are to be added, is gone",
                do=f"Bring it back, or remove the checkpoint {path} as well to begin anew",
            )

    def claim(self, release: Release, key: NoiseKey) -> None:
        """Check that the checkpoint is of this release; a new one becomes so, unless it is a dry run."""
        options, seal = self.options, key.seal
        formats = {
            "format": options.format,
            "output-format": options.output_format or options.format,
        }
        for name, pairs in {
            "read-option": options.read_option,
            "write-option": options.write_option,
        }.items():
            formats[name] = "\n".join(
                pair for pair in pairs if not pair.lower().startswith(_FREE_PAIRS)
            )
        identity = {
            **{name: value for name, value in options.to_json().items() if name not in _FREE},
            "input": self.storage.real(options.input),
            "output": self.storage.real(options.output),
            # Keyed hashes: they reveal nothing without the key.
            "key": seal(""),
            "where": seal(options.where or ""),
            "bundle": release.embedding.fingerprint,
            "layout": release.policy.layout.identity,
            "tokenizer": release.policy.tokenizer.identity or str(options.tokenizer),
            "identifiers": release.policy.marks_identity,
            "release-words": release.search.release_words,
            "row-epsilons": release.row_epsilons and release.row_epsilons.identity,
            **release.search.options,
            "columns": self.columns.schema(self.source.df.schema).jsonValue(),
            # Parquet goes without saying.
            **{
                name: seal(value)
                for name, value in formats.items()
                if value not in ("", Parquet.name)
            },
        }
        self.source.stream()  # or refuse the input
        record, identity = f"{self._checkpoint}/{_RECORD}", json.loads(json.dumps(identity))
        if self.storage.exists(record):
            known = json.loads(self.storage.read(record))
            if other := sorted(n for n in {*known, *identity} if known.get(n) != identity.get(n)):
                raise ConfigError(
                    f"The checkpoint {self._checkpoint} is of a release with other options, key, bundle or "
                    "columns",
                    got=", ".join(other),
                    do="Go on with those it began with, or choose another --incremental and --output",
                )
            self._check_added_files()
        elif not options.dry_run:
            self._note(record, identity)

    def _note(self, path: str, value: dict[str, Any]) -> None:
        """Write a file that is there whole or not at all."""
        self.storage.write(f"{path}.part", json.dumps(value, indent=2) + "\n", private=True)
        self.storage.rename(f"{path}.part", path)

    def sanitize(
        self, worker: Worker, partitioning: Partitioning, entered: Entered = nullcontext
    ) -> Mapping[str, Any]:
        """Add what is new to the output, batch by batch; ``entered`` is called with each.

        Returns:
            The sums of all batches so far, as an observation has them, and ``added_rows``, those of
            this run.
        """
        recheck = lru_cache(self.source.recheck)  # once: a run knows its files when it begins

        @spark_errors(CUT_OFF)  # of what a batch meets the query's own error has the text alone
        def add(rows: DataFrame, number: int) -> None:
            noted = f"{self._checkpoint}/batches/{number:06d}.json"
            if self.storage.exists(noted):  # the run before was cut off just after
                return
            recheck()
            batch = rows.drop(*POSITION)
            if partitioning.sample is not None:
                partitioning.sample(batch)
            result, observation = self.released_rows(rows, worker, partitioning)
            name, folders = f"batch-{number:06d}", "*/" * len(self.written.partitions)
            with entered(batch):
                # What a run that was cut off left of this batch.
                for path in self.storage.below(self.options.output, f"{folders}*{name}-*"):
                    self.storage.delete(path)
                self.written.add_files(result, name)
                counts = {
                    name: count or 0 for name, count in observation.get.items() if name != MEDIAN
                }
                self._note(noted, counts)

        with self.storage.locked(
            f"{self._checkpoint}/lock", "Another run works with this checkpoint"
        ):
            before = self.storage.below(self._checkpoint, _COUNTS)
            rows = replace(self, source=self.source.stream()).rows
            query = rows.writeStream.foreachBatch(add)
            query.option("checkpointLocation", f"{self._checkpoint}/stream")
            with progress(rows.sparkSession, "Sanitizing"):
                query.trigger(availableNow=True).start().awaitTermination()
            self._note_sizes()
            paths = self.storage.below(self._checkpoint, _COUNTS)
            after = {path: json.loads(self.storage.read(path)) for path in paths}
        sums = Counter({"rows": 0, "added_rows": 0})
        longest = max((counts.pop(LONGEST, 0) for counts in after.values()), default=0)
        for path, counts in after.items():
            sums.update(counts)
            sums["added_rows"] += 0 if path in before else counts["rows"]
        return {**sums, LONGEST: longest}

    def _check_added_files(self) -> None:
        """Refuse, or warn of, files that are in the output and that have changed since, or are gone."""
        added = self._added_files()
        if not added:
            return
        files = self._files()
        sizes = self._sizes()
        faults = {"gone": sorted(added.keys() - files.keys()), "changed": list[str]()}
        for path in sorted(added.keys() & files.keys()):
            changed, size = files[path]
            if changed != added[path] or size != sizes.get(_digest(path), size):
                faults["changed"].append(path)
        got = "; ".join(_named(kind, paths) for kind, paths in faults.items() if paths)
        if not got:
            return
        what = "Files that earlier runs added to the output have changed since, or are gone"
        if self.options.changed_files == "warn":
            click.echo(
                f"Warning, for those who run the job: {what}: {got}. The output keeps their earlier rows.",
                err=True,
            )
            return
        raise InputError(
            what,
            got=got,
            do="Bring them back as they were; or keep their earlier rows in the output with --changed-files "
            "warn; or release all files anew with another --incremental and --output, which costs ε again "
            "for rows that changed",
        )

    def _added_files(self) -> dict[str, int]:
        """Return, by path, the modification times in milliseconds of files that are in the output."""
        batches = self.storage.below(self._checkpoint, _COUNTS)
        if not batches:
            return {}
        last = int(max(batches).rpartition("/")[2].partition(".")[0])
        *_, offset = self.storage.read(f"{self._checkpoint}/stream/offsets/{last}").splitlines()
        taken = json.loads(offset)["logOffset"]
        entries = spark_log(self.storage, f"{self._checkpoint}/stream/sources/0")
        done = [entry for entry in entries if entry["batchId"] <= taken]
        return {file_url(unquote(entry["path"])): entry["timestamp"] for entry in done}

    def _files(self) -> dict[str, tuple[int, int]]:
        """Return, by path, the modification time in milliseconds and the size of all files of the input."""
        if self.source.list_files is None:
            return {}
        rows = (
            self.source.list_files()
            .select("path", F.unix_millis("modificationTime"), "length")
            .collect()
        )
        return {file_url(path): (changed, size) for path, changed, size in rows}

    def _sizes(self) -> dict[str, int]:
        """Return, by digest of the path, the sizes that files had when they were added and noted."""
        sizes = dict[str, int]()
        for path in self.storage.below(self._checkpoint, _SIZES):
            sizes.update(json.loads(self.storage.read(path)))
        return sizes

    def _note_sizes(self) -> None:
        """Write down the sizes of files that were added since the last time, and have not changed."""
        added = self._added_files()
        noted = self._sizes()
        new = [path for path in sorted(added) if _digest(path) not in noted]
        if not new:
            return
        files = self._files()
        sizes = dict[str, int]()
        for path in new:
            changed, size = files.get(path, (None, 0))
            if changed == added[path]:
                sizes[_digest(path)] = size
        number = len(self.storage.below(self._checkpoint, _SIZES))
        self._note(f"{self._checkpoint}/sizes/{number:06d}.json", sizes)

    @property
    def _checkpoint(self) -> str:
        return str(self.options.incremental).rstrip("/")


def _digest(path: str) -> str:
    """Return the digest of a path: folders of a partitioned table are named by values of its rows."""
    return hashlib.sha256(path.encode()).hexdigest()


def _named(kind: str, paths: Sequence[str]) -> str:
    """Count paths of a kind, and show the first."""
    shown = ", ".join(path.removeprefix("file:") for path in paths[:_SHOWN])
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return f"{kind}: {shown}{more}"
