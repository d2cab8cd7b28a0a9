"""An evaluation's facts in words: lines and a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias

from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.comparison import ANALYSED, LEARNT, settings_table, shown_number
from dptext_spark.evaluation.facts import PRIVATE, release_lines
from dptext_spark.text.pieces import TITLES

Facts: TypeAlias = Mapping[str, Any]

OF_CLASS: Final = ("precision", "recall", "f1", "auc")
"""What is reported of each class of the label."""

MOST_CLASSES: Final = 10
"""Classes that a terminal and a page show; JSON has all."""

_STICKING_OUT: Final = {
    "singled_out_2": "k=2",
    "singled_out_6": "k=6",
    "linked": "linked",
    "linked_floor": "floor",
}
NOT_LINKED: Final = (
    "To link rows they are shuffled, and this session does not encrypt what it shuffles. Start it "
    "with spark.io.encryption.enabled=true, and on a cluster with spark.authenticate=true and "
    "spark.network.crypto.enabled=true"
)
"""Why rows were not linked to their originals, and what to do."""

NOT_COMPARABLE: Final = (
    "Similarity and its floor depend on the embedding: compare settings of one embedding alone."
)

_USUAL: Final = 0.2  # the share recovered at which a setting is named where no target was given


def said(facts: Facts) -> Iterator[Any]:
    """Yield what each setting gives away and keeps: blocks of lines, tables, the verdict last."""
    settings = facts["settings"]
    yield _sample(facts)
    yield settings_table(settings)
    yield NOT_COMPARABLE
    names = [name for name in _STICKING_OUT if name in settings[0]]
    titles = ["", *(_STICKING_OUT[name] for name in names)]
    rows = [_cells(row, names, ".1%") for row in settings]
    yield {"title": "Rows that stick out (better: lower)", "table": [titles, *rows]}
    yield [*sticking_out(facts)]
    channels = [[row["options"], channel(row)] for row in settings]
    yield {"title": "How attackers know each mechanism", "table": channels, "numbers": False}
    if facts["labels"]:
        yield _labels(facts)
        yield _by_class(facts)
        note = shown_classes(facts)
        if note:
            yield note
    analysed = {name: pair for name, pair in ANALYSED.items() if pair[1] in settings[0]}
    if analysed:
        yield _analysed(settings, analysed)
    yield [*verdict(facts), *release_lines(facts)]


def _sample(facts: Facts) -> list[str]:
    """Return which rows were attacked, and by whom."""
    sample = facts["sample"]
    rows = (
        f"{sample['rows']:,} of {sample['of']:,} rows: {sample['known']:,} are known, the other "
        f"{sample['attacked']:,} are attacked ({sample['perturbed']:,} words)."
    )
    corpus = facts["corpus"]["from"]
    learning = f"Attackers ({attackers(facts)}) learn the language from {corpus}."
    knowledge = [f"{row['name']} knows {row['knows']}." for row in facts["attackers"]]
    return [PRIVATE, rows, learning, *knowledge, STRONGER]


def _cells(row: Facts, names: Sequence[str], form: str = ".3f") -> list[str]:
    """Return a setting and some of its numbers as tables have them."""
    return [row["options"], *(shown_number(row[name], form) for name in names)]


def sticking_out(facts: Facts) -> Iterator[str]:
    """Yield what the numbers of rows that stick out count."""
    sample = facts["sample"]
    setting = facts["settings"][0]
    remark = ""
    if sample["rows"] < sample["of"]:
        remark = " In the whole table more rows may have such a word."
    yield (
        f"k: rows that show an unchanged word that fewer than k of the {sample['rows']:,} "
        f"evaluated rows have.{remark}"
    )
    yield (
        f"Before the noise {setting['singled_out_2_original']:.1%} of the rows have a word that no "
        f"other row has, {setting['singled_out_6_original']:.1%} one that fewer than 6 have."
    )
    yield from _pieces(facts)
    linkage = facts["linkage"]
    if linkage is None:
        yield f"linked: not measured. {NOT_LINKED}."
        return
    among = linkage["among"]
    alike = linkage["alike"]
    yield (
        "linked: rows that an observer with the originals of all attacked rows assigns to their "
        f"own, among {among:,.0f} of equal length on average. floor: by length alone."
    )
    if among < alike:
        yield (
            f"A row's length is that of {alike:,.0f} originals on average: among all of them fewer "
            "rows are linked."
        )


def _pieces(facts: Facts) -> Iterator[str]:
    """Yield how many rows have what looks like pieces of identifiers, of the worst setting."""
    for kind, title in TITLES.items():
        shares = [row[f"pieces_{kind}"] for row in facts["settings"] if f"pieces_{kind}" in row]
        share = max((share for share in shares if share is not None), default=None)
        if share is None:
            continue
        original = shown_number(facts["settings"][0][f"pieces_{kind}_original"], ".2%")
        yield (
            f"What may be left of identifiers: {title} are in {share:.2%} of the released rows, in "
            f"the setting with the most; before the noise in {original}."
        )


def attackers(facts: Facts) -> str:
    """Return which attackers are meant."""
    concern = facts["concern"]
    return (
        f"{concern['attacker']}; guesses: {concern['guesses']}; "
        f"versions of each row: {concern['versions']}"
    )


def channel(setting: Facts) -> str:
    """Return how attackers know what becomes of a word, and how well."""
    method = setting["channel"]
    points = f"{setting['points']:,}"
    if method == "computed":
        return "computed"
    if method == "posteriors":
        difference = max(setting["difference"], 0.0)
        return f"{points} simulated points; half of them recover {difference:.2%} of words less"
    return f"{points} counted draws of each word: THE ATTACK IS WEAK"


def use_rows(facts: Facts, setting: Facts) -> list[Facts]:
    """Return the rows of a setting among all uses."""
    key = {name: setting[name] for name in ("mechanism", "setting", "epsilon")}
    return [row for row in facts["utility"] if key.items() <= row.items()]


def label_rows(facts: Facts, setting: Facts) -> list[Facts]:
    """Return what is reported of labels: of all classes together, then of the most frequent."""
    names = ["accuracy_on_original", *LEARNT]
    for label in facts["labels"][:MOST_CLASSES]:
        names += [f"{name}({label['class']})" for name in OF_CLASS]
    rows = {row["measure"]: row for row in use_rows(facts, setting)}
    return [rows[name] for name in names if name in rows]


def shown_classes(facts: Facts) -> str:
    """Return which classes tables show; nothing where that is all of them."""
    number = len(facts["labels"])
    if number <= MOST_CLASSES:
        return ""
    return (
        f"The {MOST_CLASSES} most frequent of {number:,} classes are shown; "
        "evaluation.json has all."
    )


def _labels(facts: Facts) -> dict[str, Any]:
    """Return the table of how well models learn labels in each setting."""
    settings = facts["settings"]
    ceilings = {row["measure"]: row["ceiling"] for row in facts["utility"]}
    floors = [shown_number(settings[0][f"{name}_floor"]) for name in LEARNT]
    best = [shown_number(ceilings[name]) for name in LEARNT]
    table = [
        ["", *LEARNT],
        *(_cells(row, LEARNT) for row in settings),
        ["learnt from random words", *floors],
        ["learnt from the originals", *best],
    ]
    return {
        "title": "Labels that a model predicts on released texts (better: higher)",
        "table": table,
    }


def _analysed(settings: Sequence[Facts], analysed: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Return the table of uses as counted in the outputs, and as an analyst estimates them."""
    names: list[str] = []
    head = [""]
    for name, pair in analysed.items():
        names += pair
        head += [f"{name} counted", "estimated"]
    table = [head, *(_cells(row, names) for row in settings)]
    floors = [shown_number(settings[0][f"{name}_floor"]) for name in names]
    return {
        "title": "What analysts get (better: higher)",
        "table": [*table, ["without a release", *floors]],
    }


