"""dptext privatize --ledger: what releases add up to on real tables, whatever ends a run."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from dptext_spark import Embedding
from dptext_spark.accounting.ledger import Ledger, Naming, Reserved, claimed_total
from dptext_spark.cli import main
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.jobs import privatize
from dptext_spark.tables import sealed_rows
from dptext_spark.tables.ledger_folder import LedgerFolder, OpenLedger
from dptext_spark.tables.local import LocalFiles
from dptext_spark.tables.sealed_rows import SEALED, compared
from dptext_spark.tables.table import Table
from tests.helpers.tables import ROOT, names, run_table, spark_environment, texts, write_table

# The shared session is the one that the jobs find.
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


Run = Callable[..., dict[str, Any]]
Read = Callable[[], Ledger]


@pytest.fixture
def release(ring_release: dict[str, Any], tmp_path: Path) -> Run:
    """Release a table of ids 0 to 5 with changed options into an output of its own; give what it cost."""
    number = iter(range(1000))

    def run(rows: dict[int, Any] | None = None, place: str = "in", **changes: Any) -> dict[str, Any]:
        if rows is not None:
            shutil.rmtree(tmp_path / place, ignore_errors=True)
            write_table(tmp_path / place / "a.parquet", {"id": [*rows], "text": [*rows.values()]})
        options = {"id": "id", "name": "label", "ledger": tmp_path / "ledger", "input": tmp_path / place}
        options |= {"output": tmp_path / f"out-{next(number)}"}
        given = {**ring_release, **options, **changes}
        given = {name: value for name, value in given.items() if value is not None}
        return run_table(**given).facts["ledger"][-1]

    return run


@pytest.fixture
def ledger(tmp_path: Path) -> Read:
    return LedgerFolder(path=str(tmp_path / "ledger"), storage=LocalFiles()).read


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases that enter the ledger and write nothing else."""

    def enter(
        self: Table, _plan: Any, _partitioning: Any, _look: Any, entered: Callable[..., Any]
    ) -> dict[str, int]:
        with entered(self.columns.select(self.df, self.row_id)):
            write_table(Path(self.options.output) / "_SUCCESS", {})
        return defaultdict(int)

    monkeypatch.setattr(Table, "sanitize", enter)
    monkeypatch.setattr(privatize, "check_ids", lambda *_: None)


ROWS = dict(enumerate(texts(6)))
TOTALS = "the dearest row that would be released anew has spent {} and has {} left"


def counts(cost: dict[str, Any]) -> tuple[int, ...]:
    return tuple(cost["rows"][name] for name in ("new", "equal", "changed", "free"))


def totals(ledger: Ledger) -> list[Decimal]:
    return [ledger.total(ledger.worst(unit)) for unit in ledger.units]


def states(ledger: Ledger) -> list[str]:
    return [release.state for release in ledger.releases]


