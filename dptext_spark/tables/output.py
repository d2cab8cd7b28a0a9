"""A table takes its name when it is whole, and from the one run that may give it.

Next to an output ``NAME`` lies, while a run writes it, the folder
``.NAME.APPLICATION-RANDOM.part``: in it ``claim``, without which the run publishes nothing;
``table``, what it writes; and for a moment ``old``, the table that it replaces. A killed run leaves
the folder, which looks like that of a run at work. So another run with the same output goes on only
if it was told to replace what is there; then it moves the folder away, and with it the claim of a
run that lives after all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

from pyspark.sql import SparkSession

from dptext_spark import interrupts
from dptext_spark.errors import ConfigError, JobError
from dptext_spark.spark.failures import FAILURES
from dptext_spark.spark.java import await_end_of_jvm, has_ended
from dptext_spark.tables.storage import LocalFiles, Storage, local_path

_ENDING: Final = ".part"


def check_unfinished(
    storage: LocalFiles, output: str, *, but: str = "", replace: str = "--mode overwrite"
) -> None:
    """Refuse an output whose folder a run has left, or is still writing, except for ``but``.

    ``replace`` is the option that takes over from such a run.
    """
    folders = _unfinished(storage, output, but)
    if folders:
        raise ConfigError(
            f"Another run is writing the output {output}, or was killed while it did",
            got=", ".join(folders),
            do=f"Wait until it has ended; if it has, replace what it left with {replace}",
        )


def write_whole(
    spark: SparkSession,
    output: str,
    write: Callable[[str], None],
    *,
    overwrite: bool,
    publish: Callable[[str], None] | None = None,
    replace: str = "--mode overwrite",
) -> None:
    """Write a table under a hidden name and rename it.

    Args:
        spark, output: Where it goes.
        write: Writes the table to the path that it is given.
        overwrite: Replace a table of that name, and take over from other runs with this output.
        publish: Called with the hidden name in place of renaming.
        replace: The option of the command that sets ``overwrite``.
    """
    with whole_table(spark, output, overwrite=overwrite, publish=publish, replace=replace) as table:
        write(table)


@contextmanager
def whole_table(
    spark: SparkSession,
    output: str,
    *,
    overwrite: bool,
    publish: Callable[[str], None] | None = None,
    replace: str = "--mode overwrite",
) -> Iterator[str]:
    """Yield the hidden path to write a table to; at the end rename it. See :func:`write_whole`."""
    storage = Storage(spark)
    place = storage.qualified(output)
    parent, _, name = place.rpartition("/")
    run = f"{spark.sparkContext.applicationId}-{uuid4().hex[:8]}"
    folder = f"{parent}/.{name}.{run}{_ENDING}"
    claim = f"{folder}/claim"
    table = f"{folder}/table"
    try:
        # The claim before the look at others: of two runs that begin at once one at least sees the
        # other.
        storage.write(claim, "")
        storage.delete_at_exit(folder)
        if overwrite:
            _take_over(storage, output, folder)
        else:
            check_unfinished(storage, output, but=folder, replace=replace)
        try:
            yield table
        except FAILURES:
            if not has_ended():
                _check_claim(storage, claim, output)
            raise
        _check_claim(storage, claim, output)
        # From here on the run cannot be undone: a signal waits until its report is there too.
        interrupts.hold_to_the_end()
        if publish is not None:
            publish(table)
            return
        if overwrite and storage.exists(output):
            storage.delete_at_exit(folder, keep=True)
            storage.rename(output, f"{folder}/old")
        storage.rename(table, output)
    finally:
        _clear(storage, folder, place)


def _take_over(storage: Storage, output: str, folder: str) -> None:
    """Move the folders of other runs with this output away, and with them their claims."""
    for other_folder in _unfinished(storage, output, folder):
        # It was killed after it had moved the old table away.
        if storage.exists(f"{other_folder}/old") and not storage.exists(output):
            storage.rename(f"{other_folder}/old", output)
        away = f"{folder}/{other_folder.rpartition('/')[2]}"
        storage.rename(other_folder, away)
        storage.delete(away)


def _unfinished(storage: LocalFiles, output: str, but: str) -> list[str]:
    """List the folders of other runs with this output."""
    parent, _, name = storage.qualified(output).rpartition("/")
    # No dots in the run's name: NAME.v2 is another output.
    pattern = re.compile(rf"\.{re.escape(name)}\.[^./]+{re.escape(_ENDING)}")
    paths = storage.children(parent)
    return [path for path in paths if path != but and pattern.fullmatch(path.rpartition("/")[2])]


def _check_claim(storage: Storage, claim: str, output: str) -> None:
    if storage.exists(claim):
        return
    if has_ended():
        raise ConnectionResetError  # at its end Spark's Java process removes the claim, too
    raise JobError(
        f"Another run took over the output {output}, and this one wrote nothing",
        do="Give one output to one run at a time",
    )


def _clear(storage: Storage, folder: str, output: str) -> None:
    """Remove a run's folder, and put back what it was to replace; if need be without a JVM."""
    try:
        if storage.exists(f"{folder}/table"):
            # Its tasks may still be at work, and would make the folder anew.
            storage.await_tasks()
        _remove(storage, folder, output)
    except FAILURES:
        await_end_of_jvm()
        if local_path(folder):
            _remove(LocalFiles(), folder, output)


def _remove(files: LocalFiles, folder: str, output: str) -> None:
    if files.exists(f"{folder}/old") and not files.exists(output):
        files.rename(f"{folder}/old", output)
    files.delete(folder)
