"""A mechanism among the options of a command: chosen by name, built of its own options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator
from pydantic.fields import FieldInfo

from dptext_spark.calibration.recall import RECALL, chosen_search
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, nearest
from dptext_spark.mechanisms import MECHANISMS, Mechanism
from dptext_spark.options.validation import OneOf, Options, findings
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch
from dptext_spark.search.nearest import SEARCHES, Search


def as_json(mechanism: Mechanism) -> dict[str, Any]:
    """Give a mechanism and its options as JSON-ready values, as options take them."""
    return {"mechanism": mechanism.name, **mechanism.model_dump(mode="json", by_alias=True)}


class SearchOptions(Options):
    """How released words are found, in the commands that run a mechanism."""

    heading = "Search"

    search: Annotated[str, OneOf(lambda: sorted(SEARCHES))] = Field(
        ExactSearch.name,
        description="how the released word nearest to a noisy point is found; ivf: in the lists of the "
        "bundle's index",
    )
    probes: int | None = Field(None, ge=1, description="with --search ivf: lists that a noisy point looks at")
    recall: float | None = Field(
        None,
        gt=0.0,
        le=1.0,
        description="with --search ivf: as many lists as it takes to give the exact nearest word so often, "
        f"on noisy points at this epsilon; default: {RECALL:g}",
    )

    def conflicts(self) -> Iterator[ConfigError]:
        given = [name for name in ("probes", "recall") if getattr(self, name, None) is not None]
        if given and self.search == ExactSearch.name:
            yield ConfigError(f"Option --{given[0]} is for --search {IvfSearch.name}")
        if len(given) > 1:
            yield ConfigError("Options --probes and --recall say the same thing", do="Give one of them")
        yield from super().conflicts()

    def search_over(self, embedding: Embedding, release_words: int | None = None) -> Search:
        """Set up the search among the words of a bundle that may be output.

        Raises:
            ConfigError: More words than the bundle allows, or fewer than two; or the bundle or a mechanism
                does not suit the search.
        """
        mechanism = getattr(self, "mechanism", ())
        return chosen_search(
            self.search,
            embedding,
            mechanism if isinstance(mechanism, tuple) else (mechanism,),
            release_words=release_words,
            probes=self.probes,
            recall=self.recall,
        )


class MechanismOptions(Options):
    """What the jobs that take a mechanism have in common; the field is ``mechanism``."""

    heading = "Mechanism"

    several: ClassVar[bool] = False
    """Whether this command takes several mechanisms at once."""

    spread: ClassVar[tuple[str, ...]] = ()
    """Options of mechanisms that this command takes several values of, in a field of its own."""

    releases: ClassVar[tuple[str, ...]] = ("words",)
    """What may come out of the mechanisms that this command takes."""

    @classmethod
    def mechanisms(cls) -> dict[str, type[Mechanism]]:
        """Give the mechanisms that this command takes, by name."""
        return {name: kind for name, kind in sorted(MECHANISMS.items()) if kind.releases in cls.releases}

    @field_validator("mechanism", mode="before", check_fields=False)
    @classmethod
    def _build(cls, value: Any) -> Any:
        """Build the mechanism that options choose: its name under ``mechanism``, and its own options.

        Raises:
            ValueError: The name is missing or unknown.
            pydantic.ValidationError: The mechanism's options are wrong.
        """
        if not isinstance(value, dict):
            return value
        name, parameters = value["mechanism"], {n: v for n, v in value.items() if n != "mechanism"}
        known = cls.mechanisms()
        with findings():
            if name is None:
                raise ConfigError("Option --mechanism is missing", allowed=", ".join(known))
            if str(name) not in known:
                do = nearest([str(name)], known)
                raise ConfigError("The mechanism is unknown", allowed=", ".join(known), got=repr(name), do=do)
            return known[str(name)].validated(parameters)

    @classmethod
    def mechanism_options(cls) -> dict[str, dict[str, FieldInfo]]:
        """Give the options of all mechanisms: by option name, and there by mechanism.

        Raises:
            TypeError: A mechanism has an option that the command has itself.
        """
        found: dict[str, dict[str, FieldInfo]] = {}
        for mechanism_name, kind in cls.mechanisms().items():
            for name, field in kind.model_fields.items():
                found.setdefault(field.alias or name, {})[mechanism_name] = field
        if shadowed := sorted((cls.fields().keys() - {*cls.spread}) & found.keys()):
            listed = ", ".join(f"--{name} of {' and '.join(found[name])}" for name in shadowed)
            raise TypeError(f"Options of mechanisms have names of options of {cls.command}: {listed}")
        return found

    @classmethod
    def names(cls) -> list[str]:
        return [*cls.fields(), *cls.mechanism_options()]

    @classmethod
    def arranged(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """See :meth:`Options.arranged`; the mechanism's name and options are one value."""
        others = {name: value for name, value in values.items() if name != "mechanism"}
        given, chosen = super().arranged(others), values.get("mechanism")
        made = chosen if isinstance(chosen, tuple) else (chosen,)
        if all(isinstance(each, Mechanism) for each in made):
            return {**given, "mechanism": chosen}
        parameters = {name: given[name] for name in cls.mechanism_options() if name in given}
        rest = {n: v for n, v in given.items() if n not in parameters or n in cls.spread}
        return {**rest, "mechanism": {"mechanism": chosen, **parameters}}
