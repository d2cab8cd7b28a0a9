"""How many words attackers recover from a release, each word alone or with its neighbours' help.

Attackers know the mechanism and, from a corpus, the language. They are scored on outputs: what they
do not know, or skip for speed, makes them recover less than a stronger attacker does.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Final, Self

import numpy as np
import scipy

from dptext_spark.channel.channel import Channel
from dptext_spark.errors import ConfigError, DptextError
from dptext_spark.evaluation.candidates import Candidates
from dptext_spark.evaluation.chains import forward_backward, forward_backward_in_pairs
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.language import Language
from dptext_spark.evaluation.rows import SimulatedRows
from dptext_spark.geometry import Floats, Ints

STRONGER: Final = (
    "What is recovered is the success of these attackers: a stronger attacker gets more."
)
"""What every report of their success says."""

STRONGEST: Final = "strongest"
"""In place of an attacker's name: the one that recovers most."""

BY_PAIRS: Final = "by pairs"
"""In place of an attacker's name: guesses without any output, by which word follows which."""

TOP: Final = (1, 5)
"""A word counts as recovered if it is among this number of guesses."""

RANKS: Final = (100, 1_000, 10_000)
"""Where bands of words end, by how frequent they are in the corpus; the last band has no end."""

CANDIDATES: Final = 192
"""Words that are taken into account at each place of a text."""

STATES: Final = 16
"""The candidates that a trigram model chooses among: the likeliest by a bigram model."""

ATTACKERS: Final[dict[str, type[Attacker]]] = {}
"""Attackers by name; each subclass enters itself."""

# Tokens that are attacked at once.
_TOKENS: Final = 1 << 13

# The least probability of a candidate that has not been ruled out, and what is left of it beyond
# the states.
_LEAST: Final = 1e-8
_BEYOND_STATES: Final = 1e-2
_FEW: Final = 20  # words are too few to learn from
_PENALTY: Final = 1e-3


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Known:
    """What attackers learn from: none of it are the rows that they attack."""

    language: Language  # of all texts that they have
    language_without_shadow: Language  # of all but the shadow rows
    shadow: SimulatedRows  # texts that they release themselves, to see how well their guesses do


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Evidence:
    """What the outputs of some rows say of each word, K candidates a token."""

    rows: SimulatedRows
    candidates: Candidates  # by each token's own outputs
    language: Language

    @classmethod
    def of(
        cls, rows: SimulatedRows, channel: Channel, language: Language, *, most: int
    ) -> Evidence:
        """Look at rows through a channel."""
        candidates = Candidates.of(rows, channel, language.words, most=most)
        return cls(rows=rows, candidates=candidates, language=language)

    @cached_property
    def by_pairs(self) -> Floats:
        """P[candidate | all outputs of the row], float64 (t, K), by which word follows which."""
        return forward_backward(self.candidates, self.language.pairs, self.rows.offsets)

    @cached_property
    def by_triples(self) -> Floats:
        """The same by which word follows which two, float64 (t, K); above 0 beyond ``STATES``."""
        order = np.argsort(-self.by_pairs, axis=1, kind="stable")[:, :STATES]
        likeliest = Candidates(
            words=np.take_along_axis(self.candidates.words, order, axis=1),
            log_emission=np.take_along_axis(self.candidates.log_emission, order, axis=1),
        )
        posterior = forward_backward_in_pairs(likeliest, self.language.triples, self.rows.offsets)
        result = self.by_pairs * _BEYOND_STATES
        np.put_along_axis(result, order, posterior, axis=1)
        return result

    @cached_property
    def by_topics(self) -> Floats:
        """ln P[candidate | topics of the row] / P[candidate], float64 (t, K), by the triples."""
        probability = self.by_triples
        return self.language.topics.evidence(self.candidates.words, probability, self.rows.offsets)


class Attacker(ABC):
    """Guesses words from outputs; every attacker of ``ATTACKERS`` is tried."""

    name: ClassVar[str]
    knows: ClassVar[str]  # what it guesses from, as reports say it
    # Others whose guesses without any output it could make as well: names of attackers, BY_PAIRS.
    # Its floor is the best of theirs and its own.
    floors: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Enter the class under its name; one without a name of its own is a base of others."""
        super().__init_subclass__()
        if "name" not in vars(cls):
            return
        if not re.fullmatch(r"[A-Za-z][\w-]*", cls.name) or cls.name == STRONGEST:
            raise ConfigError(
                f"Class {cls.__name__} has a name that is not allowed",
                allowed=f"letters, digits, - and _, a letter first; not {STRONGEST}",
                got=repr(cls.name),
            )
        if not getattr(cls, "knows", ""):
            raise ConfigError(
                f"Attacker {cls.name} lacks knows", allowed="what it guesses from, as text"
            )
        registered = ATTACKERS.get(cls.name, cls)
        if (registered.__module__, registered.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ConfigError(
                f"The name of attacker {cls.__name__} is taken by {registered.__qualname__}",
                got=cls.name,
                do="Choose another name",
            )
        ATTACKERS[cls.name] = cls

    @classmethod
    @abstractmethod
    def learn(cls, known: Known, channel: Channel, *, candidates: int) -> Self:
        """Learn from the texts that attackers have, and from what the mechanism does."""

    @abstractmethod
    def guess(self, evidence: Evidence) -> Ints:
        """Guess each token's word: int64 (t, K), the likeliest first, negative for none."""


