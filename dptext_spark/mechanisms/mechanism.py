"""What every mechanism is: validated parameters, a law, a guarantee, and words out of words and uniforms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Never, Protocol, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dptext_spark.accounting.row_budget import LEAST_EPSILON, RowBudget, RowEpsilons
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import Space, SpaceT
from dptext_spark.errors import ConfigError, check_parameters, faults, nearest, parsed, range_of
from dptext_spark.geometry import Floats, Ints
from dptext_spark.geometry.metric import Metric
from dptext_spark.guarantee import Claim, Guarantee, TypicalDistances
from dptext_spark.noise import NoiseKey, ReleaseNoise
from dptext_spark.search.nearest import Search

NUMBER: Final = partial(Field, allow_inf_nan=False, strict=True)
"""A parameter that is a finite number."""

# Drawing a uniform and making noise of it, in operations of a matrix product.
_DRAWING: Final = 2500.0

PUBLIC_WORDS: Final = (
    "the embedding and the release vocabulary were not made from the private table"
)


def assumptions(noise_bits: int) -> tuple[str, ...]:
    """Say what every guarantee assumes, of noise that keeps so many bits in spite of its roundings."""
    return (
        "the noise key stays secret, and BLAKE2b and AES-256 are pseudorandom",
        "arithmetic is that of real numbers, except for the uniforms: rounding leaves the noise at least "
        f"{noise_bits} bits along its weakest axis",
    )


NoiseParameters: TypeAlias = Mapping[str, str | float | int]

MECHANISMS: Final[dict[str, type[Mechanism]]] = {}


class Perturbation(Protocol):
    """A mechanism bound to an embedding: a pure function of words, uniforms and epsilons."""

    def __call__(self, words: Ints, uniforms: Floats, epsilons: Floats | None = None) -> Ints:
        """Turn word ids (t,) into ids (t,) of words that may be output, by uniforms (t, k), overwritten.

        Words may have ``epsilons`` (t,) of their own; by default they have the mechanism's.
        """


class Parameters(BaseModel):
    """What a user chooses about noise."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    epsilon: float = NUMBER(
        ge=LEAST_EPSILON,
        description="privacy parameter, in nats per unit of the mechanism's distance",
    )


