"""Settings compared on a user's own rows: what attackers recover, what is left of use; in words, too."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import product
from operator import add, itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dptext_spark.calibration.estimators import estimator
from dptext_spark.calibration.limit import Limit, Meaning
from dptext_spark.calibration.statistics import CONFIDENCE
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.evaluation.attackers import ATTACKERS, CANDIDATES, RANKS, STRONGER, TOP, Knowledge
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.measures import (
    MEASURES,
    Measure,
    Risk,
    Sums,
    WordOverlap,
    added,
    measured,
    versions_of,
)
from dptext_spark.evaluation.rows import Simulation
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import Search
from dptext_spark.text.columns import PythonColumn, as_arrow
from dptext_spark.text.policies import TextPolicy

FILE: Final = "evaluation.json"
KEEPING: Final = "similarity"  # the use that is kept where no other is asked for
PRIVATE: Final = "Facts about private rows, for those who may read them."
_USUAL: Final = 0.2  # the share recovered at which a setting is named where no target was given

Facts = Mapping[str, Any]

_BANDS: Final = ["all"] + [
    f"{first:,}-{f'{last:,}' if last else ''}"
    for first, last in zip([1, *(rank + 1 for rank in RANKS)], [*RANKS, None], strict=True)
]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Outcome:
    """What one setting gives away and keeps."""

    mechanism: Mechanism
    sums: Sums
    # About how far the attackers' emissions are at most from the mechanism's, in total variation, on average
    # over the corpus's words.
    error: float

    @property
    def key(self) -> dict[str, Any]:
        """Name the setting by its mechanism, its other parameters, and epsilon."""
        mechanism = self.mechanism
        return {
            "mechanism": mechanism.name,
            "setting": mechanism.parameters,
            "epsilon": mechanism.epsilon,
        }


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison:
    """What several settings give away and keep, of the same rows."""

    outcomes: tuple[Outcome, ...]
    floor: Sums  # without any output, and of random words of those that may be output
    ideal: Sums = field(
        default_factory=dict
    )  # what models get right that learn from texts as they were

    def __add__(self, other: Comparison) -> Comparison:
        """Add what the same settings give away and keep of other rows."""
        return Comparison(
            outcomes=tuple(
                replace(own, sums=added(own.sums, its.sums))
                for own, its in zip(self.outcomes, other.outcomes, strict=True)
            ),
            floor=added(self.floor, other.floor),
            ideal=added(self.ideal, other.ideal),
        )

    def numbers(
        self, outcome: Outcome, measure: Measure, confidence: float
    ) -> dict[str, float | None]:
        """Give a measure's value, the ends of its interval, and what comes without any output, or None."""
        value, low, high = measure.value(outcome.sums, confidence)
        without = replace(measure, versions=1) if isinstance(measure, Risk) else measure
        row = {
            "value": value,
            "low": low,
            "high": high,
            "floor": without.value(self.floor, confidence)[0],
        }
        return _plain(row)

    def risk(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Give the share of perturbed words that attackers recover, for each setting and band of words.

        Bands are ``all``, or ranks by frequency in the corpus. ``considered`` is the share of words among the
        candidates at all, ``floor`` what is recovered without any output. ``attribution`` is of rows.
        """
        rows = []
        for outcome in self.outcomes:
            sums = outcome.sums
            tries = product(versions_of(sums), ATTACKERS, TOP)
            tried = {
                f"recovered/{v}/{attacker}/{top}": (attacker, v, top) for v, attacker, top in tries
            }
            tried |= {
                n: (n, 1, 1) for n, own in MEASURES.items() if own.kind == "risk" and n in sums
            }
            for key, (attacker, versions, top) in tried.items():
                found, floor = sums[key], self.floor[key.replace(f"/{versions}/", "/1/", 1)]
                among = sums.get(f"recovered/{versions}/considered") if key != attacker else None
                columns = {"rows": found.rows.astype(int), "tokens": found.size.astype(int)}
                columns |= {"recovered": found.ratio}
                columns |= dict(zip(("low", "high"), found.share_interval(confidence), strict=True))
                columns |= {
                    "considered": np.ones(1) if among is None else among.ratio,
                    "floor": floor.ratio,
                }
                named = outcome.key | {"attacker": attacker, "versions": versions, "guesses": top}
                for i, band in enumerate(_BANDS[: len(found.size)]):
                    if found.size[i]:
                        own = {name: numbers[i].item() for name, numbers in columns.items()}
                        rows.append({**named, "words": band, **own, "error": outcome.error})
        return pa.Table.from_pylist(rows)

    def utility(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Give what is left of use, what random words keep (floor), and what the original keeps (ceiling)."""
        rows = []
        for outcome, (name, use) in product(self.outcomes, MEASURES.items()):
            if use.kind == "use" and use.is_in(outcome.sums):
                ceiling = use.value(self.ideal, confidence)[0] if name in self.ideal else 1.0
                numbers = self.numbers(outcome, use, confidence)
                rows.append({**outcome.key, "measure": name, **numbers, "ceiling": ceiling})
        return pa.Table.from_pylist(rows)

    def front(self, risk: Risk | None = None, *, keeping: str = KEEPING) -> list[Outcome]:
        """Give the settings that no other one beats, by what was measured, the least risk first."""
        risk, use = risk or Risk(), MEASURES[keeping]
        points = {
            own: (risk.value(own.sums, CONFIDENCE)[0], -use.value(own.sums, CONFIDENCE)[0])
            for own in self.outcomes
        }
        best = [
            own
            for own, (lost, less) in points.items()
            if not any(
                x <= lost and y <= less and (x, y) != (lost, less) for x, y in points.values()
            )
        ]
        return sorted(best, key=points.__getitem__)


def evaluate(
    values: PythonColumn,
    ids: PythonColumn,
    *,
    embedding: Embedding | Path | str,
    mechanisms: Sequence[Mechanism],
    corpus: PythonColumn | None = None,
    policy: TextPolicy | None = None,
    slots: PythonColumn | None = None,
    search: Search | None = None,
    versions: int = 1,
    runs: int = 1000,
    candidates: int = CANDIDATES,
    seed: int = 0,
) -> Comparison:
    """Simulate releases of a column under several settings, attack them, and measure what is kept.

    Nothing is released. The result has facts about private rows: it is for those who may read them.

    Args:
        values: Texts or token lists, as for :meth:`Sanitizer.sanitize`.
        corpus: Public texts, from which attackers learn the language; by default these very rows. They guess
            no word that it does not have.
        slots: Of rows, for a policy ``slots:COLUMN``.
        versions: In how many versions attackers have each row, besides one.
        runs: Draws of each word, from which attackers learn a mechanism that they cannot compute.
        candidates: Words that attackers take into account at each place.
        seed: Public: the same seed gives the same numbers.
    """
    embedding = Embedding.of(embedding)
    if not mechanisms:
        raise ConfigError(
            "There is no setting to evaluate", allowed="one mechanism or more", got="none"
        )
    if min(versions, runs) < 1 or candidates < max(TOP) or not 0 <= seed < 2**63:
        raise ConfigError(
            "A number is impossible",
            allowed=f"1 version and run or more, {max(TOP)} candidates or more, a seed from 0 to 2^63 - 1",
            got=f"{versions} versions, {runs} runs, {candidates} candidates, seed {seed}",
        )
    for setting in map(Mechanism.of, mechanisms):
        setting.prepare(embedding)
    search = search or ExactSearch.over(embedding)
    simulation = Simulation(
        bundle=embedding, policy=policy or TextPolicy(), search=search, seed=seed
    )
    column, names = as_arrow(values, "The column"), as_arrow(ids, "The column of row ids")
    rows = simulation.read(
        column, None if slots is None else as_arrow(slots, "The column of slots")
    )
    if not rows.perturbed.any():
        raise InputError(
            "There is nothing to evaluate: no word of these rows is perturbed",
            got=f"{len(rows.inputs)} words in {len(column)} rows",
            do="Take rows with words of the embedding that the policy protects",
        )
    read = rows if corpus is None else simulation.public.read(as_arrow(corpus, "The corpus"))
    known = simulation.pairs(read)

    vocabulary, floor, outcomes = len(embedding.words), Sums(), []
    for mechanism in (None, *mechanisms):
        emissions = Emissions.uniform(vocabulary, search.release_words)
        if mechanism is not None:
            estimated = estimator([mechanism], embedding, search=search, runs=runs, seed=seed)
            emissions = Emissions.measured(estimated, known.distinct, vocabulary=vocabulary)
        knowledge = Knowledge.learn(known, emissions, candidates=candidates)
        sums = measured(simulation, rows, names, mechanism, knowledge, versions=versions)
        if mechanism is None:
            floor = sums
        else:
            outcomes.append(
                Outcome(mechanism=mechanism, sums=sums, error=emissions.mean_error(known))
            )
    return Comparison(outcomes=tuple(outcomes), floor=floor)


_GUESSES: Final = {f"top{number}": number for number in TOP}


def _named(kind: str) -> list[str]:
    return [
        name for name, own in MEASURES.items() if own.kind == kind and not isinstance(own, Risk)
    ]


@dataclass(frozen=True, kw_only=True)
class Target(Limit):
    """A limit, such as ``recovery(top1) <= 0.2`` or ``similarity >= 0.9``.

    Of settings that keep to the limit of a risk the one is taken that keeps most of ``keeping``; of those
    that keep to the limit of a use the one that risks least.
    """

    allowed = (
        "recovery(topK) <= NUMBER, recovery(topK, ATTACKER, VERSIONS) <= NUMBER, RISK <= NUMBER or "
        f"USE >= NUMBER; K {' or '.join(map(str, TOP))}; ATTACKER {' or '.join(ATTACKERS)}; "
        f"RISK {', '.join(_named('risk'))}; USE {', '.join(_named('use'))}; NUMBER between 0 and 1"
    )

    keeping: str = KEEPING

    @classmethod
    def meaning(cls, measure: str, arguments: tuple[str, ...]) -> Meaning | None:
        own = MEASURES.get(measure)
        if isinstance(own, Risk) and arguments and arguments[0] in _GUESSES:
            guesses, *others = arguments
            attacker = others.pop(0) if others and others[0] in ATTACKERS else own.attacker
            versions = others.pop(0) if others else "1"
            counted = versions.isdecimal() and not versions.startswith("0") and not others
            return ((guesses, attacker, versions), "<=", 1.0) if counted else None
        if own is None or arguments or isinstance(own, Risk):
            return None
        return (), "<=" if own.kind == "risk" else ">=", 1.0

    @property
    def limited(self) -> Measure:
        """What the limit is of."""
        own = MEASURES[self.measure]
        if not isinstance(own, Risk):
            return own
        guesses, attacker, versions = self.arguments
        return replace(own, attacker=attacker, guesses=_GUESSES[guesses], versions=int(versions))

    @property
    def risk(self) -> Risk:
        """Whose recovery it is; where another measure is asked for, which one is to be small."""
        own = self.limited
        return own if isinstance(own, Risk) else Risk()

    def of(self, outcome: Outcome, *, confidence: float) -> tuple[float, float]:
        """Give what a setting was measured to have, and the end of its interval on the side that matters."""
        value, low, high = self.limited.value(outcome.sums, confidence)
        return value, high if self.upper else low

    def margin(self, outcome: Outcome, *, confidence: float) -> float:
        """Give how far a setting keeps to the limit, below 0 where it misses it; an overlap as measured."""
        value, bound = self.of(outcome, confidence=confidence)
        judged = value if isinstance(self.limited, WordOverlap) else bound
        return self.limit - judged if self.upper else judged - self.limit

    def choose(self, comparison: Comparison, *, confidence: float = CONFIDENCE) -> Outcome | None:
        """Take the best setting whose limit of confidence keeps to the limit; None where there is none.

        It holds although the choice looked at all: each has a share of the chance of error (Bonferroni).
        """
        each, limited = 1.0 - (1.0 - confidence) / len(comparison.outcomes), self.limited
        is_risk = limited.kind == "risk"

        def worth(outcome: Outcome) -> tuple[float, float]:
            measures = limited if is_risk else self.risk, MEASURES[self.keeping]
            risked, kept = (own.value(outcome.sums, each) for own in measures)
            least = -math.inf if math.isnan(kept[1]) else kept[1]
            return (least, -risked[2]) if is_risk else (-risked[2], least)

        safe = [own for own in comparison.outcomes if self.margin(own, confidence=each) >= 0.0]
        return max(safe, key=worth, default=None)


# The facts, in words and on a page


def facts_of(
    thirds: Sequence[Comparison],
    search: Search,
    *,
    target: Target | None,
    confidence: float,
    command: Callable[[Mechanism, Search], str],
    **facts: Any,
) -> dict[str, Any]:
    """Put together what was measured, and choose; ``facts`` are JSON-ready.

    Args:
        thirds: Of the third that a setting is chosen on, and of the one that it is checked on; with fewer,
            as of very few rows, nothing is chosen. Together they are all attacked rows.
        command: Writes the command of a release with a setting.
    """
    whole, risk, keeping = reduce(add, thirds), Risk(), KEEPING
    if target is not None:
        risk, keeping = target.risk, target.keeping
    front, chosen, settings = whole.front(risk, keeping=keeping), None, list[dict[str, Any]]()
    shown = {"recovered": risk, "attributed": MEASURES["attribution"]}
    shown |= {name: MEASURES[name] for name in ("similarity", "kept", "accuracy")}
    for own in whole.outcomes:
        row = {**own.key, "options": own.mechanism.options, "error": own.error}
        for key, measure in shown.items():
            if measure.is_in(own.sums):
                numbers = whole.numbers(own, measure, confidence)
                row |= {
                    key if n == "value" else f"{key}_{n}": number for n, number in numbers.items()
                }
        row |= {"release_words": search.release_words, "search": search.label}
        settings.append(row | {"on_front": own in front, "recommended": False})
    if target is not None:
        chosen = _chosen(target, thirds, confidence)
        if (number := chosen["number"]) is not None:
            settings[number]["recommended"] = True
            mechanism = whole.outcomes[number].mechanism
            chosen |= {"options": mechanism.options, "command": command(mechanism, search)}
    return {
        "format_version": 3,
        "remark": f"{PRIVATE} {STRONGER}",
        "concern": {"attacker": risk.attacker, "guesses": risk.guesses, "versions": risk.versions},
        "confidence": confidence,
        **facts,
        "settings": settings,
        "risk": [_plain(row) for row in whole.risk(confidence=confidence).to_pylist()],
        "utility": [_plain(row) for row in whole.utility(confidence=confidence).to_pylist()],
        "target": chosen,
    }


def _chosen(target: Target, thirds: Sequence[Comparison], confidence: float) -> dict[str, Any]:
    """Choose on the first of these thirds and check on the second."""
    names = ("number", "options", "command", "closest", "chosen_on", "checked_on")
    row: dict[str, Any] = {"target": str(target), **dict.fromkeys(names)}
    if len(thirds) < 2:
        return row
    outcomes = thirds[0].outcomes
    each = 1.0 - (1.0 - confidence) / len(outcomes)
    best = target.choose(thirds[0], confidence=confidence)
    if best is None:
        closest = max(outcomes, key=partial(target.margin, confidence=each))
        value, bound = target.of(closest, confidence=each)
        row["closest"] = _plain(
            {"options": closest.mechanism.options, "measured": value, "bound": bound}
        )
        return row
    row["number"] = number = outcomes.index(best)
    for name, third, sure in zip(names[4:], thirds, (each, confidence), strict=True):
        value, bound = target.of(third.outcomes[number], confidence=sure)
        # Rows that have words which are perturbed.
        rows = int(Risk().own(third.floor).rows[0])
        row[name] = _plain({"rows": rows, "measured": value, "bound": bound})
    row["checked_on"]["met"] = target.met(value)
    return row


def _plain(row: Facts) -> dict[str, Any]:
    """A row with None where there is no number, as JSON has it."""
    return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in row.items()}


