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

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, Final, cast

import click
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dptext_spark.bars import progress
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.noise import NoiseKey
from dptext_spark.options import PrivatizeOptions
from dptext_spark.release import Release
from dptext_spark.spark.failures import spark_errors
from dptext_spark.tables.checkpoint import Checkpoint, digest
from dptext_spark.tables.columns import LONGEST, MEDIAN, Worker
from dptext_spark.tables.formats.files import FileFormat
from dptext_spark.tables.formats.parquet import Parquet
from dptext_spark.tables.partitioning import POSITION, Partitioning
from dptext_spark.tables.run import TableRun
from dptext_spark.tables.storage import LocalFiles, file_url, warn_of_others
from dptext_spark.tables.table import Reservation, Table

# Options that change neither which words come out nor where; the bundle counts by its fingerprint,
# and what passes through by its columns.
_FREE: Final = frozenset({
    *("budget", "changed-files", "count-unique", "dry-run", "embedding"),
    *("epsilon-from-private-rows", "except", "format", "incremental", "ledger", "mode"),
    *("new-text", "output-format", "read-option", "reports", "write-option"),
})  # fmt: skip
_FREE_PAIRS: Final = ("compression=", "maxfilespertrigger=")
CUT_OFF: Final = (
    "The Spark job failed; the output has the batches before, and the same command goes on"
)
_SHOWN: Final = 3


class GrowingTable(Table):
    """A table to whose output each run adds the files that are new."""

    options: PrivatizeOptions
    grows = True

    @property
    def storage(self) -> LocalFiles:
        """The files of output and checkpoint."""
        return self.output.storage

    def claim(self, release: Release, key: NoiseKey) -> None:
        """Check that the checkpoint is of this release; outside dry runs a new one becomes so."""
        _ = self.input.streamed()  # or refuse the input
        checkpoint = self._checkpoint
        warn_of_others("the checkpoint", checkpoint.path)
        identity = json.loads(json.dumps(self._identity(release, key)))
        if not self.storage.exists(checkpoint.record):
            if not self.options.dry_run:
                checkpoint.note(checkpoint.record, identity)
            return
        earlier = checkpoint.identity()
        names = sorted({*earlier, *identity})
        changed = [name for name in names if earlier.get(name) != identity.get(name)]
        if changed:
            raise ConfigError(
                f"The checkpoint {checkpoint.path} is of a release with other options, key, "
                "bundle or columns",
                got=", ".join(changed),
                do="Go on with those it began with, or choose another --incremental and --output",
            )
        self._check_added_files()

    def _identity(self, release: Release, key: NoiseKey) -> dict[str, Any]:
        """Return what must be the same in all runs with one checkpoint."""
        options = self.options
        policy = release.policy
        identity = {name: value for name, value in options.to_json().items() if name not in _FREE}
        tokenizer = policy.tokenizer.identity or str(options.tokenizer)
        where = options.where or ""
        identity |= {
            "input": self.storage.real(options.input),
            "output": self.storage.real(options.output),
            # Keyed hashes: they reveal nothing without the key.
            "key": key.seal(""),
            "where": key.seal(where),
            "bundle": release.embedding.fingerprint,
            "layout": policy.layout.identity,
            "tokenizer": tokenizer,
            "identifiers": policy.marks_identity,
        }
        identity |= {
            "release-words": release.search.release_words,
            "row-epsilons": release.row_epsilons and release.row_epsilons.identity,
            **release.search.options,
            "columns": self.columns.schema(self.input.source.df.schema).jsonValue(),
        }
        formats = {
            "format": options.format,
            "output-format": options.output_format or options.format,
            "read-option": _lines(options.read_option),
            "write-option": _lines(options.write_option),
        }
        for name, value in formats.items():
            if value not in ("", Parquet.name):  # which goes without saying
                identity[name] = key.seal(value)
        return identity

    def sanitize(
        self, worker: Worker, partitioning: Partitioning, reservation: Reservation = nullcontext
    ) -> Mapping[str, Any]:
        """Add what is new to the output, batch by batch; ``reservation`` is called with each.

        Returns:
            The sums of all batches so far, as an observation has them, and ``added_rows``, those of
            this run.
        """
        # Once: a run knows its files when it begins.
        recheck = lru_cache(self.input.source.recheck)
        checkpoint = self._checkpoint

        @spark_errors(CUT_OFF)  # of what a batch meets the query's own error has the text alone
        def add(rows: DataFrame, number: int) -> None:
            counts_path = checkpoint.counts_path(number)
            if self.storage.exists(counts_path):  # the run before was cut off just after
                return
            recheck()
            batch = rows.drop(*POSITION)
            if partitioning.sample is not None:
                partitioning.sample(batch)
            result, observation = self.released_rows(rows, worker, partitioning)
            with reservation(batch):
                self._add_files(result, f"batch-{number:06d}")
                counts = {name: count or 0 for name, count in observation.get.items()}
                counts.pop(MEDIAN, None)
                checkpoint.note(counts_path, counts)

        with self.storage.locked(checkpoint.lock, "Another run works with this checkpoint"):
            paths_before = checkpoint.counts_paths
            query = self.input.streamed().positioned_rows.writeStream.foreachBatch(add)
            query.option("checkpointLocation", checkpoint.stream)
            with progress(self.spark, "Sanitizing"):
                query.trigger(availableNow=True).start().awaitTermination()
            self._note_sizes()
            sums = Counter({"rows": 0, "added_rows": 0})
            longest = 0
            for path in checkpoint.counts_paths:
                counts = checkpoint.counts(path)
                longest = max(longest, counts.pop(LONGEST, 0))
                sums.update(counts)
                if path not in paths_before:
                    sums["added_rows"] += counts["rows"]
        return {**sums, LONGEST: longest}

    def _add_files(self, result: DataFrame, name: str) -> None:
        """Add a batch's files to the output, in place of those that a run left that was cut off."""
        written = cast(FileFormat, self.output.written)  # as no other format can grow
        folders = "*/" * len(written.partitions)
        for path in self.storage.below(self.options.output, f"{folders}*{name}-*"):
            self.storage.delete(path)
        written.add_files(result, name)

    def _check_added_files(self) -> None:
        """Refuse, or warn of, files of the output that have changed since, or are gone."""
        added = self._checkpoint.added_files()
        if not added:
            return
        files = self._files()
        sizes = self._checkpoint.sizes()
        faults = {"gone": sorted(added.keys() - files.keys()), "changed": list[str]()}
        for path in sorted(added.keys() & files.keys()):
            modified, size = files[path]
            if modified != added[path] or size != sizes.get(digest(path), size):
                faults["changed"].append(path)
        got = "; ".join(_named(kind, paths) for kind, paths in faults.items() if paths)
        if not got:
            return
        what = "Files that earlier runs added to the output have changed since, or are gone"
        if self.options.changed_files == "warn":
            warning = f"{what}: {got}. The output keeps their earlier rows."
            click.echo(f"Warning, for those who run the job: {warning}", err=True)
            return
        raise InputError(
            what,
            got=got,
            do="Bring them back as they were; or keep their earlier rows in the output with "
            "--changed-files warn; or release all files anew with another --incremental and "
            "--output, which costs ε again for rows that changed",
        )

    def _files(self) -> dict[str, tuple[int, int]]:
        """Return, by path, modification times in milliseconds and sizes of files of the input."""
        if self.input.source.list_files is None:
            return {}
        rows = (
            self.input.source.list_files()
            .select("path", F.unix_millis("modificationTime"), "length")
            .collect()
        )
        return {file_url(path): (changed, size) for path, changed, size in rows}

    def _note_sizes(self) -> None:
        """Write down the sizes of files that were added since the last time, if unchanged."""
        added = self._checkpoint.added_files()
        noted = self._checkpoint.sizes()
        new = [path for path in sorted(added) if digest(path) not in noted]
        if not new:
            return
        files = self._files()
        sizes = dict[str, int]()
        for path in new:
            changed, size = files.get(path, (None, 0))
            if changed == added[path]:
                sizes[digest(path)] = size
        self._checkpoint.note_sizes(sizes)

    @property
    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(path=_folder(self.options), storage=self.storage)


