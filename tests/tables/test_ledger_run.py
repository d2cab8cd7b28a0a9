"""dptext privatize --ledger: what releases add up to on real tables, whatever ends a run."""

import json
import re
import shutil
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from dptext_spark.cli import main
from dptext_spark.errors import ConfigError, InputError, JobError
from dptext_spark.tables.checkpoint import Checkpoint
from dptext_spark.tables.input_table import InputTable
from dptext_spark.tables.ledger_folder import LedgerFolder
from dptext_spark.tables.ledger_run import LedgerRun
from dptext_spark.tables.storage import LocalFiles
from dptext_spark.tables.table import Table
from tests.helpers.tables import names, run_table, texts, write_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def release(ring_release, tmp_path):
    """Release a table of ids 0 to 5 with changed options into an output of its own; give what it cost."""
    number = iter(range(1000))

    def run(rows=None, place="in", **changes):
        if rows is not None:
            shutil.rmtree(tmp_path / place, ignore_errors=True)
            write_table(tmp_path / place / "a.parquet", {"id": [*rows], "text": [*rows.values()]})
        options = {
            "id": "id",
            "name": "label",
            "ledger": tmp_path / "ledger",
            "input": tmp_path / place,
        }
        options |= {"output": tmp_path / f"out-{next(number)}"}
        given = {**ring_release, **options, **changes}
        given = {name: value for name, value in given.items() if value is not None}
        return run_table(**given).facts["ledger"][-1]

    def write(place, columns):
        shutil.rmtree(tmp_path / place, ignore_errors=True)
        write_table(tmp_path / place / "a.parquet", columns)

    run.write, run.folder = write, tmp_path
    return run


@pytest.fixture
def ledger(tmp_path):
    return lambda: LedgerFolder(str(tmp_path / "ledger"), LocalFiles()).read()


@pytest.fixture
def light(monkeypatch):
    """Releases that enter the ledger and write nothing else."""

    def enter(self, _plan, _partitioning, entered):
        with entered(self.input.rows):
            write_table(Path(self.options.output) / "_SUCCESS", {})
        return defaultdict(int)

    monkeypatch.setattr(Table, "sanitize", enter)
    monkeypatch.setattr(InputTable, "check_rows", lambda _: [])


ROWS = dict(enumerate(texts(6)))


def counts(cost):
    return tuple(cost["rows"][name] for name in ("new", "equal", "changed", "free"))


def states(ledger):
    return [release.state for release in ledger.entries]


def test_a_second_release_is_refused_and_an_equal_one_is_free(release, ledger, tmp_path, request):
    """Rejects totals by release, a repeat that costs, an edited row that costs nothing or makes all cost."""
    # And a dry run that writes, or does not see the budget.
    first = release(ROWS, budget=15.0)
    assert counts(first) == (6, 0, 0, 0) and first["total"] == 10
    before = names(tmp_path)
    with pytest.raises(ConfigError) as caught:
        release(epsilon=8.0, budget=15.0)
    said = "the costliest row that would get new noise has spent 10 and has 5 left, in nats per unit of Eucl"
    assert said in str(caught.value) and "Got: 8 requested." in str(caught.value)
    assert names(tmp_path) == before  # no output, no report
    assert states(ledger()) == ["committed", "withdrawn"]

    request.getfixturevalue("light")
    again = release(budget=1.0)  # under any budget
    assert counts(again) == (0, 6, 0, 6) and again["requested"] == 0
    assert "nothing is spent" in again["said"]

    with pytest.raises(ConfigError, match="over the budget"):
        release({**ROWS, 2: "w00 w01"}, budget=15.0, dry_run=True)
    edited = release({**ROWS, 2: "w00 w01", 6: "w05"}, budget=20.0)
    assert counts(edited) == (1, 5, 1, 5) and (edited["spent"], edited["total"]) == (10, 20)
    assert "Budget: 20, 0 remain" in edited["said"]
    assert ledger().total() == 20 and [e.total for e in ledger().counted] == [10, 10, 20]
    # Another epsilon for rows that have spent 10, without the edited one.
    files = sorted((tmp_path / "ledger").rglob("*"))
    rest = {n: text for n, text in ROWS.items() if n != 2}
    dry = release(rest, epsilon=5.0, budget=15.0, dry_run=True)
    assert counts(dry) == (0, 5, 0, 0) and dry["total"] == 15
    assert sorted((tmp_path / "ledger").rglob("*")) == files
    shown = CliRunner().invoke(main, ["ledger", "show", str(tmp_path / "ledger"), "--json"])
    found = json.loads(shown.stdout)
    assert found["total"] == 20.0 and found["releases"][0]["rows"]["new"] == 6
    assert found["releases"][0]["terms"]["output"].endswith("/out-0")


