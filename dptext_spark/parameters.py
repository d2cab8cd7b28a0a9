"""Options of a command as parameters of click: their names, values, help and completion."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import EnumType
from pathlib import Path
from typing import Any, Final, get_args

import click
from click.shell_completion import CompletionItem
from pydantic.fields import FieldInfo

from dptext_spark.options import MechanismOptions, Options
from dptext_spark.options.validation import REQUIRED, Shown, repeatable

_METAVARS: Final = {float: "NUMBER", int: "INTEGER", Path: "PATH", str: "TEXT"}
# Beyond it a bound is no more than what a machine's integers hold.
_LARGEST_BOUND: Final = 2.0**53


class GroupedOption(click.Option):
    """An option under a heading of the help, whose values are completed."""

    def __init__(
        self, names: Sequence[str], *, heading: str, values: Sequence[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(names, **kwargs)
        self.heading = heading
        self.values = values

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return _completed(self.values, incomplete)


class GroupedArgument(click.Argument):
    """An argument that the help explains as it does options."""

    def __init__(self, name: str, field: FieldInfo, heading: str) -> None:
        super().__init__([name], required=False, metavar=name.upper() if field.is_required() else None)
        self.heading, self.description, self.values = heading, help_of(field), _values(field)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        return self.make_metavar(ctx), self.description

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return _completed(self.values, incomplete)


def _completed(values: Sequence[str], incomplete: str) -> list[CompletionItem]:
    """Complete one of an option's values, or a path."""
    if "PATH" in values:
        return [CompletionItem(incomplete, type="file")]
    # What the user writes in place of capitals cannot be known.
    known = filter(None, (re.sub("[A-Z]+$", "", value) for value in values))
    return [CompletionItem(value) for value in known if value.startswith(incomplete)]


def parameters(model: type[Options]) -> Iterator[click.Parameter]:
    """Make one parameter for each field, those that must be given first; mechanisms' own come last."""
    fields, owned = model.fields(), _of_mechanisms(model)
    for name, heading in model.headings().items():
        field = fields[name]
        if name in model.positional:
            yield GroupedArgument(name, field, heading)
        elif name == "mechanism" and issubclass(model, MechanismOptions):
            yield _mechanism(model, field, heading)
        elif heading == REQUIRED or name not in owned:
            yield _option(name, {"": field}, heading)
    for name, of in owned.items():
        if name not in fields:
            yield _option(name, of, _heading(of, model))
        elif not fields[name].is_required():
            heading = _heading(of, model)
            heading = model.headings()[name] if heading == REQUIRED else heading
            yield _option(name, {"": fields[name]}, heading)


def _of_mechanisms(model: type[Options]) -> dict[str, dict[str, FieldInfo]]:
    """Give the options of mechanisms, those of the same ones together."""
    if not issubclass(model, MechanismOptions):
        return {}
    return dict(sorted(model.mechanism_options().items(), key=lambda item: [*item[1]]))


def _mechanism(model: type[MechanismOptions], field: FieldInfo, heading: str) -> click.Option:
    known = tuple(model.mechanisms())
    return GroupedOption(
        ["--mechanism"],
        heading=heading,
        values=known,
        multiple=model.several,
        metavar=_metavar(known),
        help=help_of(field),
    )


def _heading(fields: Mapping[str, FieldInfo], model: type[Options]) -> str:
    """Say of which mechanisms an option is."""
    every = issubclass(model, MechanismOptions) and len(fields) == len(model.mechanisms())
    if every and all(field.is_required() for field in fields.values()):
        return REQUIRED
    return f"Mechanism{'s' if len(fields) > 1 else ''} {', '.join(fields)}"


