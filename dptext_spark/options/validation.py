"""One path for options: values by option name, judged once by pydantic, all faults in one message."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar, Final, Self, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from dptext_spark.errors import ConfigError

COMMANDS: Final[dict[str, type[Options]]] = {}


@contextmanager
def findings() -> Iterator[None]:
    """Let pydantic collect an error of this package beside the faults of other options."""
    try:
        yield
    except ConfigError as error:
        raise ValueError(str(error)) from None


@dataclass(frozen=True)
class OneOf:
    """The values that a text option takes: the names of a registry, which may grow.

    Attributes:
        names: Gives them.
    """

    names: Callable[[], Iterable[str]]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, value: str) -> str:
        *others, last = names = [*self.names()]
        if value not in names:
            allowed = f"{', '.join(others)} or {last}" if others else last
            raise PydanticCustomError("one_of", "{names}", {"names": allowed})
        return value


def repeatable(field: FieldInfo) -> bool:
    """Say whether an option may be given several times."""
    return get_origin(field.annotation) is tuple


class Options(BaseModel):
    """Options of a job; field names are the option names with underscores.

    A subclass with a ``command`` is that command, its docstring the help, and the module of that name in
    ``dptext_spark.spark.jobs`` runs it. However they are made, None and empty lists count as not given, one
    value will do for a repeatable option, and all that is wrong is said at once. No error quotes a field with
    ``repr=False``: what it holds may be private.

    Raises:
        ConfigError: Lists every option that is wrong.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=lambda field: field.replace("_", "-"),
        validate_by_name=True,
        validate_by_alias=True,
    )

    command: ClassVar[str]
    positional: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "command" in cls.__dict__:
            COMMANDS[cls.command] = cls

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Validate options given by option name.

        Raises:
            ConfigError: Lists every option that is wrong.
        """
        return cls.model_validate(values)

    @classmethod
    def fields(cls) -> dict[str, FieldInfo]:
        """Give the fields by option name."""
        return {str(field.alias): field for field in cls.model_fields.values()}

    def conflicts(self) -> Iterator[ConfigError]:
        """Find options that do not go together; any of them may be of a wrong type here, or missing."""
        return iter(())

    @property
    def unfinished(self) -> str:
        """Say what a run leaves that is interrupted."""
        return "No output was written."

    def finish(self, report: Any) -> str:
        """Do what is left to do when the report of a run was shown, and say where its results lie."""
        return ""

    @classmethod
    def arranged(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Give values as the fields want them: by option name, a tuple for what is repeatable."""
        names = {name: field.alias for name, field in cls.model_fields.items()}
        given = {names.get(n) or n: v for n, v in values.items() if v is not None and v not in ((), [])}
        for name, field in cls.fields().items():
            if name in given and repeatable(field):
                value = given[name]
                given[name] = tuple(value) if isinstance(value, list | tuple) else (value,)
        return given

    @model_validator(mode="wrap")
    @classmethod
    def _judge(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        given = cls.arranged(values)
        problems = []
        try:
            options = handler(given)
        except ValidationError as error:
            problems = _problems(error, secret={name for name, f in cls.fields().items() if not f.repr})
            options = cls.model_construct(**given)
        problems += map(str, options.conflicts())
        if problems:
            listed = "\n  ".join(dict.fromkeys(problems)).rstrip(".")
            raise ConfigError(f"Options of {cls.command} are wrong:\n  {listed}")
        return options


def _problems(error: ValidationError, secret: Collection[str]) -> list[str]:
    """Write pydantic's findings in this package's form; the kinds of value that one option allows as one.

    Values of secret options are not quoted.
    """
    found = groupby(error.errors(), key=lambda e: (_option(e), repr(e["input"])))
    return [
        _problem(f"Option --{option}", list(group), "a value that is not shown" if option in secret else got)
        for (option, got), group in found
    ]


def _option(error: ErrorDetails) -> object:
    """The option that is wrong; a mechanism is made of several."""
    first, *inner = error["loc"] or ("",)
    return inner[0] if first == "mechanism" and inner and isinstance(inner[0], str) else first


def _problem(option: str, group: list[ErrorDetails], got: str) -> str:
    error = group[0]
    if error["type"] == "value_error":  # said in this form already
        return error["msg"].removeprefix("Value error, ").rstrip(".") + "."
    if error["type"] == "missing":
        return f"{option} is missing."
    if error["type"] == "extra_forbidden":
        return f"{option} is not an option of this command or mechanism."
    allowed = ", or ".join(dict.fromkeys(map(_allowed, group)))
    return str(ConfigError(f"{option} has a wrong value", allowed=allowed, got=got))


def _allowed(error: ErrorDetails) -> str:
    bounds = error.get("ctx", {})
    choices = str(bounds.get("expected", "")).replace("'", "")
    return {
        "greater_than": f"a number above {bounds.get('gt', 0):g}",
        "greater_than_equal": f"a number, {bounds.get('ge', 0):g} or more",
        "less_than": f"a number below {bounds.get('lt', 0):g}",
        "less_than_equal": f"a number, {bounds.get('le', 0):g} or less",
        "finite_number": "a finite number",
        "path_type": "a path",
        "enum": choices,
        "literal_error": choices,
    }.get(error["type"], error["msg"].removeprefix("Input should be "))