@pytest.mark.usefixtures("light")
def test_what_goes_out_raw_that_was_protected_is_refused_under_a_budget(release, ledger, plane):
    """Rejects "nothing is spent" where a weaker policy lets words pass, and a refusal of what is out."""
    # And a permitted release of one row that lifts the watch for all.
    release({**ROWS, 0: "the w01", 1: "the w02"}, budget=50.0)
    said = "stop words of column text (protected in release 1)"
    with pytest.raises(ConfigError, match=rf"Got: {re.escape(said)}\. .*run once without --budget"):
        release(budget=50.0, protect="content")
    assert states(ledger()) == ["committed", "withdrawn"]
    release(protect="content", where="id = 0")
    assert not release(protect="content", where="id in (0, 2)", budget=50.0, dry_run=True)[
        "exposed"
    ]
    with pytest.raises(ConfigError, match=re.escape(said)):
        release(protect="content", budget=50.0, dry_run=True)
    told = release(protect="content")
    assert f"Revealed from now on, without any bound: {said}." in told["said"]
    assert told["exposed"] == [said] and "nothing is spent" not in told["said"]
    assert told["requested"] == 0
    assert not release(protect="content", budget=50.0, dry_run=True)["exposed"]  # it is out already
    # One unit for all that is proven in Euclidean distance: no budget begins anew with a lambda or a bundle.
    found = release(mechanism="mahalanobis:lambda=0.1000001", epsilon=2.0, dry_run=True)
    assert found["total"] == pytest.approx(12)  # on a circle, for all lambda
    with pytest.raises(ConfigError, match=r"counts in another unit.* begin another --ledger"):
        release(embedding=plane.path)


@pytest.mark.usefixtures("light")
def test_what_decides_which_tokens_pass_is_watched_by_row(release):
    """Rejects policies that are compared by name, and stricter ones that are refused."""
    text = "call Bob 0170 1234567 the w01, 12345 a@b.com"
    kind = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64())]))

    def spans(start, end):
        return pa.array([[{"start": start, "end": end}]] * 2, kind)

    table = {
        "id": [0, 1],
        "text": [text] * 2,
        "a": spans(5, 8),
        "b": spans(26, 29),
        "same": spans(5, 8),
    }
    keeps, words = {"oov": "keep-unprotected"}, "words outside the vocabulary of column text"
    slots, outside = {"protect": "slots:a"}, "words outside the slots of column text"
    tags = {"identifiers": "surrogate:A"}
    for number, (first, then) in enumerate(
        (
            (
                slots,
                {"protect:slots:b": outside, "protect:slots:same": "", "identifiers:off": outside},
            ),
            (keeps, {"identifiers:off": words, "numbers:words": words, "mask_spans:a": ""}),
            (keeps | {"mask_spans": "a"}, {"mask_spans:same": "", "mask_spans:b": words}),
            ({}, {"identifiers:surrogate:A": "which identifiers are equal in column text"}),
            (tags, {"identifiers:mask": "", "identifiers:surrogate:A:email": ""}),
        )
    ):
        options = {"ledger": None, **first, "place": f"table {number}"}
        options["ledger"] = f"{release.folder}/ledger {number}"
        release.write(options["place"], table)
        release(**options)
        for change, exposed in then.items():
            option, _, value = change.partition(":")
            weaker = {**options, option: value, "dry_run": True, "budget": 1000.0}
            if exposed:
                said = f"reveals what earlier releases.* Got: {exposed} .protected in release 1"
                with pytest.raises(ConfigError, match=said):
                    release(**weaker)
            else:
                assert release(**weaker)["exposed"] == [], change
    release.write("table 0", {**table, "a": table["b"]})
    moved = release(**slots, ledger=f"{release.folder}/ledger 0", place="table 0", dry_run=True)
    assert moved["exposed"] == [f"{outside} (protected in release 1)"]


