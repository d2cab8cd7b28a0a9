"""Fields of a table by name: columns, and what lies inside them.

A field inside a column is named by its path: ``payload.message`` in a struct, ``turns[].text`` in every
element of an array.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

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

from dptext_spark.text.nested import ELEMENTS, Route

Step = str | None
"""A struct's field by name; None, written ``[]``, stands for the elements of an array."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """A column, or a field inside one, as the user names it; the first step of its path is the column."""

    name: str
    path: tuple[Step, ...]
    data_type: DataType

    @classmethod
    def find(cls, schema: StructType, name: str) -> list[Field]:
        """Read a name in every way that the table allows: names may hold dots and brackets themselves."""
        paths = dict.fromkeys(_paths(schema, f".{name}"))
        return [cls(name=name, path=path, data_type=_type_at(schema, path)) for path in paths]

    @property
    def column(self) -> Column:
        """The field as a column expression; there is none through an array."""
        first, *rest = [step for step in self.path if step is not None]
        return reduce(Column.getField, rest, quoted(first))

    @property
    def arrays(self) -> tuple[Step, ...]:
        """The path to the elements of the innermost array that the field lies in; empty where in none."""
        depths = [depth for depth, step in enumerate(self.path, 1) if step is None]
        return self.path[: max(depths, default=0)]

    def holds(self, other: Field) -> bool:
        """Say whether the other one is this one, or lies inside."""
        return other.path[: len(self.path)] == self.path

    def route(self, schema: StructType) -> Route:
        """Number the steps by the fields of ``schema``, which has this field."""
        return tuple(
            ELEMENTS if step is None else around.fieldNames().index(step)
            for around, step in self._steps(schema)
        )

    def is_repeated(self, schema: StructType, exact: bool) -> bool:
        """Say whether a struct on the way has another field of that name; in any case unless ``exact``."""
        form = str if exact else str.lower
        return any(
            step is not None and [*map(form, around.fieldNames())].count(form(step)) > 1
            for around, step in self._steps(schema)
        )

    def _steps(self, schema: StructType) -> Iterator[tuple[Any, Step]]:
        """Give each step with the type that it starts from."""
        return ((_type_at(schema, self.path[:depth]), step) for depth, step in enumerate(self.path))


def _paths(data_type: DataType, name: str) -> Iterator[tuple[Step, ...]]:
    """Find every way from here to what is left of a name."""
    if not name:
        yield ()
    elif isinstance(data_type, ArrayType):
        if name.startswith("[]"):
            yield from ((None, *rest) for rest in _paths(data_type.elementType, name[2:]))
    elif isinstance(data_type, StructType):
        for field in data_type.fields:
            if name.startswith(f".{field.name}"):
                inside = _paths(field.dataType, name[1 + len(field.name) :])
                yield from ((field.name, *rest) for rest in inside)


def _type_at(data_type: Any, path: Sequence[Step]) -> Any:
    for step in path:
        data_type = data_type.elementType if step is None else data_type[step].dataType
    return data_type


def field_names(data_type: DataType, name: str = "") -> Iterator[str]:
    """Name all fields that have no fields themselves, in the table's order."""
    if isinstance(data_type, StructType):
        for field in data_type.fields:
            yield from field_names(field.dataType, f"{name}.{field.name}" if name else field.name)
    elif isinstance(data_type, ArrayType) and isinstance(data_type.elementType, ArrayType | StructType):
        yield from field_names(data_type.elementType, f"{name}[]")
    else:
        yield name


def prune(data_type: Any, paths: Collection[Sequence[Step]]) -> Any:
    """Leave in a type what some path leads to, and what is around it; :func:`bare`."""
    if () in paths:
        return bare(data_type)
    if isinstance(data_type, ArrayType):
        return ArrayType(prune(data_type.elementType, [p[1:] for p in paths]), data_type.containsNull)
    fields = [
        StructField(field.name, prune(field.dataType, inside), field.nullable)
        for field in data_type.fields
        if (inside := [tuple(path[1:]) for path in paths if path[0] == field.name])
    ]
    return StructType(fields)


def bare(data_type: Any) -> Any:
    """Give a type without the metadata of any field in it; names, nullability and collations stay.

    Metadata may quote rows, as comments do and the labels of a ``StringIndexer``, and Spark writes it into
    footers, logs and catalogs. ``char`` and ``varchar`` become strings: mapInArrow refuses them.
    """
    match data_type:
        case StructType():
            return StructType([StructField(f.name, bare(f.dataType), f.nullable) for f in data_type.fields])
        case ArrayType():
            return ArrayType(bare(data_type.elementType), data_type.containsNull)
        case MapType():
            key, value = bare(data_type.keyType), bare(data_type.valueType)
            return MapType(key, value, data_type.valueContainsNull)
        case CharType() | VarcharType():
            return StringType()
    return data_type


def beside(data_type: Any, taken: Collection[Sequence[Step]], name: str = "") -> Iterator[str]:
    """Name the largest fields of a type, or itself, that hold none of those taken and lie in none."""
    if not taken:
        yield name
    elif () in taken:
        return
    elif isinstance(data_type, ArrayType):
        yield from beside(data_type.elementType, [tuple(path[1:]) for path in taken], f"{name}[]")
    else:
        for field in data_type.fields:
            inside = [tuple(path[1:]) for path in taken if path[0] == field.name]
            yield from beside(field.dataType, inside, f"{name}.{field.name}" if name else field.name)


def pruned(column: Column, data_type: Any, wanted: Any) -> Column:
    """Leave in a column what its pruned type has; null stays null."""
    if wanted == data_type:
        return column
    if isinstance(wanted, ArrayType):
        inner = data_type.elementType
        return F.transform(column, lambda element: pruned(element, inner, wanted.elementType))
    fields = [
        pruned(column.getField(f.name), data_type[f.name].dataType, f.dataType).alias(f.name)
        for f in wanted.fields
    ]
    return F.when(column.isNotNull(), F.struct(*fields))


def quoted(name: str) -> Column:
    """Give the column of exactly this name, which may have points and backticks."""
    return F.col("`" + name.replace("`", "``") + "`")
