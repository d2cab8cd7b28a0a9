"""What was done to the words of a frame, known after the first action on it."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Observation

from dptext_spark.errors import ConfigError
from dptext_spark.report.facts import describe_counts, token_counts
from dptext_spark.sanitizer import TokenCounts
from dptext_spark.tables.columns import column_counts
from dptext_spark.text.policies import TextPolicy


class ReleaseCounts:
    """Counts of one call of ``privatize(df, ..., counts=ReleaseCounts())``.

    The first action on its result fills them, and asking for them waits for it. They are of the rows that
    this action computed: of all after a write, of some after ``show()``. They are exact facts about the
    private rows, for those who run the job.

    Raises:
        ConfigError: The counts were given to no call, or to two; or no action has run.
    """

    def __init__(self) -> None:
        self._observation: Any = None
        self._columns: tuple[str, ...] = ()
        self._policy = TextPolicy()

    def observe(self, columns: tuple[str, ...], policy: TextPolicy) -> Observation:
        """Begin to count what is done to the words of these columns."""
        if self._observation is not None:
            raise ConfigError("These counts belong to another call", do="Give each call its own")
        self._columns, self._policy = columns, policy
        # Made here, as it is one of the session's kind: with a JVM or of Spark Connect.
        self._observation = observation = Observation("dptext")
        return observation

    @property
    def rows(self) -> int:
        """Rows that were sanitized."""
        return int(self._found()["rows"])

    @property
    def columns(self) -> dict[str, TokenCounts[int]]:
        """What was done to the words of each sanitized column, by its name."""
        return column_counts(self._columns, TokenCounts[int], self._found())

    def describe(self) -> str:
        """Say it in plain words, as the report of ``dptext privatize`` does."""
        oov = str(self._policy.oov)
        columns = {name: token_counts(counts, oov) for name, counts in self.columns.items()}
        return describe_counts(self.rows, columns)

    def __repr__(self) -> str:
        return f"ReleaseCounts(of {', '.join(self._columns) or 'nothing yet'})"

    def _found(self) -> dict[str, Any]:
        if self._observation is None:
            raise ConfigError("These counts belong to no release", do="Give them to privatize(df, ...)")
        if found := self._observation.get:
            return dict(found)
        raise ConfigError("Nothing is counted yet", do="Run an action on the result first, such as a write")
