"""The job around the Poincaré embedding: pairs in, filtered by Spark, a bundle and its report out."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dptext_spark import interrupts
from dptext_spark.embedding.build import NEVER_OUTPUT, build_embedding, check_output, list_matches
from dptext_spark.embedding.bundle import Embedding, Manifest
from dptext_spark.embedding.word_lists import ALLOWED, WordList
from dptext_spark.errors import ConfigError, InputError, all_of
from dptext_spark.options import PoincareOptions
from dptext_spark.poincare import Relations, Settings, Trainer, measure
from dptext_spark.poincare.summary import Filtered, PoincareReport, Step
from dptext_spark.report import drawing
from dptext_spark.spark.failures import plain_errors
from dptext_spark.spark.pairs import filter_pairs, read_pairs, unreadable_pairs
from dptext_spark.spark.progress import progress
from dptext_spark.spark.session import session
from dptext_spark.tables.beforehand import is_absent
from dptext_spark.tables.storage import Storage


def run(options: PoincareOptions) -> PoincareReport:
    """Run ``dptext poincare``: filter with Spark, train, write bundle, text form, picture and report.

    Returns:
        The report, which lies beside the bundle too.

    Raises:
        DptextError: Options or input are wrong, or the job failed; no bundle is written then.
    """
    vocabulary, excluded, *_ = all_of(
        lambda: None if options.vocabulary is None else read_words(options.vocabulary, "--vocabulary"),
        lambda: [] if options.exclude is None else read_words(options.exclude, "--exclude"),
        lambda: _check_outputs(options),
        lambda: None if options.never_output is None else WordList.read(options.never_output, NEVER_OUTPUT),
    )
    if is_absent(options.pairs):
        raise unreadable_pairs(options.pairs)
    drawing.announce("the picture", drawing.PICTURE)
    found = filtered_relations(options, vocabulary, excluded)
    matches = list_matches(found.relations.words, never_output=options.never_output)
    settings = Settings(**{name: getattr(options, name) for name in Settings.__dataclass_fields__})
    trained = Trainer(relations=found.relations, settings=settings, checkpoint=options.checkpoint).run()
    interrupts.hold_to_the_end()  # a bundle has its report beside it
    manifest, picture = _write(options, found.relations, trained.vectors)
    report = PoincareReport(
        options=options.model_dump(mode="json", by_alias=True),
        found=found,
        trained=trained,
        quality=measure(trained.vectors, found.relations),
        bundle=manifest,
        matches=matches,
        picture=picture,
    )
    options.report_path.write_text(report.to_json(), encoding="utf-8")
    return report


def filtered_relations(
    options: PoincareOptions, vocabulary: Sequence[str] | None, excluded: Sequence[str]
) -> Filtered:
    """Read and filter the pairs of a run to those of a vocabulary, None for all, less the excluded words.

    Raises:
        InputError: The pairs cannot be read, or none is left.
    """
    spark = session("dptext poincare")
    Storage(spark).qualified(options.pairs)  # refuses what Spark has no library for
    with plain_errors("The pairs could not be filtered"), progress(spark, "Filtering pairs"):
        steps, table = filter_pairs(
            read_pairs(spark, options.pairs),
            vocabulary=vocabulary,
            excluded=excluded,
            min_count=options.min_count,
            min_links=options.min_links,
        )
    if steps[-1].left == 0:
        listed = "; ".join(f"{step.left:,} {step.describe()}" for step in steps)
        raise InputError("The filters leave no pair", got=listed, do="Loosen the filter that removes most")
    relations = Relations.of(
        table["hyponym"].to_pylist(), table["hypernym"].to_pylist(), order=vocabulary or ()
    )
    cycles = relations.cycles()
    if options.transitive_closure:
        closed = relations.closure()
        added = len(relations.pairs) - len(closed.pairs)
        steps.append(Step(name="added by the transitive closure", removed=added, left=len(closed.pairs)))
        relations = closed
    rows = steps[0].removed + steps[0].left
    return Filtered(rows=rows, steps=steps, cycles=cycles, relations=relations)


def read_words(path: Path, option: str) -> list[str]:
    """Read the words of a bundle, or of a list, in their order.

    Raises:
        BundleError: The folder is no bundle, or the file cannot be read.
    """
    if path.is_dir():
        words: list[str] = Embedding.open(path).words.to_pylist()
        return words
    return WordList.read(path, option, f"an embedding bundle, or {ALLOWED}").words


def _check_outputs(options: PoincareOptions) -> None:
    check_output(options.output, options.overwrite)
    written = (options.report_path, options.beside("vec"), options.beside("png"))
    if not options.overwrite and (there := [str(path) for path in written if path.exists()]):
        raise ConfigError(
            "Files beside the output exist", got=", ".join(there), do="Remove them, or allow --overwrite"
        )
    if not options.report_path.absolute().parent.is_dir():
        raise ConfigError("The report's folder does not exist", got=str(options.report_path))


def _write(
    options: PoincareOptions, relations: Relations, vectors: NDArray[np.float64]
) -> tuple[Manifest, str | None]:
    """Write text form, bundle and, if it can be drawn, picture; return manifest and picture's name."""
    text, picture = options.beside("vec"), options.beside("png")
    beside = options.output.absolute().parent
    with tempfile.TemporaryDirectory(prefix=".dptext-poincare-", dir=beside) as made:
        source, drawn = Path(made, text.name), Path(made, picture.name)
        write_vectors(source, relations.words, vectors)
        bundle = build_embedding(
            source,
            options.output,
            geometry="poincare",
            format="text",
            never_output=options.never_output,
            overwrite=options.overwrite,
        )
        source.replace(text)
        if drawing.missing_library(drawing.PICTURE):
            picture.unlink(missing_ok=True)  # the one of the bundle that was here before
            return bundle.manifest, None
        from dptext_spark.poincare.picture import draw  # slow to load, and not everywhere

        draw(vectors, relations, drawn)
        drawn.replace(picture)
    return bundle.manifest, picture.name


def write_vectors(path: Path, words: Sequence[str], vectors: NDArray[np.float64]) -> None:
    """Write word2vec's text format, as gensim and ``dptext embedding`` read it, without loss."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"{len(words)} {vectors.shape[1]}\n")
        for word, vector in zip(words, vectors.tolist(), strict=True):
            file.write(f"{word} {' '.join(map(repr, vector))}\n")