def _by_class(facts: Facts) -> dict[str, Any]:
    """Return the table of how well a model learns each class in one setting."""
    setting = featured(facts)
    table = [["", "value", f"{facts['confidence']:.0%} interval", "random words", "originals"]]
    for row in label_rows(facts, setting):
        interval = "-"
        if row["low"] is not None:
            interval = f"{row['low']:.3f} to {row['high']:.3f}"
        floor = shown_number(row["floor"])
        ceiling = shown_number(row["ceiling"])
        table.append([row["measure"], shown_number(row["value"]), interval, floor, ceiling])
    return {"title": f"By class, {setting['options']}", "table": table}


def featured(facts: Facts) -> Facts:
    """Return the setting whose details are shown: the one to take, else the closest one."""
    target = facts["target"]
    settings: Sequence[Facts] = facts["settings"]
    if not target:
        return _without_target(settings)
    options = target["options"]
    if options is None and target["closest"]:
        options = target["closest"]["options"]
    for row in settings:
        if row["options"] == options:
            return row
    return settings[0]


def _without_target(settings: Sequence[Facts]) -> Facts:
    """Return the most similar setting of those whose recovery keeps to the usual limit.

    Where none does, return the one with the least recovery.
    """
    safe = [row for row in settings if row["recovered_high"] <= _USUAL]
    if safe:
        return max(safe, key=itemgetter("similarity"))
    return min(settings, key=itemgetter("recovered_high"))


