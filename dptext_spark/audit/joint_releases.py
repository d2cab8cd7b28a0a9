"""Joint releases by the code that sanitizes tables: what comes out, and what is claimed about it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptext_spark.accounting.joint import joint_loss
from dptext_spark.audit.sampling import COLUMN, nearest_to_vectors, row_of
from dptext_spark.audit.scenarios import Comparison, Release
from dptext_spark.audit.worlds import World
from dptext_spark.guarantee import Guarantee
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import NoiseKey
from dptext_spark.options import AuditOptions
from dptext_spark.privatizer import Privatizer
from dptext_spark.search.nearest import Search
from dptext_spark.text.policies import TextPolicy
from dptext_spark.vectors.projected_vectors import ProjectedVectors

_SLOTS: Final = pa.list_(pa.struct({"start": pa.int64(), "end": pa.int64()}))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the releases of a world are made."""

    world: World
    options: AuditOptions

    def mechanism(self, release: Release) -> Mechanism:
        """Configure the mechanism of a release."""
        audited = self.world.mechanism
        changed: dict[str, Any] = {"epsilon": audited.epsilon / 2.0} if release.halved else {}
        if release.t is not None:
            changed |= {"select": "vickrey", "t": release.t}
        return audited.model_copy(update=changed)

    def search(self, release: Release) -> Search:
        """Configure the search of a release."""
        return self.options.search_over(self.world.embedding, release.release_words)

    def claim(self, comparison: Comparison) -> tuple[float, float]:
        """Bound what the releases of two inputs lose together: nats, and an additional probability."""
        one, other = (
            [self._context(release) for release in way] for way in (comparison.one, comparison.other)
        )
        pairs = zip(comparison.one, comparison.other, strict=True)
        nats, deltas = zip(*(self._loss(*pair) for pair in pairs), strict=True)
        return joint_loss(one, other, nats), joint_loss(one, other, deltas)

    def _context(self, release: Release) -> Hashable:
        """Name the noise of a release: all that it must be a function of."""
        mechanism = self.mechanism(release)
        law = tuple(sorted(mechanism.law(self.world.embedding.dimension).items()))
        # Elsewhere the released words are looked for after the noise.
        words = self.search(release).release_words if mechanism.release_words_shape_law else None
        return release.label, release.row_id, release.row, law, words

    def _loss(self, one: Release, other: Release) -> tuple[float, float]:
        """Bound what one release loses; the words in which the inputs differ must be protected."""
        guarantee, nats = self._guarantees[one.halved], 0.0
        for word, changed in zip(one.row, other.row, strict=True):
            nats += self._apart(guarantee, word, changed)
        return nats, guarantee.delta if nats else 0.0

    def _apart(self, guarantee: Guarantee, word: str, other: str) -> float:
        if word == other:
            return 0.0
        embedding = self.world.embedding
        rows = np.array([row_of(embedding, word), row_of(embedding, other)])
        if (rows < 0).all():
            return 0.0  # what stands for an unknown word does not depend on it
        if (rows < 0).any():
            return math.inf
        metric = self.world.mechanism.metric(embedding)
        return guarantee.loss(float(metric.between(rows[:1], rows[1:])[0]))

    @cached_property
    def _guarantees(self) -> dict[bool, Guarantee]:
        mechanisms = {halved: self.mechanism(Release(row=(), halved=halved)) for halved in (False, True)}
        return {halved: m.guarantee(self.world.embedding) for halved, m in mechanisms.items()}


class Draw:
    """Joint outputs under one key: each release is made of so many rows alike, whose noise is independent.

    A release that several comparisons have is made once; one that an input has twice is made twice.
    """

    def __init__(self, settings: Settings, key: NoiseKey, runs: int) -> None:
        self._settings, self._key, self._runs = settings, key, runs
        self._made: dict[tuple[Release, int], pa.Array] = {}

    def outputs(self, comparison: Comparison) -> list[pa.Array]:
        """Give what came out for each input, string (runs,): all releases' outputs, side by side."""
        return [self._together(comparison.one), self._together(comparison.other)]

    def _together(self, releases: Sequence[Release]) -> pa.Array:
        times = [releases[:place].count(release) for place, release in enumerate(releases)]
        for made in {*zip(releases, times, strict=True)} - self._made.keys():
            self._made[made] = self._seen(made[0])
        outputs = [self._made[made] for made in zip(releases, times, strict=True)]
        return pc.binary_join_element_wise(*outputs, " | ")

    def _seen(self, release: Release) -> pa.Array:
        made = self._release(release)
        return pc.binary_join(made, " ") if release.seen is None else pc.list_element(made, release.seen)

    def _release(self, release: Release) -> pa.Array:
        """Release the rows: list of string (runs,)."""
        settings, runs = self._settings, self._runs
        embedding, search = settings.world.embedding, settings.search(release)
        mechanism = settings.mechanism(release)
        noisy = settings.world.mechanism if release.misled else mechanism
        noise = noisy.release_noise(self._key, salt=release.label, embedding=embedding, search=search)
        ids = pa.array([f"{release.row_id} {run}" for run in range(runs)])
        if isinstance(mechanism, ProjectedVectors):
            words = np.full(runs, row_of(embedding, release.row[0]))
            names = nearest_to_vectors(embedding, mechanism, words, ids, noise, search)
            return pa.ListArray.from_arrays(np.arange(runs + 1, dtype=np.int32), names)
        privatizer = Privatizer(
            embedding=embedding,
            mechanism=mechanism,
            noise=noise,
            search=search,
            policy=TextPolicy(oov=release.oov, protect=release.protect),
        )
        rows = pa.array([list(release.row)] * runs, pa.list_(pa.string()))
        spans = [{"start": place, "end": place + 1} for place in release.slots]
        slots = pa.array([spans] * runs, _SLOTS)
        return privatizer.sanitize(rows, ids, column=COLUMN, slots=slots).values
