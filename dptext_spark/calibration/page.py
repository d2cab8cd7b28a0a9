"""The page of a calibration as data: sections of text, tables and figures, made of its facts alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from typing import Any, Final

import numpy as np

from dptext_spark.calibration.facts import STATISTICS, gain_lines, match_lines, remark, verdict, world
from dptext_spark.calibration.summary import NUMBERS

_EPSILON: Final = {"name": "epsilon", "label": "Epsilon (nats per unit of distance)"}
_N_W: Final = {
    "name": "N_w",
    "label": "$N_w$ (share of runs; lower is better)",
    "limits": (0.0, 1.0),
    "digits": 2,
}
_S_W: Final = {"name": "S_w", "label": "$S_w$ (different outputs, log scale; higher is better)", "log": True}
_RANK: Final = {"name": "neighbour", "label": "Neighbour k (log scale)", "log": True}
_DISTANCE: Final = {"name": "distance", "label": "distance to neighbour k"}

_CAPTIONS: Final = {
    "n_w": "N_w over epsilon: half of the words lie below the median, 5% above the 95th percentile.",
    "s_w": "S_w over epsilon: half of the words lie below the median, 5% below the 5th percentile.",
    "n_w_histogram": "Words by N_w. The noise rarely changes words on the right.",
    "s_w_histogram": "Words by S_w. Words on the left have few different outputs.",
    "neighbours": "Distance from a word to its k-th nearest other word, in the metric of the guarantee.",
}

_ESTIMATORS: Final = {
    "exact": "exact: probabilities are computed, nothing is drawn",
    "shared-ray": "shared-ray: each word's runs are independent; words of a block, and all epsilons, share "
    "the directions of noise, so that their errors go together",
    "plain": "plain: every word and run has noise of its own, which all epsilons share",
}


def page(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Give the title, the lead and the sections of the page of a calibration."""
    names = [own["mechanism"] for own in facts["mechanisms"]]
    how = f"each with {facts['runs']:,} runs at every epsilon"
    if all(own["estimator"] == "exact" for own in facts["mechanisms"]):
        how = f"with exact probabilities; S_w is the expected number in {facts['runs']:,} runs"
    box = (
        "These are measurements of this mechanism, this embedding and these words, not guarantees. An "
        "observer who knows the context of a word may learn more. The section Guarantee says what is proven."
    )
    lead = [
        "Each word's vector gets calibrated noise; the word is replaced by the vocabulary word closest to "
        "the noisy vector. This page shows how much that changes at each epsilon.",
        "N_w is how often a word stays itself, from 0 (never) to 1 (always): lower is better. S_w is how "
        "many different words it becomes: higher is better.",
        list(verdict(facts)),
        f"{facts['sample']:,} of the embedding's {facts['embedding']['words']:,} words were measured, {how}. "
        f"Any of {facts['release_words']:,} words may be output.",
        {"text": box, "style": "box"},
    ]
    options = [f"{row['mechanism']}: `{row['options']}`" for row in facts["target"] if row["options"]]
    gains, matches = gain_lines(facts), match_lines(facts)
    compared = (
        f"Differences of means, with {facts['confidence']:.0%} intervals. Lower n_w and higher s_w hide "
        "better. At equal epsilon, mechanisms may promise different things."
    )
    between = "Between epsilons, N_w counts as linear in the logarithm of epsilon."
    sections = [
        ("percentiles", "How words fare as epsilon grows", _percentiles(facts, names)),
        ("histograms", "How words differ", _histograms(facts)),
        ("least-protected", "The least protected words", _least_protected(facts, names)),
        ("risks", "What an output reveals", _risks(facts)),
        ("substitutions", "What words become", _substitutions(facts)),
        ("target", "Epsilon for the target", [[*verdict(facts), *options]] if facts["target"] else []),
        ("gains", "Mechanisms compared", [compared, gains] if gains else []),
        ("matches", "Against another calibration", [between, matches] if matches else []),
        ("neighbours", "How far apart the words are", _neighbours(facts)),
        ("guarantee", "Guarantee", _guarantees(facts)),
        ("numbers", "All numbers", _numbers(facts)),
    ]
    return {
        "title": f"Calibration of {', '.join(names)}",
        "lead": lead,
        "sections": [
            {"id": id_, "title": title, "blocks": own} for id_, title, of in sections if (own := list(of))
        ],
    }


