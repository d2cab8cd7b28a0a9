"""The job of ``dptext embedding``: a public embedding in, a bundle out; it needs no Spark."""

from __future__ import annotations

from dataclasses import dataclass

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.lists import index_lists, make_lists
from dptext_spark.options import EmbeddingOptions
from dptext_spark.report.facts import embedding_json, written


@dataclass(frozen=True, kw_only=True)
class BuiltBundle:
    """The account of one run of ``dptext embedding``.

    Attributes:
        lists: How many lists its index has, if it was asked for one.
    """

    embedding: Embedding
    lists: int | None = None

    def to_json(self) -> str:
        """Write the account as JSON text."""
        manifest = self.embedding.manifest
        return written(
            {
                "output": str(self.embedding.path),
                "embedding": {**embedding_json(self.embedding), "release_words": manifest.releasable},
                "index": None if self.lists is None else f"ivf:{self.lists}",
            }
        )

    def describe(self) -> str:
        """Say what was built."""
        index = "" if self.lists is None else f"\nIndex: ivf, {self.lists:,} lists"
        return f"{self.embedding.path}: {self.embedding.manifest.describe()}{index}"


def run(options: EmbeddingOptions) -> BuiltBundle:
    """Run ``dptext embedding``.

    Raises:
        BundleError: An option or a row of the source is wrong; no bundle is written then.
        ConfigError: The index cannot be made; the bundle is whole without it.
    """
    given = dict(options)
    index = given.pop("index")
    embedding = build_embedding(**given)
    if index is None:
        return BuiltBundle(embedding=embedding)
    lists = make_lists(embedding, index_lists(index))
    return BuiltBundle(embedding=embedding, lists=len(lists.centroids))