class GrowingRun(TableRun):
    """A run with ``--incremental``."""

    kind = GrowingTable
    options: PrivatizeOptions

    def check_free(self) -> None:
        """Refuse an output that is not the checkpoint's."""
        storage = self.places.storage
        checkpoint = Checkpoint(path=_folder(self.options), storage=storage)
        self.check_targets()
        if not storage.sees(checkpoint.path):
            return
        if not storage.exists(checkpoint.record):
            super().check_free()
            return
        output = self.options.output
        is_gone = storage.sees(output) and not storage.exists(output)
        if is_gone and checkpoint.counts_paths:
            raise ConfigError(
                f"The output {output}, to which new files are to be added, is gone",
                do=f"Restore it, or also remove the checkpoint {checkpoint.path} to start again",
            )


def _folder(options: PrivatizeOptions) -> str:
    return str(options.incremental).rstrip("/")


def _lines(pairs: Sequence[str]) -> str:
    """Return options of a reader or writer that decide which words come out or where."""
    return "\n".join(pair for pair in pairs if not pair.lower().startswith(_FREE_PAIRS))


def _named(kind: str, paths: Sequence[str]) -> str:
    """Count paths of a kind, and show the first."""
    names = ", ".join(path.removeprefix("file:") for path in paths[:_SHOWN])
    if len(paths) > _SHOWN:
        names += f" and {len(paths) - _SHOWN} more"
    return f"{kind}: {names}"
