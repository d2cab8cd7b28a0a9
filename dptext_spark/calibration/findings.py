"""What a calibration found: calibration.json, and its main numbers in plain words."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from dptext_spark.calibration.grid import PRIORS, Grid
from dptext_spark.calibration.record import FORMAT_VERSION, matches, named, remark, world
from dptext_spark.calibration.statistics import LEVELS
from dptext_spark.calibration.summary_table import SINGLE
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.geometry.metric import Metric
from dptext_spark.guarantee import Distances

_NEIGHBOURS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, kw_only=True)
class CalibrationReport:
    """The findings of one calibration; what calibration.json holds."""

    value: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        grid: Grid,
        embedding: Embedding,
        *,
        options: Mapping[str, Any],
        facts: Mapping[str, Any],
        versions: Mapping[str, str],
        summary: Sequence[Mapping[str, Any]],
        gains: Iterable[Mapping[str, Any]],
        target: Iterable[Mapping[str, Any]],
        other: Mapping[str, Any] | None,
    ) -> Self:
        """Put together what was measured with what is proven and what is known of the embedding.

        Args:
            grid: What was measured.
            embedding: The embedding bundle.
            options, facts, versions: Of the run, the embedding and the libraries, JSON-ready.
            summary, gains, target: Their rows; target has one for each setting, or none.
            other: A calibration to compare this one with.
        """
        metrics = {name: first.metric(embedding) for name, (first, *_) in grid.settings}
        distances = {name: Distances.measure(metric) for name, metric in metrics.items()}
        return cls(
            value={
                "format_version": FORMAT_VERSION,
                "options": options,
                "embedding": facts,
                "release_words": grid.search.release_words,
                "search": grid.search.label,
                "estimator": grid.estimator,
                "runs": grid.runs,
                "sample": {"words": grid.words, "blocks": grid.blocks},
                "distances": {name: _neighbours(metric) for name, metric in metrics.items()},
                "guarantee": [
                    {
                        "setting": name,
                        **configured.guarantee(embedding, distances[name], grid.search).to_json(),
                    }
                    for name, mechanisms in grid.settings
                    for configured in mechanisms
                ],
                "summary": summary,
                "gains": list(gains),
                "target": list(target),
                "matches": list(matches(other, summary)) if other else [],
                "versions": versions,
            }
        )

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
            *_table_lines(value),
        ]
        lines += ["", *map(_target_line, value["target"])] if value["target"] else []
        lines += ["", *map(_gain_line, value["gains"])] if value["gains"] else []
        lines += ["", *map(_match_line, value["matches"])] if value["matches"] else []
        met = [row["options"] for row in value["target"] if row["options"]]
        lines += ["", *(f"The release: {_release(value, options)}" for options in met)] if met else []
        return "\n".join(lines)


def _neighbours(metric: Metric) -> dict[str, Any]:
    """Quantiles, over words evenly spread, of the distance to the k-th nearest other word."""
    words = metric.sample()
    ranks = [k for k in _NEIGHBOURS if k < metric.words]
    _, found, _ = metric.nearest(words, ranks)
    quantiles = np.quantile(found, list(LEVELS.values()), axis=0, method="inverted_cdf").T.tolist()
    rows = ((k, *row) for k, row in zip(ranks, quantiles, strict=True))
    neighbours = [dict(zip(("neighbour", *LEVELS), row, strict=True)) for row in rows]
    return {"metric": metric.description, "words": len(words), "neighbours": neighbours}


_SHOWN: Final = (
    ("n_w", "mean"),
    ("n_w_zipf", "mean"),
    ("n_w", "p95"),
    ("n_w", "max"),
    ("s_w", "mean"),
    ("entropy", "mean"),
    ("deniability", "mean"),
    ("bayes_risk_uniform", "limits"),
    ("bayes_risk_zipf", "limits"),
)


def _table_lines(value: Mapping[str, Any]) -> Iterator[str]:
    groups: dict[tuple[str, float], dict[str, Mapping[str, Any]]] = {}
    for row in value["summary"]:
        groups.setdefault((row["setting"], row["epsilon"]), {})[row["statistic"]] = row
    heads = [name if name in SINGLE else f"{number}({name})" for name, number in _SHOWN]
    table = [["", "epsilon", *heads]]
    for (setting, epsilon), rows in groups.items():
        table.append([setting, f"{epsilon:g}", *(_cell(rows[name], number) for name, number in _SHOWN)])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for first, *others in table:
        cells = (f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join([f"{first:{widths[0]}}", *cells]).rstrip()
    yield from ("", *_notes(value, groups))


def _cell(row: Mapping[str, Any], number: str) -> str:
    return f"{row['low']:.3g} to {row['high']:.3g}" if number == "limits" else f"{row[number]:.4g}"


def _notes(
    value: Mapping[str, Any], groups: Mapping[tuple[str, float], Mapping[str, Mapping[str, Any]]]
) -> Iterator[str]:
    first = next(iter(groups.values()))
    uniform, zipf = (first[f"bayes_risk_{prior}"]["floor"] for prior in PRIORS)
    yield world(value)
    yield f"A guess without a look at the output is right with probability {uniform:.3g} and {zipf:.3g}."
    if said := remark(value):
        yield said


def _release(value: Mapping[str, Any], options: str) -> str:
    """Write the command of a release with a setting; table and column have to be filled in."""
    given = {"input": "TABLE", "output": "sanitized", "text": "COLUMN"}
    given["embedding"] = str(value["options"]["embedding"])
    words = [word for name, own in given.items() for word in (f"--{name}", own)]
    return f"{shlex.join(['dptext', 'privatize', *words])} {options}"


def _target_line(found: Mapping[str, Any]) -> str:
    said = f"Target {found['target']}, confidence {found['confidence']:g} of the whole search"
    if found["epsilon"] is None:
        setting = f" ({found['setting']})" if found["setting"] else ""
        return f"{said}{setting}: not met by any epsilon tried, down to {found['missed']:g}"
    missed = f"epsilon {found['missed']:g}" if found["missed"] else "no larger epsilon tried"
    numbers = f"measured {found['measured']:.4g}, at confidence {found['bound']:.4g}"
    return f"{said}: {found['options']}  ({numbers}; {missed} misses it)"


def _gain_line(gain: Mapping[str, Any]) -> str:
    return (
        f"{gain['setting']} against {gain['baseline']}, epsilon {gain['epsilon']:g}: {gain['statistic']} "
        f"{gain['difference']:+.4g} ({gain['low']:+.4g} to {gain['high']:+.4g})"
    )


def _match_line(match: Mapping[str, Any]) -> str:
    epsilon = "outside this grid" if match["epsilon"] is None else f"epsilon {match['epsilon']:.4g}"
    here = ", ".join(filter(None, (match["mechanism"], match["setting"], epsilon)))
    return f"{match['n_w']} N_w {match['value']:.4g} of {named(**match['other'])}: {here}"
