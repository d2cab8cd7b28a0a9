"""A calibration's facts in words: lines and tables for a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any, Final

from dptext_spark.calibration.summary import STATISTICS, Facts, rows_of

_COLUMNS: Final = {
    "mean(n_w)": ("n_w", "mean"),
    "p95(n_w)": ("n_w", "p95"),
    "max(n_w)": ("n_w", "max"),
    "mean(s_w)": ("s_w", "mean"),
    "deniability": ("deniability", "mean"),
    "risk": ("bayes_risk_uniform", "high"),
    "risk_zipf": ("bayes_risk_zipf", "high"),
}

# Table and column have to be filled in.
_RELEASE: Final = "dptext privatize --input TABLE --output sanitized --text COLUMN"


def said(facts: Facts) -> Iterator[Any]:
    """Yield the main numbers: blocks of text, lists and tables, and the verdict last."""
    yield (
        f"{facts['sample']:,} of {facts['embedding']['words']:,} words were measured with "
        f"{facts['runs']:,} runs each. "
        f"{facts['release_words'] - facts['withheld_words']:,} words may be output."
    )
    for mechanism in facts["mechanisms"]:
        yield _table(facts, mechanism["mechanism"], mechanism["estimator"])
    yield _notes(facts)
    releases = _releases(facts)
    if releases:
        yield releases
    yield list(verdict(facts))


def _table(facts: Facts, mechanism: str, estimator: str) -> dict[str, Any]:
    """Return the table of a mechanism: a row for each epsilon."""
    epsilons = [f"{row['epsilon']:g}" for row in rows_of(facts, mechanism, "n_w")]
    columns = [["epsilon", "better:", *epsilons]]
    for title, (statistic, number) in _COLUMNS.items():
        _, better = STATISTICS[statistic]
        cells = [f"{row[number]:.4g}" for row in rows_of(facts, mechanism, statistic)]
        columns.append([title, better, *cells])
    rows = [list(row) for row in zip(*columns, strict=True)]
    return {"table": rows, "title": f"{mechanism} ({estimator} estimator)"}


def _notes(facts: Facts) -> list[str]:
    """Return what the columns mean, and remarks."""
    notes = [
        "n_w: share of runs in which a word is unchanged. "
        "s_w: different outputs of a word in these runs.",
        "deniability: how many words could equally well have produced an output.",
        "risk: a guesser who sees one output names the word at most this often "
        f"({facts['confidence']:.0%} confidence).",
        world(facts),
    ]
    few_runs = remark(facts)
    if few_runs:
        notes.append(few_runs)
    return notes


def _releases(facts: Facts) -> list[str]:
    """Return the command of a release for each mechanism that meets the target."""
    embedding = shlex.quote(str(facts["options"]["embedding"]))
    command = f"The release: {_RELEASE} --embedding {embedding}"
    return [f"{command} {row['options']}" for row in facts["target"] if row["options"]]


def world(facts: Facts) -> str:
    """Return of which words risks are, and under which priors."""
    words = facts["sample"]
    which = f"the {words:,} measured"
    if words == facts["embedding"]["words"]:
        which = f"all {words:,}"
    return (
        f"The guesser knows that the word is one of {which} words. "
        "Uniform: all are equally likely. Zipf: the k-th word has weight 1/k."
    )


def remark(facts: Facts) -> str:
    """Return the epsilons at which one more run would often give a new output, if there are any."""
    largest_share = facts["options"]["eta"]
    epsilons = set()
    for row in facts["summary"]:
        if row["statistic"] == "unseen" and row["mean"] > largest_share:
            epsilons.add(row["epsilon"])
    if not epsilons:
        return ""
    listed = ", ".join(f"{epsilon:g}" for epsilon in sorted(epsilons))
    return f"Epsilon {listed}: Not enough runs for a reliable number; increase --runs."


def verdict(facts: Facts) -> Iterator[str]:
    """Yield a line for each mechanism: which epsilon to take, or which epsilon would give what."""
    if facts["target"]:
        for row in facts["target"]:
            yield _choice(row)
        return
    for mechanism in facts["mechanisms"]:
        name = mechanism["mechanism"]
        rows = rows_of(facts, name, "n_w")
        means = [f"{row['mean']:.3g} at epsilon {row['epsilon']:g}" for row in rows]
        averages = " and ".join(dict.fromkeys((means[0], means[-1])))
        yield f"{name}: the average n_w is {averages}. Smaller epsilons change more words."


def _choice(row: Facts) -> str:
    """Return whether an epsilon meets the target, and which one misses it."""
    confidence = f"({row['confidence']:.0%} confidence)"
    if row["epsilon"] is None:
        least = f", down to {row['missed']:g}" if row["missed"] else ""
        return f"{row['mechanism']}: no epsilon tried{least}, meets {row['target']} {confidence}."
    missed = "no larger one was tried"
    if row["missed"]:
        missed = f"epsilon {row['missed']:g} misses it"
    return (
        f"{row['mechanism']}: epsilon {row['epsilon']:g} meets {row['target']} {confidence}: "
        f"measured {row['measured']:.4g}, limit {row['bound']:.4g}; {missed}."
    )
