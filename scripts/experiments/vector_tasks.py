"""Linear models of released vectors: sentiment of words, and classes of texts.

Source: Feyisetan and Kasiviswanathan 2021, section 5, Figure 3 and Table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.lookup import joining, look_up
from dptext_spark.text.token_columns import Tokens
from dptext_spark.text.tokens import PLAIN
from scripts.experiments.vector_laws import Law

Reading = Literal["word", "token", "text"]

READINGS: Final[dict[Reading, str]] = {
    "word": "one vector per word, the same wherever the word stands",
    "token": "one vector per token",
    "text": "one vector per text",
}
"""What is released: the paper does not say which."""

STRENGTHS: Final = (1e-4, 1e-3, 1e-2, 1e-1)
"""C of a model, from which a fifth of the training rows picks."""

FOLDS: Final = 5
_TOKENS_AT_ONCE: Final = 20_000


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Of a linear model.

    Attributes:
        test: Accuracy on the test set.
        auc: Area under the ROC curve on the test set, of two classes; else NaN.
    """

    test: float
    auc: float


class Split(NamedTuple):
    """Rows to train on and rows to test on, int64 each."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]

    @classmethod
    def fold(cls, labels: NDArray[np.int64], number: int) -> Split:
        """Test on one of five stratified folds."""
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(labels, labels)
        return cls(*list(folds)[number % FOLDS])


def support_vectors() -> BaseEstimator:
    """Make the linear support vector machine of Figure 3."""
    return GridSearchCV(LinearSVC(dual=False, tol=1e-2), {"C": STRENGTHS}, cv=_one_fifth())


def least_squares() -> BaseEstimator:
    """Make a linear classifier by regularized least squares, in one fit for all strengths."""
    # By squared errors of rows left out: its "accuracy" is 1 for any two classes (scikit-learn 1.9).
    return RidgeClassifierCV(np.logspace(1.0, 5.0, 9))


def logistic_regression() -> BaseEstimator:
    """Make the classifier of SentEval."""
    return GridSearchCV(LogisticRegression(max_iter=300), {"C": STRENGTHS}, cv=_one_fifth())


def _one_fifth() -> StratifiedShuffleSplit:
    return StratifiedShuffleSplit(1, test_size=0.2, random_state=0)


CLASSIFIERS: Final = {"ridge": least_squares, "logistic": logistic_regression}
"""Of texts."""


def evaluate(
    features: NDArray[np.float64],
    labels: NDArray[np.int64],
    split: Split,
    model: Callable[[], BaseEstimator],
) -> Scores:
    """Scale features by the training rows, pick the model's strength within them, train and test."""
    chosen = make_pipeline(StandardScaler(), model())
    chosen.fit(features[split.train].astype(np.float32), labels[split.train])
    test, truth = features[split.test].astype(np.float32), labels[split.test]
    auc = roc_auc_score(truth, chosen.decision_function(test)) if len(set(labels)) == 2 else float("nan")
    return Scores(test=float(chosen.score(test, truth)), auc=float(auc))


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Labelled texts as words of a vocabulary; words outside it are left out, as by the package.

    Attributes:
        words: int64 (tokens,), text after text.
        ends: int64 (texts + 1,), where each text's words start.
        labels: int64 (texts,).
        given: The data set's own training and test rows, if it has them.
    """

    words: NDArray[np.int64]
    ends: NDArray[np.int64]
    labels: NDArray[np.int64]
    given: Split | None = None

    @classmethod
    def of(
        cls,
        texts: Sequence[str],
        labels: Sequence[object],
        embedding: Embedding,
        given: Split | None = None,
    ) -> Texts:
        """Look up the tokens of texts."""
        tokens = Tokens.of(pa.array(texts), joining(embedding, PLAIN))
        found = look_up(tokens, embedding)
        known = tokens.count(found >= 0)
        codes = np.unique(np.asarray(labels), return_inverse=True)[1].astype(np.int64)
        return cls(
            words=found[found >= 0],
            ends=np.concatenate([[0], np.cumsum(known)]),
            labels=codes,
            given=given,
        )

    def split(self, repetition: int) -> Split:
        """Give the data set's own split, or a fold of five."""
        return self.given or Split.fold(self.labels, repetition)

    def majority(self) -> float:
        """Give the share of the commonest class among test rows."""
        rows = self.labels if self.given is None else self.labels[self.given.test]
        return float(np.bincount(rows).max() / len(rows))

    @property
    def averages(self) -> sparse.csr_array:
        """The weight of each token in each text, (texts, tokens)."""
        lengths = np.diff(self.ends)
        weights = np.repeat(1.0 / np.maximum(lengths, 1), lengths)
        shape = (len(lengths), len(self.words))
        return sparse.csr_array((weights, np.arange(len(self.words)), self.ends), shape=shape)

    def means(self, embedding: Embedding) -> NDArray[np.float64]:
        """Average each text's words' vectors: float64 (texts, n), of which images are linear."""
        distinct, places = np.unique(self.words, return_inverse=True)
        return self._by_word(places, len(distinct)) @ embedding.vectors[distinct].astype(np.float64)

    def noise(self, law: Law, reading: Reading, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw what noise of epsilon = Delta adds to each text's average: float64 (texts, m)."""
        if reading == "text":
            return law.unit_noise(len(self.labels), rng)
        if reading == "word":
            distinct, places = np.unique(self.words, return_inverse=True)
            return self._by_word(places, len(distinct)) @ law.unit_noise(len(distinct), rng)
        averages, added = self.averages.tocsc(), np.zeros((len(self.labels), law.dimension))
        for start in range(0, len(self.words), _TOKENS_AT_ONCE):
            part = averages[:, start : start + _TOKENS_AT_ONCE]
            added += part @ law.unit_noise(part.shape[1], rng)
        return added

    def _by_word(self, places: NDArray[np.int64], distinct: int) -> sparse.csr_array:
        averages = self.averages
        shape = (len(self.labels), distinct)
        return sparse.csr_array((averages.data, places, averages.indptr), shape=shape)


def senteval(folder: Path, name: str, embedding: Embedding) -> Texts:
    """Read a task of SentEval: Parquet with text, label (TREC: coarse) and, where it has one, split."""
    table = pq.read_table(folder / f"{name}.parquet").to_pydict()
    labels = table["coarse" if name == "trec" else "label"]
    given = None
    if "split" in table:
        splits = np.array(table["split"])
        given = Split(np.flatnonzero(splits == "train"), np.flatnonzero(splits == "test"))
    return Texts.of(table["text"], labels, embedding, given)


def opinion_words(folder: Path, embedding: Embedding) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read the opinion lexicon: word ids of the vocabulary and labels, as many of either kind."""
    rank = {word: place for place, word in enumerate(embedding.words.to_pylist())}
    kinds = []
    for name in ("negative", "positive"):
        lines = (folder / f"{name}-words.txt").read_text(encoding="latin-1").splitlines()
        words = {line.strip() for line in lines if line.strip() and not line.startswith(";")}
        kinds.append(np.sort([rank[word] for word in words if word in rank]))
    least = min(map(len, kinds))
    rng = np.random.default_rng(0)
    chosen = [np.sort(rng.permutation(kind)[:least]) for kind in kinds]
    return np.concatenate(chosen).astype(np.int64), np.repeat([0, 1], least).astype(np.int64)
