"""Authors of sanitized mails, after Feyisetan et al. 2019, Table III.

The attackers know mails of each author as they were: Koppel's method (Koppel, Schler and Argamon
2011, "Authorship attribution in the wild"), and a logistic regression over words and letters, which
also learns from mails that the attacker sanitizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union

from dptext_spark import Release, Sanitizer, TextPolicy
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.mechanisms import mechanism
from dptext_spark.noise import NoiseKey
from scripts.experiments.shared import FILE, FOLDER, markdown

Mail: TypeAlias = tuple[str, str]
"""Text and author."""

POLICIES: Final = {
    "content words, as in the paper": {
        "protect": "content",
        "oov": "keep-unprotected",
        "identifiers": "off",
        "numbers": "words",
    },
    "all words": {},
}
"""Which words are perturbed; in the paper stop words pass, and here unknown words with them."""

LEAST_MAILS: Final = 10  # of an author among the known ones
ROUNDS: Final = 50  # of Koppel's method
FEATURES: Final = 0.4  # share of the letter sequences that a round looks at
KEY: Final = NoiseKey(bytes(range(32)))  # public: the numbers are the same every time


@click.command()
@click.argument("bundle", type=FOLDER)
@click.option("--data", type=FILE, required=True, help="pan11_small.parquet")
@click.option("--mechanism", "specs", multiple=True, default=("laplace",), show_default=True)
@click.option("--epsilon", type=float, multiple=True, default=(5.0, 10.0, 20.0), show_default=True)
@click.option("--authors", type=int, multiple=True, default=(12, 26), show_default=True)
def main(
    bundle: Path, data: Path, specs: Sequence[str], epsilon: Sequence[float], authors: Sequence[int]
) -> None:
    """Print how many authors of sanitized mails are named by what attackers know of their mails."""
    embedding = Embedding.open(bundle)
    train, test = mails(pq.read_table(data))
    most_mails = [author for author, _ in Counter(author for _, author in train).most_common()]
    attackers = {}
    rows = []
    for count in authors:
        names = frozenset(most_mails[:count])
        attackers[names] = Attackers.of(of_authors(train, names))
        tested = of_authors(test, names)
        chance = np.mean([author == most_mails[0] for _, author in tested])
        setting = [f"{len(names)} authors, {len(tested)} mails"]
        rows.append([*setting, "chance", "", f"{chance:.3f}", "", ""])
        shares = attackers[names].shares(tested, attackers[names].learned)
        rows.append([*setting, "original mails", "", *shares])
    for (name, policy), spec, value in product(POLICIES.items(), specs, epsilon):
        release = Release.open(
            embedding=embedding,
            mechanism=mechanism(spec, epsilon=value),
            policy=TextPolicy(**policy),
            name="mails",
        )
        sanitizer = Sanitizer.open(release, KEY)
        shadow = sanitized(sanitizer, train, "known")
        released = sanitized(sanitizer, test, "released")
        for names, attacker in attackers.items():
            adapted = regression(of_authors(shadow, names))
            shares = attacker.shares(of_authors(released, names), adapted)
            rows.append([f"{len(names)} authors, {name}", spec, f"{value:g}", *shares])
    columns = ("words perturbed", "mechanism", "ε", "Koppel", "regression", "adaptive regression")
    click.echo(markdown(columns, rows))


def mails(table: pa.Table) -> tuple[list[Mail], list[Mail]]:
    """Return known and tested mails of the authors with at least ``LEAST_MAILS`` known ones."""
    rows = table.select(["split", "author", "text"]).to_pylist()
    counts = Counter(row["author"] for row in rows if row["split"].endswith("train"))
    train: list[Mail] = []
    test: list[Mail] = []
    for row in rows:
        part = train if row["split"].endswith("train") else test
        if counts[row["author"]] >= LEAST_MAILS:
            part.append((row["text"], row["author"]))
    return train, test


def of_authors(mails: Sequence[Mail], authors: frozenset[str]) -> list[Mail]:
    """Return the mails of some authors."""
    return [(text, author) for text, author in mails if author in authors]


def sanitized(sanitizer: Sanitizer, texts: Sequence[Mail], column: str) -> list[Mail]:
    """Release texts; the authors stay."""
    values, authors = zip(*texts, strict=True)
    released = sanitizer.sanitize(pa.array(values), range(len(texts)), column=column).values
    return list(zip(released.to_pylist(), authors, strict=True))


@dataclass(frozen=True, kw_only=True)
class Attackers:
    """What is learned from mails as they were written."""

    koppel: Koppel
    learned: Any  # the regression of them

    @classmethod
    def of(cls, original: Sequence[Mail]) -> Attackers:
        return cls(koppel=Koppel.of(original), learned=regression(original))

    def shares(self, released: Sequence[Mail], adapted: Any) -> list[str]:
        """Return the shares of mails whose author is named, with intervals, by each attacker."""
        texts, names = zip(*released, strict=True)
        authors = np.array(names)
        shares = []
        guesses = (
            self.koppel.guesses(texts),
            self.learned.predict(texts),
            adapted.predict(texts),
        )
        for named in guesses:
            hits = int((named == authors).sum())
            share, low, high = ClusterSums.of_rows(hits, len(texts)).share(0.95)
            shares.append(f"{share:.3f} ({low:.3f} to {high:.3f})")
        return shares


@dataclass(frozen=True, kw_only=True)
class Koppel:
    """Names the author who is most similar in most rounds, by random shares of letter sequences."""

    names: NDArray[Any]  # (authors,)
    counting: CountVectorizer
    profiles: NDArray[np.float64]  # (authors, sequences), counts

    @classmethod
    def of(cls, mails: Sequence[Mail]) -> Koppel:
        texts: dict[str, list[str]] = {}
        for text, author in mails:
            texts.setdefault(author, []).append(text)
        names = np.array(sorted(texts))
        counting = CountVectorizer(analyzer="char", ngram_range=(4, 4), max_features=20_000)
        profiles = counting.fit_transform(["\n".join(texts[name]) for name in names])
        return cls(names=names, counting=counting, profiles=profiles.toarray().astype(np.float64))

    def guesses(self, texts: Sequence[str]) -> NDArray[Any]:
        """Name an author for each text."""
        counts = self.counting.transform(texts)
        rng = np.random.default_rng(0)
        wins = np.zeros((len(texts), len(self.names)))
        for _ in range(ROUNDS):
            looked_at = rng.random(self.profiles.shape[1]) < FEATURES
            profiles = self.profiles * looked_at
            lengths = np.linalg.norm(profiles, axis=1, keepdims=True)
            # A text's own length changes no order.
            similarities = counts @ (profiles / np.maximum(lengths, 1.0)).T
            wins[np.arange(len(texts)), similarities.argmax(axis=1)] += 1.0
        return self.names[wins.argmax(axis=1)]


def regression(known: Sequence[Mail]) -> Any:
    """Learn authors from words and letters."""
    features = make_union(
        TfidfVectorizer(sublinear_tf=True, min_df=2),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 3), sublinear_tf=True, min_df=3),
    )
    model = make_pipeline(features, LogisticRegression(C=20.0, max_iter=200))
    return model.fit(*zip(*known, strict=True))


if __name__ == "__main__":
    main()
