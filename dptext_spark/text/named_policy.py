"""Policies of a release: each is one class, which its name makes a value of its kind's option."""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, fields
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
        name = str(value).partition(":")[0]
        policy = cls.policies.get(name)
        needed = [] if policy is None else [field.default is MISSING for field in policy._given()]
        _, *arguments = str(value).split(":", max(len(needed), 1))
        if policy is None or not sum(needed) <= len(arguments) <= len(needed) or not all(arguments):
            raise ConfigError(
                f"The {cls.kind} ({cls.option}) is unknown",
                allowed=", ".join(cls.forms()),
                got=repr(value),
                do=nearest([name], cls.policies),
            )
        return policy(*arguments)

    @classmethod
    def forms(cls) -> list[str]:
        """Give the option's values, with what must follow a name in capitals."""
        needed = {
            n: [f for f in p._given() if f.default is MISSING] for n, p in cls.policies.items()
        }
        return [
            ":".join([name, *(field.name.upper() for field in own)]) for name, own in needed.items()
        ]

    def __str__(self) -> str:
        given = (getattr(self, field.name) for field in self._given())
        return ":".join([self.name, *filter(None, given)])

    @classmethod
    def _given(cls) -> list[Field[str]]:
        return [field for field in fields(cls) if field.init]

    def describe(self, **names: str) -> str:
        """Say what the guarantee covers under this policy; ``names`` are the other braces of its sentence."""
        return self.scope.format(**vars(self), **names)
