"""What every mechanism is: validated parameters, a guarantee, and words by words and uniforms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Never, Protocol, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from dptext_spark.accounting.row_budget import LEAST_EPSILON, RowBudget, RowEpsilons
from dptext_spark.arguments import must_be
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
    """Return what every guarantee assumes, of noise that keeps this number of bits."""
    return (
        "the noise key is kept secret, and BLAKE2b and AES-256 are pseudorandom",
        "arithmetic is that of real numbers, except for random numbers: rounding leaves the noise "
        f"at least {noise_bits} bits along its weakest axis",
    )


NoiseParameters: TypeAlias = Mapping[str, str | float | int]

MECHANISMS: Final[dict[str, type[Mechanism]]] = {}


class Perturbation(Protocol):
    """A mechanism bound to an embedding: a pure function of words, uniforms and epsilons."""

    def __call__(self, words: Ints, uniforms: Floats, epsilons: Floats | None = None) -> Ints:
        """Perturb word ids (t,) into ids (t,) of words that may be output.

        Uniforms (t, k) are overwritten. Words may have ``epsilons`` (t,) of their own; by default
        they have the mechanism's.
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

    On the driver: :meth:`at` an epsilon, :meth:`check` a bundle (by its :meth:`space`),
    :meth:`prepare` it, then :meth:`claim` in the :meth:`metric`, which is the :meth:`guarantee`. In
    a worker: :meth:`bind`, and perturb.
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
            owner = f"mechanism {self.name}"
            names = [field.alias or name for name, field in fields.items()]
            problems = faults(
                error,
                lambda problem: f"Parameter {next(iter(problem['loc']), '')} of {owner}",
                unknown=f"is unknown. Allowed: {', '.join(names)}",
                known=names,
            )
            if len(problems) == 1:
                raise ConfigError(problems[0].rstrip(".")) from None
            raise ConfigError(f"Parameters of {owner} are wrong", faults=problems) from None

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Yield the parameters that are not the default, and their values."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value != field.default:
                yield name, value

    __str__ = BaseModel.__repr__

    @property
    def spec(self) -> str:
        """Its name and parameters without epsilon, as options: ``mahalanobis:lambda=0.5``."""
        fields = type(self).model_fields
        pairs: list[str] = []
        for name, value in self.__repr_args__():
            if name != "epsilon":
                pairs.append(f"{fields[name].alias or name}={str(value).removesuffix('.0')}")
        if not pairs:
            return self.name
        return f"{self.name}:{','.join(pairs)}"

    @property
    def parameters(self) -> str:
        """What was chosen, epsilon apart, for reading: ``select=vickrey, t=0.4``."""
        return self.spec.partition(":")[2].replace(",", ", ")

    @property
    def options(self) -> str:
        """The options that choose it, each number so that reading gives it back."""
        return f"--mechanism {self.spec} --epsilon {repr(self.epsilon).removesuffix('.0')}"

    def to_json(self) -> dict[str, Any]:
        """Return the options that choose it, JSON-ready: its spec and epsilon."""
        return {"mechanism": self.spec, "epsilon": self.epsilon}

    @staticmethod
    def of(value: object, epsilon: float | None = None) -> Mechanism:
        """Return the mechanism that a value is, or names together with an epsilon."""
        if isinstance(value, Mechanism):
            if epsilon is not None:
                raise ConfigError(
                    "epsilon is given twice", do=f"Leave it out: {value!r} has its own"
                )
            return value
        if not isinstance(value, str):
            example = f"{MECHANISMS['laplace'].__name__}(epsilon=8)"
            raise must_be("mechanism", f"a Mechanism, such as {example}", value)
        if epsilon is None:
            raise ConfigError(
                "epsilon is missing",
                do=f"Give it with the name of the mechanism: mechanism={value!r}, epsilon=8",
            )
        return mechanism(value, epsilon=epsilon)

    @abstractmethod
    def noise_parameters(self, dimension: int) -> NoiseParameters:
        """Return the name and all parameters of the noise in n dimensions, for the noise's context.

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
            if search.withheld:
                parameters["withheld words"] = search.withheld.identity
        return ReleaseNoise.of(
            key, salt=salt, noise_parameters=parameters, fingerprint=embedding.fingerprint
        )

    @abstractmethod
    def uniforms_per_token(self, dimension: int) -> int:
        """Return how many uniforms one token takes."""

    def operations(self, embedding: Embedding, search: Search) -> float:
        """Estimate what one word takes, in operations of a matrix product."""
        uniforms = self.uniforms_per_token(embedding.dimension)
        return search.operations(uniforms) + _DRAWING * uniforms

    def at(self, epsilon: float) -> Self:
        """Return the same mechanism with another epsilon."""
        return self.model_copy(update={"epsilon": epsilon})

    def row_epsilons(self, budget: RowBudget, embedding: Embedding) -> RowEpsilons:
        """Compute the epsilons that keep rows to a budget, on the driver.

        None is above the mechanism's own.
        """
        return RowEpsilons.of(
            budget, lambda epsilon: self.at(epsilon).claim(embedding).law, self.epsilon
        )

    @abstractmethod
    def bind(self, embedding: Embedding, search: Search) -> Perturbation:
        """Bind the mechanism to an embedding that passes :meth:`check`, and to a search in it."""

    def metric(self, embedding: Embedding) -> Metric:
        """Return the distance between words in which the guarantee counts, untruncated.

        By default it is the geometry's own.
        """
        self.check(embedding)
        return embedding.space.metric()

    @abstractmethod
    def claim(self, embedding: Embedding) -> Claim:
        """Return what is proven for this mechanism on this embedding, in the :meth:`metric`."""

    def guarantee(
        self,
        embedding: Embedding | Path | str,
        distances: TypicalDistances | None = None,
        search: Search | None = None,
    ) -> Guarantee:
        """Return the guarantee for a bundle or its folder; distances are measured if not given."""
        embedding = Embedding.of(embedding)
        metric = self.metric(embedding)
        claim = self.claim(embedding)
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
        """Check a bundle, and compute its optional parts that all workers need, once."""
        self.check(embedding)

    def check(self, embedding: Embedding) -> None:
        """Refuse an embedding of another geometry, or that the parameters do not suit."""
        self.space(embedding, *self.spaces)

    def space(self, embedding: Embedding, *kinds: type[SpaceT]) -> SpaceT:
        """Return the space of an embedding, which must be of one of these kinds."""
        space = embedding.space
        if isinstance(space, kinds):
            return space
        fitting = sorted(
            name for name, kind in MECHANISMS.items() if isinstance(space, kind.spaces)
        )
        raise ConfigError(
            f"Mechanism {self.name} does not work on this embedding bundle",
            allowed=f"a bundle of geometry {' or '.join(kind.geometry for kind in self.spaces)}",
            got=f"geometry {space.geometry}",
            do=f"Take another bundle or a mechanism for it: {', '.join(fitting) or 'none so far'}",
        )


def mechanism(spec: str, **parameters: Any) -> Mechanism:
    """Configure one of ``MECHANISMS`` by its :attr:`Mechanism.spec`, and by further parameters.

    Epsilon is never in the spec: ``mechanism("mahalanobis:lambda=0.5", epsilon=5)``.
    """
    name = spec.partition(":")[0]
    if name not in MECHANISMS:
        raise ConfigError(
            "The mechanism is unknown",
            allowed=", ".join(sorted(MECHANISMS)),
            got=repr(spec),
            do=nearest([name], sorted(MECHANISMS)),
        )
    kind = MECHANISMS[name]
    try:
        _, listed = parsed(spec)
        if "epsilon" in listed:
            raise ConfigError(
                "epsilon is an option of its own, not a parameter of a mechanism's name",
                got=repr(spec),
            )
        return kind(**{**listed, **parameters})
    except ConfigError as error:
        _, *forms = map(_form, kind.model_fields, kind.model_fields.values())  # epsilon is first
        error.do = f"Parameters of {name}: {', '.join(forms)}"
        raise


def _form(name: str, field: FieldInfo) -> str:
    """Return a parameter's name, with the values that it takes."""
    notes = [range_of(field)]
    if field.is_required():
        notes.append("must be given")
    return f"{field.alias or name} ({', '.join(filter(None, notes))})".removesuffix(" ()")
