"""Authors of sanitized e-mails, found by Koppel's method: Table III of Feyisetan et al. 2019.

    OMP_NUM_THREADS=1 python -m scripts.experiments.authors_by_koppel --data pan11 --clipped BALL100 \
        --hyperbolic BALL10 --euclidean glove.6B.50d.txt

PAN11's authorship data are Parquet files ``pan11_small.parquet`` and ``pan11_large.parquet`` with ``split``,
``author``, ``text`` and ``author_in_train``. Of ``small`` the test part is attributed; ``large`` has no test
part here, so that every seventh document of each author is.

The attack (Koppel, Schler and Argamon 2011): texts are counts of space-free character 4-grams, an author is
the sum of his known texts. Many times a random half of the 4-grams is taken, and the author whose known
texts are nearest by cosine gets a vote. The share of votes is the score; below a threshold nobody is named.
``windows`` is the method as Potthast et al. 2016 implemented it again ("Who wrote the Web?", the PAN
laboratory's own): a random stretch of each author as long as the text, minmax similarity, and no author with
fewer than 500 known words.

The *static* attacker knows original texts of the authors, as in the paper. The *adaptive* one sanitizes what
he knows just as the release did. Prints Markdown; ``--small`` prints one JSON object of the demo's queries,
their intents in place of authors.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

import click
import numpy as np
import pyarrow.parquet as pq
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Laplace, Mechanism, mechanism
from dptext_spark.noise import NoiseKey
from dptext_spark.privatizer import Privatizer
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.policies import TextPolicy
from dptext_spark.text.stop_words import stop_words
from dptext_spark.text.tokens import token_spans, tokenize
from scripts.experiments.clipped_ball_noise import ClippedBall
from scripts.experiments.hyperbolic_table4 import opened, restricted
from scripts.experiments.texts import demo_embedding, demo_queries, markdown

GRAM: Final = 4
FEATURES: Final = 20_000
REPETITIONS: Final = 100
SHARE: Final = 0.5
THRESHOLDS: Final = (0.5, 0.8)
LEAST_WORDS: Final = 500
HELD_OUT: Final = 7
RESAMPLES: Final = 2000

# Correct predictions at epsilon 0.5, 1, 2, 8 and without noise, of 495 and 1,300 documents.
PAPER: Final = {
    "small": {0.5: 36, 1.0: 35, 2.0: 40, 8.0: 65, np.inf: 147},
    "large": {0.5: 72, 1.0: 73, 2.0: 78, 8.0: 116, np.inf: 259},
}
PAPER_DOCUMENTS: Final = {"small": 495, "large": 1300}
EPSILONS: Final = (0.5, 1.0, 2.0, 8.0)
LAPLACE_EPSILONS: Final = (*EPSILONS, 4.0, 16.0)
ATTACKS: Final = ("koppel", "windows")

# As the paper has it: stop words and words without a vector pass, and what stands between words too.
AS_PAPER: Final = TextPolicy(protect="content", oov="keep-unprotected", layout="keep")


@lru_cache(maxsize=1 << 17)
def grams_of_word(word: str) -> tuple[str, ...]:
    """The space-free 4-grams of a word: itself if it is short."""
    if len(word) <= GRAM:
        return (word,)
    return tuple(word[start : start + GRAM] for start in range(len(word) - GRAM + 1))


def grams(text: str) -> list[str]:
    """The space-free 4-grams of a text."""
    return [gram for word in text.split() for gram in grams_of_word(word)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """Texts of known authors, and texts to be attributed.

    Attributes:
        name: ``small`` or ``large``.
        known: Texts, and
        known_authors: int64, the author of each.
        tests: Texts, and
        test_authors: int64, the author of each; -1 for one of whom nothing is known.
    """

    name: str
    known: list[str]
    known_authors: np.ndarray
    tests: list[str]
    test_authors: np.ndarray

    @classmethod
    def of(cls, name: str, known: Sequence[tuple[str, str]], tests: Sequence[tuple[str, str]]) -> Corpus:
        """Number the authors of pairs of text and author."""
        names = {author: number for number, author in enumerate(sorted({author for _, author in known}))}
        return cls(
            name=name,
            known=[text for text, _ in known],
            known_authors=np.array([names[author] for _, author in known]),
            tests=[text for text, _ in tests],
            test_authors=np.array([names.get(author, -1) for _, author in tests]),
        )

    @classmethod
    def read(cls, name: str, folder: Path) -> Corpus:
        """Read one of PAN11's two."""
        rows = pq.read_table(folder / f"pan11_{name}.parquet").to_pylist()
        train = [(row["text"], row["author"]) for row in rows if row["split"] == f"{name}_train"]
        tests = [(row["text"], row["author"]) for row in rows if row["split"].startswith(f"{name}_test")]
        return cls.of(name, train, tests) if tests else cls.of(name, *held_out(train))

    def with_texts(self, texts: Sequence[str]) -> Corpus:
        """The same authors with other texts: those known, then those to be attributed."""
        return Corpus(
            name=self.name,
            known=list(texts[: len(self.known)]),
            known_authors=self.known_authors,
            tests=list(texts[len(self.known) :]),
            test_authors=self.test_authors,
        )

    @property
    def texts(self) -> list[str]:
        """All of them."""
        return [*self.known, *self.tests]

    @property
    def closed(self) -> np.ndarray:
        """bool (tests,): texts whose author is one of those known."""
        return self.test_authors >= 0

    @cached_property
    def most_frequent(self) -> float:
        """The share of texts that one is right about who names the author of most texts always."""
        return float(np.mean(self.test_authors[self.closed] == np.bincount(self.known_authors).argmax()))