def said(facts: Facts) -> Iterator[Any]:
    """Say what each setting gives away and keeps, and which one to take: blocks of lines and a table."""
    sample, settings = facts["sample"], facts["settings"]
    yield [
        PRIVATE,
        f"{sample['rows']:,} of {sample['of']:,} rows: {sample['known']:,} are known, the other "
        f"{sample['attacked']:,} are attacked ({sample['perturbed']:,} words).",
        f"Attackers ({attackers(facts)}) learn the language from {facts['corpus']['from']}.",
        STRONGER,
    ]
    forms = {"recovered": ".1%", "similarity": ".3f", "kept": ".1%"}
    forms |= dict.fromkeys(_classified(facts), ".1%")
    head = [
        part for name in forms for part in (["unchanged"] if name == "kept" else [name, "floor"])
    ]
    rows = []
    for row in settings:
        cells = [row["options"]]
        for name, form in forms.items():
            shown = (row[name],) if name == "kept" else (row[name], row[f"{name}_floor"])
            cells += ["-" if value is None else format(value, form) for value in shown]
        cells[1] += f" ({row['recovered_low']:.1%} to {row['recovered_high']:.1%})"
        rows.append([*cells, "yes" if row["on_front"] else ""])
    yield {"table": [["", *head, "no other beats it"], *rows]}
    command = facts["target"] and facts["target"]["command"]
    yield [*advice(facts), *([f"The release: {command}"] if command else [])]