class ContextFree(Attacker):
    """Guesses each word from its own outputs alone: the candidates as they are."""

    name = "context-free"
    knows = "how frequent words are"

    @classmethod
    def learn(cls, known: Known, channel: Channel, *, candidates: int) -> Self:
        return cls()

    def guess(self, evidence: Evidence) -> Ints:
        return evidence.candidates.words


class InContext(Attacker):
    """Guesses each word from all outputs of its row, and from which word follows which two."""

    name = "in-context"
    knows = "which word follows which two"
    floors = (ContextFree.name, BY_PAIRS)

    @classmethod
    def learn(cls, known: Known, channel: Channel, *, candidates: int) -> Self:
        return cls()

    def guess(self, evidence: Evidence) -> Ints:
        return _ordered(evidence.candidates.words, evidence.by_triples)


@dataclass(frozen=True, kw_only=True, eq=False)
class Adaptive(Attacker):
    """Weighs what outputs say against words, pairs, triples and topics, as is best on shadow rows.

    A log-linear model of the candidates (McFadden 1974, conditional logit).
    """

    name = "adaptive"
    knows = "words, which follows which two, topics of rows, and releases that it makes itself"
    floors = (InContext.name, *InContext.floors)

    weights: Mapping[int, Floats]  # (5,), by the number of versions of each row

    @classmethod
    def learn(cls, known: Known, channel: Channel, *, candidates: int) -> Self:
        weights = {}
        for versions in sorted({1, len(known.shadow.outputs)}):
            shadow = replace(known.shadow, outputs=known.shadow.outputs[:versions])
            evidence = Evidence.of(shadow, channel, known.language_without_shadow, most=candidates)
            weights[versions] = _weights(evidence)
        return cls(weights=weights)

    def guess(self, evidence: Evidence) -> Ints:
        weights = self.weights[len(evidence.rows.outputs)]
        return _ordered(evidence.candidates.words, _features(evidence) @ weights)


def _ordered(words: Ints, scores: Floats) -> Ints:
    """Order candidates (t, K) by their scores, the highest first."""
    scores = np.where(words < 0, -np.inf, scores)
    return np.take_along_axis(words, np.argsort(-scores, axis=1, kind="stable"), axis=1)


def _features(evidence: Evidence) -> Floats:
    """What the mix weighs, logarithms (t, K, 5): emission, prior, pairs, triples and topics."""
    words = evidence.candidates.words
    frequencies = np.append(evidence.language.words, 1.0)  # the last one beyond the vocabulary
    frequency = frequencies[np.minimum(words, len(evidence.language.words))]
    likelihood = np.exp(evidence.candidates.log_emission)
    features = [
        np.log(np.maximum(likelihood, np.finfo(np.float64).tiny)),
        np.log(np.maximum(frequency, _LEAST)),
        np.log(np.maximum(evidence.by_pairs, _LEAST)),
        np.log(np.maximum(evidence.by_triples, _LEAST)),
        evidence.by_topics,
    ]
    return np.stack(features, axis=2)


def _weights(evidence: Evidence) -> Floats:
    """Find the weights (5,) under which the words of some rows are likeliest."""
    triples_alone = np.array([0.0, 0.0, 0.0, 1.0, 0.0])
    rows = evidence.rows
    words = evidence.candidates.words
    is_right = words == rows.inputs[:, None]
    tokens = np.flatnonzero(rows.perturbed & is_right.any(axis=1))
    if len(tokens) < _FEW:
        return triples_alone
    features = _features(evidence)[tokens]
    is_right = is_right[tokens]
    is_missing = words[tokens] < 0

    def loss(trial: Floats) -> tuple[float, Floats]:
        """The mean of -ln P[word], with a small penalty, and its gradient."""
        scores = np.where(is_missing, -np.inf, features @ trial)
        total = scipy.special.logsumexp(scores, axis=1)
        probability = np.exp(scores - total[:, None])
        expected = np.einsum("tk,tkf->tf", probability, features)
        penalty = trial - triples_alone
        value = float((total - scores[is_right]).mean()) + _PENALTY * float(penalty @ penalty)
        gradient = (expected - features[is_right]).mean(axis=0) + 2.0 * _PENALTY * penalty
        return value, gradient

    best = scipy.optimize.minimize(loss, triples_alone, jac=True, method="L-BFGS-B")
    return np.asarray(best.x)


