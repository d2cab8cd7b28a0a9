"""The job around the Poincaré embedding: pairs in, filtered by Spark, a bundle and its report out."""

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
from dptext_spark.embedding.word_lists import ALLOWED, WordList
from dptext_spark.errors import ConfigError, InputError, all_of
from dptext_spark.options import PoincareOptions
from dptext_spark.poincare import Relations, Settings, measure, train
from dptext_spark.poincare.pairs import filter_pairs, read_pairs, unreadable_pairs
from dptext_spark.report.facts import Report
from dptext_spark.report.text import announce_missing, missing_library
from dptext_spark.spark.failures import plain_errors
from dptext_spark.spark.session import session
from dptext_spark.tables.storage import Storage, is_absent
from dptext_spark.text.joined import matchable, unique_forms


def run(options: PoincareOptions) -> Report:
    """Run ``dptext poincare``: filter with Spark, train, write bundle, text form, picture and report."""
    vocabulary, denied, _ = all_of(
        lambda: options.vocabulary and read_words(options.vocabulary),
        lambda: options.never_output and WordList.read(options.never_output, NEVER_OUTPUT),
        lambda: _check_outputs(options),
    )
    if is_absent(options.pairs):
        raise unreadable_pairs(options.pairs)
    announce_missing("the picture")
    relations, filtered = filtered_relations(options, vocabulary)
    matches = choose(relations.words, matchable(unique_forms(relations.words)), None, denied)[
        1
    ].values()
    settings = Settings(**{name: getattr(options, name) for name in Settings.__dataclass_fields__})
    vectors, training = train(relations, settings)
    interrupts.hold_to_the_end()  # a bundle has its report next to it
    manifest, picture = _write(options, relations, vectors)
    facts = {
        "options": options.model_dump(mode="json", by_alias=True),
        **filtered,
        "training": training,
        "quality": measure(vectors, relations),
        "fingerprint": manifest.fingerprint,
        "releasable": manifest.releasable,
        "unmatchable": manifest.unmatchable,
        "never_output": manifest.never_output,
        "word_lists": {each.option: each.to_json() for each in matches},
        "picture": picture,
    }
    lines = [*_lines(facts), manifest.describe(), *(each.describe() for each in matches)]
    report = Report(facts=facts, text="\n".join(lines))
    report.finish(options.beside("report.json"))
    return report


def filtered_relations(
    options: PoincareOptions, vocabulary: Sequence[str] | None
) -> tuple[Relations, dict[str, Any]]:
    """Read and filter the pairs; give them with what each filter did."""
    spark = session("dptext poincare")
    place = Storage(spark).pattern(options.pairs)  # refuses what Spark has no library for
    with plain_errors("The pairs could not be filtered"), progress(spark, "Filtering pairs"):
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
    words = (table[end].to_pylist() for end in ("hyponym", "hypernym"))
    relations = Relations.from_words(*words, order=vocabulary or ())
    cycles = relations.cycles()
    if options.transitive_closure:
        removed, relations = len(relations.pairs), relations.closure()
        left = len(relations.pairs)
        steps.append(
            {"name": "added by the transitive closure", "removed": removed - left, "left": left}
        )
    rows = steps[0]["removed"] + steps[0]["left"]
    counts = {"words": len(relations.words), "pairs": len(relations.pairs)}
    facts = {"rows": rows, "steps": steps, "cycles": cycles, **counts}
    return relations, facts


def read_words(path: Path) -> list[str]:
    """Read the words of a bundle, or of a list, in their order."""
    if path.is_dir():
        words: list[str] = Embedding.open(path).words.to_pylist()
        return words
    lines = WordList.read(path, "--vocabulary", f"an embedding bundle, or {ALLOWED}").lines
    return [line.strip() for line in lines.values()]


def _check_outputs(options: PoincareOptions) -> None:
    check_output(options.output, options.overwrite)
    written = map(options.beside, ("report.json", "vec", "png"))
    if not options.overwrite and (there := [str(path) for path in written if path.exists()]):
        raise ConfigError(
            "Files next to the output exist",
            got=", ".join(there),
            do="Remove them, or allow --overwrite",
        )


def _write(
    options: PoincareOptions, relations: Relations, vectors: NDArray[np.float64]
) -> tuple[Manifest, str | None]:
    """Write text form (word2vec's, without loss), bundle and, if it can be drawn, picture."""
    text, picture = options.beside("vec"), options.beside("png")
    with tempfile.TemporaryDirectory(
        prefix=".dptext-poincare-", dir=options.output.absolute().parent
    ) as made:
        source, drawn = Path(made, text.name), Path(made, picture.name)
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

        draw(vectors, relations, drawn)
        drawn.replace(picture)
    return bundle.manifest, picture.name


def _lines(facts: Mapping[str, Any]) -> list[str]:
    on, training, quality = facts["cycles"], facts["training"], facts["quality"]
    ranks = quality["reconstruction"]
    low, half, high = quality["nearest_distances"]
    steps = (
        f"{step['left']:>12,} {'after' if step['removed'] >= 0 else 'with'} {abs(step['removed']):,} "
        f"{step['name']}"
        for step in facts["steps"]
    )
    lines = [
        f"{facts['rows']:>12,} rows",
        *steps,
        "",
        f"{facts['words']:,} words, {facts['pairs']:,} pairs; on cycles: "
        f"{on['pairs']:,} pairs of {on['words']:,} words in {on['groups']:,} groups",
        f"Trained for {training['epochs']} epochs, the best after {training['best_epoch']}.",
        f"Mean rank of true hypernyms {ranks['mean_rank']:.2f}, mean average precision "
        f"{ranks['mean_average_precision']:.3f} ({ranks['words']:,} of {ranks['all_words']:,} hyponyms).",
        f"Hyperbolic distance to the nearest word: median {half:.2f}, 5th and 95th percentile {low:.2f} "
        f"and {high:.2f}.",
    ]
    near = (f"  {word}: {', '.join(words)}" for word, words in quality["neighbours"].items())
    return [*lines, "Nearest words:", *near]
