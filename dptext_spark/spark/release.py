"""What the driver opens and checks before Spark starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dptext_spark.accounting.laws import SphericalLaplace
from dptext_spark.calibration.recall import recall_of
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import all_of
from dptext_spark.guarantee import Distances, Guarantee
from dptext_spark.noise import NoiseKey
from dptext_spark.options import PrivatizeOptions
from dptext_spark.search.nearest import Search
from dptext_spark.text.policies import TextPolicy


class Release:
    """Key, bundle, policy and mechanism of a release of words, checked against each other.

    Args:
        options: They name them.
        others: What else is checked with them.

    Raises:
        ConfigError: Anything does not fit; all faults at once.
    """

    key: NoiseKey
    embedding: Embedding
    policy: TextPolicy
    search: Search

    @property
    def accounted(self) -> Guarantee:
        """The guarantee as a ledger adds it up: in Euclidean distance, where an epsilon is proven in that.

        There every lambda is the same unit.
        """
        given, metric = self.guarantee, self.embedding.space.metric()
        epsilon, law = given.euclidean_epsilon, given.law
        if epsilon is None or given.metric == metric.description or not isinstance(law, SphericalLaplace):
            return given
        # Noise that is spherical in the mechanism's norm: a loss grows with the norm of the difference, which
        # is epsilon / given.epsilon of its Euclidean length at most.
        return replace(
            given,
            metric=metric.description,
            epsilon=epsilon,
            law=replace(law, epsilon=epsilon),
            distances=Distances.measure(metric),
        )

    def __init__(self, options: PrivatizeOptions, *others: Callable[[], object]) -> None:
        self.mechanism = options.mechanism
        self.key, self.policy, *_ = all_of(
            options.noise_key,
            lambda: options.policy,
            lambda: Embedding.open(options.embedding, verify=False),
            *others,
        )
        self.embedding = Embedding.open(options.embedding)  # to hash a large bundle takes seconds: last
        self.search, _ = all_of(
            lambda: options.search_over(self.embedding, options.release_words),
            lambda: self.mechanism.prepare(self.embedding),
        )
        self.recall = recall_of(self.search, self.mechanism, self.embedding)
        self.guarantee = self.mechanism.guarantee(self.embedding, search=self.search)
        far = self.guarantee.distances
        budget = options.rows_budget(far.nearest if far else 1.0)
        self.ladder = None if budget is None else self.mechanism.ladder(budget, self.embedding)
        self.noise = self.mechanism.release_noise(
            self.key,
            salt=options.name,
            embedding=self.embedding,
            search=self.search,
            ladder=self.ladder,
        )
