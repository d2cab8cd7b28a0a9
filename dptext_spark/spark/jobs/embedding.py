"""The job of ``dptext embedding``: a public embedding in, a bundle out; it needs no Spark."""

from __future__ import annotations

from dataclasses import dataclass

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.options import EmbeddingOptions
from dptext_spark.report.facts import embedding_json, written


@dataclass(frozen=True, kw_only=True)
class BuiltBundle:
    """The account of one run of ``dptext embedding``."""

    embedding: Embedding

    def to_json(self) -> str:
        """Write the account as JSON text."""
        manifest = self.embedding.manifest
        return written(
            {
                "output": str(self.embedding.path),
                "embedding": {**embedding_json(self.embedding), "release_words": manifest.releasable},
            }
        )

    def describe(self) -> str:
        """Say what was built."""
        return f"{self.embedding.path}: {self.embedding.manifest.describe()}"


def run(options: EmbeddingOptions) -> BuiltBundle:
    """Run ``dptext embedding``.

    Raises:
        BundleError: An option or a row of the source is wrong; no bundle is written then.
    """
    return BuiltBundle(embedding=build_embedding(**dict(options)))