def _curves(rows: Sequence[Mapping[str, Any]], x: str) -> dict[str, list[float]]:
    """Percentiles over ``x``, ascending."""
    ordered = sorted(rows, key=lambda row: float(row[x]))
    return {"x": [row[x] for row in ordered]} | {
        level: [row[level] for row in ordered] for level in ("p5", "p50", "p95")
    }


def _plot(name: str, kind: str, **data: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "caption": _CAPTIONS[name], **data}


def _shown(epsilons: Iterable[float]) -> list[float]:
    """The first epsilon, the last and one between."""
    ordered = sorted(set(epsilons))
    places = np.linspace(0.0, len(ordered) - 1, min(len(ordered), 3)).round().astype(int)
    return [ordered[place] for place in places]


def _percentiles(facts: Mapping[str, Any], names: Sequence[str]) -> Iterator[Any]:
    plots = []
    for statistic, axis in (("n_w", _N_W), ("s_w", _S_W)):
        rows = [row for row in facts["summary"] if row["statistic"] == statistic]
        curves = {name: _curves([r for r in rows if r["mechanism"] == name], "epsilon") for name in names}
        plots.append(_plot(statistic, "percentiles", curves=curves, x=_EPSILON, y=axis))
    yield {"plots": plots, "listed": True}


def _histograms(facts: Mapping[str, Any]) -> Iterator[Any]:
    yield "The number of words is on a logarithmic scale: a few badly protected words stay visible."
    epsilons = _shown(row["epsilon"] for row in facts["words"])
    plots = []
    for statistic, axis in (("n_w", _N_W), ("s_w", _S_W)):
        counts = {
            epsilon: {r["mechanism"]: r[statistic] for r in facts["words"] if r["epsilon"] == epsilon}
            for epsilon in epsilons
        }
        edges = facts["edges"][statistic]
        plots.append(_plot(f"{statistic}_histogram", "histogram", counts=counts, edges=edges, axis=axis))
    yield {"plots": plots, "listed": False}


def _least_protected(facts: Mapping[str, Any], names: Sequence[str]) -> Iterator[Any]:
    exact = {own["mechanism"] for own in facts["mechanisms"] if own["estimator"] == "exact"}
    text = "The words of highest N_w."
    if exact != {*names}:
        text = (
            f"The words of highest N_w, each with its {facts['confidence']:.0%} interval. The highest of "
            "many measurements tend to be a little too high."
        )
    yield text
    for number, name in enumerate(names):
        own = {row["epsilon"]: row for row in facts["words"] if row["mechanism"] == name}
        columns = [own[epsilon] for epsilon in _shown(own)]
        cells = []
        for row in columns:
            tops = (
                _within(t["n_w"], t["n_w_low"], t["n_w_high"], ".3f") | {"of": t["word"]} for t in row["top"]
            )
            limits = 1 if name in exact else 2
            cells.append([{"word": t["of"], "small": [t["word"], *t["small"]][:limits]} for t in tops])
        high = ", ".join(  # the last bar ends at 1
            f"{row['n_w'][-1]:,} of {sum(row['n_w']):,} words at epsilon {row['epsilon']:g}"
            for row in columns
        )
        head = [f"Epsilon {row['epsilon']:g}" for row in columns]
        table = _table(f"Least protected words, {name}", head, list(zip_longest(*cells, fillvalue="")))
        blocks = [table, f"N_w of 0.95 or more: {high}."]
        yield {"title": name, "open": number == 0, "blocks": blocks}


def _within(value: float, low: float, high: float, form: str) -> dict[str, Any]:
    """A cell of a number and its limits."""
    return {"word": f"{value:{form}}", "small": [f"{low:{form}} to {high:{form}}"]}


def _table(label: str, head: Sequence[str], rows: Sequence[Sequence[Any]], **more: Any) -> dict[str, Any]:
    return {"label": label, "head": head, "rows": rows, **more}