def test_a_second_release_is_refused_and_an_equal_one_is_free(
    release: Run,
    ledger: Read,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Rejects totals by release, a repeat that costs, an edited row that costs nothing or makes all cost.

    And a dry run that writes, or does not see the budget.
    """
    assert release(ROWS, dry_run=True)["total"] == 10
    assert not (tmp_path / "ledger").exists()
    first = release(budget=15.0)
    assert counts(first) == (6, 0, 0, 0) and first["total"] == 10
    before = names(tmp_path)
    with pytest.raises(ConfigError) as caught:
        release(epsilon=8.0, budget=15.0)
    assert TOTALS.format(10, 5) in str(caught.value) and "Got: 8 requested." in str(caught.value)
    assert "nats per unit of Euclidean distance of their vectors, bundle" in str(caught.value)
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
    assert totals(ledger()) == [20] and ledger().worst(ledger().units[0])[-1].reserved.number == 4
    # Another epsilon for rows that have spent 10, without the edited one.
    files = sorted((tmp_path / "ledger").rglob("*"))
    rest = {n: text for n, text in ROWS.items() if n != 2}
    dry = release(rest, epsilon=5.0, budget=15.0, dry_run=True)
    assert counts(dry) == (0, 5, 0, 0) and dry["total"] == 15
    assert sorted((tmp_path / "ledger").rglob("*")) == files


@pytest.mark.usefixtures("light")
def test_what_goes_out_raw_that_was_protected_is_told_and_refused_under_a_budget(
    release: Run, ledger: Read, tmp_path: Path
) -> None:
    """Rejects "nothing is spent" where a weaker policy lets words pass, and a refusal of what is out."""
    release(ROWS, budget=50.0)
    write_table(tmp_path / "more" / "a.parquet", {"id": [1], "text": ["w01"], "more": ["w02"]})
    for words, changes in {
        "stop words of column text": {"protect": "content"},
        "column text": {"text": ["more"], "keep": ["text"], "place": "more", "name": "more"},
    }.items():
        said = f"{words} (protected in release 1)"
        with pytest.raises(ConfigError, match=r"--ledger-allow weaker-policy") as caught:
            release(budget=50.0, **changes)
        assert f"Got: {said}." in str(caught.value)
    assert len(ledger().releases) == 1  # refused before anything was reserved
    forced = {"protect": "content", "budget": 50.0}
    told = release(**forced, ledger_allow=["weaker-policy"])
    said = "stop words of column text (protected in release 1)"
    assert f"Raw from now on, without any bound: {said}." in told["said"]
    assert told["exposed"] == [said] and "nothing is spent" not in told["said"]
    assert told["requested"] == 0
    assert not release(**forced, dry_run=True)["exposed"]  # it is out already


@pytest.mark.usefixtures("light")
def test_one_unit_for_all_that_is_proven_in_euclidean_distance(
    release: Run, ledger: Read, plane: Embedding
) -> None:
    """Rejects a budget that begins anew with each lambda or bundle."""
    release(ROWS, budget=30.0)
    dry = {"budget": 30.0, "dry_run": True}
    found = release(mechanism="mahalanobis:lambda=0.1000001", epsilon=2.0, **dry)
    assert found["total"] == pytest.approx(12)  # on a circle, for all lambda
    found = release(mechanism="projection:dimension=2", epsilon=3.0, **dry)
    assert found["requested"] == 3 and found["total"] == pytest.approx(13)
    with pytest.raises(ConfigError, match=r"in a new unit.* --ledger-allow new-unit"):
        release(embedding=plane.path, **dry)
    other = release(embedding=plane.path, **dry, ledger_allow=["new-unit"])
    assert other["total"] == 10 and "Not added, for distances differ: 10 spent" in other["said"]
    assert len(ledger().units) == 1


@pytest.mark.usefixtures("light")
def test_disjoint_partitions_compose_in_parallel(release: Run, ledger: Read, tmp_path: Path) -> None:
    """Each day under a label of its own, as the DAG does; a day that comes again with an edited row."""
    for day in range(2):
        cost = release(
            {10 * day + n: t for n, t in ROWS.items()}, f"dt={day}", name=f"day {day}", budget=10.0
        )
        assert counts(cost) == (6, 0, 0, 0) and cost["total"] == 10
    assert totals(ledger()) == [10]
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
def test_rows_that_move_are_not_new(release: Run, tmp_path: Path) -> None:
    """Without --id a row is its file and position. Rejects a renamed file whose rows begin at nothing."""
    release(ROWS, id=None)
    (tmp_path / "in" / "a.parquet").rename(tmp_path / "in" / "b.parquet")
    moved = release(id=None, budget=20.0)
    assert counts(moved) == (6, 0, 0, 0) and moved["total"] == 20
    (tmp_path / "in" / "b.parquet").rename(tmp_path / "in" / "a.parquet")
    write_table(tmp_path / "in" / "c.parquet", {"id": [7], "text": ["w01"]})
    more = release(id=None, dry_run=True)  # the row of c may be one of b, which may have been one of a
    assert counts(more) == (1, 6, 0, 6) and more["total"] == 30


@pytest.mark.parametrize(("known_as", "most"), [("position", 3), ("id", 2)])
def test_a_row_that_moves_inside_a_file_has_the_noise_of_all_its_places(
    spark: SparkSession, known_as: Naming, most: int
) -> None:
    """Rejects totals of places: each has two contexts, the row that was at three of them has three.

    Under an id a place is a row, wherever it lies.
    """
    releases: list[tuple[str, dict[Any, Any]]] = [
        (f"{at:032x}", {(place, "a"): (place == at, (place, place == at)) for place in range(3)})
        for at in range(3)
    ]
    before = [name for name, _ in releases[:2]]
    found = compared(
        sealed_of(spark, releases[2:]).drop("release"),
        sealed_of(spark, releases[:2]),
        release=releases[2][0],
        epsilon=10.0,
        epsilons=dict.fromkeys(before, 10.0),
        known_as=known_as,
        family=[frozenset(before)],
        family_worst=before,
    )
    assert found.dearest is not None and len(found.dearest) == most - 1
    assert max(map(len, found.histories)) == most and found.rows is not None
    assert (found.rows.new, found.rows.equal, found.rows.changed, found.rows.free) == (0, 2, 1, 2)


def test_a_growing_table_enters_its_new_rows(release: Run, ledger: Read, tmp_path: Path) -> None:
    grow = {"id": None, "incremental": tmp_path / "checkpoint", "output": tmp_path / "out", "budget": 10.0}
    for number in range(2):
        rows = {"id": [*range(6)], "text": texts(6)}
        write_table(tmp_path / "in" / f"{number}.parquet", rows)
        assert counts(release(**grow)) == (6, 0, 0, 0)
    assert totals(ledger()) == [10]
    assert states(ledger()) == ["committed"] * 2
    write_table(tmp_path / "in" / "2.parquet", {"id": [1], "text": ["w01"]})
    with pytest.raises(ConfigError, match="over the budget"):
        release(**{**grow, "budget": 5.0})
    assert pq.read_table(tmp_path / "out").num_rows == 12
    assert states(ledger())[-1] == "withdrawn"


@pytest.mark.usefixtures("light")
def test_a_failed_run_that_wrote_nothing_is_withdrawn(
    release: Run,
    ledger: Read,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(self: Table, _plan: Any, _partitioning: Any, _look: Any, entered: Callable[..., Any]) -> None:
        with entered(self.columns.select(self.df, self.row_id)):
            raise InputError("words outside the vocabulary")

    def failed(**changes: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Table, "sanitize", fails)
            with pytest.raises(InputError, match="words outside the vocabulary"):
                release(ROWS, **changes)

    failed()
    assert states(ledger()) == ["withdrawn"]
    release(output=tmp_path / "out")
    # Where a table was there nobody can tell which one it is.
    failed(epsilon=5.0, output=tmp_path / "out", mode="overwrite")
    assert states(ledger())[-1] == "unfinished" and totals(ledger()) == [15]


@pytest.mark.usefixtures("light")
def test_a_damaged_ledger_is_told(release: Run, ledger: Read, tmp_path: Path) -> None:
    """Rejects rows that were altered or lost and are taken for new ones, and a folder of other things."""
    release(ROWS)
    (folder,) = (tmp_path / "ledger" / "rows").iterdir()
    (file,) = folder.glob("*.parquet")
    good = pq.read_table(file)
    pq.write_table(good.slice(0, 5), file)
    with pytest.raises(ConfigError, match=r"sealed rows .* Got: FAILED_READ_FILE"):
        release(dry_run=True)
    next(folder.glob(".*.parquet.crc")).unlink()  # Hadoop's own, which other file systems have not
    with pytest.raises(ConfigError, match=f"sealed rows .* Got: rows/{folder.name}"):
        release(dry_run=True)
    altered = [bytes([value[0] ^ 1]) + value[1:] for value in good["context"].to_pylist()]
    pq.write_table(good.set_column(3, "context", [altered]), file)
    with pytest.raises(ConfigError, match="sealed rows of a release are not those"):
        release(dry_run=True, epsilon=5.0)
    shutil.rmtree(folder)
    with pytest.raises(ConfigError, match="sealed rows of a release are not those"):
        release(dry_run=True)
    (event, *_) = (tmp_path / "ledger" / "events").glob("*.reserved.json")
    (tmp_path / "ledger" / "events" / "notes.txt").write_text("")
    with pytest.raises(ConfigError, match=r"The ledger is damaged.* Got: notes\.txt"):
        release(dry_run=True)
    with pytest.raises(ConfigError, match="is no ledger"):
        release(ledger=event.parent)


@pytest.mark.usefixtures("light")
def test_a_ledger_holds_nothing_of_the_table(release: Run, tmp_path: Path) -> None:
    """Rejects an id, a text, a condition or a key in an event or a row."""
    rows = {987_654: "w01 Zanzibar", 987_655: "w02"}
    release(rows, where="id > 987653 and text != 'Quagmire'")
    for file in (tmp_path / "ledger").rglob("*"):
        if file.is_file():
            content = repr(file.read_bytes())
            content += str(pq.read_table(file).to_pydict()) if file.suffix == ".parquet" else ""
            for secret in ("987654", "987653", "Zanzibar", "Quagmire", bytes(range(32)).hex(), "0102030405"):
                assert secret not in content and secret not in file.name
    shown = CliRunner().invoke(main, ["ledger", "show", str(tmp_path / "ledger"), "--json"])
    found = json.loads(shown.stdout)
    assert found["units"][0]["worst"] == 10.0 and found["releases"][0]["rows"]["new"] == 2
    assert found["releases"][0]["terms"]["output"].endswith("/out-0")


def test_what_cannot_be_is_told_before_spark(release: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--budget needs --ledger"):
        release(ROWS, ledger=None, budget=1.0)
    with pytest.raises(ConfigError, match="lie inside one another"):
        release(ledger=tmp_path / "in" / "ledger")
    shown = CliRunner().invoke(main, ["ledger", "show", str(tmp_path / "none")])
    assert shown.exit_code == 2 and "There is no ledger" in shown.output


def sealed_of(spark: SparkSession, releases: list[tuple[str, dict[Any, Any]]]) -> Any:
    rows = [
        (str(row).encode(), column, str(content).encode(), str(context).encode(), release)
        for release, made in releases
        for (row, column), (content, context) in made.items()
    ]
    schema = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in SEALED)
    return spark.createDataFrame(rows, f"{schema}, release string")


@pytest.mark.parametrize("seed", [5, 6])
def test_comparison_against_sets(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Random releases of random rows, against a dictionary of sets of contexts for each row and column.

    Rejects a sum over releases, a maximum over rows of sums that are of different rows, and totals that add
    what has another unit (release 2).
    """
    rng = np.random.default_rng(seed)
    made: list[tuple[str, dict[tuple[int, str], tuple[int, int]]]] = []
    epsilons = {f"{number:032x}": float(rng.choice([0.1, 0.2, 3.0])) for number in range(6)}
    for number, (release, epsilon) in enumerate(epsilons.items()):
        rows = {}
        for row in rng.choice(24, rng.integers(8, 24), replace=False).tolist():
            for column in ["a", "b"][: 1 + number % 2]:
                content = int(rng.integers(2))
                rows[row, column] = (content, hash((row, column, content, epsilon, number != 2)))
        made.append((release, rows))
    del epsilons[made[2][0]]
    *past, (last, now) = made
    epsilon = epsilons.pop(last)
    mine, earlier = sealed_of(spark, made[-1:]).drop("release"), sealed_of(spark, past)
    given: dict[str, Any] = {"known_as": "id", "family": (), "family_worst": ()}
    given |= {"release": last, "epsilon": epsilon, "epsilons": epsilons}
    found = compared(mine, earlier, **given)
    assert found.rows is not None

    facts: dict[int, list[tuple[bool, bool, bool]]] = {}
    sums, anew, sizes = [], [], set()
    for place, (content, context) in now.items():
        before = [(other, rows[place]) for other, rows in past if place in rows]
        free = context in [known for _, (_, known) in before]
        changed = bool(before) and content not in [known for _, (known, _) in before]
        facts.setdefault(place[0], []).append((not before, changed, free))
        # Of equal contexts any release will do.
        spent = {known: epsilons[other] for other, (_, known) in before if other in epsilons}
        sums.append(claimed_total({**spent, context: epsilon}.items()))
        sizes.add(len({*spent, context}))
        anew += [] if free else sums[-1:]
    each = facts.values()
    changed_rows = [any(changed for _, changed, _ in row) for row in each]
    new_rows = [any(new for new, *_ in row) for row in each]
    assert found.rows.changed == sum(changed_rows)
    assert found.rows.new == sum(n and not c for n, c in zip(new_rows, changed_rows, strict=True))
    assert found.rows.free == sum(all(free for *_, free in row) for row in each)
    assert found.rows.all == len(facts)
    known = {**epsilons, last: epsilon}
    histories = [claimed_total((name, known[name]) for name in history) for history in found.histories]
    assert max(histories) == max(sums)
    assert {*map(len, found.histories)} <= sizes and max(map(len, found.histories)) == max(sizes)
    assert anew and found.dearest is not None
    spent_before = claimed_total((name, known[name]) for name in found.dearest)
    assert spent_before + Decimal(repr(epsilon)) == max(anew)

    monkeypatch.setattr(sealed_rows, "_MOST_GROUPS", 0)  # too many for the driver
    union = compared(mine, earlier, **given)
    assert (union.rows, union.dearest) == (found.rows, found.dearest)
    assert [{*each} for each in union.histories] == [{n for each in found.histories for n in each}]


def test_a_ledger_that_another_run_begins_meanwhile_is_one(tmp_path: Path) -> None:
    """Rejects asking whether it was begun before looking what is in its folder."""

    class Meanwhile(LocalFiles):
        def exists(self, path: str) -> bool:
            return self._then_begun(super().exists(path))

        def matches(self, pattern: str) -> list[str]:
            return self._then_begun(super().matches(pattern))

        def _then_begun(self, answer: Any) -> Any:
            (tmp_path / "ledger" / "events").mkdir(parents=True, exist_ok=True)
            return answer

    LedgerFolder(path=str(tmp_path / "ledger"), storage=Meanwhile()).check()


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("wrong", [False, True])
def test_two_runs_without_a_lock_never_both_pass(
    release: Run,
    ledger: Read,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    wrong: bool,
) -> None:
    """As on an object store: both reserve before either looks, with a budget for one.

    Under fresh keys, so that each row counts. The mutant reads before it reserves; both pass then.
    """
    write_table(tmp_path / "in" / "a.parquet", {"id": [*ROWS], "text": [*ROWS.values()]})
    both, add = threading.Barrier(2), OpenLedger.add

    @contextmanager
    def no_lock(self: OpenLedger) -> Iterator[None]:
        yield

    def add_together(self: OpenLedger, event: Any) -> None:
        add(self, event)
        if isinstance(event, Reserved):
            both.wait(timeout=100)

    monkeypatch.setattr(OpenLedger, "turn", no_lock)
    monkeypatch.setattr(OpenLedger, "add", add_together)
    if wrong:
        monkeypatch.setattr(OpenLedger, "read", lambda self: Ledger())

    def run(epsilon: float) -> Decimal | str:
        try:
            return Decimal(release(key_file=None, name="", epsilon=epsilon, budget=10.0)["total"])
        except ConfigError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        ends = [*pool.map(run, [6.0, 7.0])]
    refused = [end for end in ends if isinstance(end, str)]
    assert all("over the budget" in said for said in refused)
    # The one that looks when the other has withdrawn may pass.
    assert len(refused) == states(ledger()).count("withdrawn") and bool(refused) is not wrong


KILLED = """
import signal, sys
import psutil
from dptext_spark.accounting.ledger import Committed
from dptext_spark.cli import main
from dptext_spark.tables import ledger_folder, output

def die(*_, **__):
    for process in [*psutil.Process().children(recursive=True), psutil.Process()]:
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            pass  # it ended with its parent

def die_at_the_end(self, event):
    if isinstance(event, Committed):
        die()
    add(self, event)

add = ledger_folder.OpenLedger.add
if sys.argv[1] == "renamed":
    ledger_folder.OpenLedger.add = die_at_the_end
else:
    from dptext_spark.tables.formats import files
    files.write_whole = die
main(["privatize", *sys.argv[2:]])
"""


@pytest.fixture
def arguments(ring_release: dict[str, Any], tmp_path: Path) -> Callable[..., list[str]]:
    """A command line of the release."""
    write_table(tmp_path / "in" / "a.parquet", {"id": [*ROWS], "text": [*ROWS.values()]})

    def given(**changes: Any) -> list[str]:
        options = {**ring_release, "mechanism": "laplace", "epsilon": 6, "text": "text", "id": "id"}
        options |= {"name": "label", "ledger": tmp_path / "ledger", "budget": 10, **changes}
        return [
            part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))
        ]

    return given


