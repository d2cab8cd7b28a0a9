"""What the driver opens and checks before Spark starts."""

from __future__ import annotations

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import all_of
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import NoiseKey
from dptext_spark.options import PrivatizeOptions
from dptext_spark.search.nearest import Search
from dptext_spark.text.policies import TextPolicy


class Release:
    """Key, bundle, policy and mechanism of a release of words, checked against each other.

    Raises:
        ConfigError: Anything does not fit; all faults at once.
    """

    def __init__(self, options: PrivatizeOptions) -> None:
        key, embedding, policy = all_of(
            options.noise_key,
            lambda: Embedding.open(options.embedding),
            lambda: options.policy,
        )
        self.key: NoiseKey = key
        self.embedding: Embedding = embedding
        self.policy: TextPolicy = policy
        self.mechanism: Mechanism = options.mechanism
        self.search: Search
        self.search, _ = all_of(
            lambda: options.search_over(embedding, options.release_words),
            lambda: self.mechanism.prepare(embedding),
        )
        self.guarantee = self.mechanism.guarantee(embedding)
        self.noise = self.mechanism.release_noise(
            key, salt=options.salt, embedding=embedding, search=self.search
        )
