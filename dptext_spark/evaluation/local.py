"""Settings compared on rows in memory, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from dptext_spark.arguments import must_be, naming_arguments
from dptext_spark.channel.channel import Channel
from dptext_spark.channel.local import channel_of
from dptext_spark.channel.posteriors import LIMIT
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.evaluation.attackers import CANDIDATES, TOP, Knowledge, Known
from dptext_spark.evaluation.comparison import Comparison, Outcome
from dptext_spark.evaluation.language import Language, PairCounts, word_prior
from dptext_spark.evaluation.linkage import linkage, rows_of_lengths
from dptext_spark.evaluation.measures import RANDOM_WORDS, Sums, added, measured
from dptext_spark.evaluation.rows import SimulatedRows, Simulation
from dptext_spark.geometry import Ints
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import Search
from dptext_spark.text.columns import PythonColumn, as_arrow
from dptext_spark.text.policies import TextPolicy
from dptext_spark.word_reader import rows_with_words


@naming_arguments()
def evaluate(
    values: PythonColumn,
    ids: PythonColumn,
    *,
    embedding: Embedding | Path | str,
    mechanisms: Sequence[Mechanism],
    corpus: PythonColumn | None = None,
    policy: TextPolicy | None = None,
    slots: PythonColumn | None = None,
    search: Search | None = None,
    versions: int = 1,
    candidates: int = CANDIDATES,
    channel_limit: float = LIMIT,
    seed: int = 0,
) -> Comparison:
    """Simulate releases of a column under several settings, attack them, and measure what is kept.

    Nothing is released. The result has facts about private rows: it is for those who may read them.

    Args:
        values: Texts or token lists, as for :meth:`Sanitizer.sanitize`.
        corpus: Public texts from which attackers learn the language. Without it they attack each
            half of the rows and know the other half, and how often words and pairs occur in both.
            They guess only words that they have read.
        slots: Slots of the rows, for a policy ``slots:COLUMN``.
        versions: Number of releases of each row that attackers combine; one is measured always.
        candidates: Number of words that attackers consider at each position.
        channel_limit: Noise is simulated until half of it costs attackers less than this share of
            words.
        seed: Public seed: the same seed gives the same numbers.
    """
    embedding = Embedding.of(embedding)
    _check_mechanisms(mechanisms, embedding)
    if search is not None and not isinstance(search, Search):
        raise must_be("search", "a Search", search, "Leave it out for exact search")
    _check_number("versions", versions, versions >= 1, "at least 1")
    _check_number("candidates", candidates, candidates >= max(TOP), f"at least {max(TOP)}")
    _check_number("channel_limit", channel_limit, 0.0 < channel_limit < 1.0, "above 0 and below 1")
    _check_number("seed", seed, 0 <= seed < 2**63, "from 0 to 2^63 - 1")
    policy = TextPolicy.of(policy)
    search = (search or ExactSearch.over(embedding)).without_marks(policy, embedding)
    simulation = Simulation(bundle=embedding, policy=policy, search=search, seed=seed)
    column = as_arrow(values, "The column")
    row_ids = as_arrow(ids, "The column of row ids")
    slot_column = None if slots is None else as_arrow(slots, "The column of slots")
    rows = simulation.read(column, slot_column)
    if not rows.perturbed.any():
        raise InputError(
            "There is nothing to evaluate: no word of these rows is perturbed",
            got=f"{len(rows.inputs)} words in {len(column)} rows",
            do="Take rows with words of the embedding that the policy protects",
        )
    # The observer who links rows knows their words, also those that a corpus lacks.
    counts = simulation.pairs(rows)
    if corpus is None:
        prior = word_prior(counts)
        folds = _halves(rows, row_ids, counts)
    else:
        texts = simulation.public.read(as_arrow(corpus, "The corpus"))
        corpus_counts = simulation.pairs(texts)
        if not len(corpus_counts.distinct):
            raise InputError(
                "The corpus has no word of the embedding",
                got=f"{len(corpus)} texts",
                do="Give texts of the language of the rows",
            )
        prior = word_prior(corpus_counts + counts)
        languages = texts.languages(corpus_counts, of_attacked=False)
        folds = [_Fold(rows=rows, ids=row_ids, texts=texts, languages=languages)]
    row_counts = rows_with_words(rows.inputs, rows.rows, vocabulary=len(embedding.words))
    floor = Sums()
    outcomes = []
    for mechanism in (None, *mechanisms):
        channel = channel_of(mechanism, embedding, search, prior, seed=seed, limit=channel_limit)
        sums = Sums()
        for fold in folds:
            part = fold.attacked(
                simulation,
                mechanism,
                channel,
                versions=versions,
                candidates=candidates,
                row_counts=row_counts,
            )
            sums = added(sums, part) if sums else part
        if mechanism is None:
            floor = sums
        else:
            outcomes.append(Outcome(mechanism=mechanism, sums=sums, channel=channel))
    return Comparison(outcomes=tuple(outcomes), floor=floor)


def _check_mechanisms(mechanisms: object, embedding: Embedding) -> None:
    """Check that there are mechanisms, and prepare them."""
    if not isinstance(mechanisms, list | tuple):
        raise must_be("mechanisms", "a list, such as [Laplace(epsilon=8)]", mechanisms)
    if not mechanisms:
        raise ConfigError(
            "There is no setting to evaluate", allowed="one mechanism or more", got="none"
        )
    for setting in map(Mechanism.of, mechanisms):
        setting.prepare(embedding)


def _check_number(name: str, value: float, is_allowed: bool, allowed: str) -> None:
    """Refuse a number that is not allowed."""
    if not is_allowed:
        raise ConfigError(f"{name} must be {allowed}", got=str(value))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class _Fold:
    """Rows to attack, and what attackers learn from."""

    rows: SimulatedRows
    ids: pa.Array
    texts: SimulatedRows  # that attackers know
    languages: tuple[Language, Language]  # of the texts, and of those that are no shadow rows

    def attacked(
        self,
        simulation: Simulation,
        mechanism: Mechanism | None,
        channel: Channel,
        *,
        versions: int,
        candidates: int,
        row_counts: Ints,
    ) -> Sums:
        """Release the rows, attack and measure them; None releases random words, for the floors."""
        language, without_shadow = self.languages
        shadow = simulation.shadow(self.texts, mechanism or RANDOM_WORDS, versions=versions)
        knowledge = Knowledge.learn(
            Known(language=language, language_without_shadow=without_shadow, shadow=shadow),
            channel,
            candidates=candidates,
        )
        released = simulation.release(
            self.rows,
            self.ids,
            mechanism or RANDOM_WORDS,
            versions=1 if mechanism is None else versions,
        )
        knowledge = replace(knowledge, row_counts=row_counts)
        sums = measured(released, simulation.embedding, knowledge)
        return sums | linkage(released, self.ids, channel, rows_of_lengths(released))


def _halves(rows: SimulatedRows, ids: pa.Array, counts: PairCounts) -> list[_Fold]:
    """Return each half of the rows, with the other half as the known one."""
    places = np.arange(len(rows.offsets) - 1)
    even = places[::2]
    odd = places[1::2]
    folds = []
    for attacked, rest in ((even, odd), (odd, even)):
        texts = rows.taken(rest)
        fold = _Fold(
            rows=rows.taken(attacked),
            ids=ids.take(pa.array(attacked)),
            texts=texts,
            languages=texts.languages(counts, of_attacked=True),
        )
        folds.append(fold)
    return folds
