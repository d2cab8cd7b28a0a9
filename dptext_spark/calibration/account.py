"""What a finished calibration says of itself, in JSON and in plain words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SINGLE: Final = ("bayes_risk_uniform", "bayes_risk_zipf")
"""Statistics of all words together: they have a mean and no other numbers."""


@dataclass(frozen=True, kw_only=True)
class CalibrationReport:
    """The account of one calibration; what calibration.json holds."""

    value: Mapping[str, Any]

    def to_json(self) -> str:
        """Write the report as JSON text."""
        return json.dumps(self.value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def describe(self) -> str:
        """Say the main numbers in plain words."""
        value = self.value
        lines = [
            f"{value['options']['mechanism']}: {value['sample']['words']:,} of "
            f"{value['embedding']['words']:,} words, {value['runs']:,} runs each, "
            f"{value['estimator']} estimator, {value['release_words']:,} words may be output",
            "",
            *_table_lines(value["summary"]),
        ]
        lines += ["", *map(_target_line, value["target"])] if value["target"] else []
        lines += ["", *map(_gain_line, value["gains"])] if value["gains"] else []
        lines += ["", *map(_match_line, value["matches"])] if value["matches"] else []
        return "\n".join(lines)


_SHOWN: Final = (
    ("n_w", "mean"),
    ("n_w", "p95"),
    ("n_w", "max"),
    ("s_w", "p5"),
    ("s_w", "mean"),
    ("entropy", "mean"),
    ("k_w", "p50"),
    ("deniability", "p50"),
    ("bayes_risk_uniform", "mean"),
)


def _table_lines(summary: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    groups: dict[tuple[str, float], dict[str, Mapping[str, Any]]] = {}
    for row in summary:
        groups.setdefault((row["setting"], row["epsilon"]), {})[row["statistic"]] = row
    width = max(len(setting) for setting, _ in groups)
    heads = [name if name in SINGLE else f"{number}({name})" for name, number in _SHOWN]
    yield "  ".join([" " * width, " epsilon", *heads]).rstrip()
    for (setting, epsilon), rows in groups.items():
        cells = [
            f"{rows[name][number]:{len(head)}.4g}" for (name, number), head in zip(_SHOWN, heads, strict=True)
        ]
        yield "  ".join([f"{setting:{width}}", f"{epsilon:8g}", *cells])


def _target_line(found: Mapping[str, Any]) -> str:
    said = f"Target {found['target']}, confidence {found['confidence']:g}"
    setting = f" ({found['setting']})" if found["setting"] else ""
    if found["epsilon"] is None:
        return f"{said}{setting}: not met by any epsilon tried, down to {found['missed']:g}"
    missed = (
        f"epsilon {found['missed']:g} misses it" if found["missed"] else "no larger epsilon tried misses it"
    )
    numbers = f"measured {found['measured']:.4g}, at confidence {found['bound']:.4g}"
    return f"{said}: {found['options']}  ({numbers}; {missed})"


def _gain_line(gain: Mapping[str, Any]) -> str:
    return (
        f"{gain['setting']} against {gain['baseline']}, epsilon {gain['epsilon']:g}: {gain['statistic']} "
        f"{gain['difference']:+.4g} ({gain['low']:+.4g} to {gain['high']:+.4g})"
    )


def _match_line(match: Mapping[str, Any]) -> str:
    epsilon = "outside this grid" if match["epsilon"] is None else f"epsilon {match['epsilon']:.4g}"
    there, here = match["other"], [match["mechanism"], *([match["setting"]] if match["setting"] else [])]
    named = ", ".join([there["mechanism"], *([there["setting"]] if there["setting"] else [])])
    return (
        f"{match['n_w']} N_w {match['value']:.4g} of {named}, epsilon {there['epsilon']:g}: "
        f"{', '.join(here)}, {epsilon}"
    )
