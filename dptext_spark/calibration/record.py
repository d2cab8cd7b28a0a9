"""calibration.json: what a calibration found."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Mechanism

# Names in the folder of a calibration.
FILE: Final = "calibration.json"
PAGE: Final = "report.html"
PLOTS: Final = "plots"

FORMAT_VERSION: Final = 2

_MATCHED: Final = {"average": "mean", "worst case": "max"}


def setting(mechanism: Mechanism) -> str:
    """Name a mechanism's parameters other than epsilon that are not their defaults, as ``lambda=0.5``."""
    fields = type(mechanism).model_fields
    values = mechanism.model_dump(exclude={"epsilon"})
    chosen = {fields[name].alias or name: v for name, v in values.items() if v != fields[name].default}
    return ", ".join(f"{n}={v:.15g}" if isinstance(v, float) else f"{n}={v}" for n, v in chosen.items())


def all_digits(number: float) -> str:
    """Write a number so that reading gives it back."""
    return repr(number).removesuffix(".0")


def option_line(mechanism: Mechanism) -> str:
    """Write the options of a mechanism for the command line."""
    return f"--mechanism {mechanism.spec} --epsilon {all_digits(mechanism.epsilon)}"


def read(path: str, text_of: Callable[[str], str]) -> Mapping[str, Any]:
    """Read a calibration.

    Args:
        path: Its folder or its calibration.json.
        text_of: Reads a file.

    Raises:
        ConfigError: It is not one, or of another format.
    """
    return read_findings(
        path,
        text_of,
        file=FILE,
        of={"summary"},
        version=FORMAT_VERSION,
        what="a calibration",
        command="dptext calibrate",
    )


def read_findings(
    path: str,
    text_of: Callable[[str], str],
    *,
    file: str,
    of: set[str],
    version: int,
    what: str,
    command: str,
) -> Mapping[str, Any]:
    """Read what a command found.

    Args:
        path: The folder that it wrote, or the file of JSON in it.
        text_of: Reads a file.
        file, of, version: That file's name, entries that it has, and the version of its format.
        what, command: What it is, and of which command, in words.

    Raises:
        ConfigError: It is not one, or of another format.
    """
    place = path if path.endswith(".json") else f"{path.rstrip('/')}/{file}"
    try:
        value = json.loads(text_of(place))
        found = value["format_version"] if of <= value.keys() else None
    except (json.JSONDecodeError, AttributeError, TypeError, KeyError):
        found = None
    if found != version:
        raise ConfigError(
            f"{place} is not {what} of this version",
            allowed=f"format version {version}",
            do=f"Give the folder of a finished {command}",
        )
    return dict(value)


def matches(other: Mapping[str, Any], summary: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Find the epsilons at which this calibration's N_w, average or worst case, equals another's.

    Between this grid's epsilons N_w counts as linear in their logarithm.

    Yields:
        For each of the other's epsilons and settings, and each setting of this one, by its rows of the
        summary: both, the value of N_w, and the epsilon; None outside this grid's range.
    """
    for kind, statistic in _MATCHED.items():
        mine = _curves(summary, statistic)
        for there, curve in _curves(other["summary"], statistic).items():
            for epsilon, value in curve:
                for here, points in mine.items():
                    yield {
                        "n_w": kind,
                        "other": {"mechanism": there[0], "setting": there[1], "epsilon": epsilon},
                        "value": value,
                        "mechanism": here[0],
                        "setting": here[1],
                        "epsilon": _epsilon_at(points, value),
                    }


Curve = list[tuple[float, float]]


def _curves(summary: Sequence[Mapping[str, Any]], statistic: str) -> dict[tuple[str, str], Curve]:
    """N_w at each epsilon, ascending, of each mechanism and setting."""
    curves: dict[tuple[str, str], Curve] = defaultdict(list)
    for row in sorted(summary, key=lambda row: float(row["epsilon"])):
        if row["statistic"] == "n_w":
            curves[row["mechanism"], row["setting"]].append((row["epsilon"], row[statistic]))
    return curves


def _epsilon_at(points: Curve, value: float) -> float | None:
    """The smallest epsilon at which N_w reaches a value; None outside the points."""
    epsilons, values = np.array(points).T
    values, first = np.unique(np.maximum.accumulate(values), return_index=True)
    if not values[0] <= value <= values[-1]:
        return None
    return float(np.exp(np.interp(value, values, np.log(epsilons[first]))))


def named(mechanism: str, setting: str, epsilon: float) -> str:
    """Name what one row of a summary is about."""
    return ", ".join(filter(None, (mechanism, setting, f"epsilon {all_digits(epsilon)}")))


def world(calibration: Mapping[str, Any]) -> str:
    """Say of which words risks are, and under which priors."""
    words, all_ = calibration["sample"]["words"], calibration["embedding"]["words"]
    which = f"all {all_:,} words" if words == all_ else f"the {words:,} measured words"
    return (
        f"Risks and deniability: of a guesser who knows that the word is one of {which}. Uniform: all are "
        f"equally likely, for deniability too; zipf: the k-th of them has weight 1/k."
    )


def remark(calibration: Mapping[str, Any]) -> str:
    """Say where one more run would often give a new output; empty where there is no such epsilon."""
    most = calibration["options"]["eta"]
    unseen = [row for row in calibration["summary"] if row["statistic"] == "unseen" and row["mean"] > most]
    epsilons = ", ".join(dict.fromkeys(f"{row['epsilon']:g}" for row in unseen))
    reason = "Not enough runs for a reliable number; increase --runs."
    return f"Epsilon {epsilons}: {reason}" if epsilons else ""
