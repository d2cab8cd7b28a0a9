"""calibration.json: what a calibration found, and what of it concerns another run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search

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
    chosen = [part.split("=", 1) for part in setting(mechanism).split(", ") if part]
    options = {"mechanism": mechanism.name, **dict(chosen), "epsilon": all_digits(mechanism.epsilon)}
    return " ".join(f"--{name} {value}" for name, value in options.items())


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


@dataclass(frozen=True, kw_only=True)
class Excerpt:
    """What a calibration, at a path, says about a release.

    Attributes:
        summary: Its numbers at the release's mechanism and epsilon; empty where it has none.
        sample, world: What they rest on, and what a guesser knows beforehand, in words.
        warnings: Why they may not be those of the release.
    """

    path: str
    summary: tuple[Mapping[str, Any], ...]
    sample: str
    world: str
    warnings: tuple[str, ...]

    @classmethod
    def of(
        cls,
        path: str,
        calibration: Mapping[str, Any],
        *,
        embedding: Embedding,
        mechanism: Mechanism,
        search: Search,
    ) -> Self:
        """Pick what concerns a release, and say where the calibration is of something else."""
        bundle = calibration["embedding"]["fingerprint"]
        wanted = (mechanism.name, setting(mechanism), mechanism.epsilon)
        keys = [(row["mechanism"], row["setting"], row["epsilon"]) for row in calibration["summary"]]
        rows = [row for row, key in zip(calibration["summary"], keys, strict=True) if key == wanted]
        warnings = []
        if bundle != embedding.fingerprint:
            differ = f"({bundle[:16]}, not {embedding.fingerprint[:16]})"
            warnings.append(f"it is of another embedding bundle {differ}")
        if (among := calibration["release_words"]) != search.release_words:
            warnings.append(f"it is of a search among {among:,} words, not {search.release_words:,}")
        if (theirs := calibration.get("search", search.label)) != search.label:
            warnings.append(f"it is of the search {theirs}, not {search.label}")
        if not rows:
            listed = "; ".join(named(*key) for key in sorted(set(keys)))
            warnings.append(f"it has no numbers for {named(*wanted)}, but for {listed}")
        sample = f"{calibration['sample']['words']:,} words, {calibration['runs']:,} runs each"
        priors = world(calibration)
        return cls(path=path, summary=tuple(rows), sample=sample, world=priors, warnings=tuple(warnings))

    def describe(self) -> str:
        """Say the numbers in plain words, warnings first."""
        doubt = f"Warning: the calibration {self.path} may not be of this release"
        lines = [f"{doubt}: {warning}." for warning in self.warnings]
        lines += [f"Measured over {self.sample}:"] if self.summary else []
        lines += [f"  {described(row)}" for row in self.summary]
        lines += [self.world] if self.summary else []
        return "\n".join(lines)


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


def described(row: Mapping[str, Any]) -> str:
    """Write one row of a summary."""
    limits = "" if row["low"] is None else f" ({row['low']:.4g} to {row['high']:.4g})"
    shown = [f"mean {row['mean']:.4g}{limits}"] if row["p50"] is not None else [f"{row['mean']:.4g}{limits}"]
    if row["p50"] is not None:
        shown += [f"{name} {row[name]:.4g}" for name in ("min", "p5", "p50", "p95", "max")]
    if row["floor"] is not None:
        shown.append(f"without a look at outputs {row['floor']:.4g}")
    return f"{row['statistic']}: {', '.join(shown)}"