class Mechanism(Parameters, ABC):
    """A configured mechanism, free of data: small, picklable, comparable.

    Parameters are given by name, as in ``Laplace(epsilon=8)``. All that are wrong are one
    ConfigError.
    """

    name: ClassVar[str]  # as options have it
    spaces: ClassVar[tuple[type[Space], ...]]  # the geometries of embeddings that it works on
    # Noise mechanisms look for released words after the noise; elsewhere their number shapes the
    # law itself.
    release_words_shape_law: ClassVar[bool] = False

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            MECHANISMS[cls.name] = cls

    def __init__(self, /, *unnamed: Never, **parameters: Any) -> None:
        fields = type(self).model_fields
        check_parameters(type(self).__name__, fields, unnamed)
        try:
            super().__init__(**parameters)
        except ValidationError as error:
            owner, known = (
                f"mechanism {self.name}",
                [field.alias or name for name, field in fields.items()],
            )
            found = faults(
                error,
                lambda each: f"Parameter {next(iter(each['loc']), '')} of {owner}",
                unknown=f"is unknown. Allowed: {', '.join(known)}",
                known=known,
            )
            if len(found) == 1:
                raise ConfigError(found[0].rstrip(".")) from None
            raise ConfigError(f"Parameters of {owner} are wrong", faults=found) from None

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Name what was chosen; what is by default goes without saying."""
        for name, field in type(self).model_fields.items():
            if (value := getattr(self, name)) != field.default:
                yield name, value

    __str__ = BaseModel.__repr__

    @property
    def spec(self) -> str:
        """Its name and what was chosen, epsilon apart, as options take it: ``mahalanobis:lambda=0.5``."""
        fields = type(self).model_fields
        listed = ",".join(
            f"{fields[name].alias or name}={str(value).removesuffix('.0')}"
            for name, value in self.__repr_args__()
            if name != "epsilon"
        )
        return f"{self.name}:{listed}" if listed else self.name

    @property
    def parameters(self) -> str:
        """What was chosen, epsilon apart, for reading: ``select=vickrey, t=0.4``."""
        return self.spec.partition(":")[2].replace(",", ", ")

    @property
    def options(self) -> str:
        """The options that choose it, each number so that reading gives it back."""
        return f"--mechanism {self.spec} --epsilon {repr(self.epsilon).removesuffix('.0')}"

    def to_json(self) -> dict[str, Any]:
        """Give the options that choose it, JSON-ready: its spec and epsilon."""
        return {"mechanism": self.spec, "epsilon": self.epsilon}

    @staticmethod
    def of(value: object) -> Mechanism:
        """Give the mechanism that this must be; a ConfigError where it is none."""
        if isinstance(value, Mechanism):
            return value
        raise ConfigError(
            "The mechanism is none",
            allowed=f"one with its parameters, such as {MECHANISMS['laplace'].__name__}(epsilon=8)",
            got=type(value).__name__,
        )

    @abstractmethod
    def noise_parameters(self, dimension: int) -> NoiseParameters:
        """Return the noise law's name and all its parameters in n dimensions, for the noise's context.

        Equal parameters must turn equal uniforms into equal noise. Parameters that act on the noisy
        point afterwards do not belong here.
        """

    def release_noise(
        self,
        key: NoiseKey,
        *,
        salt: str,
        embedding: Embedding,
        search: Search,
        epsilons: RowEpsilons | None = None,
    ) -> ReleaseNoise:
        """Derive the noise of a release of this mechanism; see :meth:`ReleaseNoise.of`."""
        parameters = dict(self.noise_parameters(embedding.dimension))
        if epsilons is not None:
            parameters["row budget"] = epsilons.identity
        if self.release_words_shape_law:
            parameters["release words"] = search.release_words
        return ReleaseNoise.of(key, salt=salt, law=parameters, fingerprint=embedding.fingerprint)

    @abstractmethod
    def uniforms_per_token(self, dimension: int) -> int:
        """Say how many uniforms one token takes."""

    def operations(self, embedding: Embedding, search: Search) -> float:
        """Estimate what one word takes, in operations of a matrix product."""
        uniforms = self.uniforms_per_token(embedding.dimension)
        return search.operations(uniforms) + _DRAWING * uniforms

    def at(self, epsilon: float) -> Self:
        """Give the same mechanism with another epsilon."""
        return self.model_copy(update={"epsilon": epsilon})

    def row_epsilons(self, budget: RowBudget, embedding: Embedding) -> RowEpsilons:
        """Find the epsilons that keep rows to a budget, on the driver; none is above the mechanism's own."""
        return RowEpsilons.of(
            budget, lambda epsilon: self.at(epsilon).claim(embedding).law, self.epsilon
        )

    @abstractmethod
    def bind(self, embedding: Embedding, search: Search) -> Perturbation:
        """Get the mechanism ready for an embedding that passes :meth:`check`, and for a search in it."""

    def metric(self, embedding: Embedding) -> Metric:
        """Give the distance between words in which the guarantee counts, untruncated: the geometry's own."""
        self.check(embedding)
        return embedding.space.metric()

    @abstractmethod
    def claim(self, embedding: Embedding) -> Claim:
        """Say what is proven for this mechanism on this embedding, in the distance of :meth:`metric`."""

    def guarantee(
        self,
        embedding: Embedding | Path | str,
        distances: TypicalDistances | None = None,
        search: Search | None = None,
    ) -> Guarantee:
        """State the guarantee for a bundle or its folder; distances are measured if not known already."""
        embedding = Embedding.of(embedding)
        metric, claim = self.metric(embedding), self.claim(embedding)
        if search is not None and not (search.convex_cells or self.release_words_shape_law):
            claim = replace(claim, delta_num=None)
        return Guarantee(
            mechanism=self.name,
            configured_epsilon=self.epsilon,
            metric=metric.description,
            distances=distances or TypicalDistances.measure(metric),
            fingerprint=embedding.fingerprint,
            assumptions=(PUBLIC_WORDS, *assumptions(claim.noise_bits)),
            **vars(claim),
        )

    def prepare(self, embedding: Embedding) -> None:
        """Check a bundle, and compute, once and on the driver, its optional parts that all workers need."""
        self.check(embedding)

    def check(self, embedding: Embedding) -> None:
        """Refuse an embedding of another geometry, or that the parameters do not suit, by a ConfigError."""
        self.space(embedding, *self.spaces)

    def space(self, embedding: Embedding, *wanted: type[SpaceT]) -> SpaceT:
        """Give the space of an embedding, which must be one of those wanted."""
        found = embedding.space
        if isinstance(found, wanted):
            return found
        fitting = sorted(n for n, m in MECHANISMS.items() if isinstance(found, m.spaces))
        raise ConfigError(
            f"Mechanism {self.name} does not work on this embedding bundle",
            allowed=f"a bundle of geometry {' or '.join(space.geometry for space in self.spaces)}",
            got=f"geometry {found.geometry}",
            do=f"Take another bundle or a mechanism for it: {', '.join(fitting) or 'none so far'}",
        )


def mechanism(spec: str, **parameters: Any) -> Mechanism:
    """Configure one of ``MECHANISMS`` by its :attr:`Mechanism.spec`, and further parameters by option name.

    Epsilon is never in the spec: ``mechanism("mahalanobis:lambda=0.5", epsilon=5)``.
    """
    name = spec.partition(":")[0]
    if name not in MECHANISMS:
        names, what = sorted(MECHANISMS), "The mechanism is unknown"
        raise ConfigError(what, allowed=", ".join(names), got=repr(spec), do=nearest([name], names))
    kind = MECHANISMS[name]
    try:
        chosen = parsed(spec)[1]
        if "epsilon" in chosen:
            raise ConfigError(
                "Epsilon does not follow a mechanism's name: give it by itself", got=repr(spec)
            )
        return kind(**{**chosen, **parameters})
    except ConfigError as error:
        listed = []
        for key, field in kind.model_fields.items():
            notes = filter(None, (range_of(field), "must be given" if field.is_required() else ""))
            listed.append(f"{field.alias or key} ({', '.join(notes)})".removesuffix(" ()"))
        error.do = f"Parameters of {name}: {', '.join(listed[1:])}"  # epsilon is the first
        raise
