"""An evaluation's facts in words: lines and a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, Final

from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.facts import PRIVATE

Facts = Mapping[str, Any]

_STICKING_OUT: Final = {
    "singled_out_2": "k=2",
    "singled_out_6": "k=6",
    "linked": "linked",
    "linked_floor": "floor",
}
_NOT_LINKED: Final = (
    "linked: not measured, as this session does not encrypt what it shuffles. Start it with "
    "spark.io.encryption.enabled=true, and on a cluster with spark.authenticate=true and "
    "spark.network.crypto.enabled=true."
)

_USUAL: Final = 0.2  # the share recovered at which a setting is named where no target was given


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
    forms |= dict.fromkeys(classified(facts), ".1%")
    head = [part for name in forms for part in (["unchanged"] if name == "kept" else [name, "floor"])]
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
    shares = [[row["options"], *(format(row[name], ".1%") for name in columns)] for row in settings]
    yield {"title": "Rows that stick out (less is better)", "table": [["", *columns.values()], *shares]}
    yield [*sticking_out(facts)]
    command = facts["target"] and facts["target"]["command"]
    yield [*advice(facts), *([f"The release: {command}"] if command else [])]


def sticking_out(facts: Facts) -> Iterator[str]:
    """Say what the numbers of rows that stick out count."""
    sample, linkage = facts["sample"], facts["linkage"]
    more = ""
    if sample["rows"] < sample["of"]:
        more = " In the whole table more rows may have such a word."
    yield (
        f"k: rows that show an unchanged word that fewer than k of the {sample['rows']:,} evaluated rows "
        f"have.{more}"
    )
    if linkage is None:
        yield _NOT_LINKED
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


def classified(facts: Facts) -> dict[str, str]:
    """What models learn, where it was measured, and its title."""
    titles = {"attributed": "Authors right", "accuracy": "Labels right"}
    return {name: title for name, title in titles.items() if name in facts["settings"][0]}
