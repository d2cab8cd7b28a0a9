"""What was estimated, JSON-ready, with what it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

FILE: Final = "estimates.json"

TABLES: Final = ("topics", "weights", "differences", "frequencies")
"""What is written as tables, too."""

SHOWN_DIFFERENCES: Final = 20
"""Differences that JSON and page have, those that are most certain; the table has all."""

Facts = dict[str, Any]

_INTERVALS: Final = (
    "An interval is for the share of what a topic counts, which its sharpness and its weights "
    "describe: chance of the noise and of the choice of rows."
)
_FREQUENCIES: Final = (
    "Frequencies are the likeliest ones, without intervals: words near each other cannot be "
    "distinguished. Next to a word are others that fit the outputs as well."
)
_FEATURES: Final = (
    "Vectors and words of rows are what anyone can infer from each output by itself, with the "
    "frequencies of the whole table. The threat model counts on attackers who do this, and more."
)
_IN_CONTEXT: Final = (
    "Vectors and words of rows are what anyone can infer from all outputs of a row. The "
    "order of words in the public corpus is trusted to {:.0%}, as far as neighbouring outputs "
    "agree with it. The threat model counts on attackers who do this, and more."
)


def facts_of(
    opened: Facts,
    tables: Mapping[str, Sequence[Facts]],
    *,
    prior: str,
    features: str | None,
    trust: float | None = None,
) -> Facts:
    """Put together what was read and estimated; ``opened`` is what Estimation.facts says.

    Features in context say how far they ``trust`` the corpus.
    """
    remarks = [*_asides(opened)]
    if tables["lists"]:
        remarks.append(_INTERVALS)
    if tables["frequencies"]:
        remarks.append(_FREQUENCIES)
    if features is not None and trust is not None:
        remarks.append(_IN_CONTEXT.format(trust))
    elif features is not None:
        remarks.append(_FEATURES)
    return {
        "format_version": 1,
        **opened,
        "prior": prior,
        "trust": trust,
        "remarks": remarks,
        "lists": tables["lists"],
        "topics": tables["topics"],
        "differences": tables["differences"][:SHOWN_DIFFERENCES],
        "frequencies": tables["frequencies"],
    }


def _asides(opened: Facts) -> list[str]:
    """Return what is counted aside, and how the words that are not perturbed are counted."""
    table = opened["table"]
    remarks = [
        f"Shares are of {table['outputs']:,} released words in {table['rows']:,} rows. Not among "
        f"them: {table['marks']:,} marks such as [MASK], and {table['aside']:,} words that the "
        "mechanism does not give."
    ]
    if opened["passing_words"]:
        remarks.append(
            f"{opened['passing_words']:,} words of the vocabulary were released unchanged, and are "
            "counted as such."
        )
    if opened["random_words"]:
        remarks.append("Unknown words became random ones: they are a word of the channel.")
    channel = opened["channel"]
    if channel["points"]:
        remarks.append(
            f"The channel is known from {channel['points']:,} simulated noisy points. Intervals "
            "allow for what they may be off."
        )
    remarks.append(
        f"The channel has {channel['words']:,} words. Whatever other words the text has are "
        "counted by weights that are not known."
    )
    return remarks
