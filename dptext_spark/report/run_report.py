"""The report of a run: one dict of facts, and the sentences beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dptext_spark.errors import ConfigError, DptextError
from dptext_spark.report.facts import written


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """The report of one run of a command.

    Attributes:
        facts: JSON-ready values.
        text: The same in plain words, lines.
        failure: With what the command ends when its report was shown and written; None for success.
    """

    facts: Mapping[str, Any]
    text: str
    failure: DptextError | None = None

    def to_json(self) -> str:
        """Write the facts as JSON text."""
        return written(self.facts)

    def describe(self) -> str:
        """Give the plain words."""
        return self.text

    def finish(self, path: Path | None) -> None:
        """Write the report as JSON, where a path is given, and end with its failure.

        Raises:
            DptextError: The report cannot be written, or the failure.
        """
        if path is not None:
            try:
                path.write_text(self.to_json(), encoding="utf-8")
            except OSError as error:
                raise ConfigError(f"The report {path} cannot be written", got=str(error.strerror)) from None
        if self.failure is not None:
            raise self.failure
