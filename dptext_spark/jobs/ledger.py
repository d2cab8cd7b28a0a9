"""The job of ``dptext ledger``: what a ledger knows; without Spark where it lies on this machine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from pyspark.sql.utils import is_remote

from dptext_spark.accounting.laws import joint_loss_beyond
from dptext_spark.accounting.ledger import NEIGHBOURS, Ledger, decimal_text, law_of
from dptext_spark.errors import ConfigError
from dptext_spark.guarantee import DELTAS, factor, rounded_up
from dptext_spark.options import LedgerOptions
from dptext_spark.report.facts import Facts, Report
from dptext_spark.report.text import rendered, table
from dptext_spark.spark.failures import spark_errors
from dptext_spark.spark.session import session
from dptext_spark.tables.ledger import LedgerFolder
from dptext_spark.tables.storage import LocalFiles, Storage, is_plain, local_path


def run(options: LedgerOptions) -> Report:
    """Run ``dptext ledger show``: read all events, add up; nothing is written."""
    with spark_errors("The ledger could not be read"):
        local = (is_plain() or is_remote()) and local_path(options.path) is not None
        storage = LocalFiles() if local else Storage(session("dptext ledger"))
        folder = LedgerFolder(options.path, storage)
        if not storage.exists(folder.events):
            raise ConfigError(
                f"There is no ledger {options.path}",
                allowed="a folder that dptext privatize --ledger wrote",
            )
        return report(options.path, folder.read())


def report(path: str, ledger: Ledger) -> Report:
    """Give the releases of a ledger, and what they add up to."""
    ledger.check_unit(path)
    releases = [
        {
            **entry.model_dump(mode="json", exclude={"fingerprints"}),
            "total": None if entry.total is None else float(entry.total),
        }
        for entry in ledger.entries
    ]
    facts = {
        "ledger": path,
        "releases": releases,
        "total": float(ledger.total()),
        "delta": sum(entry.terms.delta for entry in ledger.counted),
        "losses": list(losses(ledger)),
    }
    return Report(facts=facts, text=_described(ledger, facts))


def losses(ledger: Ledger) -> Iterator[Facts]:
    """Bound what all releases reveal of a word: ``pure``, and where all laws are known for ``DELTAS``.

    They are the losses of a row that was in every release, which bound those of all.
    """
    terms = [entry.terms for entry in ledger.counted]
    laws = Counter(law for each in terms if (law := law_of(each)) is not None)
    known = laws.total() == len(terms)
    # No release counts distances beyond the largest truncation, if each has one.
    limits = [getattr(law, "truncation", None) for law in laws] if known else [None]
    farthest = max((math.inf if limit is None else limit for limit in limits), default=0.0)
    typical = next((each.distances for each in terms if each.distances is not None), {})
    for name in filter(
        typical.__contains__, NEIGHBOURS
    ):  # events have names in the order of letters
        distance = typical[name]
        pure = float(ledger.total()) * min(distance, farthest)
        deltas = DELTAS if known else ()
        beyond = {f"{d:g}": min(pure, joint_loss_beyond(laws, distance, delta=d)) for d in deltas}
        yield {"from": NEIGHBOURS[name], "distance": distance, "pure": pure, **beyond}


def _described(ledger: Ledger, facts: Facts) -> str:
    if not ledger.entries:
        return f"Ledger {facts['ledger']}: no releases"
    rows = [("", "time", "name", "epsilon", "new", "equal", "changed", "state")]
    for entry in ledger.entries:
        terms, found = entry.terms, entry.rows
        counts = [f"{found[name]:,}" for name in ("new", "equal", "changed")] if found else "---"
        first = (str(entry.number), entry.time, terms.label, decimal_text(terms.epsilon))
        rows.append((*first, *counts, entry.state))
    releases = table(rows)
    if any(entry.state == "unfinished" for entry in ledger.entries):
        releases.append("unfinished: was killed, or is at work; it counts as spent.")
    lines = [f"Largest sum of epsilon of one column in one row: {decimal_text(ledger.total())}"]
    lines += [f"  in {each.terms.unit}" for each in ledger.counted[:1]]
    lines += _scope(ledger)
    if facts["delta"]:
        lines.append(f"  except with probability {rounded_up(facts['delta'])}")
    named = [f"{delta:g}" for delta in DELTAS]
    for loss in facts["losses"]:
        bounds = " or ".join(factor(loss[delta]) for delta in named if delta in loss)
        worst = "; ".join(filter(None, [bounds, f"worst case {factor(loss['pure'])}"]))
        lines.append(f"  a word and {loss['from']}, {loss['distance']:.3g} away: {worst}")
        if loss is facts["losses"][-1] and bounds:
            lines.append(
                f"  (except with probability {' or '.join(named)}, for a row that was in every release)"
            )
    return rendered([releases, lines])


def _scope(ledger: Ledger) -> list[str]:
    """Say what the largest sum adds up, besides releases of one row and column."""
    lines = []
    families = len(ledger.family_totals)
    if families > 1:
        lines.append(
            f"  rows under {families} keys, inputs or id columns cannot be compared: the largest sum of each"
            " is added"
        )
    if ledger.counted:
        last = ledger.counted[-1].terms
        columns = (column for entry in ledger.counted for column in entry.terms.columns)
        renamed = ledger.texts(last).renamed(map(last.name, columns))
        if renamed:
            lines.append(f"  counted as earlier columns under another name: {', '.join(renamed)}")
    return lines