@pytest.mark.usefixtures("light")
def test_a_renamed_column_counts_as_the_earlier_ones(release):
    """Rejects an account that is empty under another name, and one that no option keeps apart."""
    message = pa.array([{"message": text} for text in ROWS.values()])
    texts_of = [*ROWS.values()]
    columns = {
        "id": [*ROWS],
        "text": texts_of,
        "body": texts_of,
        "words": [text.split() for text in texts_of],
    }
    release.write("in", {**columns, "payload": message})
    release(budget=15.0)
    for renamed in (
        {"text": "body"},
        {"text": "body", "id": None, "name": "other"},
        {"text": "words[]"},
        {"text": None, "tokens": "words", "id": None, "name": "other"},
        {"text": "payload.message"},
    ):
        with pytest.raises(ConfigError, match=r"has 5 left.*under another name: .*--new-text"):
            release(**renamed, budget=15.0, dry_run=True)
    # Both names together, of which one is free; an option that says it is another text.
    both = release(text=("text", "body"), dry_run=True)
    assert (both["spent"], both["total"]) == (10, 20) and "under another name: body." in both[
        "said"
    ]
    assert release(text="body", new_text="body", budget=15.0)["total"] == 10
    # Another spelling is the same column, as for Spark.
    release.write("in", {"id": [*ROWS], "Text": texts_of, "body": texts_of})
    with pytest.raises(ConfigError, match="has spent 10 and has 5 left"):
        release(text="Text", budget=15.0, dry_run=True)
    with pytest.raises(ConfigError, match=r"Columns of --new-text are not sanitized\. Got: body"):
        release(text="Text", new_text="body")
    # What was released under two names adds up under both.
    release(text="Text")
    release.write("in", {"id": [*ROWS], "other": texts_of, "Text": texts_of})
    assert release(text="other")["total"] == 30
    assert release(text="Text", epsilon=5.0, dry_run=True)["total"] == 35


@pytest.mark.usefixtures("light")
def test_disjoint_partitions_compose_in_parallel(release, ledger, tmp_path):
    """Each day under a label of its own, as the DAG does; a day that comes again with an edited row."""
    for day in range(2):
        rows = {10 * day + n: t for n, t in ROWS.items()}
        cost = release(rows, f"dt={day}", name=f"day {day}", budget=10.0)
        assert counts(cost) == (6, 0, 0, 0) and cost["total"] == 10
    assert ledger().total() == 10
    message = r"another input under this key and name\. Got: release 2 to file:"
    with pytest.raises(ConfigError, match=message):
        release(ROWS, name="day 1")
    edited = {10 + n: t for n, t in {**ROWS, 3: "w09"}.items()}
    again = release(edited, "dt=1", name="day 1", dry_run=True)
    assert counts(again) == (0, 5, 1, 5) and again["total"] == 20
    # The same rows under another column of ids cannot be known again: they count beside all.
    write_table(tmp_path / "named" / "a.parquet", {"nr": [1], "text": ["w01"]})
    assert release(place="named", id="nr", name="named")["total"] == 20
    assert release(place="named", id="nr", key_file=None, name="")["total"] == 30


@pytest.mark.usefixtures("light")
def test_rows_that_move_are_not_new(release, tmp_path):
    """Without --id a row is its file and position. Rejects a renamed file whose rows begin at nothing."""
    release(ROWS, id=None)
    (tmp_path / "in" / "a.parquet").rename(tmp_path / "in" / "b.parquet")
    moved = release(id=None, budget=20.0, dry_run=True)
    assert counts(moved) == (6, 0, 0, 0) and moved["total"] == 20
    (tmp_path / "in" / "b.parquet").rename(tmp_path / "in" / "a.parquet")
    write_table(tmp_path / "in" / "c.parquet", {"id": [7], "text": ["w01"]})
    more = release(id=None, dry_run=True)  # the row of c may have been one of a
    assert counts(more) == (1, 6, 0, 6) and more["total"] == 20


def test_a_growing_table_enters_its_new_rows(release, ledger, tmp_path):
    grow = {
        "id": None,
        "incremental": tmp_path / "checkpoint",
        "output": tmp_path / "out",
        "budget": 10.0,
    }
    for number in range(2):
        write_table(tmp_path / "in" / f"{number}.parquet", {"id": [*range(6)], "text": texts(6)})
        assert counts(release(**grow)) == (6, 0, 0, 0)
    assert ledger().total() == 10 and states(ledger()) == ["committed"] * 2
    write_table(tmp_path / "in" / "2.parquet", {"id": [1], "text": ["w01"]})
    with pytest.raises(ConfigError, match="over the budget"):
        release(**{**grow, "budget": 5.0})
    assert pq.read_table(tmp_path / "out").num_rows == 12
    assert states(ledger())[-1] == "withdrawn"


def test_a_batch_that_is_tried_again_costs_nothing_more(release, ledger, tmp_path, monkeypatch):
    """As after a kill; rejects rows that a second attempt names by other files or positions."""
    write_table(tmp_path / "in" / "0.parquet", {"id": [*range(6)], "text": texts(6)})
    grow = {
        "id": None,
        "incremental": tmp_path / "checkpoint",
        "output": tmp_path / "out",
        "budget": 10.0,
    }

    note = Checkpoint.note

    def not_noted(checkpoint, path, value):
        if "/batches/" in path:
            raise JobError("The batch is not noted")
        note(checkpoint, path, value)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "note", not_noted)
        with pytest.raises(JobError):
            release(**grow)
    assert states(ledger()) == ["unfinished"] and ledger().total() == 10
    assert counts(release(**grow)) == (0, 6, 0, 6)
    assert states(ledger()) == ["unfinished", "committed"] and ledger().total() == 10
    assert pq.read_table(tmp_path / "out").num_rows == 6


