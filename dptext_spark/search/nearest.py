"""What every search is: a value that says how the nearest released word is found, and what finds it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, nearest, parsed
from dptext_spark.geometry import Floats, Floats32, Ints


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
        """Find the two nearest likewise: word ids (t, 2), the nearest first, and their distances (t, 2)."""


SEARCHES: Final[dict[str, type[Search]]] = {}


@dataclass(frozen=True, kw_only=True)
class Search(ABC):
    """How released words are searched: small, picklable, comparable. Subclasses register under their name.

    What a search finds must be a function of the point alone, whatever the batch and the number of threads:
    then it is post-processing of the noisy point, and leaves every guarantee as it is.
    """

    name: ClassVar[str]  # as reports have it
    # Whether the points with one answer are a convex set, which bounds of finite arithmetic count on.
    convex_cells: ClassVar[bool] = True
    # What may follow its name in options, one of them: in words, and whether a value is allowed.
    parameters: ClassVar[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {}
    release_words: int  # how many words, the first ones, may be output

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        SEARCHES[cls.name] = cls

    @property
    def label(self) -> str:
        """What reports call it: two searches that find different words have different labels."""
        return self.name

    @property
    def options(self) -> dict[str, str]:
        """The options that choose it again; none for the default."""
        return {} if self.name == "exact" else {"search": self.name}

    def operations(self, columns: int) -> float:
        """Estimate the operations that a search takes for a point of so many coordinates."""
        return 2.0 * self.release_words * columns

    def products(self, dimension: int) -> str | None:
        """Say what scores of vectors of this dimension are computed with first, where machines differ."""
        return None

    @staticmethod
    def named(spec: str) -> tuple[type[Search], dict[str, Any]]:
        """Read a search as options name it, ``exact`` or ``ivf:probes=12``: its class and parameters."""
        name, given = parsed(spec)
        kind = SEARCHES.get(name, Search)
        right = [
            key in kind.parameters and kind.parameters[key][1](value)
            for key, value in given.items()
        ]
        if name not in SEARCHES or len(given) > 1 or not all(right):
            forms = ", ".join(
                form
                for known, other in sorted(SEARCHES.items())
                for form in (
                    known,
                    *(f"{known}:{key}= ({r})" for key, (r, _) in other.parameters.items()),
                )
            )
            do = nearest([name, *given], [*SEARCHES, *kind.parameters])
            raise ConfigError(
                "The search (--search) cannot be read", allowed=forms, got=repr(spec), do=do
            )
        return kind, given

    @classmethod
    def over(
        cls, embedding: Embedding | Path | str, release_words: int | None = None, **parameters: Any
    ) -> Self:
        """Search the first so many words, two or more, of a bundle; by default all that may be released."""
        embedding = Embedding.of(embedding)
        wanted = embedding.releasable if release_words is None else release_words
        if not 2 <= wanted <= embedding.releasable:
            raise ConfigError(
                "The release vocabulary (--release-words) has an impossible size",
                allowed=f"2 to {embedding.releasable} words of this bundle",
                got=str(wanted),
            )
        return cls(release_words=wanted, **parameters)

    @abstractmethod
    def of_words(self, embedding: Embedding) -> NearestWords:
        """Get ready to find the bundle's own words, by the distance of its geometry."""

    @abstractmethod
    def of_images(self, vectors: Floats32, half_norms: Floats32) -> NearestWords:
        """Get ready to find images of the released words by Euclidean distance, in a space of their own.

        They are float32 (release_words, m), C order; ``half_norms`` is half the squared length of each.
        """
