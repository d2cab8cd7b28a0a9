"""Soft topics: weights of outputs that count the words of a list, and hardly any others.

Given P[output | word] and weights g of outputs, the mean of g over the released words estimates
the sum of p(w) h(w) with h = P g, whatever the private frequencies p are: without bias, and with
sampling error only. So g is chosen for an h that is near 1 on the list and near 0 elsewhere, and
reported with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import scipy

from dptext_spark.channel.matrix import ChannelMatrix, MatrixSource
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.geometry import Floats, Ints
from dptext_spark.parsing import toml_table
from dptext_spark.text.tokens import lookup_forms

LEAKS: Final = 10
"""Words outside its list that a topic is shown with."""

# Frequencies of private words scatter about the public prior as in a sample of so many words. Then
# a ridge of this over the number of released words is the best trade of blur against scatter.
_CONCENTRATION: Final = 30.0
# Weights are fitted to a mix of what the table shows of its words, with this share, and the prior:
# weights that know the table all too well would lean on its chance.
_OF_TABLE: Final = 0.75
_LEAST_RIDGE: Final = 1e-4  # below it single precision cannot tell solutions apart
_LARGEST_RIDGE: Final = 0.3


@dataclass(frozen=True, kw_only=True, eq=False)
class SoftTopics:
    """Weights of outputs for T lists of words, and what they count of each word."""

    names: tuple[str, ...]
    members: Ints  # (k, T), 1 for the words of each list
    weights: Floats  # (outputs, T): g
    counted: Floats  # (k, T): h, 1 on average over the words of its list
    sharpness: Floats  # (T,), the share of what it counts of a public text that is of its list
    error: Floats  # (T,), standard error of what it counts, of simulated noise
    ridge: float
    likely: Floats  # (k,), by which words they were fitted

    @classmethod
    def fitted(
        cls,
        source: MatrixSource,
        matrix: ChannelMatrix,
        names: Sequence[str],
        members: Ints,
        *,
        words: float,
        shares: Floats,
    ) -> SoftTopics:
        """Fit topics to lists of words, by ridge regression weighted with likely shares of words.

        Args:
            source: What the matrix is of.
            members: (k, T), 1 for the words of each list.
            words: How many released words a group of the table has.
            shares: (k,), of the words of the matrix in the table, as far as they are known.
        """
        ridge = min(max(_CONCENTRATION / max(words, 1.0), _LEAST_RIDGE), _LARGEST_RIDGE)
        likely = (1.0 - _OF_TABLE) * matrix.prior + _OF_TABLE * shares
        weights = ridge_weights(replace(matrix, prior=likely), members, ridge)
        counted, error = source.counted(matrix, weights, shares)
        of_lists = likely @ members
        scale = (likely @ (members * counted)) / of_lists
        if (scale <= 0.0).any():
            blurred = [name for name, factor in zip(names, scale, strict=True) if factor <= 0.0]
            raise ConfigError(
                "The noise leaves nothing of some topics",
                got=", ".join(blurred),
                do="Take larger lists of words",
            )
        counted = counted / scale
        inside = matrix.prior @ (members * counted)
        return cls(
            names=tuple(names),
            members=members,
            weights=weights / scale,
            counted=counted,
            sharpness=inside / (matrix.prior @ np.abs(counted)),
            error=error / scale,
            ridge=ridge,
            likely=likely,
        )

    def leaks(self, topic: int) -> Ints:
        """Return the places of the words outside a list that count most, as likely as they are."""
        outside = np.where(self.members[:, topic] > 0, 0.0, np.abs(self.counted[:, topic]))
        return np.argsort(-outside * self.likely, kind="stable")[:LEAKS]


def combined(fitted: Mapping[float, SoftTopics], words: Mapping[float, int]) -> SoftTopics:
    """Return what topics count of a table whose words came through several channels."""
    total = sum(words.values())
    first = next(iter(fitted.values()))
    counted = np.zeros_like(first.counted)
    sharpness = np.zeros_like(first.sharpness)
    error = np.zeros_like(first.error)
    for epsilon, soft in fitted.items():
        portion = words[epsilon] / total
        counted += portion * soft.counted
        sharpness += portion * soft.sharpness
        error += portion * soft.error
    return replace(first, counted=counted, sharpness=sharpness, error=error)


def ridge_weights(matrix: ChannelMatrix, members: Ints, ridge: float) -> Floats:
    """Return the weights of outputs (outputs, T) that count lists of words (k, T) best.

    They minimize the prior's mean of (h - 1 on the list)² plus ``ridge`` times the mean of g²: the
    variance of one released word.
    """
    roots = np.sqrt(matrix.output_prior)
    scaled = matrix.table * (np.sqrt(matrix.prior)[:, None] / roots).astype(np.float32)
    gram = scaled.T @ scaled
    gram[np.diag_indices(len(gram))] += np.float32(ridge)
    targets = np.sqrt(matrix.prior)[:, None] * members
    factor = scipy.linalg.cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
    solved = scipy.linalg.cho_solve(factor, scaled.T @ targets.astype(np.float32))
    return np.asarray(solved.astype(np.float64) / roots[:, None])


def read_topics(path: Path) -> dict[str, list[str]]:
    """Read lists of words from a TOML file, or from lines ``name: words``."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The topics {path} cannot be read", got=type(error).__name__) from None
    topics = _topics_of_toml(text) if path.suffix == ".toml" else _topics_of_lines(text)
    if not topics:
        raise ConfigError(f"The file {path} has no topic", do="Write a line such as food: pizza")
    return topics


def _topics_of_toml(text: str) -> dict[str, list[str]]:
    try:
        entries = toml_table(text)
    except ValueError as error:
        raise ConfigError("The file of topics is not TOML", got=str(error)) from None
    for number, words in enumerate(entries.values(), 1):
        is_list = isinstance(words, list) and all(isinstance(word, str) for word in words)
        if not is_list:
            raise ConfigError(  # without its name: that may be one of the words
                f"Topic {number} of the file is wrong",
                allowed='a list of words, such as food = ["pizza", "sushi"]',
            )
    return entries


def _topics_of_lines(text: str) -> dict[str, list[str]]:
    topics: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, words = line.partition(":")
        if not colon or not name.strip() or name.strip() in topics:
            raise ConfigError(
                f"Line {number} of the topics is wrong", allowed="NAME: WORD WORD, each NAME once"
            )
        topics[name.strip()] = words.replace(",", " ").split()
    return topics


def members_of(
    topics: Mapping[str, Iterable[str]], embedding: Embedding, words: Ints
) -> tuple[Ints, dict[str, list[str]]]:
    """Return which of some words (k,), by their ids, each list has: (k, T); and what it lacks.

    Raises:
        ConfigError: A list has none of the words.
    """
    ids = ids_by_form(embedding)
    place_of = dict(zip(words.tolist(), range(len(words)), strict=True))
    members = np.zeros((len(words), len(topics)), dtype=np.int64)
    absent: dict[str, list[str]] = {}
    for column, (name, listed) in enumerate(topics.items()):
        absent[name] = []
        for word in listed:
            as_written, lower = lookup_forms(word)
            number = ids.get(as_written, ids.get(lower))
            if number in place_of:
                members[place_of[number], column] = 1
            else:
                absent[name].append(word)
        if not members[:, column].any():
            raise ConfigError(f"Topic {name} has no word that the channel has")
    return members, absent


def ids_by_form(embedding: Embedding) -> dict[Any, int]:
    """Return the ids of words by the forms under which they are looked up."""
    forms: pa.StringArray = embedding.forms
    return {form: number for number, form in enumerate(forms.to_pylist()) if form is not None}
