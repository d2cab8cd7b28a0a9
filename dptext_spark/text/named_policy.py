"""Policies of a release: each is one class, and an option names it."""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_plain_validator_function, to_string_ser_schema

from dptext_spark.errors import ConfigError, nearest


@dataclass(frozen=True)
class NamedPolicy:
    """A policy: small, picklable, comparable. An option has a policy's fields after its name.

    Attributes:
        kind: What the policies of one ``option`` are, in words.
        policies: Those of this kind, by name.
        scope: What the guarantee covers under it, in a sentence; fields in braces.
    """

    kind: ClassVar[str]
    option: ClassVar[str]
    policies: ClassVar[dict[str, type[Self]]]
    name: ClassVar[str]
    scope: ClassVar[str]

    def __init_subclass__(cls: type[Self], **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            cls.policies[cls.name] = cls

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Build the schema of a field of this kind: read and written as an option's value."""
        return no_info_plain_validator_function(cls._read, serialization=to_string_ser_schema())

    @classmethod
    def _read(cls, value: Self | str) -> Self:
        """Read a field; an error of this package is one of several faults of its model."""
        try:
            return cls.of(value)
        except ConfigError as error:
            raise ValueError(str(error)) from None

    @classmethod
    def of(cls, value: Self | str) -> Self:
        """Return the policy of this kind that an option's value names."""
        if isinstance(value, cls):
            return value
        name = str(value).partition(":")[0]
        policy = cls.policies.get(name)
        if policy is not None:
            arguments = policy._arguments(str(value))
            if arguments is not None:
                return policy(*arguments)
        raise ConfigError(
            f"The {cls.kind} ({cls.option}) is unknown",
            allowed=", ".join(cls.forms()),
            got=repr(value),
            do=nearest([name], cls.policies),
        )

    @classmethod
    def _arguments(cls, value: str) -> list[str] | None:
        """Return what follows the name in an option's value; None where the fields do not fit."""
        most = len(cls._init_fields())
        least = len(cls._required())
        _, *arguments = value.split(":", max(most, 1))
        if not least <= len(arguments) <= most or not all(arguments):
            return None
        return arguments

    @classmethod
    def forms(cls) -> list[str]:
        """Return the option's values, with what must follow a name in capitals."""
        forms = []
        for name, policy in cls.policies.items():
            required = [field.name.upper() for field in policy._required()]
            forms.append(":".join([name, *required]))
        return forms

    def __str__(self) -> str:
        arguments = [getattr(self, field.name) for field in self._init_fields()]
        return ":".join([self.name, *filter(None, arguments)])

    @classmethod
    def _init_fields(cls) -> list[Field[str]]:
        """Return the fields that an option's value may have after the name."""
        return [field for field in fields(cls) if field.init]

    @classmethod
    def _required(cls) -> list[Field[str]]:
        """Return the fields that an option's value must have."""
        return [field for field in cls._init_fields() if field.default is MISSING]

    def describe(self, **names: str) -> str:
        """Return what the guarantee covers under this policy; ``names`` fill the other braces."""
        return self.scope.format(**vars(self), **names)
