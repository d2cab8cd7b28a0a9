"""The page of a calibration as data: sections of text, tables and figures, made of its facts alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from typing import Any, Final

import numpy as np

from dptext_spark.calibration.facts import (
    STATISTICS,
    Facts,
    match_lines,
    remark,
    verdict,
    world,
)
from dptext_spark.calibration.summary import NUMBERS

_EPSILON: Final = {"name": "epsilon", "label": "Epsilon (nats per unit of distance)"}
_FIGURES: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "n_w": (
        {"name": "N_w", "label": "$N_w$ (share of runs; lower is better)", "limits": (0.0, 1.0), "digits": 2},
        "N_w over epsilon: half of the words lie below the median, 5% above the 95th percentile.",
    ),
    "s_w": (
        {"name": "S_w", "label": "$S_w$ (outputs, log scale; higher is better)", "log": True},
        "S_w over epsilon: half of the words lie below the median, 5% below the 5th percentile.",
    ),
}
"""What figures have over epsilon, and what they show."""

_ESTIMATORS: Final = {
    "exact": "exact: probabilities are computed, nothing is drawn",
    "shared-ray": "shared-ray: each word's runs are independent; words of a block, and all epsilons, share "
    "the directions of noise, so that their errors go together",
    "plain": "plain: every word and run has noise of its own, which all epsilons share",
}
_KEYS: Final = ("Mechanism", "Epsilon")


def page(facts: Facts) -> dict[str, Any]:
    """Give the title, the lead and the sections of the page of a calibration."""
    names = [own["mechanism"] for own in facts["mechanisms"]]
    how = f"each with {facts['runs']:,} runs at every epsilon"
    if all(own["estimator"] == "exact" for own in facts["mechanisms"]):
        how = f"with exact probabilities; S_w is the expected number in {facts['runs']:,} runs"
    box = (
        "These are measurements of this mechanism, this embedding and these words, not guarantees. An "
        "observer who knows the context of a word may learn more. The section Guarantee says what is proven."
    )
    options = [f"{row['mechanism']}: `{row['options']}`" for row in facts["target"] if row["options"]]
    lead = [
        "Each word's vector gets calibrated noise; the word is replaced by the vocabulary word closest to "
        "the noisy vector. This page shows how much that changes at each epsilon.",
        "N_w is how often a word stays itself, from 0 (never) to 1 (always): lower is better. S_w is how "
        "many different words it becomes: higher is better.",
        [*verdict(facts), *options],
        f"{facts['sample']:,} of the embedding's {facts['embedding']['words']:,} words were measured, {how}. "
        f"Any of {facts['release_words']:,} words may be output.",
        {"text": box, "style": "box"},
    ]
    matches = match_lines(facts)
    between = "Between epsilons, N_w counts as linear in the logarithm of epsilon."
    proven = [
        _fold(f"{own['of']}, epsilon {own['configured_epsilon']:g}", *own["words"].splitlines(), open_=not i)
        for i, own in enumerate(facts["guarantee"])
    ]
    sections = [
        ("percentiles", "How words fare as epsilon grows", [_percentiles(facts, names)]),
        ("least-protected", "The least protected words", _least_protected(facts)),
        ("risks", "What an output reveals", _risks(facts)),
        ("substitutions", "What words become", _substitutions(facts)),
        ("matches", "Against another calibration", [between, matches] if matches else []),
        ("guarantee", "Guarantee", proven),
        ("numbers", "All numbers", _numbers(facts)),
    ]
    return {
        "title": f"Calibration of {', '.join(names)}",
        "lead": lead,
        "sections": [
            {"id": id_, "title": title, "blocks": own} for id_, title, of in sections if (own := list(of))
        ],
    }


def _percentiles(facts: Facts, names: Sequence[str]) -> dict[str, Any]:
    plots, numbers = [], {"x": "epsilon", "p5": "p5", "p50": "p50", "p95": "p95"}
    for statistic, (axis, caption) in _FIGURES.items():
        curves = {}
        for name in names:
            own = [r for r in facts["summary"] if (r["statistic"], r["mechanism"]) == (statistic, name)]
            own.sort(key=lambda row: float(row["epsilon"]))
            curves[name] = {to: [row[number] for row in own] for to, number in numbers.items()}
        shown = {"curves": curves, "x": _EPSILON, "y": axis, "caption": caption}
        plots.append({"name": statistic, "kind": "percentiles", **shown})
    return {"plots": plots, "listed": True}


def _shown(rows: Sequence[Facts]) -> list[float]:
    """The first epsilon of rows, the last and one between."""
    ordered = sorted({row["epsilon"] for row in rows})
    places = np.linspace(0.0, len(ordered) - 1, min(len(ordered), 3)).round().astype(int)
    return [ordered[place] for place in places]


def _least_protected(facts: Facts) -> Iterator[Any]:
    drawn = {own["mechanism"]: own["estimator"] != "exact" for own in facts["mechanisms"]}
    yield (
        f"The words of highest N_w, each with its {facts['confidence']:.0%} interval. The highest of many "
        "measurements tend to be a little too high."
        if any(drawn.values())
        else "The words of highest N_w."
    )
    for number, name in enumerate(drawn):
        own = [row for row in facts["words"] if row["mechanism"] == name]
        own = [row for epsilon in _shown(own) for row in own if row["epsilon"] == epsilon]
        cells = []
        for row in own:
            tops = [(t, _within(t["n_w"], t["n_w_low"], t["n_w_high"], ".3f")) for t in row["top"]]
            small = [[n["word"], *(n["small"] if drawn[name] else [])] for _, n in tops]
            cells.append([{"word": t["word"], "small": s} for (t, _), s in zip(tops, small, strict=True)])
        high = ", ".join(
            f"{r['staying']:,} of {facts['sample']:,} words at epsilon {r['epsilon']:g}" for r in own
        )
        head = [f"Epsilon {row['epsilon']:g}" for row in own]
        table = _table(f"Least protected words, {name}", head, list(zip_longest(*cells, fillvalue="")))
        yield _fold(name, table, f"N_w of 0.95 or more: {high}.", open_=not number)


def _risks(facts: Facts) -> Iterator[Any]:
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


def _substitutions(facts: Facts) -> Iterator[Any]:
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


def _numbers(facts: Facts) -> Iterator[Any]:
    text = (
        f"Low and high are limits of the mean at {facts['confidence']:.0%} confidence, for the measured "
        f"words. Floor is the value without any output. {remark(facts)}"
    )
    rows = [
        [*_named(row), *STATISTICS[row["statistic"]], *(row[number] for number in NUMBERS)]
        for row in facts["summary"]
    ]
    head = [*_KEYS, "Statistic", "Better", *NUMBERS]
    table = _table("Distributions over words and outputs", head, rows, style="plain")
    yield _fold("Distributions over words and outputs", text.rstrip(), table)
    own = facts["mechanisms"]
    estimators = {f"Estimator of {m['mechanism']}": _ESTIMATORS[m["estimator"]] for m in own}
    yield _fold("The run", run_facts(facts, estimators))


def _within(value: float, low: float, high: float, form: str) -> dict[str, Any]:
    """A cell of a number and its limits."""
    return {"word": f"{value:{form}}", "small": [f"{low:{form}} to {high:{form}}"]}


def _named(row: Facts) -> tuple[str, str]:
    return row["mechanism"], f"{row['epsilon']:g}"


def _table(label: str, head: Sequence[str], rows: Sequence[Sequence[Any]], **more: Any) -> dict[str, Any]:
    return {"label": label, "head": head, "rows": rows, **more}


def _fold(title: str, *blocks: Any, open_: bool = False) -> dict[str, Any]:
    return {"title": title, "open": open_, "blocks": blocks}


def run_facts(facts: Facts, more: Mapping[str, str]) -> dict[str, Any]:
    """Give what a page says of its run: the embedding, ``more``, the options and the versions."""
    embedding = facts["embedding"]
    source = (
        f"{embedding['source']}: {embedding['words']:,} words, {embedding['dimension']} dimensions, "
        f"{embedding['geometry']}, normalization {embedding['normalization']}"
    )
    first = {"Embedding": source, "Fingerprint": embedding["fingerprint"], **more}
    return {"facts": [*first.items(), *facts["options"].items(), *facts["versions"].items()]}
