"""What was done to the rows of a column: a counter is an array with a number for each row, or their sum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

CountT = TypeVar("CountT", NDArray[np.int64], int)


@dataclass(frozen=True, kw_only=True)
class Counts(Generic[CountT]):
    """Counters of one kind of release, the fields of a subclass: int64 (rows,) each, or int.

    The first of ``shown`` less the second is the number of a row's words, if it has any.
    """

    shown: ClassVar[tuple[str, str] | None] = None

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Name the counters."""
        return tuple(field.name for field in fields(cls))

    @classmethod
    def zeros(cls, rows: int) -> Self:
        """Give counters of rows to which nothing was done."""
        return cls(**{name: np.zeros(rows, dtype=np.int64) for name in cls.names()})

    @classmethod
    def concat(cls, parts: Iterable[Self]) -> Self:
        """Put the counters of parts of a column together; without parts there are no rows."""
        counted = [cls.zeros(0), *parts]
        return cls(**{name: np.concatenate([getattr(p, name) for p in counted]) for name in cls.names()})