def held_out(rows: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Take every seventh document of each author out, to be attributed."""
    seen: dict[str, int] = {}
    known: list[tuple[str, str]] = []
    tests: list[tuple[str, str]] = []
    for text, author in rows:
        seen[author] = seen.get(author, 0) + 1
        (known if seen[author] % HELD_OUT else tests).append((text, author))
    return known, tests


@dataclass(frozen=True, kw_only=True)
class Found:
    """Whom the attacker names.

    Attributes:
        authors: int64 (tests,), -1 for nobody.
        scores: float64 (tests,), the share of votes.
    """

    authors: np.ndarray
    scores: np.ndarray

    @classmethod
    def of(cls, votes: np.ndarray, repetitions: int) -> Found:
        """Count votes (tests, authors)."""
        most = votes.max(axis=1)
        return cls(authors=np.where(most > 0, votes.argmax(axis=1), -1), scores=most / repetitions)


@dataclass(frozen=True, kw_only=True)
class Attacker:
    """Koppel's method after training: what 4-grams there are, and how often each author has them.

    Attributes:
        grams: The FEATURES most frequent ones of the known texts.
        authors: float64 (authors, f), counts.
    """

    grams: CountVectorizer
    authors: np.ndarray

    @classmethod
    def trained(cls, texts: Sequence[str], authors: np.ndarray) -> Attacker:
        vectorizer = CountVectorizer(analyzer=grams, max_features=FEATURES)
        counts = vectorizer.fit_transform(texts)
        rows = np.arange(len(texts))
        owners = sparse.csr_matrix((np.ones(len(texts)), (authors, rows)))
        return cls(grams=vectorizer, authors=(owners @ counts).toarray())

    def attack(self, tests: Sequence[str], *, seed: int, repetitions: int = REPETITIONS) -> Found:
        """Attribute texts. A text none of whose 4-grams an author has gets no vote."""
        counts = self.grams.transform(tests).astype(np.float64)
        rng = np.random.default_rng(seed)
        features = self.authors.shape[1]
        votes = np.zeros((len(tests), len(self.authors)), dtype=np.int64)
        for _ in range(repetitions):
            chosen = np.zeros(features)
            chosen[rng.permutation(features)[: int(SHARE * features)]] = 1.0
            known = self.authors * chosen
            lengths = np.linalg.norm(known, axis=1)
            # The text's own length is the same for all authors.
            similarities = counts @ (known / np.maximum(lengths, 1.0)[:, None]).T
            best = similarities.argmax(axis=1)
            some = similarities.max(axis=1) > 0
            votes[np.flatnonzero(some), best[some]] += 1
        return Found.of(votes, repetitions)


@dataclass(frozen=True, kw_only=True)
class Stretches:
    """4-grams of texts in their order, as numbers.

    Attributes:
        features: int64 (g,), all 4-grams, -1 for one that is no feature.
        starts: int64 (words + 1,), where those of each word begin.
    """

    features: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, text: str, numbers: dict[str, int]) -> Stretches:
        words = [grams_of_word(word) for word in text.split()]
        found = [numbers.get(gram, -1) for word in words for gram in word]
        starts = np.cumsum([0, *map(len, words)])
        return cls(features=np.array(found, dtype=np.int64), starts=starts)


def by_windows(
    corpus: Corpus, *, seed: int, repetitions: int = REPETITIONS, least_words: int = LEAST_WORDS
) -> Found:
    """Attribute texts as Potthast et al. 2016 implemented the method."""
    count = corpus.known_authors.max() + 1
    joined = [
        " ".join(t for t, a in zip(corpus.known, corpus.known_authors, strict=True) if a == author)
        for author in range(count)
    ]
    candidates = [author for author in range(count) if len(joined[author].split()) >= least_words]
    vectorizer = CountVectorizer(analyzer=grams, max_features=FEATURES).fit([joined[a] for a in candidates])
    stretches = [Stretches.of(joined[author], vectorizer.vocabulary_) for author in candidates]
    lengths = np.array([len(one.starts) - 1 for one in stretches])
    features = np.concatenate([one.features for one in stretches])
    shifts = np.cumsum([0, *(len(one.features) for one in stretches)])[:-1]
    rng = np.random.default_rng(seed)
    total = len(vectorizer.vocabulary_)
    # The last column stands for what is no feature: it is never chosen.
    chosen = np.zeros((repetitions, total + 1), dtype=np.bool_)
    for row in chosen:
        row[rng.permutation(total)[: int(SHARE * total)]] = True
    votes = np.zeros((len(corpus.tests), count), dtype=np.int64)
    places = np.full(total + 1, -1)
    for number, text in enumerate(corpus.tests):
        own = Stretches.of(text, vectorizer.vocabulary_)
        size = int(min(len(own.starts) - 1, lengths.min()))
        grams_here, times = np.unique(own.features[: own.starts[size]], return_counts=True)
        if not size or grams_here.max(initial=-1) < 0:
            continue
        known = grams_here >= 0
        grams_here, times = grams_here[known], times[known]
        places[grams_here] = np.arange(len(grams_here))
        for turn in range(repetitions):
            first = rng.integers(0, lengths - size + 1)
            begin = np.array([one.starts[at] for one, at in zip(stretches, first, strict=True)])
            end = np.array([one.starts[at + size] for one, at in zip(stretches, first, strict=True)])
            many = end - begin
            owner = np.repeat(np.arange(len(candidates)), many)
            within = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
            there = features[within + np.repeat(begin + shifts, many)]
            counted = chosen[turn, there]
            owner, there = owner[counted], places[there[counted]]
            theirs = np.bincount(owner, minlength=len(candidates))
            shared = there >= 0
            table = np.bincount(
                owner[shared] * len(grams_here) + there[shared], minlength=len(candidates) * len(grams_here)
            ).reshape(len(candidates), -1)
            mine = times * chosen[turn, grams_here]
            both = np.minimum(table, mine).sum(axis=1)
            similarity = both / np.maximum(theirs + mine.sum() - both, 1)
            if similarity.max() > 0:
                votes[number, candidates[int(similarity.argmax())]] += 1
        places[grams_here] = -1
    return Found.of(votes, repetitions)


@dataclass(frozen=True, kw_only=True, eq=False)
class Score:
    """How often the attacker is right, over repetitions.

    Attributes:
        corpus: What was attributed.
        found: One or more.
    """

    corpus: Corpus
    found: list[Found]

    @property
    def right(self) -> np.ndarray:
        """bool (repetitions, closed tests): where the text's author was named."""
        known = self.corpus.closed
        truth = self.corpus.test_authors[known]
        return np.array([found.authors[known] == truth for found in self.found])

    @property
    def share(self) -> float:
        return float(self.right.mean())

    def interval(self) -> tuple[float, float]:
        """95 % interval of the share: authors, with their texts, and repetitions are drawn again.

        By the percentiles of the bootstrap of both (Owen 2007, "The pigeonhole bootstrap").
        """
        authors = self.corpus.test_authors[self.corpus.closed]
        sums = np.array([np.bincount(authors, weights=right) for right in self.right])
        texts = np.bincount(authors)
        there = np.flatnonzero(texts)
        rng = np.random.default_rng(0)
        drawn = rng.choice(there, size=(RESAMPLES, len(there)))
        repetitions = rng.integers(len(sums), size=(RESAMPLES, len(sums)))
        hits = sums[repetitions[:, :, None], drawn[:, None, :]].mean(axis=1)
        shares = hits.sum(axis=1) / texts[drawn].sum(axis=1)
        low, high = np.quantile(shares, [0.025, 0.975])
        return float(low), float(high)

    def above(self, threshold: float) -> tuple[float, float]:
        """Part of all texts, those of unknown authors too, that are attributed, and part of these rightly."""
        named = [found.scores >= threshold for found in self.found]
        hits = [
            (found.authors == self.corpus.test_authors) & mask & self.corpus.closed
            for found, mask in zip(self.found, named, strict=True)
        ]
        many = np.sum(named)
        return float(np.mean(named)), float(np.sum(hits) / many) if many else float("nan")

    def __str__(self) -> str:
        low, high = self.interval()
        texts = int(self.corpus.closed.sum())
        return f"{self.share * texts:.0f} ({self.share:.1%}; {low:.1%} to {high:.1%})"

    def confident(self) -> str:
        """The attributed part and its rightly attributed part at each threshold."""
        parts = [self.above(threshold) for threshold in THRESHOLDS]
        return "; ".join(f"{named:.1%}, {right:.0%}" for named, right in parts)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A mechanism that texts are sanitized by.

    Attributes:
        mechanism: With its epsilon.
        embedding: The bundle.
        above: Epsilon above the least that the mechanism has; for the paper's noise, the paper's own.
    """

    mechanism: Mechanism
    embedding: Embedding
    above: float

    @property
    def label(self) -> str:
        return f"{self.mechanism.name} {self.mechanism.epsilon:g}"

    def sanitize(self, texts: list[str], *, seed: int) -> tuple[list[str], float]:
        """Sanitize texts by a key of the seed; give the part of the perturbed words that stayed as well."""
        key = NoiseKey(hashlib.sha256(f"authors {seed}".encode()).digest())
        search = ExactSearch.over(self.embedding)
        privatizer = Privatizer(
            embedding=self.embedding,
            mechanism=self.mechanism,
            noise=self.mechanism.release_noise(key, salt="", embedding=self.embedding, search=search),
            policy=AS_PAPER,
        )
        found = privatizer.sanitize(texts, range(len(texts)), column="text")
        stayed, changed = int(found.counts.unchanged.sum()), int(found.counts.replaced.sum())
        return [text or "" for text in found.values.to_pylist()], stayed / max(1, stayed + changed)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came out for one setting, over seeds."""

    stayed: float
    static: Score
    adaptive: Score


def attacked(
    corpus: Corpus,
    setting: Setting,
    static: Attacker,
    *,
    seeds: int,
    repetitions: int = REPETITIONS,
) -> Outcome:
    """Sanitize a corpus and attack it, at each seed."""
    by_static, by_adaptive, stayed = [], [], []
    for seed in range(seeds):
        became, part = setting.sanitize(corpus.texts, seed=seed)
        known, tests = became[: len(corpus.known)], became[len(corpus.known) :]
        stayed.append(part)
        by_static.append(static.attack(tests, seed=seed, repetitions=repetitions))
        own = Attacker.trained(known, corpus.known_authors)
        by_adaptive.append(own.attack(tests, seed=seed, repetitions=repetitions))
    return Outcome(
        stayed=float(np.mean(stayed)),
        static=Score(corpus=corpus, found=by_static),
        adaptive=Score(corpus=corpus, found=by_adaptive),
    )


def parted(text: str, vocabulary: frozenset[str], *, protected: bool) -> str:
    """The protected words of a text alone, or all else of it, as the paper protects them."""
    words = tokenize(text)
    spans = token_spans(text, words)
    pieces, last = [], 0
    for word, (start, end) in zip(words, spans, strict=True):
        is_protected = word.lower() in vocabulary and word.lower() not in stop_words()
        if is_protected == protected:
            pieces.append(text[start:end] if protected else text[last:end])
        elif not protected:
            pieces.append(text[last:start])
        last = end
    return " ".join(pieces) if protected else "".join([*pieces, text[last:]])


def limits(corpus: Corpus, vocabulary: frozenset[str], *, seeds: int) -> Iterator[tuple[str, Score, Score]]:
    """What noise cannot change: the original, what passes beside the protected words, and these alone.

    By the static attacker and by the adaptive one.
    """
    static = Attacker.trained(corpus.known, corpus.known_authors)
    original = Score(corpus=corpus, found=[static.attack(corpus.tests, seed=seed) for seed in range(seeds)])
    yield "original text", original, original
    for title, protected in (("what passes: all but the protected words", False), ("these alone", True)):
        part = corpus.with_texts([parted(text, vocabulary, protected=protected) for text in corpus.texts])
        own = Attacker.trained(part.known, part.known_authors)
        yield (
            title,
            Score(corpus=part, found=[static.attack(part.tests, seed=seed) for seed in range(seeds)]),
            Score(corpus=part, found=[own.attack(part.tests, seed=seed) for seed in range(seeds)]),
        )


def table(
    corpus: Corpus,
    settings: Sequence[Setting],
    *,
    seeds: int,
) -> Iterator[str]:
    """One table of mechanisms."""
    thresholds = " and ".join(f"{value:g}" for value in THRESHOLDS)
    columns = [
        "mechanism",
        "ε",
        "protected words that stay",
        "correct, static",
        f"named at σ* = {thresholds}, of these right",
        "correct, adaptive",
        "paper",
    ]
    yield markdown(columns, []).rstrip()
    static = Attacker.trained(corpus.known, corpus.known_authors)
    for setting in settings:
        found = attacked(corpus, setting, static, seeds=seeds)
        cells = [
            setting.mechanism.name,
            f"{setting.mechanism.epsilon:g}",
            f"{found.stayed:.1%}",
            found.static,
            found.static.confident(),
            found.adaptive,
            of_paper(corpus.name, setting.above) if setting.mechanism.name == ClippedBall.name else "",
        ]
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""


def limits_table(corpus: Corpus, vocabulary: frozenset[str], *, seeds: int) -> Iterator[str]:
    """The table of :func:`limits`."""
    rows = [
        [title, static, static.confident(), adaptive, "" if number else of_paper(corpus.name, np.inf)]
        for number, (title, static, adaptive) in enumerate(limits(corpus, vocabulary, seeds=seeds))
    ]
    yield markdown(
        ["text", "correct, static", "named at σ*, of these right", "correct, adaptive", "paper"], rows
    )


def windows_table(corpus: Corpus, settings: Sequence[Setting], *, seeds: int) -> Iterator[str]:
    """The method as it was implemented again, on original text and on that of the paper's noise."""

    def row(title: str, epsilon: float, tests: Sequence[Sequence[str]]) -> list[object]:
        changed = [corpus.with_texts([*corpus.known, *texts]) for texts in tests]
        found = [by_windows(one, seed=seed) for seed, one in enumerate(changed)]
        click.echo(f"{corpus.name} by windows, {title} {epsilon:g}", err=True)
        return [title, f"{epsilon:g}", Score(corpus=corpus, found=found), of_paper(corpus.name, epsilon)]

    rows = [row("original text", np.inf, [corpus.tests] * seeds)]
    for one in settings:
        if one.mechanism.name == ClippedBall.name:
            texts = [one.sanitize(corpus.tests, seed=seed)[0] for seed in range(seeds)]
            rows.append(row(ClippedBall.name, one.above, texts))
    yield markdown(["text", "ε", "correct by windows, static", "paper"], rows)


def of_paper(name: str, epsilon: float) -> str:
    """A figure of Table III."""
    count, of = PAPER[name][epsilon], PAPER_DOCUMENTS[name]
    return f"{count} ({count / of:.1%})"


def about(corpus: Corpus, vocabulary: frozenset[str]) -> str:
    """What there is."""
    words = [word.lower() for text in corpus.tests for word in tokenize(text)]
    content = [word for word in words if word not in stop_words()]
    covered = sum(word in vocabulary for word in content)
    return (
        f"\n## {corpus.name}\n\n{len(corpus.known):,} known documents of {corpus.known_authors.max() + 1} "
        f"authors; {len(corpus.tests):,} to be attributed, {int(corpus.closed.sum()):,} of them by these "
        f"authors. Of their {len(words):,} words {len(content) / len(words):.0%} are no stop words; "
        f"{covered / len(content):.0%} of those are among the {len(vocabulary):,} words that are perturbed. "
        f"Naming the author of most documents always is right in {corpus.most_frequent:.1%}.\n"
    )


def small() -> dict[str, float]:
    """The figures of the demo's queries, their intents as authors."""
    texts, intents = demo_queries(600)
    pairs = list(zip(texts, intents, strict=True))
    corpus = Corpus.of("demo", pairs[::2], pairs[1::2])
    static = Attacker.trained(corpus.known, corpus.known_authors)
    with tempfile.TemporaryDirectory() as folder:
        embedding = demo_embedding(Path(folder))
        vocabulary = frozenset(embedding.words.to_pylist())
        found = {
            epsilon: attacked(
                corpus,
                Setting(mechanism=Laplace(epsilon=epsilon), embedding=embedding, above=epsilon),
                static,
                seeds=1,
                repetitions=20,
            )
            for epsilon in (1.0, 100.0)
        }
    original = Score(corpus=corpus, found=[static.attack(corpus.tests, seed=0, repetitions=20)])
    windows = by_windows(corpus, seed=0, repetitions=20, least_words=200)
    passes = [parted(text, vocabulary, protected=False) for text in corpus.tests]
    nobody = Found(authors=np.full(len(corpus.tests), -1), scores=np.zeros(len(corpus.tests)))
    everybody = Found(authors=corpus.test_authors, scores=np.ones(len(corpus.tests)))
    wavering = Score(corpus=corpus, found=[everybody, nobody])
    low, high = wavering.interval()
    return {
        "floor": corpus.most_frequent,
        "original": original.share,
        "windows": Score(corpus=corpus, found=[windows]).share,
        "passes": Score(corpus=corpus, found=[static.attack(passes, seed=0, repetitions=20)]).share,
        "static at 1": found[1.0].static.share,
        "static at 100": found[100.0].static.share,
        "adaptive at 1": found[1.0].adaptive.share,
        "stayed at 1": found[1.0].stayed,
        "stayed at 100": found[100.0].stayed,
        "named at 0.8": original.above(0.8)[0],
        "right at 0.8": original.above(0.8)[1],
        "wavering": wavering.share,
        "wavering, low": low,
        "wavering, high": high,
    }


def worlds(
    clipped: Path, hyperbolic: Path, euclidean: Path, folder: Path
) -> tuple[Embedding, Embedding, Embedding]:
    """The words that all three have, in each of them."""
    sources = [
        opened(clipped, folder / "clipped", "poincare"),
        opened(hyperbolic, folder / "hyperbolic", "poincare"),
        opened(euclidean, folder / "euclidean", "euclidean"),
    ]
    known = [set(source.words.to_pylist()) for source in sources]
    words = [word for word in sources[0].words.to_pylist() if all(word in some for some in known)]
    one, two, three = (restricted(source, words, folder / f"common {i}") for i, source in enumerate(sources))
    return one, two, three


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), help="folder of PAN11's Parquet files")
@click.option("--clipped", type=click.Path(exists=True, path_type=Path), help="ball for the paper's noise")
@click.option("--hyperbolic", type=click.Path(exists=True, path_type=Path), help="ball for hyperbolic")
@click.option("--euclidean", type=click.Path(exists=True, path_type=Path), help="vectors for laplace")
@click.option("--corpus", "names", multiple=True, default=("small", "large"), show_default=True)
@click.option("--seeds", default=2, show_default=True, help="repetitions")
@click.option("--setting", "chosen", multiple=True, help="such as 'laplace 4'; default: all")
@click.option("--attack", "attacks", type=click.Choice(ATTACKS), multiple=True, default=ATTACKS)
@click.option("--small", "is_small", is_flag=True, help="the demo's queries, as JSON")
def main(
    data: Path,
    clipped: Path,
    hyperbolic: Path,
    euclidean: Path,
    names: tuple[str, ...],
    seeds: int,
    chosen: tuple[str, ...],
    attacks: tuple[str, ...],
    is_small: bool,
) -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
        if is_small:
            click.echo(json.dumps(small()))
            return
        one, two, three = worlds(clipped, hyperbolic, euclidean, Path(name))
        vocabulary = frozenset(one.words.to_pylist())
        least = two.dimension - 1
        moved = [mechanism("hyperbolic", epsilon=least + epsilon) for epsilon in EPSILONS]
        settings = [
            *(Setting(mechanism=ClippedBall(epsilon=e), embedding=one, above=e) for e in EPSILONS),
            *(Setting(mechanism=m, embedding=two, above=m.epsilon - least) for m in moved),
            *(Setting(mechanism=Laplace(epsilon=e), embedding=three, above=e) for e in LAPLACE_EPSILONS),
        ]
        if unknown := set(chosen) - {one.label for one in settings}:
            raise click.UsageError(f"There is no setting {', '.join(unknown)}.")
        settings = [one for one in settings if not chosen or one.label in chosen]
        for corpus in (Corpus.read(one, data) for one in names):
            click.echo(about(corpus, vocabulary))
            if "windows" in attacks:
                click.echo("\n".join(windows_table(corpus, settings, seeds=seeds)))
            if "koppel" in attacks:
                click.echo("\n".join(limits_table(corpus, vocabulary, seeds=seeds)))
                for line in table(corpus, settings, seeds=seeds):
                    click.echo(line)  # as they come, for each takes its time


if __name__ == "__main__":
    main()
