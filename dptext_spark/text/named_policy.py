"""Policies of a release: each is one class, which its name makes a value of its kind's option."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from dptext_spark.errors import ConfigError, nearest


@dataclass(frozen=True)
class NamedPolicy:
    """A policy: small, picklable, comparable. If it takes a field, the option has it after the name.

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
    def of(cls, value: Self | str) -> Self:
        """Give the policy of this kind that an option's value names."""
        if isinstance(value, cls):
            return value
        name, *arguments = str(value).split(":", 1)
        policy = cls.policies.get(name)
        if policy is None or len(arguments) != len(policy._given()) or not all(arguments):
            raise ConfigError(
                f"The {cls.kind} ({cls.option}) is unknown",
                allowed=", ".join(cls.forms()),
                got=repr(value),
                do=nearest([name], cls.policies),
            )
        return policy(*arguments)

    @classmethod
    def forms(cls) -> list[str]:
        """Give the option's values, with what follows a name in capitals."""
        return [":".join([name, *map(str.upper, policy._given())]) for name, policy in cls.policies.items()]

    def __str__(self) -> str:
        return ":".join([self.name, *(getattr(self, field) for field in self._given())])

    @classmethod
    def _given(cls) -> list[str]:
        return [field.name for field in fields(cls) if field.init]

    def describe(self, **names: str) -> str:
        """Say what the guarantee covers under this policy; ``names`` are the other braces of its sentence."""
        return self.scope.format(**vars(self), **names)
