"""Rows compared with those of earlier releases, against an oracle of dicts and exact fractions."""

import re
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dptext_spark.accounting.ledger import Entry, Ledger
from dptext_spark.tables.fingerprints import LINES
from dptext_spark.tables.ledger_comparison import compare, exposed_by_row
from tests.helpers.ledgers import SAFE, entry, terms

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def lines_of(spark, releases):
    rows = [
        (
            str(row).encode(),
            column,
            str(content).encode(),
            None,
            str(context).encode(),
            [],
            [],
            release,
        )
        for release, made in releases.items()
        for (row, column), (content, context) in made.items()
    ]
    return spark.createDataFrame(rows, f"{LINES}, release string")


def random_rows():
    rng = np.random.default_rng(5)
    return [
        {
            (row, column): (content, (row, column, content, number // 3))
            for row in rng.choice(24, rng.integers(8, 24), replace=False).tolist()
            for column in ["a", "b"][: 1 + number % 2]
            for content in [int(rng.integers(3))]
        }
        for number in range(6)
    ]


@pytest.mark.parametrize("new_texts", [(), ("b",)])
@pytest.mark.parametrize("known_as", ["id", "position", "file"])
def test_comparison_against_rows(spark, known_as, new_texts):
    """Releases of rows, against a dictionary of noise contexts for each row and column."""
    # Rejects a sum over releases, a maximum over rows of sums that are of different rows, and totals of
    # places where any row may have moved there; b comes later than a, and may be the same text.
    rows, entries, epsilons = random_rows(), list[Entry](), [0.1, 3.0, 0.2, 10.0, 10.0, 10.0]
    past = defaultdict(dict)
    largest = Fraction(0)
    for number, (now, epsilon) in enumerate(zip(rows, epsilons, strict=True), 1):
        facts, spent, after = defaultdict(list), [], [Fraction(0)]
        sums, added, anew = {}, defaultdict(Fraction), {}
        for (row, column), (content, context) in now.items():
            context = (context, epsilon)
            now[row, column] = (content, context)
            before = past[row, column]
            free = context in before
            facts[row].append(
                (not before, before and content not in [c for c, _ in before.values()], free)
            )
            sums[row, column] = sum(Fraction(repr(value)) for _, value in before.values())
            added[row, column] = Fraction(0) if free else Fraction(repr(epsilon))
            anew[row, column] = not free and (
                known_as == "position" or (known_as == "file" and bool(before))
            )
        for row, column in now:
            total = sums[row, column]
            other = (row, "b" if column == "a" else "a")
            if anew[row, column]:
                total = largest + (0 if new_texts else added[other])
            elif not new_texts:
                earlier = sum(Fraction(repr(value)) for _, value in past[other].values())
                total += earlier + added[other]
            spent += [total] if added[row, column] else []
            after.append(total + added[row, column])
        for place, (content, context) in now.items():
            past[place].setdefault(context, (content, epsilon))
        largest = max(largest, *after)
        total = Decimal(max(after).numerator) / Decimal(max(after).denominator)
        columns = ("a", "b")[: 1 + (number - 1) % 2]
        given = {"columns": columns, "new_texts": new_texts if "b" in columns else ()}
        entries.append(entry(number, total=total, epsilon=epsilon, known_as=known_as, **given))
    *others, last = entries
    named = dict(zip((each.release for each in entries), rows, strict=True))
    mine = lines_of(spark, {last.release: named.pop(last.release)}).drop("release")
    mine = mine.union(mine)  # with --trust-id a row may come twice
    found, costliest, total = compare(
        mine, lines_of(spark, named), Ledger(tuple(others)), last.terms
    )

    changed = [any(changed for _, changed, _ in row) for row in facts.values()]
    new = [any(new for new, *_ in row) for row in facts.values()]
    assert found["changed"] == sum(changed)
    assert found["new"] == sum(n and not c for n, c in zip(new, changed, strict=True))
    assert found["new"] + found["equal"] + found["changed"] == len(facts)
    assert found["free"] == sum(all(free for *_, free in row) for row in facts.values())
    assert (
        spent
        and costliest is not None
        and Fraction(costliest) == max(spent)
        and total == last.total
    )


KEEPS = {"policy": {**SAFE, "oov": "keep-unprotected"}}
SLOTS = {"policy": {**SAFE, "protect": "slots:s", "slots": "s"}}
FOREIGN = {"policy": {**SAFE, "protect": "class new.New: new"}}
KEPT = {"kept": ("more",)}
LINE = {"row": b"1", "column": "text", "content": b"c", "spans": None, "context": b"n"}
OUT, NONE = {"unprotected": [1], "unknown": [2, 3]}, {"unprotected": [], "unknown": []}
UNKNOWN = {"unprotected": None, "unknown": None}
BY_ROW = [
    # Earlier releases, each with its terms and what its row is; the release; what protected it, if any.
    ([({}, NONE)], (KEEPS, OUT), 1),
    ([({}, NONE)], (KEEPS, NONE), None),  # nothing of this row goes out
    ([({}, NONE | {"row": b"2"})], (KEEPS, OUT), None),  # another row
    (
        [({}, NONE | {"row": b"2"})],
        (KEEPS | {"known_as": "position"}, OUT),
        1,
    ),  # which may be the same one
    ([({}, NONE | {"row": b"2"})], (KEEPS | {"known_as": "file"}, OUT), None),
    ([({}, NONE), (KEEPS, OUT)], (KEEPS, OUT), None),  # it is out
    ([({}, NONE), (KEEPS, OUT | {"row": b"2"})], (KEEPS, OUT), 1),  # of another row
    ([({}, NONE), (KEEPS, OUT | {"content": b"d"})], (KEEPS, OUT), 1),  # of what was there before
    ([({}, NONE), (KEEPS, OUT), ({}, NONE)], (KEEPS, OUT), None),
    ([({}, NONE), (KEEPS | {"state": "unfinished"}, OUT)], (KEEPS, OUT), 1),
    ([(KEEPS, OUT | {"content": b"d"})], (KEEPS, OUT), None),  # no release protected any of it
    ([({}, NONE), (KEEPS, {"unprotected": [], "unknown": [2]})], (KEEPS, OUT), 2),
    # Together they let all out.
    (
        [(KEEPS, OUT | {"unknown": [2]}), (KEEPS, OUT | {"unknown": [3]})],
        (KEEPS | FOREIGN, OUT),
        None,
    ),
    ([(SLOTS, OUT | {"spans": b"s"})], (SLOTS, OUT | {"spans": b"s"}), None),
    ([(SLOTS, NONE | {"spans": b"s"})], (SLOTS, OUT | {"spans": b"t"}), 1),
    ([(SLOTS, OUT | {"spans": b"s"})], (SLOTS, OUT | {"spans": b"t", "content": b"d"}), 1),
    ([(FOREIGN, UNKNOWN)], (FOREIGN, UNKNOWN), None),
    ([({}, NONE)], (FOREIGN, UNKNOWN), 1),
    ([({}, NONE), (KEPT, NONE)], (KEPT, NONE), None),
    ([({}, NONE), (KEPT, NONE | {"row": b"2"})], (KEPT, NONE), 1),
    ([({}, NONE), (KEPT, NONE), ({}, NONE)], (KEPT, NONE), 3),
    ([({}, NONE), (KEPT, NONE)], (KEPT | {"known_as": "position"}, NONE), None),
    ([({}, NONE), (KEPT, NONE)], (KEPT | {"known_as": "position"}, NONE | {"content": b"d"}), 1),
    ([({"key": "other"}, None)], (KEEPS, OUT), 1),  # whose rows cannot be compared
    ([({"key": "other"}, None), (KEEPS, OUT)], (KEEPS, OUT), None),
    ([({}, NONE)], (KEEPS | {"columns": ("new",)}, OUT | {"column": "new"}), 1),
    (
        [({}, NONE)],
        (KEEPS | {"columns": ("new",), "new_texts": ("new",)}, OUT | {"column": "new"}),
        None,
    ),
]


def test_what_goes_out_raw_of_a_row_that_was_protected(spark):
    """Rejects a watch that one row lifts for all, other contents that count as out, and a stricter one."""

    # And rows of other keys that are passed over, slots by name alone, and a new column that is none.
    def frame(lines):
        values = [tuple(line.values()) for line in lines]
        return spark.createDataFrame(values, f"{LINES}, release string")

    wrong = []
    for releases, (changes, line), protected in BY_ROW:
        known_as = changes.get("known_as", "id")
        entries, lines = [], []
        for place, (terms_of, of_row) in enumerate(releases, 1):
            entries.append(entry(place, total=10, **{"known_as": known_as, **terms_of}))
            lines += [] if of_row is None else [{**LINE, **of_row, "release": entries[-1].release}]
        mine, ledger = terms(**changes), Ledger(tuple(entries))
        exposures = ledger.exposures(mine)
        found = exposed_by_row(
            frame([{**LINE, **line, "release": ""}]).drop("release"),
            frame(lines),
            ledger,
            mine,
            exposures,
        )
        numbers = [int(re.search(r"release (\d+)\)", said)[1]) for said in found]
        if numbers != ([] if protected is None else [protected]):
            wrong.append((releases, changes, line, protected, found))
    assert not wrong


def test_a_comparison_of_nothing_and_of_more_than_a_budget_can_be(spark):
    """Rejects totals of 28 digits, no rows or no earlier ones that fail, and a release counted again."""
    rows = {(n, "a"): (1, n) for n in range(3)}
    none, some = (lines_of(spark, {"": each}).drop("release") for each in ({}, rows))
    total = Decimal("1000000000000.000000000000000001")
    many = Ledger((entry(1, total=str(total), known_as="position"),))
    assert compare(none, None, Ledger(), terms())[1:] == (None, 0)
    found = compare(some, None, many, terms(known_as="position"))
    assert (
        found[1:] == (total, Decimal("1000000000010.000000000000000001")) and found[0]["new"] == 3
    )
    # Rows of new files are no earlier ones, and what came out twice counts once.
    assert compare(some, None, many, terms(known_as="file"))[1:] == (0, 10)
    twice = [entry(number, known_as="id") for number in (1, 2)]
    earlier = lines_of(spark, {each.release: dict.fromkeys(rows, (1, 9)) for each in twice})
    assert compare(some, earlier, Ledger(tuple(twice)), terms(known_as="id"))[1:] == (10, 20)


def test_what_was_cut_off_before_it_was_assessed_frees_nobody(spark):
    """Rejects a second try over the budget that costs nothing, and one that counts its own noise twice."""
    first, second = ({(0, "a"): ("text", noise)} for noise in ("one", "other"))
    done, cut_off = entry(1, total=9, epsilon=9.0), entry(2, epsilon=2.0, state="unfinished")
    earlier = lines_of(spark, {done.release: first, cut_off.release: second})
    again = lines_of(spark, {"": second}).drop("release")
    counts = {"new": 0, "equal": 1, "changed": 0}
    found = compare(again, earlier, Ledger((done, cut_off)), terms(epsilon=2.0))
    assert found == ({**counts, "free": 0}, 9, 11)
    known = Ledger((done, entry(2, total=11, epsilon=2.0, state="unfinished")))  # killed later
    assert compare(again, earlier, known, terms(epsilon=2.0)) == ({**counts, "free": 1}, None, 11)
    assert Ledger((cut_off, done)).total() == Ledger((done, cut_off)).total() == 11
