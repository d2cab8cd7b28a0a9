"""The job of ``dptext embedding``: a public embedding in, a bundle out; it needs no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dptext_spark.embedding.build import build_embedding, list_matches
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.lists import index_lists, make_lists
from dptext_spark.embedding.word_lists import Matches
from dptext_spark.options import EmbeddingOptions
from dptext_spark.report.facts import embedding_json, written


@dataclass(frozen=True, kw_only=True)
class BuiltBundle:
    """What one run of ``dptext embedding`` made.

    Attributes:
        matches: Of the lists of words that were given.
        lists: How many lists its index has; None where it has no index.
    """

    embedding: Embedding
    matches: Sequence[Matches]
    lists: int | None

    def to_json(self) -> str:
        """Write what was made as JSON text."""
        facts = {**embedding_json(self.embedding), "release_words": self.embedding.releasable}
        return written(
            {
                "output": str(self.embedding.path),
                "embedding": facts,
                "word_lists": {matches.option: matches.to_json() for matches in self.matches},
                "index": None if self.lists is None else f"ivf:{self.lists}",
            }
        )

    def describe(self) -> str:
        """Say what was made."""
        lines = [f"{self.embedding.path}: {self.embedding.manifest.describe()}"]
        lines += [matches.describe() for matches in self.matches]
        lines += [] if self.lists is None else [f"Index: ivf, {self.lists:,} lists"]
        return "\n".join(lines)


def run(options: EmbeddingOptions) -> BuiltBundle:
    """Run ``dptext embedding``.

    Raises:
        BundleError: An option or a row of the source is wrong; no bundle is written then.
        ConfigError: The index cannot be made; the bundle is whole without it.
    """
    given = dict(options)
    index = given.pop("index")
    embedding = build_embedding(**given)
    word_lists = {name: given[name] for name in ("release_words", "never_output")}
    matches = list_matches(embedding.words.to_pylist(), **word_lists)
    lists = None if index is None else len(make_lists(embedding, index_lists(index)).centroids)
    return BuiltBundle(embedding=embedding, matches=matches, lists=lists)
