"""An evaluation's facts in words: lines and a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.facts import LEARNT, PRIVATE

Facts = Mapping[str, Any]

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
    "To link rows they are shuffled, and this session does not encrypt what it shuffles. Start it with "
    "spark.io.encryption.enabled=true, and on a cluster with spark.authenticate=true and "
    "spark.network.crypto.enabled=true"
)
"""Why rows were not linked to their originals, and what to do."""

_USUAL: Final = 0.2  # the share recovered at which a setting is named where no target was given


def said(facts: Facts) -> Iterator[Any]:
    """Say what each setting gives away and keeps, and which one to take: blocks of lines and a table."""
    sample, settings = facts["sample"], facts["settings"]
    yield [
        PRIVATE,
        f"{sample['rows']:,} of {sample['of']:,} rows: {sample['known']:,} are known, the other "
        f"{sample['attacked']:,} are attacked ({sample['perturbed']:,} words).",
        f"Attackers ({attackers(facts)}) learn the language from {facts['corpus']['from']}.",
        *(f"{attacker['name']} knows {attacker['knows']}." for attacker in facts["attackers"]),
        STRONGER,
    ]
    forms = {"recovered": ".1%", "similarity": ".3f", "kept": ".1%"}
    if "attributed" in settings[0]:
        forms["attributed"] = ".1%"
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
    columns = {name: title for name, title in _STICKING_OUT.items() if name in settings[0]}
    table = [["", *columns.values()]]
    for row in settings:
        cells = ["-" if row[name] is None else f"{row[name]:.1%}" for name in columns]
        table.append([row["options"], *cells])
    yield {"title": "Rows that stick out (better: lower)", "table": table}
    yield [*sticking_out(facts)]
    channels = [[row["options"], channel(row)] for row in settings]
    yield {"title": "How attackers know each mechanism", "table": channels, "numbers": False}
    yield from _labels(facts)
    command = facts["target"] and facts["target"]["command"]
    yield [*advice(facts), *([f"The release: {command}"] if command else [])]


def sticking_out(facts: Facts) -> Iterator[str]:
    """Say what the numbers of rows that stick out count."""
    sample, linkage, setting = facts["sample"], facts["linkage"], facts["settings"][0]
    more = ""
    if sample["rows"] < sample["of"]:
        more = " In the whole table more rows may have such a word."
    yield (
        f"k: rows that show an unchanged word that fewer than k of the {sample['rows']:,} evaluated rows "
        f"have.{more}"
    )
    yield (
        f"Before the noise {setting['singled_out_2_original']:.1%} of the rows have a word that no other row "
        f"has, {setting['singled_out_6_original']:.1%} one that fewer than 6 have."
    )
    if linkage is None:
        yield f"linked: not measured. {NOT_LINKED}."
        return
    among, alike = linkage["among"], linkage["alike"]
    yield (
        "linked: rows that an observer with the originals of all attacked rows assigns to their own, among "
        f"{among:,.0f} of equal length on average. floor: by length alone."
    )
    if among < alike:
        yield (
            f"A row's length is that of {alike:,.0f} originals on average: among all of them fewer rows are "
            "linked."
        )


def attackers(facts: Facts) -> str:
    """Say which attackers are meant."""
    asked = facts["concern"]
    return f"{asked['attacker']}; guesses: {asked['guesses']}; versions of each row: {asked['versions']}"


def channel(setting: Facts) -> str:
    """Say how attackers know what becomes of a word, and how well."""
    method = setting["channel"]
    if method == "computed":
        return "computed"
    if method == "posteriors":
        difference = max(setting["difference"], 0.0)
        return f"{setting['points']:,} simulated points; half of them would lose {difference:.2%} of words"
    return f"{setting['points']:,} counted draws of each word: THE ATTACK IS WEAK"


def label_rows(facts: Facts, setting: Facts) -> list[Facts]:
    """Return what is reported of labels: of all classes together, then of the most frequent ones."""
    classes = [f"({label['class']})" for label in facts["labels"]]
    key = {name: setting[name] for name in ("mechanism", "setting", "epsilon")}
    rows = {row["measure"]: row for row in facts["utility"] if key.items() <= row.items()}
    names = ["accuracy_on_original", *LEARNT]
    names += [f"{name}{label}" for label in classes[:MOST_CLASSES] for name in OF_CLASS]
    return [rows[name] for name in names if name in rows]


def shown_classes(facts: Facts) -> str:
    """Say which classes tables show; empty where there are no others."""
    number = len(facts["labels"])
    if number <= MOST_CLASSES:
        return ""
    return f"The {MOST_CLASSES} most frequent of {number:,} classes are shown; evaluation.json has all."


def _labels(facts: Facts) -> Iterator[Any]:
    """Say how well models learn labels: in each setting, and by class in one of them."""
    settings = facts["settings"]
    if not facts["labels"]:
        return
    ceilings = {row["measure"]: row["ceiling"] for row in facts["utility"]}
    table = [["", *LEARNT]]
    table += [[row["options"], *(_share(row[name]) for name in LEARNT)] for row in settings]
    table.append(
        ["learnt from random words", *(_share(settings[0][f"{name}_floor"]) for name in LEARNT)]
    )
    table.append(["learnt from the originals", *(_share(ceilings[name]) for name in LEARNT)])
    yield {
        "title": "Labels that a model predicts on released texts (better: higher)",
        "table": table,
    }
    setting = featured(facts)
    table = [["", "value", f"{facts['confidence']:.0%} interval", "random words", "originals"]]
    for row in label_rows(facts, setting):
        interval = "-" if row["low"] is None else f"{row['low']:.3f} to {row['high']:.3f}"
        table.append(
            [
                row["measure"],
                _share(row["value"]),
                interval,
                _share(row["floor"]),
                _share(row["ceiling"]),
            ]
        )
    yield {"title": f"By class, {setting['options']}", "table": table}
    if note := shown_classes(facts):
        yield note


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def featured(facts: Facts) -> Facts:
    """Return the setting that details are shown of: the one to take, else the closest to the target."""
    target, settings = facts["target"], facts["settings"]
    if not target:
        return _without_target(settings)
    options = target["options"] or (target["closest"] or {}).get("options")
    featured: Facts = next((row for row in settings if row["options"] == options), settings[0])
    return featured


def _without_target(settings: Sequence[Facts]) -> Facts:
    """Return the most similar setting whose recovery keeps to the usual limit, else the least recovered."""
    kept = [row for row in settings if row["recovered_high"] <= _USUAL]
    if kept:
        return max(kept, key=itemgetter("similarity"))
    return min(settings, key=itemgetter("recovered_high"))


def advice(facts: Facts) -> Iterator[str]:
    """Say which setting to take for the target, and how it held on the last third."""
    target, settings = facts["target"], facts["settings"]
    if not target:
        best = _without_target(settings)
        limit = f"{best['options']} (upper limit {best['recovered_high']:.3g}"
        if best["recovered_high"] <= _USUAL:
            yield (
                f"These attackers recover no more than {_USUAL:.0%} of words with {limit}; similarity "
                f"{best['similarity']:.3g}). Choose it by --target on other rows."
            )
        else:
            yield f"No setting here keeps recovery to {_USUAL:.0%}: the least is {limit})."
        return
    if target["remark"]:
        yield f"Target {target['target']}: {target['remark']}."
    if target["idle"]:
        yield "It distinguishes no setting, so none is chosen. Take a stricter target, or another measure."
        return
    yield from _choice(facts)


def _choice(facts: Facts) -> Iterator[str]:
    """Say which setting meets the target."""
    target, settings = facts["target"], facts["settings"]
    sure = f"{100 * facts['confidence']:g}% confidence"
    is_upper = target["target"].rpartition(" ")[0].endswith("<=")
    limit = "upper limit" if is_upper else "lower limit"

    def measured(found: Facts, more: str = "") -> str:
        if found["measured"] is None:
            return "nothing to measure it on"
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
    if facts["labels"] and (row["balanced_accuracy_low"] or 0.0) <= (
        row["balanced_accuracy_floor"] or 0.0
    ):
        yield "LABELS ARE LEARNT NO BETTER THAN FROM RANDOM WORDS: try other settings, or allow more."


def classified(facts: Facts) -> dict[str, str]:
    """What models learn, where it was measured, and its title."""
    titles = {
        "attributed": "Authors right",
        "accuracy": "Labels right",
        "balanced_accuracy": "Balanced accuracy of labels",
        "auc": "AUC of labels",
    }
    return {name: title for name, title in titles.items() if name in facts["settings"][0]}
