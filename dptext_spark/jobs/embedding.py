"""The job of ``dptext embedding``: a public embedding in, a bundle out; it needs no Spark."""

from __future__ import annotations

from dataclasses import asdict

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.lists import index_lists, make_lists
from dptext_spark.embedding.readers import LeftOut
from dptext_spark.embedding.word_lists import Matches
from dptext_spark.options import EmbeddingOptions
from dptext_spark.report.facts import Facts, Report, embedding_json
from dptext_spark.search.withheld import withheld_by
from dptext_spark.text.policies import TextPolicy


def run(options: EmbeddingOptions) -> Report:
    """Run ``dptext embedding``; where the index cannot be made, the bundle is whole without it."""
    arguments = dict(options)
    index = arguments.pop("index")
    left_out: list[LeftOut] = []
    matches: list[Matches] = []
    embedding = build_embedding(**arguments, left_out=left_out, matches=matches)
    lines = [f"{embedding.path}: {embedding.manifest.describe()}"]
    lines += [f"Left out: {words.describe()}" for words in left_out]
    lines += map(Matches.describe, matches)
    withheld = embedding.releasable
    withheld -= len(withheld_by(TextPolicy(), embedding).others(embedding.releasable))
    if withheld:
        lines.append(
            f"Words that look like identifiers or numbers: {withheld:,}; releases do not output "
            "them, unless --identifiers off --numbers words"
        )
    facts: Facts = {
        "output": str(embedding.path),
        "embedding": {
            **embedding_json(embedding),
            "release_words": embedding.releasable,
            "withheld_words": withheld,
        },
        "left_out": [*map(asdict, left_out)],
        "word_lists": {match.option: match.to_json() for match in matches},
        "index": None,
    }
    if index is not None:
        lists = len(make_lists(embedding, index_lists(index)).centroids)
        facts["index"] = f"ivf:{lists}"
        lines.append(f"Index: ivf, {lists:,} lists")
    return Report(facts=facts, text="\n".join(lines))
