"""What a public report says of a released table: all that turns its outputs into statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from dptext_spark.accounting.row_budget import RowBudget, RowEpsilons
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.geometry import Floats, Ints
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.parsing import json_value
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch
from dptext_spark.search.nearest import Search
from dptext_spark.text.patterns.user import UserPatterns
from dptext_spark.text.policies import (
    AllWords,
    ContentWords,
    OovPolicy,
    Protection,
    RandomWord,
    TextPolicy,
    stop_words,
)

FORMAT_VERSION: Final = 1
"""The version of the public reports that are understood."""

MOST_EPSILONS: Final = 16
"""Epsilons of rows, under a row budget, for which channels are worked out."""

_REMEDY: Final = "Give the public report of the release, OUTPUT.release.json"


@dataclass(frozen=True, kw_only=True)
class ReleasedColumn:
    """How a column of a released table was made, as its public report says."""

    column: str
    mechanism: Mechanism
    search: Search
    policy: TextPolicy  # cuts what was released into words
    marks: tuple[str, ...]  # the names of all marks
    passing: Ints  # ids of words that went out as they are
    has_random_words: bool  # whether unknown tokens became random words
    row_epsilons: RowEpsilons | None

    @classmethod
    def read(
        cls,
        text: str,
        embedding: Embedding,
        column: str,
        patterns: UserPatterns | None = None,
    ) -> Self:
        """Read a public report, and refuse what cannot be inverted.

        Args:
            patterns: The user's own that the release had.

        Raises:
            ConfigError: The report is of another bundle, column or kind of release, lacks
                something, or says what leaves outputs ambiguous.
        """
        try:
            return cls._of(_facts_of(text), embedding, column, patterns)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
            # Of another form; what is wrong may quote it.
            raise _unreadable() from None

    @classmethod
    def _of(
        cls,
        facts: Mapping[str, Any],
        embedding: Embedding,
        column: str,
        patterns: UserPatterns | None,
    ) -> Self:
        options = facts["options"]
        fingerprint = _fact(facts, "embedding", "fingerprint")
        if fingerprint != embedding.fingerprint:
            raise ConfigError(
                "The release was made with another embedding",
                allowed=f"fingerprint {fingerprint[:16]}",
                got=f"{embedding.fingerprint[:16]}",
                do="Give its bundle with --embedding",
            )
        columns = [*_fact(options, "text"), *_fact(options, "tokens")]
        if column not in columns:
            raise ConfigError(
                "The release did not sanitize this column",
                allowed=", ".join(columns),
                got=column,
            )
        if "[]" in column:
            raise ConfigError(
                "Words inside arrays cannot be estimated",
                got=column,
                do="Make a table of their elements with explode() first",
            )
        protection = Protection.of(_fact(options, "protect"))
        marks = _marking_policy(facts, patterns)
        return cls(
            column=column,
            mechanism=mechanism(_fact(options, "mechanism"), epsilon=_fact(options, "epsilon")),
            search=_search_of(facts, embedding, marks),
            policy=_reading_policy(options),
            marks=marks.mark_names,
            passing=_passing_words(protection, embedding),
            has_random_words=isinstance(OovPolicy.of(_fact(options, "oov")), RandomWord),
            row_epsilons=_row_epsilons(facts, columns),
        )

    def epsilons_of(self, words: Ints) -> Floats:
        """Return float64 (rows,): the epsilon of rows that show so many words and marks."""
        if self.row_epsilons is None:
            return np.full(len(words), self.mechanism.epsilon)
        return self.row_epsilons.of_rows(words)


def _unreadable() -> ConfigError:
    return ConfigError("The report of the release cannot be read", do=_REMEDY)


def _facts_of(text: str) -> dict[str, Any]:
    try:
        facts = json_value(text)
        version = facts["format_version"]
    except (ValueError, KeyError, TypeError):
        raise _unreadable() from None
    if version != FORMAT_VERSION:
        raise ConfigError(
            "The report of the release has another format",
            allowed=f"version {FORMAT_VERSION}",
            got=f"version {version}",
            do="Take the version of dptext-spark that made it",
        )
    if "mechanism" not in _fact(facts, "options"):
        raise ConfigError("The report is not of a release of words", do=_REMEDY)
    return dict(facts)


def _fact(facts: Mapping[str, Any], *names: str) -> Any:
    """Return a fact by the names that lead to it."""
    value: Any = facts
    for name in names:
        if not isinstance(value, Mapping) or name not in value:
            raise ConfigError(
                "The report of the release lacks what estimates need",
                got=f"no {'.'.join(names)}",
                do=_REMEDY,
            )
        value = value[name]
    return value


def _marking_policy(facts: Mapping[str, Any], patterns: UserPatterns | None) -> TextPolicy:
    """Return what decided which spans became marks, and which words are no output."""
    identity = _fact(facts, "identifier_patterns")
    if identity != (None if patterns is None else patterns.identity):
        raise ConfigError(
            "The release had other --identifier-patterns",
            allowed=identity or "none",
            got="none" if patterns is None else patterns.identity,
            do="Give the file of the release, or none if it had none",
        )
    options = facts["options"]
    return TextPolicy(
        identifiers=_fact(options, "identifiers"),
        identifier_patterns=patterns,
        numbers=_fact(options, "numbers"),
    )


def _search_of(facts: Mapping[str, Any], embedding: Embedding, policy: TextPolicy) -> Search:
    release_words = _fact(facts, "embedding", "release_words")
    label = _fact(facts, "search")
    search: Search = ExactSearch.over(embedding, release_words)
    if label != search.label:
        lists = _fact(facts, "recall", "lists")
        probes = _fact(facts, "recall", "probes")
        search = IvfSearch.over(embedding, release_words, lists=lists, probes=probes)
    if label != search.label:
        raise ConfigError(
            "The search of the release is not known", allowed=search.label, got=str(label)
        )
    search = search.without_marks(policy, embedding)
    withheld_words = _fact(facts, "embedding", "withheld_words")
    if search.withheld_words != withheld_words:
        raise ConfigError(
            "The release withheld other words than this version does",
            allowed=f"{search.withheld_words:,} words that look like identifiers",
            got=f"{withheld_words:,}",
            do="Take the version of dptext-spark that made the release",
        )
    return search


def _reading_policy(options: Mapping[str, Any]) -> TextPolicy:
    """Return what cuts released texts as the private ones were cut; marks are cut out before."""
    tokenizer = _fact(options, "tokenizer")
    return TextPolicy(tokenizer=tokenizer, identifiers="off", numbers="words")


def _passing_words(protection: Protection, embedding: Embedding) -> Ints:
    if isinstance(protection, AllWords):
        return np.zeros(0, dtype=np.int64)
    if isinstance(protection, ContentWords):
        stops = stop_words()
        flags = [form is not None and form.lower() in stops for form in embedding.forms.to_pylist()]
        return np.flatnonzero(flags)
    raise ConfigError(
        f"A release with --protect {protection} cannot be inverted: its words outside the slots "
        "look like perturbed ones",
        allowed="--protect all or content",
    )


def _row_epsilons(facts: Mapping[str, Any], columns: list[str]) -> RowEpsilons | None:
    if _fact(facts, "options", "row-budget") is None:
        return None
    if len(columns) > 1:
        raise ConfigError(
            "A release of several columns under a row budget cannot be inverted: the words of all "
            "of them decide on a row's epsilon",
            got=", ".join(columns),
        )
    budget = _fact(facts, "row_budget")
    pairs = _fact(budget, "epsilons")
    return RowEpsilons(
        budget=RowBudget(loss=budget["loss"], within=budget["within"], delta=budget["delta"]),
        lengths=tuple(pair["words"] for pair in pairs),
        epsilons=tuple(pair["epsilon"] for pair in pairs),
    )