def _risks(facts: Mapping[str, Any]) -> Iterator[Any]:
    yield (
        f"{world(facts)} The upper limit holds for every guesser with this prior who sees one output "
        "alone. A guesser who knows the words around it may do better."
    )
    rows = [
        [*_named(row), *STATISTICS[name], _within(row["mean"], row["low"], row["high"], ".3g"), row["floor"]]
        for row in facts["summary"]
        if (name := row["statistic"]) in ("deniability", "bayes_risk_uniform", "bayes_risk_zipf")
    ]
    head = [*_KEYS, "What", "Better", "Value", "Without the output"]
    yield _table("What an output reveals", head, rows)
    yield f"Limits at {facts['confidence']:.0%} confidence, for the measured words. {remark(facts)}".rstrip()


_KEYS: Final = ("Mechanism", "Epsilon")


def _named(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["mechanism"], f"{row['epsilon']:g}"


def _substitutions(facts: Mapping[str, Any]) -> Iterator[Any]:
    if not facts["examples"]:
        yield "To see what words become, name some: `dptext calibrate --example WORD`."
        return
    yield "The most frequent outputs of the words of `--example`, with their share of the runs."
    by_word = sorted(facts["examples"], key=lambda row: str(row["word"]))
    for word, rows in groupby(by_word, lambda row: row["word"]):
        cells = [
            [*key, [{"word": r["output"], "small": [f"{r['count'] / facts['runs']:.1%}"]} for r in own]]
            for key, own in groupby(rows, _named)
        ]
        yield _table(f"What {word} becomes", [*_KEYS, "Becomes"], cells, title=word, style="outputs")


def _neighbours(facts: Mapping[str, Any]) -> Iterator[Any]:
    yield "Epsilon counts per unit of distance: it hides a word among its near neighbours only."
    curves = {
        own["mechanism"]: _curves(own["neighbours"], "neighbour")
        for own in facts["mechanisms"]
        if own["neighbours"]
    }
    if curves:
        plot = _plot("neighbours", "percentiles", curves=curves, x=_RANK, y=_DISTANCE)
        yield {"plots": [plot], "listed": True}
    yield [
        f"{own['mechanism']}: {own['metric']}, measured from {own['words']:,} words"
        for own in facts["mechanisms"]
    ]


def _guarantees(facts: Mapping[str, Any]) -> Iterator[Any]:
    for number, own in enumerate(facts["guarantee"]):
        title = f"{own['of']}, epsilon {own['configured_epsilon']:g}"
        yield {"title": title, "open": number == 0, "blocks": own["words"].splitlines()}


def _numbers(facts: Mapping[str, Any]) -> Iterator[Any]:
    rows = [
        [*_named(row), *STATISTICS[row["statistic"]], *(row[number] for number in NUMBERS)]
        for row in facts["summary"]
    ]
    text = (
        f"Low and high are limits of the mean at {facts['confidence']:.0%} confidence, for the measured "
        f"words. Floor is the value without any output. {remark(facts)}"
    )
    title, head = "Distributions over words and outputs", [*_KEYS, "Statistic", "Better", *NUMBERS]
    blocks = [text.rstrip(), _table(title, head, rows, style="plain")]
    yield {"title": title, "open": False, "blocks": blocks}
    estimators = {
        f"Estimator of {own['mechanism']}": _ESTIMATORS[own["estimator"]] for own in facts["mechanisms"]
    }
    yield {"title": "The run", "open": False, "blocks": [run_facts(facts, estimators)]}


def run_facts(facts: Mapping[str, Any], more: Mapping[str, str]) -> dict[str, Any]:
    """Give what a page says of its run: the embedding, ``more``, the options and the versions."""
    embedding = facts["embedding"]
    source = (
        f"{embedding['source']}: {embedding['words']:,} words, {embedding['dimension']} dimensions, "
        f"{embedding['geometry']}, normalization {embedding['normalization']}"
    )
    first = {"Embedding": source, "Fingerprint": embedding["fingerprint"], **more}
    return {"facts": [*first.items(), *facts["options"].items(), *facts["versions"].items()]}