def attackers(facts: Facts) -> str:
    """Say which attackers are meant."""
    asked = facts["concern"]
    return f"{asked['attacker']}; guesses: {asked['guesses']}; versions of each row: {asked['versions']}"


def advice(facts: Facts) -> Iterator[str]:
    """Say which setting to take for the target, and how it held on the last third."""
    target, settings = facts["target"], facts["settings"]
    if not target:
        kept = [row for row in settings if row["recovered_high"] <= _USUAL]
        best = (
            max(kept, key=itemgetter("similarity"))
            if kept
            else min(settings, key=itemgetter("recovered_high"))
        )
        limit = f"{best['options']} (upper limit {best['recovered_high']:.3g}"
        if kept:
            yield (
                f"These attackers recover no more than {_USUAL:.0%} of words with {limit}; similarity "
                f"{best['similarity']:.3g}). Choose it by --target on other rows."
            )
        else:
            yield f"No setting here keeps recovery to {_USUAL:.0%}: the least is {limit})."
        return
    sure = f"{100 * facts['confidence']:g}% confidence"
    limit = "upper limit" if "<=" in target["target"] else "lower limit"

    def measured(found: Facts, more: str = "") -> str:
        if found["bound"] is None:
            return f"{found['measured']:.3g} (no interval{more})"
        return f"{found['measured']:.3g}, {limit} {found['bound']:.3g} ({sure}{more})"

    among = f", of the choice among {len(settings)}"
    if target["options"] is None:
        yield f"Target {target['target']}: no setting here meets it with {sure}."
        if closest := target["closest"]:
            yield f"The closest is {closest['options']}: {measured(closest, among)}."
        return
    chosen, checked, row = target["chosen_on"], target["checked_on"], settings[target["number"]]
    yield f"Target {target['target']}: take {target['options']}"
    yield f"Chosen on {chosen['rows']:,} rows: {measured(chosen, among)}."
    held = "the target is met there, too"
    if not checked["met"]:
        held = "THE TARGET IS MISSED THERE: evaluate more rows"
    yield f"Checked on {checked['rows']:,} other rows: {measured(checked)}; {held}."
    if (row["similarity_low"] or 0.0) <= row["similarity_floor"]:
        yield "THE TEXTS ARE NO MORE SIMILAR THAN RANDOM WORDS: try other settings, or allow more."


