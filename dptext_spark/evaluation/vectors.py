"""Released vectors, attacked and measured: what is kept of them, and what attackers get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from dptext_spark.evaluation.classes import ClassCounts, score_of
from dptext_spark.evaluation.intervals import ClusterSums, Dyads
from dptext_spark.evaluation.measures import LABELS, Sums
from dptext_spark.evaluation.vector_attackers import (
    VECTOR_ATTACKERS,
    MostFrequent,
    VectorKnowledge,
    VectorRows,
    distances_between,
    words_recovered,
)
from dptext_spark.geometry import Floats

# Others that each vector is compared with.
_PARTNERS: Final = 16
# Distances that are computed at once.
_DISTANCES: Final = 1 << 22
_EQUAL: Final = 1e-6
# Of a model of classes: the penalty of squared weights, and rounds.
_PENALTY: Final = 0.01
_ROUNDS: Final = 200


def linked(rows: VectorRows, knowledge: VectorKnowledge) -> tuple[ClusterSums, ClusterSums]:
    """Count released vectors that an observer of all originals assigns to their own, and by chance.

    The likeliest original is the one whose image is nearest; among equal ones chance decides.
    """
    count = len(rows)
    images = rows.originals @ knowledge.matrix.T
    slack = _EQUAL * float(np.abs(images).max(initial=0.0))  # equal originals differ by rounding
    hits = [np.zeros(0)]
    step = max(1, _DISTANCES // max(1, count))
    for start in range(0, count, step):
        distances = distances_between(rows.released[start : start + step], images)
        least = distances.min(axis=1)
        to_original = distances[np.arange(len(distances)), np.arange(start, start + len(distances))]
        least += slack
        hits.append((to_original <= least) / (distances <= least[:, None]).sum(axis=1))
    numbers = np.arange(count)
    by_chance = np.full(count, 1.0 / max(1, count))
    return ClusterSums.of(numbers, np.concatenate(hits)), ClusterSums.of(numbers, by_chance)


def membership(rows: VectorRows, knowledge: VectorKnowledge) -> ClusterSums:
    """Count rows of which an observer rightly says whether they are in a release.

    Half of the rows are released, and the observer has the originals of all. It weighs the
    likelihood of the released vectors, if one of them is of this row, against that of any known
    row; from which weight on it says yes it learns from known rows, which it releases itself.
    """
    known_rows = knowledge.known_rows
    public = len(known_rows) // 3
    shadow_pairs = (len(known_rows) - public) // 2
    pairs = len(rows) // 2
    if not (public and shadow_pairs and pairs):
        return ClusterSums.of_rows(0, 0)
    population = known_rows.originals[:public]
    shadow = _weights(knowledge, population, known_rows, public, shadow_pairs)
    weights = _weights(knowledge, population, rows, 0, pairs)
    limit = _best_limit(*shadow)
    members, strangers = weights
    hits = int((members > limit).sum() + (strangers <= limit).sum())
    return ClusterSums.of_rows(hits, 2 * pairs)


def _weights(
    knowledge: VectorKnowledge, population: Floats, rows: VectorRows, first: int, pairs: int
) -> tuple[Floats, Floats]:
    """Return what released rows say for members, and for as many strangers that follow them."""
    matrix = knowledge.matrix
    scale = knowledge.scale
    members = slice(first, first + pairs)
    strangers = slice(first + pairs, first + 2 * pairs)
    released = rows.released[members]
    usual = -distances_between(released, population @ matrix.T) / scale
    log_usual = scipy.special.logsumexp(usual, axis=1) - np.log(len(population))
    weights = []
    for candidates in (members, strangers):
        images = rows.originals[candidates] @ matrix.T
        log_ratios = -distances_between(images, released) / scale - log_usual
        weights.append(scipy.special.logsumexp(log_ratios, axis=1))
    return weights[0], weights[1]


def _best_limit(members: Floats, strangers: Floats) -> float:
    """Return the weight above which most members and fewest strangers are."""
    values = np.concatenate([members, strangers])
    signs = np.concatenate([np.ones(len(members)), -np.ones(len(strangers))])
    order = np.argsort(values, kind="stable")
    best = int(np.argmin(np.cumsum(signs[order])))
    return float(values[order][best])


class Classes(NamedTuple):
    """Columns of classes: a label, whose use is measured, and an author, a risk."""

    label: str | None
    author: str | None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ClassModel:
    """Multinomial logistic regression on standardized vectors, with a penalty of its weights."""

    classes: tuple[str, ...]  # the most frequent first
    mean: Floats
    spread: Floats
    weights: Floats = field(repr=False)  # (k + 1, C)

    @classmethod
    def learn(cls, vectors: Floats, names: NDArray[Any]) -> ClassModel:
        """Learn from vectors (t, k) with classes (t,)."""
        distinct, labels, counts = np.unique(names, return_inverse=True, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        place = np.argsort(order, kind="stable")
        spread = vectors.std(axis=0)
        spread[spread == 0.0] = 1.0
        weights = np.zeros((vectors.shape[1] + 1, len(distinct)))
        classes = tuple(distinct[order].tolist())
        model = cls(classes=classes, mean=vectors.mean(axis=0), spread=spread, weights=weights)
        features = model._features(vectors)
        targets = np.eye(len(distinct))[place[labels]]
        shape = model.weights.shape

        def loss(trial: Floats) -> tuple[float, Floats]:
            """The mean of -ln P[class], with the penalty, and its gradient."""
            weights = trial.reshape(shape)
            penalized = weights * _PENALTY
            penalized[-1] = 0.0
            scores = features @ weights
            total = scipy.special.logsumexp(scores, axis=1, keepdims=True)
            misfit = np.exp(scores - total) - targets
            value = float((total[:, 0] - (scores * targets).sum(axis=1)).mean())
            penalty = float((penalized * weights).sum()) / 2.0
            gradient = features.T @ misfit / len(features) + penalized
            return value + penalty, gradient.ravel()

        options: Any = {"maxiter": _ROUNDS}
        start = np.zeros(model.weights.size)
        best = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
        return replace(model, weights=best.x.reshape(shape))

    def _features(self, vectors: Floats) -> Floats:
        standardized = (vectors - self.mean) / self.spread
        return np.column_stack([standardized, np.ones(len(vectors))])

    def counts(self, vectors: Floats, names: NDArray[Any]) -> ClassCounts:
        """Count rows by their class, the predicted one, and the scores of classes."""
        counts = ClassCounts.empty(self.classes)
        number = len(self.classes)
        places = {name: place for place, name in enumerate(self.classes)}
        labels = np.array([places.get(name, number) for name in names], dtype=np.int64)
        scores = self._features(vectors) @ self.weights
        np.add.at(counts.confusion, (labels, scores.argmax(axis=1)), 1)
        cells = score_of(scipy.special.softmax(scores, axis=1))
        kinds = (labels[:, None] == np.arange(number)).astype(np.int64)
        columns = np.broadcast_to(np.arange(number), kinds.shape)
        np.add.at(counts.scores, (columns, kinds, cells), 1)
        return counts


def learnt_classes(column: str, known_rows: VectorRows, rows: VectorRows) -> ClassCounts:
    """Learn a column's classes from known rows' released vectors, and count on those of others."""
    is_known = _has_class(known_rows, column)
    is_tested = _has_class(rows, column)
    if not is_known.any():
        return ClassCounts.empty(())
    vectors = known_rows.row_means(known_rows.released)
    model = ClassModel.learn(vectors[is_known], known_rows.classes[column][is_known].astype(str))
    names = rows.classes[column][is_tested].astype(str)
    return model.counts(rows.row_means(rows.released)[is_tested], names)


def _has_class(rows: VectorRows, column: str) -> NDArray[np.bool_]:
    return np.array([name is not None for name in rows.classes[column]], dtype=np.bool_)


def _shares(counts: ClassCounts) -> ClusterSums:
    """Return the share of rows whose class is predicted."""
    hits = np.trace(counts.confusion[:-1, :-1])
    return ClusterSums.of_rows(int(hits), int(counts.confusion.sum()))


def dyads(rows: VectorRows) -> Iterator[tuple[str, Dyads]]:
    """Yield what distances and inner products of pairs keep, by name.

    Each vector is paired with some that follow it, in the order of the rows' ids.
    """
    count = len(rows)
    partners = np.arange(1, min(_PARTNERS, (count - 1) // 2) + 1)
    first = np.repeat(np.arange(count), len(partners))
    second = (first + np.tile(partners, count)) % max(count, 1)
    ends = rows.rows[first], rows.rows[second]
    distances: list[Floats] = []
    products: list[Floats] = []
    references = rows.originals if rows.references is None else rows.references
    for vectors in (references, rows.released):
        differences = vectors[first] - vectors[second]
        distances.append(np.sqrt((differences * differences).sum(axis=1)))
        products.append((vectors[first] * vectors[second]).sum(axis=1))
    yield "distances", Dyads.of(distances, ends)
    yield "products", Dyads.of(products, ends)


def measured_vectors(rows: VectorRows, knowledge: VectorKnowledge, classes: Classes) -> Sums:
    """Measure and attack released vectors."""
    attackers = {name: kind.learn(knowledge) for name, kind in VECTOR_ATTACKERS.items()}
    sums: Sums = dict(dyads(rows))
    for name, recovered in words_recovered(
        rows, attackers, vocabulary=len(knowledge.images)
    ).items():
        sums[f"recovered_words/{name}"] = recovered
    if not rows.by_word:
        sums["linked"], _ = linked(rows, knowledge)
        sums["membership"] = membership(rows, knowledge)
    return sums | _of_classes(rows, knowledge.known_rows, classes)


def _of_classes(rows: VectorRows, known_rows: VectorRows, classes: Classes) -> Sums:
    """Measure how well models learn classes and authors."""
    sums: Sums = {}
    if classes.label is not None:
        counts = learnt_classes(classes.label, known_rows, rows)
        sums |= {"accuracy": _shares(counts), LABELS: counts}
    if classes.author is not None:
        sums["attribution"] = _shares(learnt_classes(classes.author, known_rows, rows))
    return sums


def without_vectors(rows: VectorRows, knowledge: VectorKnowledge, classes: Classes) -> Sums:
    """Measure what comes without any vector: the floors."""
    constant = replace(rows, released=np.zeros((len(rows), 1)))
    known_rows = knowledge.known_rows
    sums: Sums = dict(dyads(constant))
    guesses = {"": MostFrequent(knowledge.word_shares)}
    recovered = words_recovered(constant, guesses, vocabulary=len(knowledge.images))
    for name in VECTOR_ATTACKERS:
        sums[f"recovered_words/{name}"] = recovered[""]
    if not rows.by_word:
        _, sums["linked"] = linked(rows, knowledge)
        pairs = len(rows) // 2
        sums["membership"] = ClusterSums.of_rows(pairs, 2 * pairs)
    constant_known = replace(known_rows, released=np.zeros((len(known_rows), 1)))
    return sums | _of_classes(constant, constant_known, classes)
