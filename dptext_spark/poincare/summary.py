"""What the report of a run says in plain words, from its facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def filter_lines(facts: Mapping[str, Any]) -> list[str]:
    """Say what each filter did, from ``rows``, ``steps``, ``words``, ``pairs`` and ``cycles``."""
    steps = (
        f"{step['left']:>12,} {'after' if step['removed'] >= 0 else 'with'} {abs(step['removed']):,} "
        f"{step['name']}"
        for step in facts["steps"]
    )
    on = facts["cycles"]
    cycles = f"{on['pairs']:,} pairs of {on['words']:,} words in {on['groups']:,} groups"
    counts = f"{facts['words']:,} words, {facts['pairs']:,} pairs; on cycles: {cycles}"
    return [f"{facts['rows']:>12,} rows", *steps, "", counts]


def training_lines(facts: Mapping[str, Any]) -> list[str]:
    """Say how long the ``training`` took, and of what ``quality`` its points are."""
    training, quality = facts["training"], facts["quality"]
    ranks, correlation = quality["reconstruction"], quality["norm_depth_correlation"]
    low, half, high = quality["nearest_distances"]
    lines = [
        f"Trained for {training['epochs']} epochs, the best after {training['best_epoch']}.",
        f"Mean rank of true hypernyms {ranks['mean_rank']:.2f}, mean average precision "
        f"{ranks['mean_average_precision']:.3f} ({ranks['words']:,} of {ranks['all_words']:,} hyponyms).",
        f"Hyperbolic distance to the nearest word: median {half:.2f}, 5th and 95th percentile {low:.2f} "
        f"and {high:.2f}.",
    ]
    if correlation is not None:
        lines.append(f"Rank correlation of norm and depth {correlation:.3f}.")
    near = (f"  {word}: {', '.join(words)}" for word, words in quality["neighbours"].items())
    return [*lines, "Nearest words:", *near]