@pytest.mark.long
@pytest.mark.e2e
@pytest.mark.parametrize("when", ["reserved", "renamed"])
def test_a_kill_counts_and_the_same_release_costs_nothing_more(
    when: str,
    arguments: Callable[..., list[str]],
    release: Run,
    ledger: Read,
    tmp_path: Path,
) -> None:
    """SIGKILL of the driver and its JVM before the noise, and after the output has its name."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, when, *arguments()],
        cwd=tmp_path,
        env=spark_environment() | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "out").exists() is (when == "renamed")
    (left,) = ledger().releases
    assert left.state == "unfinished" and totals(ledger()) == [6]
    with pytest.raises(ConfigError, match="has spent 6 and has 4 left"):
        release(epsilon=5.0, budget=10.0)
    assert release(epsilon=6.0, budget=10.0)["requested"] == 0
    assert totals(ledger()) == [6]


@pytest.mark.long
@pytest.mark.e2e
def test_of_two_processes_at_once_one_passes(
    arguments: Callable[..., list[str]], ledger: Read, tmp_path: Path
) -> None:
    """Rejects two that both find the budget of one."""
    command = [sys.executable, "-m", "dptext_spark", "privatize"]
    runs = [
        subprocess.Popen(
            [*command, *arguments(epsilon=epsilon, output=tmp_path / str(epsilon))],
            cwd=tmp_path,
            env=spark_environment() | {"PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for epsilon in (6, 7)
    ]
    said = [run.communicate(timeout=280)[1] for run in runs]
    assert sorted(run.returncode for run in runs) == [0, 2], said
    assert any("over the budget of the ledger" in text for text in said)
    assert sorted(found.state for found in ledger().releases) == ["committed", "withdrawn"]
    assert [tmp_path.joinpath(str(epsilon)).exists() for epsilon in (6, 7)].count(True) == 1
