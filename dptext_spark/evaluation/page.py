"""The page of an evaluation as data: the answer first, then the figures and tables behind it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dptext_spark.calibration.page import run_facts
from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.facts import advice, attackers, share
from dptext_spark.evaluation.measures import MEASURES

_RECOVERED: Final = {"name": "share recovered", "label": "Share of words recovered", "digits": 3}
_USES: Final = {
    "similarity": ("similarity", "Similarity of texts, before and after", "Similarity of texts"),
    "kept": ("share unchanged", "Share of words unchanged", "Words unchanged"),
    "accuracy": ("accuracy", "Labels right, learnt from released texts", "Labels that a model gets right"),
}
"""What a figure has over the share recovered: its name, its label, and how its caption begins."""

_CLASSIFIED: Final = {"attributed": "Authors right", "accuracy": "Labels right"}

Row = Mapping[str, Any]


def page(facts: Row) -> dict[str, Any]:
    """Give the title, the lead and the sections of the page of an evaluation."""
    sample, corpus = facts["sample"], facts["corpus"]
    box = (
        "Private. These numbers were measured on private rows. They are for those who may read the rows, and "
        "no part of a release."
    )
    lead = [
        {"text": box, "style": "box"},
        f"{sample['rows']:,} of {sample['of']:,} rows were taken. {sample['known']:,} of them are known to "
        f"models and to attackers without a public corpus; the other {sample['attacked']:,} were released in "
        f"rehearsal at each of {len(facts['settings'])} settings, and attacked: {sample['perturbed']:,} "
        f"words. The attackers know mechanism, parameters and embedding, and learn the language from "
        f"{corpus['from']}.",
        {"text": STRONGER, "style": "strong"},
    ]
    known = f"{corpus['words']:,} words and {corpus['pairs']:,} pairs of words, from {corpus['from']}"
    run = run_facts(facts, {"Attackers know": known})
    settings = sorted(facts["settings"], key=lambda row: float(row["recovered"]))
    sections = [
        ("answer", "The answer", _answer(facts, settings)),
        ("front", "What is kept for what is given away", _front(facts, settings)),
        ("settings", "Setting by setting", _each(facts, settings)),
        ("run", "The run", [{"title": "Options and versions", "open": False, "blocks": [run]}]),
    ]
    return {
        "title": "What a release keeps, and what it reveals",
        "lead": lead,
        "sections": [{"id": id_, "title": title, "blocks": list(of)} for id_, title, of in sections],
    }


def _answer(facts: Row, settings: Sequence[Row]) -> Iterator[Any]:
    if target := facts["target"]:
        first, *others = advice(facts)
        yield {"text": first, "style": "strong"}
        yield from others
        if target["command"]:
            yield [{"text": "The release:", "code": target["command"]}]
            where = " Add the filter `--where`, which is not kept here." if facts["options"]["where"] else ""
            text = f"With `--key-file` and `--name` a release can be repeated.{where}"
            yield {"text": text, "style": "soft"}
    else:
        yield (
            "No target was given: `--target 'recovery(top1) <= 0.2'` names the setting that keeps most "
            "within that limit."
        )
    yield "No other setting beats these, by what was measured, the least risk first:"
    yield [{"code": row["options"]} for row in settings if row["on_front"]]


def _front(facts: Row, settings: Sequence[Row]) -> Iterator[Any]:
    yield (
        "Further left these attackers recover less, further up is more useful. A number next to a mark is "
        f"epsilon; bars are {100 * facts['confidence']:g}% intervals. The dotted lines are what comes "
        f"without a release, and what random words keep. Risk: {attackers(facts)}."
    )
    yield {"plots": list(_plots(settings)), "listed": False}
    classified = {name: title for name, title in _CLASSIFIED.items() if name in settings[0]}
    rows = [
        [
            _setting(row),
            _within(row, "recovered", share),
            _within(row, "similarity", _number),
            share(row["kept"]),
            *(_within(row, name, share) for name in classified),
            "yes" if row["on_front"] else "",
        ]
        for row in settings
    ]
    sizes = {row["release_words"]: row for row in settings}
    for size, row in sizes.items():
        of = f" of {size:,}" if len(sizes) > 1 else ""
        least = [share(row["recovered_floor"]), _number(row["similarity_floor"])]
        floors = (share(row[f"{name}_floor"]) for name in ("kept", *classified))
        rows.append([f"Nothing released, or random words{of}", *least, *floors, ""])
    ceilings = {row["measure"]: row["ceiling"] for row in facts["utility"]}
    most = (share(ceilings.get(name)) for name in classified)
    rows.append(["The original", "100.0%", "1", "100.0%", *most, ""])
    head = ["Setting", "Recovered", "Similarity", "Unchanged", *classified.values(), "Beaten by none"]
    marked = [i for i, row in enumerate(settings) if row["recommended"]]
    yield _table("Settings", head, rows, marked=marked)
    text = f"{STRONGER} A language model is one. Intervals are of rows and each holds for itself."
    yield {"text": text, "style": "soft"}


def _plots(settings: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """What is kept over what is recovered, a line for each mechanism with its parameters."""
    for name, (axis, label, caption) in _USES.items():
        lines = defaultdict[str, dict[str, list[Any]]](lambda: defaultdict(list))
        for row in sorted(settings, key=lambda row: float(row["epsilon"])):
            if row.get(name) is not None:
                line = lines[f"{row['mechanism']} {row['setting']}".strip()]
                spot = {"x": "recovered", "low": "recovered_low", "high": "recovered_high", "y": name}
                for end, of in spot.items():
                    line[end].append(row[of])
                line["marks"].append(f"{row['epsilon']:g}")
        if lines:
            yield {
                "name": name,
                "kind": "trade_off",
                "caption": f"{caption} over the share of words recovered.",
                "x": _RECOVERED,
                "y": {"name": axis, "label": label, "digits": 3},
                "floor": (settings[0]["recovered_floor"], settings[0][f"{name}_floor"] or 0.0),
                "chosen": [(row["recovered"], row[name]) for row in settings if row["recommended"]],
                "lines": lines,
            }


def _each(facts: Row, settings: Sequence[Row]) -> Iterator[Any]:
    yield (
        f"Risk of frequent and of rare words: {attackers(facts)}; by their rank of frequency in what the "
        "attackers learn from. Considered: how often the right word was among those that attackers reckon "
        "with."
    )
    first = [row for row in settings if row["on_front"] or row["recommended"]]
    first.sort(key=lambda row: not row["recommended"])
    yield from (_folded(facts, row, open_=i == 0) for i, row in enumerate(first))
    if others := [row for row in settings if row not in first]:
        blocks = [_folded(facts, row, open_=False) for row in others]
        yield {"title": f"{len(others)} that others beat", "open": False, "blocks": blocks}


def _folded(facts: Row, row: Row, *, open_: bool) -> dict[str, Any]:
    """All numbers of a setting, and its guarantee."""
    name, asked = _setting(row), facts["concern"].items()
    risks, uses = ([own for own in facts[table] if _setting(own) == name] for table in ("risk", "utility"))
    guarantee = {own["options"]: own["words"] for own in facts["guarantee"]}[row["of_mechanism"]]
    names, recovered = ("attacker", "guesses", "versions", "words"), []
    for own in risks:
        if own["words"] == "all" or asked <= own.items():
            shares = _within(own, "recovered", share, ""), share(own["considered"]), share(own["floor"])
            recovered.append([*(own[n] for n in names), f"{own['tokens']:,}", *shares])
    kept = [
        [MEASURES[own["measure"]].title, _within(own, "value", _number, ""), own["floor"], own["ceiling"]]
        for own in uses
    ]
    head = ["Attacker", "Guesses", "Versions", "Rank", "Words", "Recovered", "Considered", "Floor"]
    blocks = [
        _table(f"What attackers recover, {name}", head, recovered),
        _table(f"What is kept, {name}", ["What is kept", "Value", "Random words", "Original"], kept),
        "What is proven, whoever attacks:",
        *guarantee.splitlines(),
    ]
    return {"title": f"{name} (recommended)" if row["recommended"] else name, "open": open_, "blocks": blocks}


def _setting(row: Row) -> str:
    """Name a setting as it is read."""
    return ", ".join(filter(None, (row["mechanism"], row["setting"], f"epsilon {row['epsilon']:g}")))


def _within(row: Row, name: str, write: Any, lead: str | None = None) -> dict[str, Any]:
    """A cell of a number and its limits, where it has any."""
    low, high = (row[f"{name}_{end}" if lead is None else end] for end in ("low", "high"))
    return {"word": write(row[name]), "small": [] if low is None else [f"{write(low)} to {write(high)}"]}


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _table(label: str, head: Sequence[str], rows: Sequence[Any], **more: Any) -> dict[str, Any]:
    return {"label": label, "head": head, "rows": rows, "style": "stacked aligned", **more}