def verdict(facts: Facts) -> Iterator[str]:
    """Yield which setting to take for the target, and whether the last third confirms it."""
    if facts["target"]:
        yield from choice_lines(facts)
    else:
        yield _verdict_without_target(facts["settings"])


def choice_lines(facts: Facts) -> Iterator[str]:
    """Yield what is to be said of the target's sense, and the choice by it."""
    target = facts["target"]
    if target["remark"]:
        yield f"Target {target['target']}: {target['remark']}."
    if target["idle"]:
        yield (
            "It distinguishes no setting, so none is chosen. "
            "Take a stricter target, or another measure."
        )
        return
    yield from _choice(facts)


def _verdict_without_target(settings: Sequence[Facts]) -> str:
    """Return which setting keeps recovery to the usual limit."""
    best = _without_target(settings)
    limit = f"{best['options']} (upper limit {best['recovered_high']:.3g}"
    if best["recovered_high"] > _USUAL:
        return (
            f"No setting here keeps recovery to {_USUAL:.0%}: the least is {limit}). Try a smaller "
            f"epsilon: --target 'recovery(top1) <= {_USUAL:g}' names one."
        )
    return (
        f"These attackers recover no more than {_USUAL:.0%} of words with {limit}; similarity "
        f"{best['similarity']:.3g}). Choose it by --target on other rows."
    )


def _choice(facts: Facts) -> Iterator[str]:
    """Yield which setting meets the target."""
    target = facts["target"]
    settings = facts["settings"]
    confidence = f"{100 * facts['confidence']:g}% confidence"
    among = f", of the choice among {len(settings)}"
    if target["options"] is None:
        yield f"Target {target['target']}: no setting here meets it with {confidence}."
        closest = target["closest"]
        if closest:
            yield f"The closest is {closest['options']}: {_measured(facts, closest, among)}."
        yield from _next_steps(facts)
        return
    chosen_on = target["chosen_on"]
    checked_on = target["checked_on"]
    yield f"Target {target['target']}: take {target['options']}"
    yield f"Chosen on {chosen_on['rows']:,} rows: {_measured(facts, chosen_on, among)}."
    result = "the target is met there, too"
    if not checked_on["met"]:
        result = "THE TARGET IS MISSED THERE: evaluate more rows"
    yield f"Checked on {checked_on['rows']:,} other rows: {_measured(facts, checked_on)}; {result}."
    row = settings[target["number"]]
    if "similarity" in row and _is_no_better(row, "similarity"):
        yield "THE TEXTS ARE NO MORE SIMILAR THAN RANDOM WORDS: try other settings, or allow more."
    if facts["labels"] and _is_no_better(row, "balanced_accuracy"):
        yield (
            "LABELS ARE LEARNT NO BETTER THAN FROM RANDOM WORDS: try other settings, or allow more."
        )


def _next_steps(facts: Facts) -> Iterator[str]:
    """Yield what to try where no setting meets the target."""
    target = facts["target"]
    step = target["try"]
    if not step:
        return
    steps = []
    if step["epsilon"]:
        size = "smaller" if _is_upper(facts) else "larger"
        steps.append(f"a {size} epsilon, such as {step['epsilon']:g}")
    if step["rows"]:
        steps.append("more rows (--sample): what was measured meets it, its limit does not")
    if steps:
        yield f"Try {', or '.join(steps)}."


def _is_upper(facts: Facts) -> bool:
    """Return whether the target is a limit from above."""
    return str(facts["target"]["target"].rpartition(" ")[0]).endswith("<=")


def _is_no_better(row: Facts, name: str) -> bool:
    """Return whether a use may be no more than with random words."""
    low = row[f"{name}_low"] or 0.0
    floor = row[f"{name}_floor"] or 0.0
    return bool(low <= floor)


def _measured(facts: Facts, row: Facts, among: str = "") -> str:
    """Return what a setting was measured to have, and the limit that the target looks at."""
    if row["measured"] is None:
        return "nothing to measure it on"
    if row["bound"] is None:
        return f"{row['measured']:.3g} (no interval{among})"
    limit = "upper limit" if _is_upper(facts) else "lower limit"
    confidence = f"{100 * facts['confidence']:g}% confidence"
    return f"{row['measured']:.3g}, {limit} {row['bound']:.3g} ({confidence}{among})"


def classified(facts: Facts) -> dict[str, str]:
    """Return the titles of what models learn, where it was measured."""
    titles = {
        "attributed": "Authors right",
        "accuracy": "Labels right",
        "balanced_accuracy": "Balanced accuracy of labels",
        "auc": "AUC of labels",
    }
    return {name: title for name, title in titles.items() if name in facts["settings"][0]}
