"""dptext privatize --incremental: new files once, whatever happens, with the words of one run over all."""

import fcntl
import json
import os
import shutil

import pyarrow.parquet as pq
import pytest

from dptext_spark.errors import ConfigError, InputError, JobError
from dptext_spark.tables.checkpoint import Checkpoint
from tests.helpers.cluster import write_key
from tests.helpers.tables import hashes, run_table, spark_settings, texts, write_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def options(ring_release):
    return {**ring_release, "epsilon": 1.0, "keep": ["id"]}


@pytest.fixture
def add_file(tmp_path):
    """Put one more file of six rows into the table, by default one that looks a month old."""

    def add(number, word="", folder=""):
        ids = list(range(number * 6, number * 6 + 6))
        rows = {"id": ids, "text": [f"{text} {word}" for text in texts(6)]}
        path = write_table(tmp_path / "in" / folder / f"{number}.parquet", rows)
        os.utime(path, (path.stat().st_mtime - number * 30 * 86_400,) * 2)
        return path

    return add


@pytest.fixture
def grow(options, tmp_path):
    """Add what is new to the output."""

    def run(**changes):
        return run_table(**{**options, "incremental": tmp_path / "checkpoint", **changes})

    return run


def read(folder):
    """What a reader that knows of no checkpoint finds."""
    rows = pq.read_table(folder).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def test_new_files_are_added_once_with_the_words_of_one_run(options, grow, add_file, tmp_path):
    """Rejects files passed over for their age, and rows that are named by batch."""
    # And a batch that is written again where a kill came between our account of it and Spark's.
    options["keep"] = ["id", "dt"]
    where = {"where": "id % 6 < 5", "keep": options["keep"]}
    add_file(0, "w01 w02", folder="dt=007")
    first = grow(**where)
    assert (first.facts["rows"], first.facts["added_rows"]) == (5, 5)
    assert [row["id"] for row in read(tmp_path / "out")] == [0, 1, 2, 3, 4]
    before = hashes(tmp_path / "out")

    for number, folder in enumerate(["dt=007", "dt=008", "dt=008"], 1):
        add_file(number, "Unheard", folder)
    second = grow(
        **where, read_option="maxFilesPerTrigger=1"
    )  # two batches at least add to one partition
    assert (second.facts["rows"], second.facts["added_rows"]) == (20, 15)
    assert (
        hashes(tmp_path / "out").items() >= before.items()
    )  # files that were there stay as they are
    assert {path.name for path in (tmp_path / "checkpoint" / "batches").iterdir()} == {
        f"{batch:06d}.json" for batch in range(4)
    }

    before = hashes(tmp_path / "out")
    commits = tmp_path / "checkpoint" / "stream" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / f"{last}").unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    third = grow(**where, reports=tmp_path / "third")
    assert (third.facts["rows"], third.facts["added_rows"]) == (20, 0)
    assert hashes(tmp_path / "out") == before
    assert third.facts["row_lengths"]["longest"] == 10  # of all runs
    assert "Rows: 20, 0 of them added by this run" in third.describe()

    whole = run_table(**options | {"output": tmp_path / "whole"}, where=where["where"])
    assert read(tmp_path / "out") == read(tmp_path / "whole")
    assert third.facts["columns"] == whole.facts["columns"]
    written = json.loads((tmp_path / "third/private/report.json").read_text())
    assert (written["rows"], written["added_rows"]) == (20, 0)


def test_a_batch_that_fails_adds_nothing_and_is_tried_again(grow, add_file, tmp_path):
    options = {"oov": "fail", "read_option": "maxFilesPerTrigger=1"}
    add_file(1)  # the older one, so the first batch
    bad = add_file(0, "Unheard")
    with pytest.raises(InputError, match="words outside the vocabulary") as caught:
        grow(**options)
    assert "unheard" not in str(caught.value).lower()
    assert [row["id"] for row in read(tmp_path / "out")] == list(range(6, 12))
    before = hashes(tmp_path / "out")
    bad.unlink()
    add_file(0)
    assert grow(**options).facts["added_rows"] == 6
    assert hashes(tmp_path / "out").items() >= before.items()
    assert [row["id"] for row in read(tmp_path / "out")] == list(range(12))


@pytest.mark.versions
def test_a_batch_that_was_written_and_not_noted_is_written_anew(
    grow, add_file, tmp_path, monkeypatch
):
    """Rejects files whose names do not show their batch: rows would come twice."""
    for number, place in enumerate(["dt=a b", "dt=%2Fé"]):
        add_file(number, folder=place)
    note = Checkpoint.note

    def not_noted(table, path, value):
        if "/batches/" in path:
            raise JobError("The batch is not noted")
        note(table, path, value)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "note", not_noted)
        with pytest.raises(JobError):
            grow(keep=["id", "dt"])
    # A kill before that leaves the files of finished tasks as well, which the next commit would add.
    left = tmp_path / "out" / ".batch-000000" / "_temporary/0/task_20260101000000_0000_m_000000"
    left.mkdir(parents=True)
    for file in [*(tmp_path / "out").rglob("*.parquet")]:
        shutil.copy(file, left)
    assert grow(keep=["id", "dt"]).facts["added_rows"] == 12
    assert [row["id"] for row in read(tmp_path / "out")] == list(range(12))
    assert {path.name[:13] for path in (tmp_path / "out").rglob("*.parquet")} == {"batch-000000-"}
    assert not [*(tmp_path / "out").glob(".batch*")] and (tmp_path / "out" / "_SUCCESS").exists()


