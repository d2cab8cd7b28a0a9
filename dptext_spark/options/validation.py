"""One path for options: values by option name, judged once by pydantic, all faults in one message."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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
from dptext_spark.faults import faults

COMMANDS: Final[dict[str, type[Options]]] = {}

REQUIRED: Final = "Required"
"""The heading of the help for options that must be given."""


@contextmanager
def findings() -> Iterator[None]:
    """Let pydantic collect an error of this package beside the faults of other options."""
    try:
        yield
    except ConfigError as error:
        raise ValueError(str(error)) from None


@dataclass(frozen=True)
class Shown:
    """How help and completion write the values of a text option, such as COLUMN or ``mask``.

    Attributes:
        names: Gives them; those in capitals stand for what the user writes there.
    """

    names: Callable[[], Iterable[str]]


@dataclass(frozen=True)
class OneOf(Shown):
    """The values that a text option takes: the names of a registry, which may grow."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, value: str) -> str:
        *others, last = names = [*self.names()]
        if value not in names:
            allowed = f"{', '.join(others)} or {last}" if others else last
            raise PydanticCustomError("one_of", "{names}", {"names": allowed})
        return value


@dataclass(frozen=True)
class Under:
    """The heading under which the help has an option, where it is not that of the class that adds it."""

    heading: str


def repeatable(field: FieldInfo) -> bool:
    """Say whether an option may be given several times."""
    return get_origin(field.annotation) is tuple


class Options(BaseModel):
    """Options of a job; field names are the option names with underscores.

    A subclass with a ``command`` is that command, its docstring the help, and the module of that name in
    ``dptext_spark.jobs`` runs it, unless ``runner`` names another. However they are made, None and
    empty lists count as not given, one value will do for a repeatable option, and all that is wrong is said
    at once. No error quotes a field with ``repr=False``: what it holds may be private.

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

    heading: ClassVar[str] = "Options"
    """Under which the help has the options that a class adds."""

    usage: ClassVar[str] = ""
    """An example of what may follow the command's name, for its help."""

    runner: ClassVar[str] = "dptext_spark.jobs.{command}"
    """The module whose ``run(options)`` does the work."""

    on_spark: ClassVar[bool] = True
    """Whether the work may need a Spark session."""

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

    @classmethod
    def names(cls) -> list[str]:
        """Give the names of all options."""
        return [*cls.fields()]

    @classmethod
    def headings(cls) -> dict[str, str]:
        """Give the heading of the help for each option: ``REQUIRED``, its own, or that of its class.

        They come in the help's order: what must be given, then what the class itself adds, then its bases.
        """
        owners = {
            name: kind
            for kind in cls.__mro__
            for name in inspect.get_annotations(kind)
            if name in cls.model_fields
        }
        required = [name for name, field in cls.model_fields.items() if field.is_required()]
        fields = required + [name for name in owners if name not in required]
        return {
            str(cls.model_fields[name].alias): cls._heading(cls.model_fields[name], owners[name])
            for name in fields
        }

    @classmethod
    def _heading(cls, field: FieldInfo, owner: type) -> str:
        if field.is_required():
            return REQUIRED
        own = [item.heading for item in field.metadata if isinstance(item, Under)]
        return str([*own, getattr(owner, "heading", cls.heading)][0])

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
        secret = {name for name, field in cls.fields().items() if not field.repr}
        problems = []
        try:
            options = handler(given)
        except ValidationError as error:
            problems = faults(
                error,
                lambda e: f"Option --{_option(e)}",
                unknown="is not an option of this command or mechanism",
                known=cls.names(),
                hidden=lambda e: _option(e) in secret,
            )
            options = cls.model_construct(**given)
        problems += map(str, options.conflicts())
        if problems:
            listed = "\n  ".join(dict.fromkeys(problems)).rstrip(".")
            raise ConfigError(f"Options of {cls.command} are wrong:\n  {listed}")
        return options


def _option(error: ErrorDetails) -> object:
    """The option that is wrong; a mechanism is made of several."""
    first, *inner = error["loc"] or ("",)
    return inner[0] if first == "mechanism" and inner and isinstance(inner[0], str) else first