def _option(name: str, fields: Mapping[str, FieldInfo], heading: str) -> click.Option:
    """One option for the fields of its name, by mechanism; where they differ, the help says which is whose.

    Raises:
        TypeError: They cannot be one option.
    """
    shapes = {(field.annotation is bool, repeatable(field), number_of(field)) for field in fields.values()}
    if len(shapes) > 1:
        raise TypeError(f"Mechanisms {' and '.join(fields)} have options --{name} of different types")
    (flag, several, number), texts = shapes.pop(), dict[str, list[str]]()
    for mechanism, field in fields.items():
        texts.setdefault(help_of(field, heading), []).append(mechanism)
    said = "; ".join(text if len(texts) == 1 else f"{', '.join(of)}: {text}" for text, of in texts.items())
    names = [f"--{name}", name.replace("-", "_")]
    if flag:
        return GroupedOption(names, heading=heading, is_flag=True, default=None, help=said)
    values = list(dict.fromkeys(value for field in fields.values() for value in _values(field)))
    return GroupedOption(
        names,
        heading=heading,
        values=values,
        type=lambda text: read_number(text, number),
        multiple=several,
        metavar=_metavar(values),
        help=said,
    )


def help_of(field: FieldInfo, heading: str = REQUIRED) -> str:
    """Say what an option is, its default and bounds, and that it must be given if the heading does not."""
    said = [str(field.description)]
    if field.annotation is not bool and not field.is_required() and field.default not in (None, (), ""):
        several = field.default if isinstance(field.default, tuple) else (field.default,)
        said.append(f"default: {' '.join(map(str, several))}")
    marks = [bounds] if (bounds := _bounds(field)) else []
    marks += ["required"] if field.is_required() and heading != REQUIRED else []
    return " ".join(["; ".join(said), *(f"[{mark}]" for mark in marks)])


def _bounds(field: FieldInfo) -> str:
    """Write the numbers that an option takes: ``x>=1``, ``0<=x<=1``."""
    inside = [leaf.metadata for leaf in _leaves(field.annotation) if isinstance(leaf, FieldInfo)]
    marks = [mark for metadata in (field.metadata, *inside) for mark in metadata]

    def found(signs: Mapping[str, str]) -> list[tuple[str, str]]:
        bounds = ((getattr(mark, name, None), sign) for mark in marks for name, sign in signs.items())
        return [(f"{b:g}", sign) for b, sign in bounds if b is not None and abs(b) < _LARGEST_BOUND]

    low, high = found({"ge": "<=", "gt": "<"}), found({"le": "<=", "lt": "<"})
    if low and not high:
        return "".join(f"x{sign.replace('<', '>')}{bound}" for bound, sign in low)
    parts = [*(bound + sign for bound, sign in low), "x", *(sign + bound for bound, sign in high)]
    return "".join(parts) if high else ""


def _values(field: FieldInfo) -> list[str]:
    """Give what an option takes: kinds of value in capitals, and values as they are."""
    leaves = _leaves(field.annotation)
    shown = [item for item in (*field.metadata, *leaves) if isinstance(item, Shown)]
    if shown:
        return [name for item in shown for name in item.names()]
    kinds = [_METAVARS[leaf] for leaf in leaves if isinstance(leaf, type) and leaf in _METAVARS]
    return [*kinds, *(leaf for leaf in leaves if isinstance(leaf, str))]


def _metavar(values: Sequence[str]) -> str:
    """Write what an option takes: ``INTEGER``, or ``[mask|drop]`` where there is a choice of names."""
    listed = "|".join(values)
    return listed if listed.isupper() else f"[{listed}]"


def number_of(field: FieldInfo) -> type[float] | None:
    """Give the type of number that an option's text stands for, if it is one."""
    leaves = _leaves(field.annotation)
    return None if str in leaves else next((kind for kind in (float, int) if kind in leaves), None)


def read_number(text: str, number: type[float] | None) -> Any:
    """Turn an option's text into a number; other text stays text, for validation to refuse."""
    try:
        return text if number is None else number(text)
    except ValueError:
        return text


def _leaves(kind: Any) -> list[Any]:
    """Give the types, values and marks that an annotation is made of."""
    parts = [*kind] if isinstance(kind, EnumType) else get_args(kind)
    return [leaf for part in parts for leaf in _leaves(part)] if parts else [kind]