def test_what_was_begun_goes_on_as_it_began(options, grow, add_file, demo_bundle, tmp_path):
    """Rejects other noise, rows or columns in one output, and a dry run that begins one."""
    add_file(0)
    grow(dry_run=True)
    assert {path.name for path in tmp_path.iterdir()} == {"in"}
    where = {"where": "text <> 'Zebulon'"}
    grow(**where)
    before = hashes(tmp_path)
    write_key(tmp_path / "other-key", bytes(range(1, 33)))
    shutil.copytree(tmp_path / "in", tmp_path / "elsewhere")
    changes = {
        "where": "text <> 'Quartzman'",
        "key_file": tmp_path / "other-key",
        "keep": [],
        "name": "x",
    }
    changes |= {
        "embedding": demo_bundle.path,
        "release_words": 64,
        "mechanism": "mahalanobis:lambda=0.5",
    }
    changes |= {
        "layout": "keep",
        "tokenizer": "icu",
        "oov": "drop",
        "epsilon": 2.0,
        "row_budget": 9,
    }
    names = "bundle, columns, epsilon, input, keep, key, layout, mechanism, name, oov, row-budget, "
    names += "row-epsilons, tokenizer, where"
    with pytest.raises(
        ConfigError, match=rf"of a release with other options.*Got: {names}\."
    ) as caught:
        grow(**changes, input=tmp_path / "elsewhere", output=tmp_path / "out", dry_run=True)
    assert "Quartzman" not in str(caught.value)
    assert hashes(tmp_path).items() >= before.items()
    kept = (path.read_text(errors="replace") for path in (tmp_path / "checkpoint").rglob("*.json"))
    assert "Zebulon" not in "".join(kept)

    with (tmp_path / "checkpoint" / "lock").open("wb") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        with pytest.raises(JobError, match="Another run works with this checkpoint"):
            grow(**where)
    shutil.move(tmp_path / "out", tmp_path / "moved")
    with pytest.raises(ConfigError, match="to which new files are to be added, is gone"):
        grow(**where)
    shutil.move(tmp_path / "moved", tmp_path / "out")
    with pytest.raises(ConfigError, match=r"The (public report|output) .* exists"):
        grow(incremental=tmp_path / "fresh")
    with pytest.raises(ConfigError, match=r"Checkpoint and .* lie inside one another"):
        grow(incremental=tmp_path / "out" / "checkpoint")
    with pytest.raises(
        ConfigError, match="Option --incremental cannot find new files under this --input"
    ):
        grow(input=tmp_path / "in" / "0.parquet", output=tmp_path / "x", incremental=tmp_path / "y")

    may_change = {"write_option": "compression=zstd", "read_option": "maxFilesPerTrigger=3"}
    may_change["embedding"] = shutil.copytree(options["embedding"], tmp_path / "copy")
    assert grow(**where, **may_change).facts["added_rows"] == 0
    files = {path: digest for path, digest in hashes(tmp_path).items() if path.startswith("out/")}
    assert files.items() <= before.items()


def restamp(path, time):
    os.utime(path, ns=(time, time))


@pytest.mark.parametrize("name", ["changed", "changed, of equal time", "gone", "renamed"])
def test_files_that_were_added_and_have_changed_or_are_gone(grow, add_file, tmp_path, capfd, name):
    """Rejects a file that is passed over as known by its path, and sizes that Spark's account lacks."""
    for number in range(2):
        add_file(number)
    grow(dry_run=True)
    grow()
    file = tmp_path / "in" / "1.parquet"
    time = file.stat().st_mtime_ns
    match name:
        case "gone":
            file.unlink()
        case "renamed":
            file.rename(file.with_name("2 é.parquet"))
        case _:
            write_table(file, {"id": [100], "text": ["w01"]})
            restamp(file, time if "equal" in name else time + 1_000_000_000)
    kind = "changed" if name.startswith("changed") else "gone"
    message = rf"changed since, or are gone\. Got: {kind}: {tmp_path}/in/1\.parquet\."
    for dry_run in (True, False):
        with pytest.raises(InputError, match=message):
            grow(dry_run=dry_run)
    added = 6 if name == "renamed" else 0
    assert grow(changed_files="warn").facts["added_rows"] == added
    assert (
        f"have changed since, or are gone: {kind}: {tmp_path}/in/1.parquet."
        in capfd.readouterr().err
    )


def test_files_that_no_finished_batch_has_may_change(grow, add_file, tmp_path, monkeypatch):
    """Rejects a refusal where the batch of the file is written anew, as Spark has its time already."""
    add_file(0)
    note = Checkpoint.note

    def not_noted(table, path, value):
        if "/batches/" in path:
            raise JobError("The batch is not noted")
        note(table, path, value)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "note", not_noted)
        with pytest.raises(JobError):
            grow()
    add_file(0, "w05")
    assert grow().facts["added_rows"] == 6
    assert [row["id"] for row in read(tmp_path / "out")] == list(range(6))


def test_files_of_many_batches_are_remembered(grow, add_file, tmp_path, spark):
    """Rejects a look at the newest of Spark's logs alone, and at all of them: it sums up some."""
    for number in range(4):
        add_file(number)
    with spark_settings(spark, streaming_fileSource_log_compactInterval=2):
        grow(read_option="maxFilesPerTrigger=1")
    assert [*(tmp_path / "checkpoint" / "stream" / "sources" / "0").glob("*.compact")]
    for number in (0, 3):
        (tmp_path / "in" / f"{number}.parquet").unlink()
    with pytest.raises(InputError, match=r"Got: gone: .*/in/0\.parquet, .*/in/3\.parquet\."):
        grow()
