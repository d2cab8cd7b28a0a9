"""Fields of a table by name: columns, and what lies inside them.

A field inside a column is named by its path: ``payload.message`` in a struct, ``turns[].text`` in
every element of an array.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

Path: TypeAlias = tuple[str | None, ...]
"""Steps to a field: a struct's field by name; None, written ``[]``, for an array's elements."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """A column, or a field inside one, as the user names it; its path begins with the column."""

    name: str
    path: Path
    data_type: DataType

    @classmethod
    def find(cls, schema: StructType, name: str) -> list[Field]:
        """Read a name in every way that the table allows: names may have dots and brackets."""
        kinds = dict(_paths(schema, f".{name}"))
        return [cls(name=name, path=path, data_type=kind) for path, kind in kinds.items()]

    @property
    def column(self) -> Column:
        """The field as a column expression; there is none through an array."""
        first, *rest = [step for step in self.path if step is not None]
        return reduce(Column.getField, rest, quoted(first))

    @property
    def arrays(self) -> Path:
        """The path to the elements of the innermost array around the field; empty without one."""
        path = self.path
        while path and path[-1] is not None:
            path = path[:-1]
        return path

    def holds(self, other: Field) -> bool:
        """Return whether the other one is this one, or lies inside."""
        return other.path[: len(self.path)] == self.path

    def is_repeated(self, around: Any, exact: bool) -> bool:
        """Return whether a struct on the way has another field of that name.

        Names count in any capitals unless ``exact``.
        """
        form = str if exact else str.lower
        for step in self.path:
            if step is None:
                around = around.elementType
            elif [*map(form, around.names)].count(form(step)) > 1:
                return True
            else:
                around = around[step].dataType
        return False


def _paths(data_type: DataType, name: str) -> Iterator[tuple[Path, DataType]]:
    """Yield every way from here to what is left of a name, and the type there."""
    if not name:
        yield (), data_type
    elif isinstance(data_type, ArrayType):
        if name.startswith("[]"):
            for rest, kind in _paths(data_type.elementType, name[2:]):
                yield (None, *rest), kind
    elif isinstance(data_type, StructType):
        for field in data_type.fields:
            if name.startswith(f".{field.name}"):
                for rest, kind in _paths(field.dataType, name[1 + len(field.name) :]):
                    yield (field.name, *rest), kind


def field_names(data_type: DataType, name: str = "") -> Iterator[str]:
    """Name all fields that have no fields themselves, in the table's order."""
    if isinstance(data_type, StructType):
        for field in data_type.fields:
            yield from field_names(field.dataType, _inside(name, field))
    elif isinstance(data_type, ArrayType) and isinstance(
        data_type.elementType, ArrayType | StructType
    ):
        yield from field_names(data_type.elementType, f"{name}[]")
    else:
        yield name


def _inside(name: str, field: StructField) -> str:
    return f"{name}.{field.name}" if name else str(field.name)


def _after(paths: Collection[Path], step: str | None) -> list[Path]:
    """Return what follows a step, of those paths that begin with it; the empty path has all."""
    if () in paths:
        return [()]
    return [path[1:] for path in paths if path[0] == step]


def bare(data_type: Any, paths: Collection[Path] = ((),)) -> Any:
    """Leave in a type what some path leads to, by default all, and what is around it; no metadata.

    Names, nullability and collations stay. Metadata may quote rows, as comments do and the labels
    of a ``StringIndexer``, and Spark writes it into footers, logs and catalogs. ``char`` and
    ``varchar`` become
    strings: mapInArrow refuses them.
    """
    match data_type:
        case StructType():
            fields = []
            for field in data_type.fields:
                below = _after(paths, field.name)
                if below:
                    kind = bare(field.dataType, below)
                    fields.append(StructField(field.name, kind, field.nullable))
            return StructType(fields)
        case ArrayType():
            element = bare(data_type.elementType, _after(paths, None))
            return ArrayType(element, data_type.containsNull)
        case MapType():
            key = bare(data_type.keyType)
            value = bare(data_type.valueType)
            return MapType(key, value, data_type.valueContainsNull)
        case CharType() | VarcharType():
            return StringType()
    return data_type


def beside(data_type: Any, taken: Collection[Path], name: str = "") -> Iterator[str]:
    """Name the largest fields of a type, or itself, next to those taken."""
    if not taken:
        yield name
    elif () in taken:
        return
    elif isinstance(data_type, ArrayType):
        yield from beside(data_type.elementType, _after(taken, None), f"{name}[]")
    else:
        for field in data_type.fields:
            yield from beside(field.dataType, _after(taken, field.name), _inside(name, field))


def without(data_type: Any, paths: Collection[Path]) -> Any:
    """Leave out of a type what some path leads to, and what has nothing left inside."""
    if isinstance(data_type, ArrayType):
        element = without(data_type.elementType, _after(paths, None))
        return element and ArrayType(element, data_type.containsNull)
    if not paths or not isinstance(data_type, StructType):
        return data_type
    fields = []
    for field in data_type.fields:
        inside = _after(paths, field.name)
        if all(map(any, inside)):
            kind = without(field.dataType, inside)
            if kind is not None:
                fields.append(StructField(field.name, kind, field.nullable))
    return StructType(fields) if fields else None


def pruned(column: Column, data_type: Any, pruned_type: Any) -> Column:
    """Leave in a column what its pruned type has; null stays null."""
    if pruned_type == data_type:
        return column
    if isinstance(pruned_type, ArrayType):
        inner = data_type.elementType
        return F.transform(column, lambda element: pruned(element, inner, pruned_type.elementType))
    fields = []
    for field in pruned_type.fields:
        inside = pruned(column.getField(field.name), data_type[field.name].dataType, field.dataType)
        fields.append(inside.alias(field.name))
    return F.when(column.isNotNull(), F.struct(*fields))


def quoted(name: str) -> Column:
    """Return the column of exactly this name, which may have points and backticks."""
    return F.col("`" + name.replace("`", "``") + "`")