_USES: Final = {
    "similarity": ("Similarity of texts, before and after", "Similarity of texts"),
    "accuracy": ("Labels right, learnt from released texts", "Labels that a model gets right"),
}
"""What a figure has over the share recovered: its label, and how its caption begins."""


def _classified(facts: Facts) -> dict[str, str]:
    """What models learn, where it was measured, and its title."""
    titles = {"attributed": "Authors right", "accuracy": "Labels right"}
    return {name: title for name, title in titles.items() if name in facts["settings"][0]}


def page(facts: Facts) -> dict[str, Any]:
    """Give what the template of the page reads."""
    settings = sorted(facts["settings"], key=lambda row: float(row["recovered"]))
    return {
        "template": "evaluation.html",
        "title": "What a release keeps, and what it reveals",
        "facts": facts,
        "plots": [
            _plot(settings, n) for n in _USES if any(row.get(n) is not None for row in settings)
        ],
        "settings": settings,
        "advice": [*advice(facts)],
        "attackers": attackers(facts),
        "classified": _classified(facts),
        "stronger": STRONGER,
        "measures": MEASURES,
        "ceilings": {row["measure"]: row["ceiling"] for row in facts["utility"]},
    }


def _plot(settings: Sequence[Facts], name: str) -> dict[str, Any]:
    """What is kept over what is recovered, a line for each mechanism with its parameters."""
    label, caption = _USES[name]
    lines = defaultdict[str, dict[str, list[Any]]](lambda: defaultdict(list))
    for row in sorted(settings, key=lambda row: float(row["epsilon"])):
        if row[name] is None:
            continue
        line = lines[f"{row['mechanism']} {row['setting']}".strip()]
        spot = {"x": "recovered", "low": "recovered_low", "high": "recovered_high", "y": name}
        for end, of in spot.items():
            line[end].append(row[of])
        line["marks"].append(f"{row['epsilon']:g}")
    return {
        "name": name,
        "bars": "x",
        "caption": f"{caption} over the share of words recovered.",
        "x": {"label": "Share of words recovered"},
        "y": {"label": label},
        "floor": (settings[0]["recovered_floor"], settings[0][f"{name}_floor"] or 0.0),
        "chosen": [(row["recovered"], row[name]) for row in settings if row["recommended"]],
        "lines": lines,
    }
