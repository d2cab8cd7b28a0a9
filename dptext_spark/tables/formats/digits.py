"""Numbers and times in files of text, and whether Spark's type for them has all their digits."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dptext_spark.tables.fields import Path

ROUNDED: Final = "rounded"
RESPELLED: Final = "respelled"
CUT: Final = "cut"
"""What becomes of a value: a double rounds it, a text respells it, a timestamp cuts its digits."""

_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    ROUNDED: (DoubleType, FloatType),
    RESPELLED: (StringType,),
    CUT: (TimestampType, TimestampNTZType),
}
_SHORT: Final = 15
"""Any integer of so few figures is a double."""
_BELOW_MICROSECONDS: Final = re.compile(r"\d[.,]\d{6}\d*[1-9]")
_WITHOUT_EXPONENT: Final = 1e-3, 1e7
"""Java writes doubles between these without an exponent, as Python does."""


@dataclass
class _Changed:
    """A number that some type of Spark's changes, and how."""

    kinds: list[str]


class JsonReader(json.JSONDecoder):
    """A decoder of JSON that notes numbers whose digits may be lost.

    Args:
        texts: Whether numbers of columns of texts count, which Spark 3.5 spells anew.
        times: Whether Spark takes some texts for timestamps.
    """

    def __init__(self, *, texts: bool, times: bool) -> None:
        super().__init__(parse_float=self._fraction, parse_int=self._integer)
        self._texts = texts
        self._times = times
        self._has_changed = False

    def read(self, text: str) -> tuple[Any, int]:
        """Decode the first value of a text; return it and where it ends."""
        self._has_changed = False
        return self.raw_decode(text)

    def changes(self, value: Any) -> Iterator[tuple[str, Path]]:
        """Yield what may change in the value that was read last: how, and the path to it."""
        if self._has_changed or self._times:
            records = value if isinstance(value, list) else [value]
            for record in records:
                yield from _changes(record, ())

    def _integer(self, number: str) -> Any:
        if len(number) <= _SHORT or not is_rounded(number):
            return 0
        self._has_changed = True
        return _Changed([ROUNDED])

    def _fraction(self, number: str) -> Any:
        kinds = []
        if is_rounded(number):
            kinds.append(ROUNDED)
        if self._texts and not _is_spelled_alike(number):
            kinds.append(RESPELLED)
        if not kinds:
            return 0.0
        self._has_changed = True
        return _Changed(kinds)


def _changes(value: Any, path: Path) -> Iterator[tuple[str, Path]]:
    match value:
        case _Changed():
            for kind in value.kinds:
                yield kind, path
        case str() if _BELOW_MICROSECONDS.search(value):
            yield CUT, path
        case dict():
            for name, inside in value.items():
                yield from _changes(inside, (*path, name))
        case list():
            for inside in value:
                yield from _changes(inside, (*path, None))


def is_rounded(number: str) -> bool:
    """Return whether a double, written out, is another number than this one, or this is none."""
    try:
        value = float(number)
        return math.isinf(value) or Decimal(repr(value)) != Decimal(number)
    except (ValueError, InvalidOperation):
        return True


def _is_spelled_alike(number: str) -> bool:
    """Return whether Java writes this number as it is, when it has read it as a double."""
    value = float(number)
    low, high = _WITHOUT_EXPONENT
    return repr(value) == number and (value == 0 or low <= abs(value) < high)


def changed_fields(schema: StructType, changes: Iterable[tuple[str, Path]]) -> dict[Path, str]:
    """Return the fields of a schema whose type loses what was found at their paths, and how."""
    fields: dict[Path, str] = {}
    for kind, path in changes:
        field = _field(schema, path, _TYPES[kind])
        if field is not None:
            fields.setdefault(_without_elements(field), kind)
    return fields


def _without_elements(path: Path) -> Path:
    """Return the path to the array around what has no name of its own."""
    while path and path[-1] is None:
        path = path[:-1]
    return path


def fields_of(data_type: DataType, kind: str, path: Path = ()) -> Iterator[Path]:
    """Yield the paths to all fields of which a type may lose digits in this way."""
    if isinstance(data_type, _TYPES[kind]):
        yield _without_elements(path)
    elif isinstance(data_type, ArrayType):
        yield from fields_of(data_type.elementType, kind, (*path, None))
    elif isinstance(data_type, StructType):
        for field in data_type.fields:
            yield from fields_of(field.dataType, kind, (*path, field.name))


def _field(data_type: DataType, path: Path, types: tuple[type[DataType], ...]) -> Path | None:
    """Follow a path as far as a type has it; return the way to a field of one of these types."""
    if isinstance(data_type, types) and (not path or isinstance(data_type, StringType)):
        return ()
    if not path:
        return None
    step, *rest = path
    if step is None and isinstance(data_type, ArrayType):
        inside = data_type.elementType
    elif step is not None and isinstance(data_type, StructType) and step in data_type.names:
        inside = data_type[step].dataType
    else:
        return None
    inner_path = _field(inside, tuple(rest), types)
    if inner_path is None:
        return None
    return (step, *inner_path)


def field_name(path: Path) -> str:
    """Write a path as users do."""
    name = ""
    for step in path:
        name += "[]" if step is None else f".{step}"
    return name.removeprefix(".")


def text_changes(
    kinds: Collection[tuple[str, str]], spared: Collection[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that finds which columns of texts would change; it runs in Python workers.

    Args:
        kinds: Each column, and how its values may change.
        spared: Texts that are no numbers, such as ``NaN``.
    """
    checks: dict[str, Callable[[str], object]] = {
        ROUNDED: is_rounded,
        CUT: _BELOW_MICROSECONDS.search,
    }

    def changed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        changes = set()
        for batch in batches:
            for name, kind in kinds:
                if name in changes:
                    continue
                for text in batch.column(name).to_pylist():
                    if text is not None and text not in spared and checks[kind](text):
                        changes.add(name)
                        break
        yield pa.RecordBatch.from_pydict({"name": pa.array(sorted(changes), pa.string())})

    return changed
