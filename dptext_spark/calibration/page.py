"""The page itself: what the figures and tables of a calibration say, filled into a template.

Needs the extra ``[report]``, so it is imported only where a page is drawn.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from dptext_spark.calibration.plots import Axis, Plot, histogram_plot, number, percentile_plot
from dptext_spark.calibration.record import PAGE, PLOTS, remark, world
from dptext_spark.calibration.results import HIGH_N_W, N_W_EDGES, S_W_EDGES, Census, Line, Results, line_of
from dptext_spark.calibration.summary_table import NUMBERS

_TOP_WORDS: Final = 12
_TOP_OUTPUTS: Final = 5
_EXAMPLES: Final = 6
_SHOWN_EPSILONS: Final = 3

_EPSILON: Final = Axis(name="epsilon", label="Epsilon (nats per unit of distance)")
_N_W: Final = Axis(name="N_w", label="$N_w$ (share of runs)", limits=(0.0, 1.0), digits=2)
_S_W: Final = Axis(name="S_w", label="$S_w$ (distinct outputs, log scale)", log=True)
_RANK: Final = Axis(name="neighbour", label="Neighbour k (log scale)", log=True)
_DISTANCE: Final = Axis(name="distance", label="distance to neighbour k")

_STATISTICS: Final = {
    "n_w": "N_w, share of runs in which the word stayed",
    "n_w_zipf": "N_w on average, the k-th measured word with weight 1/k",
    "s_w": "S_w, distinct outputs in these runs",
    "unseen": "Chance that one more run gives a new output",
    "s_eta": "S_eta, outputs that hold most of the runs",
    "entropy": "Entropy of the output, bits",
    "h_0": "H_0 = log2 S_w, bits",
    "h_inf": "H_inf, min-entropy of the output, bits",
    "k_w": "K_w, measured words that gave an output in these runs",
    "posterior": "Probability of the input given its output, on average; deniability is 1 over its mean",
    "deniability": "Deniability: words among which an output leaves the input, as if equally likely",
    "bayes_risk_uniform": "A guesser names the input, all measured words equally likely",
    "bayes_risk_zipf": "A guesser names the input, the k-th measured word with weight 1/k",
}

_RISKS: Final = ("deniability", "bayes_risk_uniform", "bayes_risk_zipf")


def write_report(folder: Path, *, words_of_choice: Sequence[str] = ()) -> Path:
    """Write ``report.html``, one file that needs no other, and its figures as ``plots/*.png``.

    Equal input gives equal bytes. Parts that the folder does not have are named as missing on the page.

    Args:
        folder: A finished calibration.
        words_of_choice: Words whose substitutions are shown, if transitions were kept; else some words,
            evenly spaced over the alphabet.

    Returns:
        The page's path.

    Raises:
        ConfigError: ``calibration.json`` is not one, or of another format.
        InputError: The folder has none.
    """
    results = Results.open(folder)
    view = _view(results, words_of_choice)
    (folder / PLOTS).mkdir(exist_ok=True)
    for plot in view["plots"].values():
        (folder / PLOTS / f"{plot.name}.png").write_bytes(plot.png)
    page = folder / PAGE
    page.write_text(_environment().get_template("page.html").render(view), encoding="utf-8")
    return page


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("dptext_spark.calibration", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "data_uri": _data_uri, "subscripts": _subscripts}
    return environment


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _subscripts(text: str) -> Markup:
    """Write N_w as it is printed."""
    return Markup(re.sub(r"\b([A-Z])_([a-z])", r"\1<sub>\2</sub>", str(escape(text))))


def _view(results: Results, words_of_choice: Sequence[str]) -> dict[str, Any]:
    """What the template shows."""
    censuses = {
        (line, epsilon): census
        for line, epsilons in results.grid.items()
        for epsilon in sorted({*_some(epsilons), *(set(_some(results.epsilons)) & set(epsilons))})
        if (census := results.census(line, epsilon, top=_TOP_WORDS))
    }
    plots = {plot.name: plot for plot in (*_percentiles(results), *_histograms(results, censuses))}
    facts = results.facts
    labels = {line.setting: results.label(line) for line in results.grid}
    return {
        "facts": facts,
        "mechanism": ", ".join(dict.fromkeys(line.mechanism for line in results.grid)),
        "settings": [results.label(line) for line in results.grid],
        "epsilons": results.epsilons,
        "plots": plots,
        "exact": facts["estimator"] == "exact",
        "confidence": facts["options"].get("confidence", 0.95),
        "high": HIGH_N_W,
        "least_protected": _least_protected(results, censuses),
        "substitutions": _substitutions(results, words_of_choice),
        "statistics": _STATISTICS,
        "columns": NUMBERS,
        "risks": [row for row in facts["summary"] if row["statistic"] in _RISKS],
        "world": world(facts),
        "remark": remark(facts),
        "label": lambda setting: labels.get(setting, setting),
        "label_of": lambda row: results.label(line_of(row)),
        "distances": facts.get("distances") or {},
        **{name: facts.get(name) or () for name in ("guarantee", "gains", "target", "matches")},
    }


def _some(epsilons: Sequence[float]) -> tuple[float, ...]:
    """The first, the last and one between."""
    places = np.linspace(0.0, len(epsilons) - 1, min(len(epsilons), _SHOWN_EPSILONS))
    return tuple(epsilons[round(place)] for place in places.tolist())


def _percentiles(results: Results) -> list[Plot]:
    drawn = {
        "n_w": (results.curves("n_w"), _EPSILON, _N_W),
        "s_w": (results.curves("s_w"), _EPSILON, _S_W),
        "neighbours": (results.neighbours(), _RANK, _DISTANCE),
    }
    return [percentile_plot(name, curves, x, y) for name, (curves, x, y) in drawn.items() if curves]


def _histograms(results: Results, censuses: Mapping[tuple[Line, float], Census]) -> Iterator[Plot]:
    found = {
        epsilon: {results.label(line): census for (line, at), census in censuses.items() if at == epsilon}
        for epsilon in _some(results.epsilons)
    }
    for name, edges, axis in (("n_w", N_W_EDGES, _N_W), ("s_w", S_W_EDGES, _S_W)):
        counts = {e: {label: getattr(c, name) for label, c in own.items()} for e, own in found.items() if own}
        if counts:
            yield histogram_plot(f"{name}_histogram", counts, edges, axis)


def _least_protected(results: Results, censuses: Mapping[tuple[Line, float], Census]) -> list[dict[str, Any]]:
    """A table for each line: the words of highest N_w, a column for each epsilon shown."""
    tables = []
    for line, epsilons in results.grid.items():
        if columns := [(e, censuses[line, e]) for e in _some(epsilons) if (line, e) in censuses]:
            rows = list(zip_longest(*(census.top for _, census in columns)))
            tables.append({"label": results.label(line), "columns": columns, "rows": rows})
    return tables


def _substitutions(results: Results, words_of_choice: Sequence[str]) -> dict[str, Any] | None:
    """What became of some words, and which of the chosen were not measured; None without transitions."""
    words = tuple(dict.fromkeys(words_of_choice)) or results.some_words(_EXAMPLES)
    rows = results.substitutions(words, top=_TOP_OUTPUTS)
    if rows is None:
        return None
    lines = list(results.grid)
    rows = [row for row in rows if line_of(row) in lines]
    rows.sort(key=lambda row: (words.index(row["word"]), lines.index(line_of(row)), row["epsilon"]))
    examples = []
    for word, of_word in groupby(rows, itemgetter("word")):
        settings = [
            (results.label(line), [(e, list(own)) for e, own in groupby(of_line, itemgetter("epsilon"))])
            for line, of_line in groupby(of_word, line_of)
        ]
        examples.append({"word": word, "settings": settings})
    found = {example["word"] for example in examples}
    missing = [word for word in words if word not in found]
    return {"chosen": bool(words_of_choice), "examples": examples, "missing": missing}
