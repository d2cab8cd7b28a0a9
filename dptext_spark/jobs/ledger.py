"""The job of ``dptext ledger``: what a ledger has; without Spark where it is on this machine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.utils import is_remote

from dptext_spark.accounting.laws import LossLaw, joint_loss_beyond
from dptext_spark.accounting.ledger import NEIGHBOURS, Ledger, decimal_text, law_of
from dptext_spark.display import rendered, table
from dptext_spark.errors import ConfigError
from dptext_spark.guarantee import DELTAS, factor, rounded_up
from dptext_spark.options import LedgerOptions
from dptext_spark.report.facts import Facts, Report
from dptext_spark.spark.failures import spark_errors
from dptext_spark.spark.session import session
from dptext_spark.tables.ledger_folder import LedgerFolder
from dptext_spark.tables.storage import LocalFiles, Storage, is_plain, local_path


def run(options: LedgerOptions) -> Report:
    """Run ``dptext ledger show``: read all events, add up; nothing is written."""
    with spark_errors("The ledger could not be read"):
        if (is_plain() or is_remote()) and local_path(options.path) is not None:
            storage = LocalFiles()
        else:
            storage = Storage(session("dptext ledger"))
        folder = LedgerFolder(options.path, storage)
        if not storage.exists(folder.events):
            raise ConfigError(
                f"There is no ledger {options.path}",
                allowed="a folder that dptext privatize --ledger wrote",
            )
        return report(options.path, folder.read())


def report(path: str, ledger: Ledger) -> Report:
    """Return the releases of a ledger, and what they add up to."""
    ledger.check_unit(path)
    releases: list[Facts] = []
    for entry in ledger.entries:
        release = entry.model_dump(mode="json", exclude={"fingerprints"})
        total = None if entry.total is None else float(entry.total)
        releases.append({**release, "total": total})
    facts = {
        "ledger": path,
        "releases": releases,
        "total": float(ledger.total()),
        "delta": sum(entry.terms.delta for entry in ledger.counted),
        "losses": list(losses(ledger)),
    }
    return Report(facts=facts, text=_described(ledger, facts))


def losses(ledger: Ledger) -> Iterator[Facts]:
    """Bound what all releases reveal of a word: ``pure``, and for ``DELTAS`` if all laws are known.

    They are the losses of a row that was in every release, which bound those of all.
    """
    laws: Counter[LossLaw] = Counter()
    distances: dict[str, float] = {}
    deltas: Sequence[float] = DELTAS
    for entry in ledger.counted:
        law = law_of(entry.terms)
        if law is None:
            deltas = ()
        else:
            laws[law] += 1
        distances = distances or entry.terms.distances or {}
    farthest = math.inf
    # No release counts distances beyond the largest truncation, if each has one.
    truncations: list[Any] = [getattr(law, "truncation", None) for law in laws]
    if deltas and None not in truncations:
        farthest = max(truncations, default=0.0)
    for name, what in NEIGHBOURS.items():  # events have names in the order of letters
        if name in distances:
            pure = float(ledger.total()) * min(distances[name], farthest)
            loss: Facts = {"from": what, "distance": distances[name], "pure": pure}
            for delta in deltas:
                beyond = joint_loss_beyond(laws, distances[name], delta=delta)
                loss[f"{delta:g}"] = min(pure, beyond)
            yield loss


def _described(ledger: Ledger, facts: Facts) -> str:
    """Return the releases and their sum for a terminal."""
    if not ledger.entries:
        return f"Ledger {facts['ledger']}: no releases"
    rows: list[tuple[str, ...]] = [
        ("", "time", "name", "epsilon", "new", "equal", "changed", "state")
    ]
    for entry in ledger.entries:
        terms = entry.terms
        counts = [*"---"]
        if entry.rows:
            counts = [f"{entry.rows[name]:,}" for name in ("new", "equal", "changed")]
        first = (str(entry.number), entry.time, terms.label, decimal_text(terms.epsilon))
        rows.append((*first, *counts, entry.state))
    releases = table(rows)
    if any(entry.state == "unfinished" for entry in ledger.entries):
        releases.append("unfinished: was killed, or is at work; it counts as spent.")
    lines = [f"Largest sum of epsilon of one column in one row: {decimal_text(ledger.total())}"]
    lines += _scope(ledger)
    if facts["delta"]:
        lines.append(f"  except with probability {rounded_up(facts['delta'])}")
    deltas = [f"{delta:g}" for delta in DELTAS]
    for loss in facts["losses"]:
        parts = [f"worst case {factor(loss['pure'])}"]
        bounds = " or ".join(factor(loss[delta]) for delta in deltas if delta in loss)
        if bounds:
            parts.insert(0, bounds)
        lines.append(
            f"  a word and {loss['from']}, {loss['distance']:.3g} away: {'; '.join(parts)}"
        )
        if loss is facts["losses"][-1] and bounds:
            lines.append(
                f"  (except with probability {' or '.join(deltas)}, for a row that was in every "
                "release)"
            )
    return rendered([releases, lines])


def _scope(ledger: Ledger) -> list[str]:
    """Return what the largest sum counts in, and adds up besides releases of one row and column."""
    if not ledger.counted:
        return []
    lines = [f"  in {ledger.counted[0].terms.unit}"]
    families = len(ledger.family_totals)
    if families > 1:
        lines.append(
            f"  rows under {families} keys, inputs or id columns cannot be compared: the largest "
            "sum of each is added"
        )
    terms = ledger.counted[-1].terms
    columns: list[str] = []
    for entry in ledger.counted:
        columns += map(terms.name, entry.terms.columns)
    renamed = ledger.texts(terms).renamed(columns)
    if renamed:
        lines.append(f"  counted as earlier columns under another name: {', '.join(renamed)}")
    return lines
