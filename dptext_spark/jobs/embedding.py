"""The job of ``dptext embedding``: a public embedding in, a bundle out; it needs no Spark."""

from __future__ import annotations

from dataclasses import asdict

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.lists import index_lists, make_lists
from dptext_spark.embedding.readers import LeftOut
from dptext_spark.embedding.word_lists import Matches
from dptext_spark.options import EmbeddingOptions
from dptext_spark.report.facts import Report, embedding_json


def run(options: EmbeddingOptions) -> Report:
    """Run ``dptext embedding``; where the index cannot be made, the bundle is whole without it."""
    given = dict(options)
    index = given.pop("index")
    left_out: list[LeftOut] = []
    matches: list[Matches] = []
    embedding = build_embedding(**given, left_out=left_out, matches=matches)
    lists = None if index is None else len(make_lists(embedding, index_lists(index)).centroids)
    facts = {
        "output": str(embedding.path),
        "embedding": {**embedding_json(embedding), "release_words": embedding.releasable},
        "left_out": [asdict(each) for each in left_out],
        "word_lists": {each.option: each.to_json() for each in matches},
        "index": None if lists is None else f"ivf:{lists}",
    }
    lines = [f"{embedding.path}: {embedding.manifest.describe()}"]
    lines += [f"Left out: {each.describe()}" for each in left_out]
    lines += [each.describe() for each in matches]
    lines += [] if lists is None else [f"Index: ivf, {lists:,} lists"]
    return Report(facts=facts, text="\n".join(lines))
