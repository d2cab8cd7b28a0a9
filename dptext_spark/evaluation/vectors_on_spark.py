"""Sampled rows whose vectors are released in rehearsal and attacked, by one task of Spark."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import EuclideanSpace
from dptext_spark.errors import ConfigError
from dptext_spark.evaluation.classify import class_of
from dptext_spark.evaluation.comparison import Comparison, Outcome
from dptext_spark.evaluation.measures import Sums
from dptext_spark.evaluation.rows import Simulation
from dptext_spark.evaluation.simulate import ATTACKED, KNOWN, Part, SampledRows, parts_of, pickled
from dptext_spark.evaluation.vector_attackers import VectorKnowledge, VectorRows
from dptext_spark.evaluation.vectors import Classes, measured_vectors, without_vectors
from dptext_spark.mechanisms.vectors import (
    ProjectedVectors,
    PublicPrior,
    VectorNoise,
    VectorSetting,
)
from dptext_spark.noise import KEY_BYTES, NoiseKey, ReleaseNoise
from dptext_spark.tables.batch import FieldPaths
from dptext_spark.tables.columns import shared
from dptext_spark.vector_sanitizer import VectorSanitizer, average_texts
from dptext_spark.word_reader import WordReader

_COLUMN = "rehearsed"
# Of bags that released ones are compared with: hardly any two grams of a sample meet.
_MANY_PLACES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class VectorRehearsal:
    """Settings whose releases of texts' vectors are rehearsed, and what is measured of them."""

    settings: tuple[VectorNoise, ...]
    classes: Classes
    by_word: bool  # whether each word has a vector of its own

    def compare(self, rows: SampledRows) -> list[Comparison]:
        """Compare the settings in each attacked third that has rows; sums come back, and no row."""
        work = partial(_compared, rows.simulation, rows.ways, self)
        task = rows.frame.coalesce(1).mapInArrow(work, "learnt binary")
        answers = [row["learnt"] for row in task.collect()]
        if not answers:  # of no rows Spark runs no task
            return []
        thirds: list[dict[str, Any]] = pickle.loads(answers[0])
        comparisons = []
        for third in thirds:
            outcomes = []
            for noise, sums in zip(self.settings, third["settings"], strict=True):
                outcomes.append(Outcome(mechanism=VectorSetting(noise=noise), sums=sums))
            comparison = Comparison(
                outcomes=tuple(outcomes), floor=third["floor"], ideal=third["ideal"]
            )
            comparisons.append(comparison)
        return comparisons


def bound_settings(
    settings: Sequence[ProjectedVectors], embedding: Embedding, *, words: int
) -> tuple[VectorNoise, ...]:
    """Bind settings to a bundle, whose words vectors are, or means of several."""
    space = embedding.space
    if not isinstance(space, EuclideanSpace):
        raise ConfigError(
            "This embedding bundle has no vectors to release",
            allowed=f"a bundle of geometry {EuclideanSpace.geometry}",
            got=f"geometry {space.geometry}",
            do="Take another bundle",
        )
    prior = PublicPrior.of(space, words=words)
    bound = []
    for setting in settings:
        if setting.kgrams is None:
            bound.append(setting.of_length(embedding.dimension, prior))
        else:
            bound.append(setting.of_bags())
    return tuple(bound)


# What follows runs in a Python worker.


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private texts
class _Texts:
    """The texts of a third that are not null, in an order that follows from their ids alone."""

    values: pa.Array
    ids: pa.Array
    rows: VectorRows  # not yet released

    @classmethod
    def of(cls, parts: Sequence[Part], reader: WordReader, rehearsal: VectorRehearsal) -> _Texts:
        """Read the parts of one third."""
        values = pa.concat_arrays([part.values for part in parts])
        ids = pa.concat_arrays([part.ids.cast(pa.string()) for part in parts])
        digests = [
            hashlib.blake2b(name.encode(), digest_size=16).digest() for name in ids.to_pylist()
        ]
        order = np.argsort(np.array(digests, dtype="S16"), kind="stable")
        order = order[values.is_valid().to_numpy(zero_copy_only=False)[order]]
        classes = {}
        for column in filter(None, rehearsal.classes):
            names = pa.concat_arrays([class_of(part, column) for part in parts])
            classes[column] = np.array(names.to_pylist(), dtype=object)[order]
        values = values.take(pa.array(order))
        rows = _read(values, reader, by_word=rehearsal.by_word)
        return cls(
            values=values,
            ids=ids.take(pa.array(order)),
            rows=replace(rows, classes=classes, by_word=rehearsal.by_word),
        )

    def released(self, noise: VectorNoise, reader: WordReader, key: NoiseKey) -> VectorRows:
        """Release the texts."""
        release_noise = ReleaseNoise.of(
            key, salt="", noise_parameters=noise.noise_parameters(), fingerprint=""
        )
        rows = self.rows
        bags = noise.bags(reader.policy.tokenizer)
        if bags is not None:
            originals = bags.read(self.values, _COLUMN).vectors.toarray()
            exact = replace(bags, places=_MANY_PLACES).read(self.values, _COLUMN)
            rows = replace(rows, originals=originals, references=exact.vectors)
        sanitizer = VectorSanitizer(
            mechanism=noise, noise=release_noise, reader=bags or reader, by_word=rows.by_word
        )
        vectors = sanitizer.sanitize(self.values, self.ids, column=_COLUMN).values
        if self.rows.by_word:
            vectors = vectors.flatten().drop_null()
        numbers = vectors.flatten().to_numpy().astype(np.float64)
        return replace(rows, released=numbers.reshape(-1, noise.dimension))


