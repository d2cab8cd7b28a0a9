"""Two runs with one output, and what a killed one leaves."""

import logging
import shutil
import signal
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException

from dptext_spark import interrupts
from dptext_spark.errors import ConfigError, JobError
from dptext_spark.tables import output
from dptext_spark.tables.output import check_unfinished, write_whole
from dptext_spark.tables.storage import Storage

pytestmark = pytest.mark.spark


@pytest.fixture
def storage(spark):
    return Storage(spark)


@pytest.fixture
def write(spark, storage, tmp_path):
    """Run with the output ``out``, writing one file of this content; ``meanwhile`` happens before it ends."""

    def run(content, *, overwrite=True, meanwhile=lambda: None):
        def table(place):
            for name in ("a", "b"):
                storage.write(f"{place}/{name}", content)
                if name == "a":
                    meanwhile()

        write_whole(spark, str(tmp_path / "out"), table, overwrite=overwrite)

    return run


def found(folder):
    return {
        str(f.relative_to(folder)): f.read_text() for f in sorted(folder.rglob("*")) if f.is_file()
    }


def whole(content):
    return {"out/a": content, "out/b": content}


def left_behind(folder, output="out", **content):
    """What a killed run with this output left."""
    part = folder / f".{output}.app-0-12345678.part"
    for name, text in {"claim": "", **content}.items():
        (part / name).parent.mkdir(parents=True, exist_ok=True)
        (part / name).write_text(text)
    return part


def fail(error):
    raise error


@pytest.mark.parametrize("failing", [False, True])
def test_the_last_run_to_start_with_overwrite_publishes_and_the_other_says_so(
    write, tmp_path, failing
):
    """Also where the first run fails since its folder was moved away; else it says why it fails itself."""

    def second_takes_over():
        write("second")
        if failing:
            raise AnalysisException("the folder is gone")

    with pytest.raises(JobError, match="Another run took over the output"):
        write("first", meanwhile=second_takes_over)
    # Where it did not fail it wrote b into the folder that the second had moved away.
    assert found(tmp_path) == whole("second")
    with pytest.raises(AnalysisException, match="another reason"):
        write("third", meanwhile=lambda: fail(AnalysisException("another reason")))
    assert found(tmp_path) == whole("second")


@pytest.mark.parametrize("failing", [True, False])
def test_a_jvm_that_ends_has_removed_the_claim_itself(failing, write, tmp_path, monkeypatch):
    """Rejects the news of another run where there is none; whatever the write met, Spark has ended."""

    def ended():
        shutil.rmtree(next(tmp_path.glob(".out.*.part")))
        if failing:
            raise AnalysisException("a job was cancelled")

    monkeypatch.setattr(output, "has_ended", lambda: True)
    with pytest.raises(AnalysisException if failing else ConnectionError):
        write("first", meanwhile=ended)
    assert found(tmp_path) == {}


def test_a_spark_that_has_stopped_runs_no_tasks(storage, monkeypatch):
    """Rejects a traceback, with what Spark said in it, where its JVM ends during the write."""
    stopped = SimpleNamespace(
        _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(taskScheduler=lambda: None))
    )
    monkeypatch.setattr(storage, "_context", stopped)
    storage.await_tasks()


def test_of_two_runs_at_once_one_publishes_or_the_table_that_was_there_stays(write, tmp_path):
    """Without overwrite the run that came first goes on; with it the second takes over, and fails here."""

    def second(overwrite, error, message):
        with pytest.raises(error, match=message):
            write(
                "second",
                overwrite=overwrite,
                meanwhile=lambda: fail(RuntimeError("the second fails")),
            )

    seen = (False, ConfigError, "Another run is writing")
    write("first", overwrite=False, meanwhile=lambda: second(*seen))
    assert found(tmp_path) == whole("first")
    with pytest.raises(JobError, match="took over"):
        write("third", meanwhile=lambda: second(True, RuntimeError, "the second"))
    assert found(tmp_path) == whole("first")


def test_what_a_killed_run_left_is_refused_and_with_overwrite_removed(write, tmp_path):
    part = left_behind(tmp_path, **{"table/_temporary/0/x": "half"})
    before = found(tmp_path)
    with pytest.raises(
        ConfigError, match=f"was killed while it did.*{part.name}.*--mode overwrite"
    ):
        write("new", overwrite=False)
    assert found(tmp_path) == before
    write("new")
    assert found(tmp_path) == whole("new")


def test_another_outputs_run_is_left_alone(write, storage, tmp_path):
    """Rejects names that are read as patterns, or as the beginning of others."""
    for other in ("out.v2", "out*", "in", "dt=[1]"):
        left_behind(tmp_path, other)
    before = found(tmp_path)
    write("new", overwrite=False)
    write("newer")
    assert found(tmp_path) == before | whole("newer")
    check_unfinished(storage, str(tmp_path / "dt=1"))
    with pytest.raises(ConfigError, match="Another run"):
        check_unfinished(storage, str(tmp_path / "dt=[1]"))


def test_a_run_killed_between_two_renames_loses_nothing(write, tmp_path):
    left_behind(tmp_path, **{"old/a": "old", "old/b": "old", "table/a": "new", "table/b": "new"})
    with pytest.raises(RuntimeError, match="and this one fails"):
        write("newer", meanwhile=lambda: fail(RuntimeError("and this one fails")))
    assert found(tmp_path) == whole("old")


@pytest.fixture
def interrupted():
    """Work to which a signal comes, and what comes out of it."""

    def run(work):
        with pytest.raises(interrupts.Interrupted) as caught, interrupts.handled():
            work()
        return caught.value

    before = {number: signal.getsignal(number) for number in interrupts.SIGNALS}
    yield run
    for number, handler in before.items():
        signal.signal(number, handler)
    logging.disable(logging.NOTSET)


@pytest.fixture
def at_rename(monkeypatch):
    """Let something happen just before the rename of this number; gives the sources of all renames."""

    def patch(number, happen):
        rename, calls = Storage.rename, list[str]()

        def watched(storage, source, target):
            calls.append(source)
            if len(calls) == number:
                happen()
            rename(storage, source, target)

        monkeypatch.setattr(Storage, "rename", watched)
        return calls

    return patch


@pytest.mark.parametrize(
    "at", [0, 1, 2], ids=["it writes", "the old table moves", "the new one moves"]
)
def test_a_signal_leaves_one_whole_table(at, write, interrupted, at_rename, tmp_path):
    """Rejects a run that is cut off where no table has the name: the renames are finished first."""
    write("old")
    calls = at_rename(at, lambda: signal.raise_signal(signal.SIGINT))
    meanwhile = (lambda: signal.raise_signal(signal.SIGTERM)) if at == 0 else lambda: None
    assert interrupted(lambda: write("new", meanwhile=meanwhile)).finished == (at > 0)
    assert len(calls) == (2 if at else 0)
    assert found(tmp_path) == whole("new" if at else "old")


@pytest.mark.parametrize("at", [1, 2], ids=["while it writes", "between two renames"])
def test_a_local_output_is_cleaned_up_without_a_jvm(at, write, at_rename, monkeypatch, tmp_path):
    """Rejects a clean-up that asks a killed JVM, and one that deletes the table that was moved away."""

    def dead(*_):
        for name in ("rename", "exists", "delete"):
            monkeypatch.setattr(Storage, name, dead)
        raise Py4JNetworkError("Answer from Java side is empty")

    write("old")
    at_rename(at, dead)
    monkeypatch.setattr(output, "await_end_of_jvm", lambda: None)
    with pytest.raises(Py4JNetworkError):
        write("new")
    assert found(tmp_path) == whole("old")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
