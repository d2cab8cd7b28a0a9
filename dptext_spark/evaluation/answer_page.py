"""The page of an evaluation: the answer first, then the figures and tables behind it.

Needs the extra ``[report]``, so it is imported only where a page is drawn.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from dptext_spark.evaluation.answer import PAGE, RELEASE, advice, told
from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.goal import MEASURES
from dptext_spark.report.page import Axis, Plot, Spot, number, trade_off_plot

_RECOVERED: Final = "Share of words recovered"
_SHARES: Final = {
    "similarity": Axis(name="similarity", label="Similarity of texts, before and after", digits=3),
    "kept": Axis(name="share unchanged", label="Share of words unchanged", digits=3),
    "accuracy": Axis(name="accuracy", label="Labels right, learnt from released texts", digits=3),
}

_CLASSIFIED: Final = {"attributed": "Authors right", "accuracy": "Labels right"}

_MEASURES: Final = {
    "kept": "Words that stay",
    "distance": "Distance from a word to what it became",
    "similarity": "Similarity of a text's mean vector",
    "word_overlap": "Frequencies of words: mass in common",
    "word_agreement": "Frequencies of words: 1 less their divergence",
    "word_leaders": "The 100 most frequent words that still are",
    "pair_overlap": "Frequencies of pairs: mass in common",
    "pair_agreement": "Frequencies of pairs: 1 less their divergence",
    "pair_leaders": "The 100 most frequent pairs that still are",
    "accuracy": "Labels right: learnt from released texts, on released texts",
    "accuracy_on_original": "Labels right: learnt from released texts, on the originals",
}


def write_answer(value: Mapping[str, Any], folder: Path) -> Path:
    """Write ``report.html``, one file that needs no other, of what an evaluation found.

    Equal input gives equal bytes.

    Returns:
        The page's path.
    """
    page = folder / PAGE
    page.write_text(_environment().get_template("answer_page.html").render(_view(value)), encoding="utf-8")
    return page


def _environment() -> Environment:
    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader(f"dptext_spark.{room}", ".") for room in ("evaluation", "report")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "data_uri": _data_uri, "share": _share}
    return environment


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}%"


def _view(value: Mapping[str, Any]) -> dict[str, Any]:
    """What the template shows."""
    concern, settings = value["concern"], sorted(value["settings"], key=lambda row: float(row["recovered"]))
    asked = ("attacker", "guesses", "versions")
    matters = [row for row in value["risk"] if all(row[name] == concern[name] for name in asked)]
    return {
        "facts": value,
        "advice": [line for line in advice(value) if not line.startswith(RELEASE)],
        "told": told(concern),
        "stronger": STRONGER,
        "plots": list(_plots(value)),
        "front": [row for row in settings if row["on_front"]],
        "first": sorted(
            (row for row in settings if row["on_front"] or row["recommended"]),
            key=lambda row: not row["recommended"],
        ),
        "others": [row for row in settings if not (row["on_front"] or row["recommended"])],
        "floors": list({row["release_words"]: row for row in settings}.values()),
        "bands": _by_setting(matters),
        "attackers": _by_setting(row for row in value["risk"] if row["words"] == "all"),
        "uses": _by_setting(value["utility"]),
        "guarantees": {own["options"]: own["words"] for own in value["guarantee"]},
        "classified": {name: title for name, title in _CLASSIFIED.items() if name in settings[0]},
        "ceilings": {row["measure"]: row["ceiling"] for row in value["utility"]} | {"attributed": None},
        "measures": {name: _MEASURES[name] for name in MEASURES},
        "options_of": _options,
    }


def _by_setting(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found = defaultdict[str, list[Mapping[str, Any]]](list)
    for row in rows:
        found[_options(row)].append(row)
    return found


def _options(row: Mapping[str, Any]) -> str:
    """Name a setting as it is read."""
    return ", ".join(filter(None, (row["mechanism"], row["setting"], f"epsilon {row['epsilon']:g}")))


def _plots(value: Mapping[str, Any]) -> Iterator[Plot]:
    settings: Sequence[Mapping[str, Any]] = value["settings"]
    first = settings[0]
    for name, axis in _SHARES.items():
        drawn = [row for row in settings if row.get(name) is not None]
        lines: dict[str, list[Spot]] = {}
        chosen = None
        for row in sorted(drawn, key=lambda row: float(row["epsilon"])):
            spot = Spot(
                mark=f"{row['epsilon']:g}",
                x=row["recovered"],
                y=row[name],
                x_ends=(row["recovered_low"], row["recovered_high"]),
            )
            lines.setdefault(f"{row['mechanism']} {row['setting']}".strip(), []).append(spot)
            chosen = spot if row["recommended"] else chosen
        if lines:
            x = Axis(name="share recovered", label=_RECOVERED, digits=3)
            floor = (first["recovered_floor"], first[f"{name}_floor"] or 0.0)
            yield trade_off_plot(name, lines, x, axis, floor=floor, chosen=chosen)
