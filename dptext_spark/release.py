"""One release of texts: everything that decides what comes out, except for the key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dptext_spark.accounting.laws import SphericalLaplace
from dptext_spark.accounting.row_budget import RowBudget, RowEpsilons
from dptext_spark.arguments import must_be, naming_arguments
from dptext_spark.display import Displayed
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.guarantee import Guarantee, TypicalDistances
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import NoiseKey, ReleaseNoise
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import Search
from dptext_spark.text.policies import TextPolicy
from dptext_spark.word_reader import Bundle, WordReader


@dataclass(frozen=True, kw_only=True, repr=False)
class Release(Displayed):
    """Everything that decides a release except the key; small, picklable, comparable."""

    bundle: Bundle
    mechanism: Mechanism
    search: Search
    policy: TextPolicy = field(default_factory=TextPolicy)
    # By a row's number of words; None where all have the mechanism's.
    row_epsilons: RowEpsilons | None = None
    name: str = ""  # keeps the noise of tables apart that share a key

    @classmethod
    @naming_arguments()
    def open(
        cls,
        *,
        embedding: Embedding | Path | str,
        mechanism: Mechanism | str,
        epsilon: float | None = None,
        search: Search | None = None,
        policy: TextPolicy | None = None,
        row_budget: RowBudget | None = None,
        name: str = "",
    ) -> Release:
        """Check that the parts go together, and compute what workers need of them, once.

        Args:
            mechanism: Such as ``Laplace(epsilon=15)``, or its name with ``epsilon``.
            search: By default exact, among all words that the bundle allows.
            policy: By default all words are protected and unknown ones masked; texts are their
                words alone.
            row_budget: What a row may lose; the mechanism's epsilon is then the largest that a row
                gets.
            name: Of what is released, such as the table and its date.
        """
        embedding = Embedding.of(embedding)
        mechanism = Mechanism.of(mechanism, epsilon)
        if search is not None and not isinstance(search, Search):
            raise must_be(
                "search", "a Search", search, "Leave it out for exact search among all words"
            )
        if not isinstance(name, str):
            raise must_be("name", "text, such as 'queries 2026-03-01'", name)
        mechanism.prepare(embedding)
        policy = TextPolicy.of(policy)
        search = search or ExactSearch.over(embedding)
        row_epsilons = None
        if row_budget is not None:
            if not isinstance(row_budget, RowBudget):
                raise must_be(
                    "row_budget", "a RowBudget, such as RowBudget(loss=50, within=3)", row_budget
                )
            row_epsilons = mechanism.row_epsilons(row_budget, embedding)
        return cls(
            bundle=embedding,
            mechanism=mechanism,
            search=search.without_marks(policy, embedding),
            policy=policy,
            row_epsilons=row_epsilons,
            name=name,
        )

    def blocks(self) -> Iterator[Any]:
        """Yield a table of what decides what comes out."""
        search = f"{self.search.label}, among {len(self.search.outputs):,} words"
        rows = [
            ["mechanism", str(self.mechanism)],
            ["embedding", repr(self.bundle)],
            ["search", search],
        ]
        if self.name:
            rows.append(["name", self.name])
        if self.row_epsilons is not None:
            rows.append(["row budget", str(self.row_epsilons.budget)])
        rows += [[name.replace("_", "-"), str(value)] for name, value in self.policy if value]
        yield {"title": "Release", "table": rows, "numbers": False}

    @property
    def embedding(self) -> Embedding:
        """The open embedding."""
        return self.bundle.shared()

    @property
    def reader(self) -> WordReader:
        """How columns are read."""
        return WordReader(bundle=self.bundle, policy=self.policy)

    def noise(self, key: NoiseKey | None = None) -> ReleaseNoise:
        """Derive the noise of this release from the user's key, or from a discarded fresh key."""
        return self.mechanism.release_noise(
            key or NoiseKey.generate(),
            salt=self.name,
            embedding=self.embedding,
            search=self.search,
            epsilons=self.row_epsilons,
        )

    def guarantee(self) -> Guarantee:
        """Return the guarantee; measures typical word distances."""
        return self.mechanism.guarantee(self.embedding, search=self.search)


def euclidean_guarantee(guarantee: Guarantee, embedding: Embedding) -> Guarantee:
    """Return a guarantee as a ledger adds it up: in Euclidean distance, where that has an epsilon.

    There the unit is the same for every lambda.
    """
    metric = embedding.space.metric()
    epsilon = guarantee.euclidean_epsilon
    law = guarantee.law
    if epsilon is None or guarantee.metric == metric.description:
        return guarantee
    if not isinstance(law, SphericalLaplace):
        return guarantee
    # Noise that is spherical in the mechanism's norm: a loss grows with the norm of the difference,
    # which is epsilon / guarantee.epsilon of its Euclidean length at most.
    return replace(
        guarantee,
        metric=metric.description,
        epsilon=epsilon,
        law=replace(law, epsilon=epsilon),
        distances=TypicalDistances.measure(metric),
    )