def _read(values: pa.Array, reader: WordReader, *, by_word: bool) -> VectorRows:
    """Read texts as vectors, with the distinct words behind each."""
    embedding = reader.bundle.shared()
    word_ids = [np.zeros(0, dtype=np.int64)]
    rows = [np.zeros(0, dtype=np.int64)]
    for run in reader.runs(values, column=_COLUMN):
        word_ids.append(run.word_ids[~run.blank])
        rows.append(run.tokens.rows[~run.blank] + run.rows.start)
    words = np.concatenate(word_ids)
    row_of_word = np.concatenate(rows)
    if by_word:
        vectors = embedding.vectors[words].astype(np.float64)
        vectors[words < 0] = 0.0
        rows_of_vectors = row_of_word
        vector_of_word = np.arange(len(words))
    else:
        vectors, _, _, _ = average_texts(values, reader, _COLUMN)
        rows_of_vectors = np.arange(len(values))
        vector_of_word = row_of_word
    is_known = words >= 0
    vocabulary = int(words.max(initial=0)) + 1
    pairs = np.unique(vector_of_word[is_known] * vocabulary + words[is_known])
    counts = np.bincount(pairs // vocabulary, minlength=len(vectors))
    return VectorRows(
        originals=vectors,
        released=np.zeros((len(vectors), 0)),
        rows=rows_of_vectors,
        row_count=len(values),
        word_offsets=np.concatenate([[0], np.cumsum(counts)]),
        words=pairs % vocabulary,
        classes={},
    )


def _compared(
    simulation: Simulation,
    ways: FieldPaths,
    rehearsal: VectorRehearsal,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield the sums of each attacked third: of settings, floors and ideals."""
    simulation = shared(simulation)
    reader = WordReader(bundle=simulation.bundle, policy=simulation.policy)
    parts: dict[int, list[Part]] = {KNOWN: []}
    for third in ATTACKED:
        parts[third] = []
    for arrow in batches:
        for part in parts_of(arrow, ways):
            parts[part.third].append(part)
    texts = {}
    for third, of_third in parts.items():
        if sum(len(part.values) - part.values.null_count for part in of_third):
            texts[third] = _Texts.of(of_third, reader, rehearsal)
    known_texts = texts.pop(KNOWN, None)
    if known_texts is None or not len(known_texts.rows):
        yield pickled([])  # nobody to learn from
        return
    key = NoiseKey(simulation.seed.to_bytes(KEY_BYTES, "little")).derive(b"rehearsed vectors")
    embedding = simulation.embedding
    learnt = []
    for noise in rehearsal.settings:
        of_known = known_texts.released(noise, reader, key.derive(b"known"))
        bags = noise.bags(simulation.policy.tokenizer)
        learnt.append(VectorKnowledge.of(noise, embedding, of_known, bags))
    ideal = VectorKnowledge.of_originals(embedding, known_texts.rows)
    answer = []
    for attacked in texts.values():
        sums: list[Sums] = []
        for noise, knowledge in zip(rehearsal.settings, learnt, strict=True):
            rows = attacked.released(noise, reader, key)
            sums.append(measured_vectors(rows, knowledge, rehearsal.classes))
        originals = replace(attacked.rows, released=attacked.rows.originals)
        measured: dict[str, Any] = {
            "settings": sums,
            "floor": without_vectors(originals, ideal, rehearsal.classes),
            "ideal": measured_vectors(originals, ideal, rehearsal.classes),
        }
        answer.append(measured)
    yield pickled(answer)
