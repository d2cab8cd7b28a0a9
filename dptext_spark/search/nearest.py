"""The contract of searches: a value that names how nearest words are found, and what finds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np

from dptext_spark.arguments import must_be
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, nearest, parsed
from dptext_spark.geometry import Floats, Floats32, Ints
from dptext_spark.search.withheld import NONE, Withheld, withheld_by
from dptext_spark.text.policies import TextPolicy


class NearestWords(ABC):
    """Finds the nearest released words of points."""

    @abstractmethod
    def __call__(self, points: Floats) -> Ints:
        """Find the nearest word of each point, float64 (t, n): int64 (t,), word ids.

        Among words equally near, the lowest word id wins.

        Raises:
            ConfigError: A point is so far away that scores overflow, or not finite.
        """

    @abstractmethod
    def nearest_two(self, points: Floats) -> tuple[Ints, Floats]:
        """Find the two nearest words likewise.

        Returns word ids (t, 2), the nearest first, and their distances (t, 2).
        """


SEARCHES: Final[dict[str, type[Search]]] = {}


@dataclass(frozen=True, kw_only=True)
class Search(ABC):
    """How released words are searched: small, picklable, comparable.

    Subclasses register under their name. What a search finds must be a function of the point alone,
    whatever the batch and the number of threads: then it is post-processing of the noisy point, and
    leaves every guarantee as it is.
    """

    name: ClassVar[str]  # in options and reports
    # Whether the points with one answer are a convex set, which bounds of finite arithmetic need.
    convex_cells: ClassVar[bool] = True
    # Parameters that may follow the name, one at a time: allowed values in words, and a test of a
    # value.
    parameters: ClassVar[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {}
    release_words: int  # the words that may be output are among the first so many
    # Of all words of the bundle, those that the policy of the run withholds.
    withheld: Withheld = field(default=NONE, repr=False)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        SEARCHES[cls.name] = cls

    @property
    def label(self) -> str:
        """The name in reports: two searches that find different words have different labels."""
        return self.name

    @property
    def options(self) -> dict[str, str]:
        """The options that choose this search; none for the default."""
        if self.name == "exact":
            return {}
        return {"search": self.name}

    @property
    def outputs(self) -> Ints:
        """Ids of the words that may be output, ascending."""
        return self.withheld.others(self.release_words)

    @property
    def withheld_words(self) -> int:
        """How many of the words that could be output are withheld."""
        return self.release_words - len(self.outputs)

    def without_marks(self, policy: TextPolicy, embedding: Embedding) -> Self:
        """Return the search among the words that a policy would not mark.

        Whatever releases, calibrates, attacks or estimates takes its search from here.
        """
        search = replace(self, withheld=withheld_by(policy, embedding))
        if len(search.outputs) < 2:
            raise ConfigError(
                "The policy marks nearly all words that may be output",
                allowed="2 words or more that look like no identifier",
                got=str(len(search.outputs)),
                do="Give --identifiers off --numbers words, or another bundle",
            )
        return search

    def barred(self, half_norms: Floats32) -> Floats32:
        """Return numbers of the first words, infinite where a word is withheld.

        So half norms, or the time-like coordinates of a ball, keep words from being the nearest.
        """
        half_norms = half_norms[: self.release_words]
        if not self.withheld:
            return half_norms
        withheld = self.withheld.among(self.release_words)
        return np.where(withheld, np.float32(np.inf), half_norms)

    def operations(self, columns: int) -> float:
        """Estimate the operations that a search takes for a point of so many coordinates."""
        return 2.0 * self.release_words * columns

    def products(self, dimension: int) -> str | None:
        """Describe the products that score such vectors, if machines differ in them."""
        return None

    @staticmethod
    def named(spec: str) -> tuple[type[Search], dict[str, Any]]:
        """Read a search, such as ``ivf:probes=12``, and return its class and parameters."""
        name, parameters = parsed(spec)
        search = SEARCHES.get(name, Search)
        if name not in SEARCHES or len(parameters) > 1 or not search._allows(parameters):
            raise ConfigError(
                "The search (--search) cannot be read",
                allowed=", ".join(_forms()),
                got=repr(spec),
                do=nearest([name, *parameters], [*SEARCHES, *search.parameters]),
            )
        return search, parameters

    @classmethod
    def _allows(cls, parameters: Mapping[str, Any]) -> bool:
        for key, value in parameters.items():
            if key not in cls.parameters:
                return False
            _, is_allowed = cls.parameters[key]
            if not is_allowed(value):
                return False
        return True

    @classmethod
    def over(
        cls, embedding: Embedding | Path | str, release_words: int | None = None, **parameters: Any
    ) -> Self:
        """Create a search of a bundle's first words, two or more.

        By default these are all words that may be released.
        """
        embedding = Embedding.of(embedding)
        if release_words is None:
            release_words = embedding.releasable
        if not isinstance(release_words, Integral):
            raise must_be("--release-words", "a whole number", release_words)
        if not 2 <= release_words <= embedding.releasable:
            raise ConfigError(
                "The release vocabulary (--release-words) has an impossible size",
                allowed=f"2 to {embedding.releasable} words of this bundle",
                got=str(release_words),
            )
        return cls(release_words=release_words, **parameters)

    @abstractmethod
    def of_words(self, embedding: Embedding) -> NearestWords:
        """Return what finds the bundle's own words, by the distance of its geometry."""

    @abstractmethod
    def of_images(self, vectors: Floats32, half_norms: Floats32) -> NearestWords:
        """Return what finds images of the released words by Euclidean distance.

        The images are float32 (release_words, m), C order, in a space of their own; ``half_norms``
        is half the squared length of each.
        """


def _forms() -> Iterator[str]:
    """Yield the forms of all searches, with the allowed values of their parameters."""
    for name, search in sorted(SEARCHES.items()):
        yield name
        for key, (values, _) in search.parameters.items():
            yield f"{name}:{key}= ({values})"
