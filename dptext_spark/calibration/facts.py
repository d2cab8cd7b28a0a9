"""What a calibration found: a dict of facts, which is calibration.json, and what it says on a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from dptext_spark.calibration.estimators import Grid
from dptext_spark.calibration.summary import NUMBERS
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.guarantee import TypicalDistances
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search

FILE: Final = "calibration.json"
FORMAT_VERSION: Final = 3

Facts = Mapping[str, Any]


def facts_of(grids: Sequence[Grid], bundle: Embedding, **facts: Any) -> dict[str, Any]:
    """Put together what was measured of a bundle, JSON-ready ``facts``, with what is proven."""
    first = grids[0]
    return {
        "format_version": FORMAT_VERSION,
        "release_words": first.search.release_words,
        "search": first.search.label,
        "runs": first.runs,
        "sample": first.words,
        "confidence": first.confidence,
        "mechanisms": [{"mechanism": grid.name, "estimator": grid.estimator} for grid in grids],
        "guarantee": guarantees([m for grid in grids for m in grid.mechanisms], bundle, first.search),
        **facts,
    }


def guarantees(mechanisms: Iterable[Mechanism], bundle: Embedding, search: Search) -> list[dict[str, Any]]:
    """Give what is proven of each mechanism; distances are measured once for each metric."""
    measured: dict[str, TypicalDistances] = {}
    proven = []
    for mechanism in mechanisms:
        metric = mechanism.metric(bundle)
        if metric.description not in measured:
            measured[metric.description] = TypicalDistances.measure(metric)
        guarantee = mechanism.guarantee(bundle, measured[metric.description], search)
        proven.append({"options": mechanism.options, **guarantee.to_json()})
    return proven


def _rows(facts: Facts, mechanism: str, statistic: str) -> list[Facts]:
    """The summary of a statistic, the epsilons ascending."""
    return [r for r in facts["summary"] if (r["mechanism"], r["statistic"]) == (mechanism, statistic)]


# In words

STATISTICS: Final = {
    "n_w": ("N_w: share of runs in which a word stays itself", "lower"),
    "s_w": ("S_w: different outputs of a word in these runs", "higher"),
    "unseen": ("Chance that one more run gives a new output (large: too few runs)", ""),
    "s_eta": ("S_eta: outputs that hold most of a word's runs", "higher"),
    "entropy": ("Entropy of the output, bits", "higher"),
    "h_0": ("H_0 = log2 S_w, bits", "higher"),
    "h_inf": ("H_inf: min-entropy of the output, bits", "higher"),
    "k_w": ("K_w: measured words that gave an output in these runs", "higher"),
    "posterior": ("Probability of the input given its output, on average", "lower"),
    "deniability": ("Deniability: how many words could equally well have produced this output", "higher"),
    "bayes_risk_uniform": ("Chance that a guesser names the input, all words equally likely", "lower"),
    "bayes_risk_zipf": ("Chance that a guesser names the input, the k-th word with weight 1/k", "lower"),
}
"""What each statistic is, and which direction hides a word better."""

_COLUMNS: Final = {
    "mean(n_w)": ("n_w", "mean"),
    "p95(n_w)": ("n_w", "p95"),
    "max(n_w)": ("n_w", "max"),
    "mean(s_w)": ("s_w", "mean"),
    "deniability": ("deniability", "mean"),
    "risk": ("bayes_risk_uniform", "high"),
    "risk_zipf": ("bayes_risk_zipf", "high"),
}


def said(facts: Facts) -> Iterator[Any]:
    """Say the main numbers: blocks of text, lists and tables, and the verdict last."""
    yield (
        f"{facts['sample']:,} of {facts['embedding']['words']:,} words were measured with "
        f"{facts['runs']:,} runs each. {facts['release_words']:,} words may be output."
    )
    for own in facts["mechanisms"]:
        name = own["mechanism"]
        table = [["epsilon", "better:", *(f"{row['epsilon']:g}" for row in _rows(facts, name, "n_w"))]]
        for title, (statistic, number) in _COLUMNS.items():
            cells = (f"{row[number]:.4g}" for row in _rows(facts, name, statistic))
            table.append([title, STATISTICS[statistic][1], *cells])
        columns = [list(row) for row in zip(*table, strict=True)]
        yield {"table": columns, "title": f"{name} ({own['estimator']} estimator)"}
    notes = [
        "n_w: share of runs in which a word stays itself. s_w: different outputs of a word in these runs.",
        "deniability: how many words could equally well have produced an output.",
        "risk: a guesser who sees one output names the word at most this often "
        f"({facts['confidence']:.0%} confidence).",
        world(facts),
        remark(facts),
    ]
    yield [*filter(None, notes)]
    # Table and column have to be filled in.
    release = ["dptext", "privatize", "--input", "TABLE", "--output", "sanitized", "--text", "COLUMN"]
    command = shlex.join([*release, "--embedding", str(facts["options"]["embedding"])])
    if met := [row["options"] for row in facts["target"] if row["options"]]:
        yield [f"The release: {command} {options}" for options in met]
    yield list(verdict(facts))


def world(facts: Facts) -> str:
    """Say of which words risks are, and under which priors."""
    words = facts["sample"]
    which = f"all {words:,}" if words == facts["embedding"]["words"] else f"the {words:,} measured"
    return (
        f"The guesser knows that the word is one of {which} words. Uniform: all are equally likely. "
        "Zipf: the k-th word has weight 1/k."
    )


def remark(facts: Facts) -> str:
    """Say where one more run would often give a new output; empty where there is no such epsilon."""
    most = facts["options"]["eta"]
    few = {row["epsilon"] for row in facts["summary"] if row["statistic"] == "unseen" and row["mean"] > most}
    epsilons = ", ".join(f"{epsilon:g}" for epsilon in sorted(few))
    return f"Epsilon {epsilons}: Not enough runs for a reliable number; increase --runs." if few else ""


def verdict(facts: Facts) -> Iterator[str]:
    """Say in one line for each mechanism which epsilon to take, or which epsilon would give what."""
    for row in facts["target"]:
        of, sure = f"{row['mechanism']}: ", f"{row['confidence']:.0%} confidence"
        if row["epsilon"] is None:
            least = f", down to {row['missed']:g}" if row["missed"] else ""
            yield f"{of}no epsilon tried{least}, meets {row['target']} ({sure})."
            continue
        missed = f"; epsilon {row['missed']:g} misses it" if row["missed"] else "; no larger one was tried"
        yield (
            f"{of}epsilon {row['epsilon']:g} meets {row['target']} ({sure}): measured {row['measured']:.4g}, "
            f"limit {row['bound']:.4g}{missed}."
        )
    if facts["target"]:
        return
    for name in (own["mechanism"] for own in facts["mechanisms"]):
        means = [f"{row['mean']:.3g} at epsilon {row['epsilon']:g}" for row in _rows(facts, name, "n_w")]
        ends = " and ".join(dict.fromkeys((means[0], means[-1])))
        yield f"{name}: the average n_w is {ends}. Smaller epsilons change more words."


# The page

_FIGURES: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "n_w": (
        {"label": "$N_w$ (share of runs; lower is better)", "limits": (0.0, 1.0)},
        "N_w over epsilon: the median of the words; bars reach from the 5th to the 95th percentile.",
    ),
    "s_w": (
        {"label": "$S_w$ (outputs, log scale; higher is better)", "log": True},
        "S_w over epsilon: the median of the words; bars reach from the 5th to the 95th percentile.",
    ),
}
"""What figures have over epsilon, and what they show."""


def page(facts: Facts) -> dict[str, Any]:
    """Give what the template of the page reads."""
    names = [own["mechanism"] for own in facts["mechanisms"]]
    plots = []
    for statistic, (axis, caption) in _FIGURES.items():
        lines = {}
        for name in names:
            ends = {"x": "epsilon", "low": "p5", "y": "p50", "high": "p95"}
            rows = _rows(facts, name, statistic)
            lines[name] = {end: [row[of] for row in rows] for end, of in ends.items()}
        x = {"label": "Epsilon (nats per unit of distance)"}
        shown = {"lines": lines, "bars": "y", "x": x, "y": axis, "caption": caption}
        plots.append({"name": statistic, **shown})
    return {
        "template": "calibration.html",
        "title": f"Calibration of {', '.join(names)}",
        "facts": facts,
        "plots": plots,
        "verdict": [*verdict(facts)],
        "world": world(facts),
        "remark": remark(facts),
        "statistics": STATISTICS,
        "columns": NUMBERS,
    }
