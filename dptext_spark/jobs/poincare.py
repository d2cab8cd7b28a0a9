"""The job around the Poincaré embedding: pairs in, filtered by Spark, a bundle out."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptext_spark import interrupts
from dptext_spark.bars import progress
from dptext_spark.embedding.build import NEVER_OUTPUT, build_embedding, check_output, choose
from dptext_spark.embedding.bundle import Embedding, Manifest
from dptext_spark.embedding.word_lists import ALLOWED, Matches, WordList
from dptext_spark.errors import ConfigError, InputError, all_of
from dptext_spark.options import PoincareOptions
from dptext_spark.poincare import Relations, Settings, measure, train
from dptext_spark.poincare.pairs import filter_pairs, read_pairs, unreadable_pairs
from dptext_spark.report.facts import Report
from dptext_spark.report.text import announce_missing, missing_library
from dptext_spark.spark.failures import spark_errors
from dptext_spark.spark.session import session
from dptext_spark.tables.storage import Storage, is_absent
from dptext_spark.text.joined import matchable, unique_forms


def run(options: PoincareOptions) -> Report:
    """Run ``dptext poincare``: filter with Spark, train, write bundle, text, picture and report."""
    vocabulary, denied, _ = all_of(
        lambda: options.vocabulary and read_words(options.vocabulary),
        lambda: options.never_output and WordList.read(options.never_output, NEVER_OUTPUT),
        lambda: _check_outputs(options),
    )
    if is_absent(options.pairs):
        raise unreadable_pairs(options.pairs)
    announce_missing("the picture")
    relations, filtered = filtered_relations(options, vocabulary)
    is_matchable = matchable(unique_forms(relations.words))
    _, matches = choose(relations.words, is_matchable, None, denied)
    names = Settings.__dataclass_fields__
    settings = Settings(**{name: getattr(options, name) for name in names})
    vectors, training = train(relations, settings)
    interrupts.hold_to_the_end()  # a bundle has its report next to it
    manifest, picture = _write(options, relations, vectors)
    word_lists = {match.option: match.to_json() for match in matches.values()}
    facts = {
        "options": options.model_dump(mode="json", by_alias=True),
        **filtered,
        "training": training,
        "quality": measure(vectors, relations),
        "fingerprint": manifest.fingerprint,
        "releasable": manifest.releasable,
        "unmatchable": manifest.unmatchable,
        "never_output": manifest.never_output,
        "word_lists": word_lists,
        "picture": picture,
    }
    lines = [*_lines(facts), manifest.describe()]
    lines += map(Matches.describe, matches.values())
    report = Report(facts=facts, text="\n".join(lines))
    report.finish(options.beside("report.json"))
    return report


def filtered_relations(
    options: PoincareOptions, vocabulary: Sequence[str] | None
) -> tuple[Relations, dict[str, Any]]:
    """Read and filter the pairs; return them with what each filter did."""
    spark = session("dptext poincare")
    place = Storage(spark).pattern(options.pairs)  # refuses what Spark has no library for
    with spark_errors("The pairs could not be filtered"), progress(spark, "Filtering pairs"):
        steps, table = filter_pairs(
            read_pairs(spark, place),
            vocabulary=vocabulary,
            min_count=options.min_count,
            min_links=options.min_links,
        )
    if steps[-1]["left"] == 0:
        listed = "; ".join(
            f"{step['left']:,} after {step['removed']:,} {step['name']}" for step in steps
        )
        raise InputError(
            "The filters leave no pair", got=listed, do="Loosen the filter that removes most"
        )
    hyponyms = table["hyponym"].to_pylist()
    hypernyms = table["hypernym"].to_pylist()
    relations = Relations.from_words(hyponyms, hypernyms, order=vocabulary or ())
    cycles = relations.cycles()
    if options.transitive_closure:
        pairs_before = len(relations.pairs)
        relations = relations.closure()
        pairs = len(relations.pairs)
        step = {"name": "added by the transitive closure", "removed": pairs_before - pairs}
        steps.append({**step, "left": pairs})
    facts = {
        "rows": steps[0]["removed"] + steps[0]["left"],
        "steps": steps,
        "cycles": cycles,
        "words": len(relations.words),
        "pairs": len(relations.pairs),
    }
    return relations, facts


def read_words(path: Path) -> list[str]:
    """Read the words of a bundle, or of a list, in their order."""
    if path.is_dir():
        words: list[str] = Embedding.open(path).words.to_pylist()
        return words
    lines = WordList.read(path, "--vocabulary", f"an embedding bundle, or {ALLOWED}").lines
    return [*map(str.strip, lines.values())]


def _check_outputs(options: PoincareOptions) -> None:
    """Check that neither the bundle nor a file next to it exists, unless they are replaced."""
    check_output(options.output, options.overwrite)
    if options.overwrite:
        return
    paths = map(options.beside, ("report.json", "vec", "png"))
    files = [str(path) for path in paths if path.exists()]
    if files:
        raise ConfigError(
            "Files next to the output exist",
            got=", ".join(files),
            do="Remove them, or allow --overwrite",
        )


def _write(
    options: PoincareOptions, relations: Relations, vectors: NDArray[np.float64]
) -> tuple[Manifest, str | None]:
    """Write text form (word2vec's, without loss), bundle and, if it can be drawn, picture."""
    text = options.beside("vec")
    picture = options.beside("png")
    parent = options.output.absolute().parent
    with tempfile.TemporaryDirectory(prefix=".dptext-poincare-", dir=parent) as folder:
        source = Path(folder, text.name)
        with source.open("w", encoding="utf-8", newline="\n") as file:
            file.write(f"{len(vectors)} {vectors.shape[1]}\n")
            for word, vector in zip(relations.words, vectors.tolist(), strict=True):
                file.write(f"{word} {' '.join(map(repr, vector))}\n")
        bundle = build_embedding(
            source,
            options.output,
            geometry="poincare",
            format="text",
            strict=True,
            never_output=options.never_output,
            overwrite=options.overwrite,
        )
        source.replace(text)
        if missing_library():
            picture.unlink(missing_ok=True)  # the one of the bundle that was here before
            return bundle.manifest, None
        from dptext_spark.poincare.picture import draw  # slow to load, and not everywhere

        image = Path(folder, picture.name)
        draw(vectors, relations, image)
        image.replace(picture)
    return bundle.manifest, picture.name


def _lines(facts: Mapping[str, Any]) -> list[str]:
    """Return what the filters left, how training went, and how good the points are."""
    cycles = facts["cycles"]
    training = facts["training"]
    quality = facts["quality"]
    ranks = quality["reconstruction"]
    low, median, high = quality["nearest_distances"]
    lines = [f"{facts['rows']:>12,} rows"]
    for step in facts["steps"]:
        word = "after" if step["removed"] >= 0 else "with"
        lines.append(f"{step['left']:>12,} {word} {abs(step['removed']):,} {step['name']}")
    lines += [
        "",
        f"{facts['words']:,} words, {facts['pairs']:,} pairs; on cycles: {cycles['pairs']:,} pairs "
        f"of {cycles['words']:,} words in {cycles['groups']:,} groups",
    ]
    lines += [
        f"Trained for {training['epochs']} epochs, the best after {training['best_epoch']}.",
        f"Mean rank of true hypernyms {ranks['mean_rank']:.2f}, "
        f"mean average precision {ranks['mean_average_precision']:.3f} "
        f"({ranks['words']:,} of {ranks['all_words']:,} hyponyms).",
    ]
    lines += [
        f"Hyperbolic distance to the nearest word: median {median:.2f}, "
        f"5th and 95th percentile {low:.2f} and {high:.2f}.",
        "Nearest words:",
    ]
    for word, neighbours in quality["neighbours"].items():
        lines.append(f"  {word}: {', '.join(neighbours)}")
    return lines
