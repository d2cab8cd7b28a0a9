"""A limit for a measured number, as a ``--target`` has it: ``MEASURE(ARGUMENTS) <= NUMBER``, or ``>=``."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final, Self, TypeAlias

from dptext_spark.errors import ConfigError

Meaning: TypeAlias = tuple[tuple[str, ...], str, float]
"""The arguments of a measure, written out, the sign of its limit, and the limit's ceiling."""

_FORM: Final = re.compile(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*(<=|>=)\s*(\S+)\s*")


@dataclass(frozen=True, kw_only=True)
class Limit(ABC):
    """A limit for a measured number, such as ``p95(n_w) <= 0.5`` or ``similarity >= 0.9``."""

    allowed: ClassVar[str]  # what a target may be, in words

    measure: str  # what is measured, such as ``p95``
    arguments: tuple[str, ...] = ()  # such as ``("n_w",)``
    upper: bool  # whether the limit is the most that is allowed; else it is the least
    limit: float  # above 0

    def __str__(self) -> str:
        inside = f"({', '.join(self.arguments)})" if self.arguments else ""
        return f"{self.measure}{inside} {'<=' if self.upper else '>='} {self.limit:g}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str`` writes, and its short forms.

        Raises:
            ConfigError: The text says something else, or the target has no meaning.
        """
        form = _FORM.fullmatch(text)
        measure, inside, sign, number = form.groups() if form else ("", None, "", "")
        arguments = () if inside is None else tuple(part.strip() for part in inside.split(","))
        try:
            limit = float(number)
        except ValueError:
            limit = math.nan
        meaning = cls.meaning(measure, arguments)
        if meaning is None or sign != meaning[1] or not 0.0 < limit < meaning[2]:
            raise ConfigError("The --target has a wrong value", allowed=cls.allowed, got=repr(text))
        return cls(measure=measure, arguments=meaning[0], upper=sign == "<=", limit=limit)

    @classmethod
    @abstractmethod
    def meaning(cls, measure: str, arguments: tuple[str, ...]) -> Meaning | None:
        """Give the meaning of a measure with these arguments; None where there is none."""

    def met(self, value: float) -> bool:
        """Say whether a number keeps to the limit; NaN does not."""
        return value <= self.limit if self.upper else value >= self.limit
