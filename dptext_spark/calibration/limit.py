"""The grammar of targets: a limit for a measured number, as an option writes it."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final, Self, TypeAlias

from dptext_spark.arguments import must_be
from dptext_spark.errors import ConfigError

Meaning: TypeAlias = tuple[tuple[str, ...], str, float]
"""The arguments of a measure, written out, the sign of its limit, and the limit's ceiling."""

_FORM: Final = re.compile(r"\s*(\w+)\s*(?:\((.*)\))?\s*(<=|>=)\s*(\S+)\s*")


@dataclass(frozen=True, kw_only=True)
class Limit(ABC):
    """A limit for a measured number, such as ``p95(n_w) <= 0.5`` or ``similarity >= 0.9``."""

    allowed: ClassVar[str]  # what a target may be, in words
    example: ClassVar[str]

    measure: str  # what is measured, such as ``p95``
    arguments: tuple[str, ...] = ()  # such as ``("n_w",)``
    upper: bool  # whether the limit is the most that is allowed; else it is the least
    limit: float  # above 0

    def __str__(self) -> str:
        inside = f"({', '.join(self.arguments)})" if self.arguments else ""
        sign = "<=" if self.upper else ">="
        return f"{self.measure}{inside} {sign} {self.limit:g}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str`` writes, and its short forms."""
        if not isinstance(text, str):
            raise must_be("target", f"text, such as {cls.example!r}", text)
        form = _FORM.fullmatch(text)
        if form is None:
            raise cls._refusal(text)
        measure, inside, sign, number = form.groups()
        written = () if inside is None else cls.arguments_of(measure, inside)
        meaning = cls.meaning(measure, written)
        if meaning is None:
            raise cls._refusal(text)
        arguments, allowed_sign, ceiling = meaning
        try:
            limit = float(number)
        except ValueError:
            raise cls._refusal(text) from None
        if sign != allowed_sign or math.isnan(limit):
            raise cls._refusal(text)
        is_upper = sign == "<="
        if not 0.0 < limit < ceiling:
            is_idle = limit >= ceiling if is_upper else limit <= 0.0
            verb = "fail" if is_idle else "meet"
            raise cls._refusal(text, do=f"No setting can {verb} this target: take another number")
        return cls(measure=measure, arguments=arguments, upper=is_upper, limit=limit)

    @classmethod
    def arguments_of(cls, measure: str, inside: str) -> tuple[str, ...]:
        """Return the arguments that are written between parentheses."""
        return tuple(part.strip() for part in inside.split(","))

    @classmethod
    @abstractmethod
    def meaning(cls, measure: str, arguments: tuple[str, ...]) -> Meaning | None:
        """Return the meaning of a measure with these arguments; None where there is none."""

    def met(self, value: float) -> bool:
        """Return whether a number keeps to the limit; NaN does not."""
        if self.upper:
            return value <= self.limit
        return value >= self.limit

    @classmethod
    def _refusal(cls, text: str, do: str = "") -> ConfigError:
        return ConfigError(
            "The --target has a wrong value", allowed=cls.allowed, got=repr(text), do=do
        )