@dataclass(frozen=True, kw_only=True, eq=False)
class TopicWeights:
    """T lists of words, and how an analyst counts them in outputs."""

    members: Ints  # (V, T), 1 for the words of each list
    weights: Floats  # (outputs, T)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Knowledge:
    """What attackers know."""

    channel: Channel  # of the mechanism
    language: Language
    # K, words that are taken into account at each place, 5 or more; with fewer than V the right one
    # may be missing: ``considered`` of :func:`attack` says how often it is there.
    candidates: int = CANDIDATES
    attackers: Mapping[str, Attacker]  # by name
    # int64 (V,), how many of the evaluated rows have each word, which an observer of rare words
    # knows.
    row_counts: Ints | None = None
    topics: TopicWeights | None = None  # of analysts

    @classmethod
    def learn(
        cls,
        known: Known,
        channel: Channel,
        *,
        candidates: int = CANDIDATES,
        attackers: Mapping[str, type[Attacker]] = ATTACKERS,
    ) -> Knowledge:
        """Train attackers, by default all that there are."""
        trained = {}
        for name, attacker in attackers.items():
            with _blamed(name):
                trained[name] = attacker.learn(known, channel, candidates=candidates)
        return cls(
            channel=channel,
            language=known.language,
            candidates=candidates,
            attackers=trained,
        )


@contextmanager
def _blamed(name: str) -> Iterator[None]:
    """Name the attacker whose code fails; what its error quotes may be private."""
    try:
        yield
    except (DptextError, MemoryError):
        raise
    except Exception as error:
        raise ConfigError(
            f"The attacker {name} failed",
            got=type(error).__name__,
            do=f"Try it on a few rows with {__package__}.local.evaluate, which shows where",
        ) from error


def _guesses(attacker: Attacker, evidence: Evidence) -> Ints:
    """Return an attacker's guesses, (t, K)."""
    name = type(attacker).name
    with _blamed(name):
        guesses = np.asarray(attacker.guess(evidence))
    tokens = len(evidence.rows.inputs)
    form = f"{guesses.dtype} {guesses.shape}"
    if not re.fullmatch(rf"u?int\d+ \({tokens}, \d+\)", form):
        allowed = f"an array of word ids, int64 ({tokens}, guesses)"
        raise ConfigError(f"The attacker {name} gives no guesses", allowed=allowed, got=form)
    return guesses


def attack(rows: SimulatedRows, knowledge: Knowledge) -> dict[str, ClusterSums]:
    """Count the perturbed words that attackers recover, and those that they ``considered`` at all.

    Keys are ``considered`` and ``ATTACKER/GUESSES``; without any output also ``BY_PAIRS``. Classes
    of the sums are all words, then the bands of ``RANKS``, the frequent words first.
    """
    names = [*knowledge.attackers]
    if knowledge.channel.method == "none":
        attackers = knowledge.attackers.values()
        if any(BY_PAIRS in attacker.floors for attacker in attackers):
            names.append(BY_PAIRS)
    places = [np.zeros(0, dtype=np.int64)]
    hits: dict[str, list[Floats]] = {"considered": [np.zeros(0)]}
    for name in names:
        for top in TOP:
            hits[f"{name}/{top}"] = [np.zeros(0)]
    for tokens, part in rows.batches(_TOKENS):
        hidden = part.perturbed
        inputs = part.inputs[hidden]
        places.append(tokens[hidden])
        evidence = Evidence.of(
            part, knowledge.channel, knowledge.language, most=knowledge.candidates
        )
        hits["considered"].append(_hits(evidence.candidates.words[hidden], inputs))
        for name in names:
            if name == BY_PAIRS:
                guesses = _ordered(evidence.candidates.words, evidence.by_pairs)
            else:
                guesses = _guesses(knowledge.attackers[name], evidence)
            for top in TOP:
                hits[f"{name}/{top}"].append(_hits(guesses[hidden, :top], inputs))
    tokens = np.concatenate(places)
    row = rows.rows[tokens]
    band = _rank_band(knowledge.language.words, rows.inputs[tokens])
    sums = {}
    for name, parts in hits.items():
        sums[name] = ClusterSums.banded(row, np.concatenate(parts), band, len(RANKS) + 1)
    return sums


def _hits(guesses: Ints, words: Ints) -> Floats:
    """Compute whether words (t,) are among their guesses (t, g): 1 or 0, float64 (t,)."""
    return np.asarray((guesses == words[:, None]).any(axis=1).astype(np.float64))


def _rank_band(frequency: Floats, words: Ints) -> Ints:
    """Return the bands of ``RANKS`` of words (t,), by the frequencies (V,) of all words."""
    rank = np.empty(len(frequency), dtype=np.int64)
    rank[np.argsort(-frequency, kind="stable")] = np.arange(len(rank))
    return np.searchsorted(RANKS, rank[words], side="right")
