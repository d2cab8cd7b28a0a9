"""Authors of sanitized mails, after Feyisetan et al. 2019, Table III.

The attackers know mails of each author as they were: Koppel's method (Koppel, Schler and Argamon
2011, "Authorship attribution in the wild"), and a logistic regression over words and letters, which
also learns from mails that the attacker sanitizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

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
    rows = []
    for count in authors:
        train, test = mails(pq.read_table(data), count)
        most = Counter(author for _, author in train).most_common(1)[0][0]
        chance = np.mean([author == most for _, author in test])
        rows.append([f"{count} authors, {len(test)} mails", "chance", "", f"{chance:.3f}", "", ""])
        rows.append(["", "original mails", "", *attacked(train, train, test)])
        for name, policy in POLICIES.items():
            for spec in specs:
                for value in epsilon:
                    sanitizer = Sanitizer.open(
                        Release.open(
                            embedding=embedding,
                            mechanism=mechanism(spec, epsilon=value),
                            policy=TextPolicy(**policy),
                            name="mails",
                        ),
                        KEY,
                    )
                    shadow = sanitized(sanitizer, train, "known")
                    released = sanitized(sanitizer, test, "released")
                    shares = attacked(train, shadow, released)
                    rows.append([name, spec, f"{value:g}", *shares])
    columns = ("words perturbed", "mechanism", "ε", "Koppel", "regression", "adaptive regression")
    click.echo(markdown(columns, rows))


def mails(table: pa.Table, count: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return texts with authors, known and tested, of the authors with the most known mails."""
    rows = table.select(["split", "author", "text"]).to_pylist()
    counts = Counter(row["author"] for row in rows if row["split"].endswith("train"))
    authors = {name for name, number in counts.most_common(count) if number >= LEAST_MAILS}
    train: list[tuple[str, str]] = []
    test: list[tuple[str, str]] = []
    for row in rows:
        part = train if row["split"].endswith("train") else test
        if row["author"] in authors:
            part.append((row["text"], row["author"]))
    return train, test


def sanitized(
    sanitizer: Sanitizer, texts: Sequence[tuple[str, str]], column: str
) -> list[tuple[str, str]]:
    """Release texts; the authors stay."""
    values, authors = zip(*texts, strict=True)
    released = sanitizer.sanitize(pa.array(values), range(len(texts)), column=column).values
    return list(zip(released.to_pylist(), authors, strict=True))


def attacked(
    original: Sequence[tuple[str, str]],
    known: Sequence[tuple[str, str]],
    released: Sequence[tuple[str, str]],
) -> list[str]:
    """Return the shares of released mails whose author is named, with their intervals."""
    texts, names = zip(*released, strict=True)
    authors = np.array(names)
    shares = []
    for guesses in (
        koppel(original, texts),
        regression(original).predict(texts),
        regression(known).predict(texts),
    ):
        hits = int((guesses == authors).sum())
        share, low, high = ClusterSums.of_rows(hits, len(texts)).share(0.95)
        shares.append(f"{share:.3f} ({low:.3f} to {high:.3f})")
    return shares


def koppel(known: Sequence[tuple[str, str]], texts: Sequence[str]) -> NDArray[Any]:
    """Name the author who is most similar in most rounds, by random shares of letter sequences."""
    profiles: dict[str, list[str]] = {}
    for text, author in known:
        profiles.setdefault(author, []).append(text)
    names = np.array(sorted(profiles))
    counting = CountVectorizer(analyzer="char", ngram_range=(4, 4), min_df=1, max_features=20_000)
    of_authors = counting.fit_transform(["\n".join(profiles[name]) for name in names]).toarray()
    of_texts = counting.transform(texts).toarray()
    rng = np.random.default_rng(0)
    wins = np.zeros((len(texts), len(names)))
    for _ in range(ROUNDS):
        columns = rng.random(of_authors.shape[1]) < FEATURES
        scores = unit(of_texts[:, columns]) @ unit(of_authors[:, columns]).T
        wins[np.arange(len(texts)), scores.argmax(axis=1)] += 1.0
    return names[wins.argmax(axis=1)]


def unit(counts: NDArray[Any]) -> NDArray[np.float64]:
    """Scale counts to length 1."""
    lengths = np.linalg.norm(counts, axis=1, keepdims=True)
    return counts / np.maximum(lengths, 1.0)


def regression(known: Sequence[tuple[str, str]]) -> Any:
    """Learn authors from words and letters."""
    features = make_union(
        TfidfVectorizer(sublinear_tf=True, min_df=2),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 3), sublinear_tf=True, min_df=3),
    )
    model = make_pipeline(features, LogisticRegression(C=20.0, max_iter=200))
    return model.fit(*zip(*known, strict=True))


if __name__ == "__main__":
    main()