@pytest.mark.usefixtures("light")
def test_a_failed_run_that_wrote_nothing_is_withdrawn(release, ledger, tmp_path, monkeypatch):
    """And one that may have written counts: where a table was before nobody can tell which one it is."""

    def fails(self, _plan, _partitioning, entered):
        with entered(self.input.rows):
            raise InputError("words outside the vocabulary")

    release(ROWS, output=tmp_path / "out")
    monkeypatch.setattr(Table, "sanitize", fails)
    for changes, state, total in (
        ({"epsilon": 5.0}, "withdrawn", 10),
        ({"epsilon": 5.0, "output": tmp_path / "out", "mode": "overwrite"}, "unfinished", 15),
    ):
        with pytest.raises(InputError, match="words outside the vocabulary"):
            release(**changes)
        assert states(ledger())[-1] == state and ledger().total() == total


@pytest.mark.usefixtures("light")
def test_a_damaged_ledger_is_told(release, ledger, tmp_path):
    """Rejects fingerprints that were altered or lost and count as new, and a folder of other things."""
    release(ROWS)
    (folder,) = (tmp_path / "ledger" / "rows").iterdir()
    (file,) = folder.glob("*.parquet")
    good = pq.read_table(file)
    altered = [bytes([value[0] ^ 1]) + value[1:] for value in good["context"].to_pylist()]

    def refused(message, **changes):
        with pytest.raises(ConfigError, match=message):
            release(dry_run=True, **changes)

    pq.write_table(good.slice(0, 5), file)
    refused(r"fingerprints .* Got: (FAILED_READ_FILE|org.apache.spark.SparkException)")
    next(folder.glob(".*.parquet.crc")).unlink()  # Hadoop's own, which other file systems have not
    refused(f"fingerprints .* Got: rows/{folder.name}")
    pq.write_table(good.set_column(good.column_names.index("context"), "context", [altered]), file)
    refused("fingerprints of a release's rows are not those", epsilon=5.0)
    shutil.rmtree(folder)
    refused("fingerprints of a release's rows are not those")
    events = tmp_path / "ledger" / "events"
    (events / "notes.txt").write_text("")
    refused(r"The ledger is damaged.* Got: notes\.txt")
    refused("is not a ledger", ledger=events)


@pytest.mark.usefixtures("light")
def test_two_runs_without_a_lock_never_both_pass(release, ledger, monkeypatch, tmp_path):
    """As on an object store: both reserve before either looks, under fresh keys, with a budget for one."""
    write_table(tmp_path / "in" / "a.parquet", {"id": [*ROWS], "text": [*ROWS.values()]})
    both, add = threading.Barrier(2), LedgerFolder.add

    @contextmanager
    def no_lock(self):
        yield

    def add_together(self, release, event, facts):
        add(self, release, event, facts)
        if event == "reserved":
            both.wait(timeout=100)

    monkeypatch.setattr(LedgerRun, "_turn", no_lock)
    monkeypatch.setattr(LedgerFolder, "add", add_together)

    def run(epsilon):
        try:
            return Decimal(release(key_file=None, name="", epsilon=epsilon, budget=10.0)["total"])
        except ConfigError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        ends = [*pool.map(run, [6.0, 7.0])]
    monkeypatch.undo()
    refused = [end for end in ends if isinstance(end, str)]
    assert all("over the budget" in said for said in refused)
    # The one that looks when the other has withdrawn may pass.
    assert refused and len(refused) == states(ledger()).count("withdrawn")


@pytest.mark.usefixtures("light")
def test_a_kill_counts_and_the_same_release_costs_nothing_more(release, ledger, monkeypatch):
    """Rejects a run that was cut off before it was assessed and is free, or counts twice."""
    add = LedgerFolder.add

    def dies(self, release, kind, facts):
        if kind == "assessed":
            raise KeyboardInterrupt
        add(self, release, kind, facts)

    with monkeypatch.context() as patch:
        patch.setattr(LedgerFolder, "add", dies)
        patch.setattr(LedgerRun, "_leave", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            release(ROWS, epsilon=6.0, budget=10.0)
    assert states(ledger()) == ["unfinished"] and ledger().total() == 6
    with pytest.raises(ConfigError, match="has spent 6 and has 4 left"):
        release(epsilon=5.0, budget=10.0)
    # Its budget is checked once, and it then counts once.
    for requested in (6, 0):
        assert release(epsilon=6.0, budget=12.0)["requested"] == requested
        assert ledger().total() == 6
