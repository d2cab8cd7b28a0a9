"""Commands as processes: what signals leave, and one message where there is one thing to say."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.helpers.cluster import PATIENCE, wait_for
from tests.helpers.tables import (
    ROOT,
    command,
    names,
    rows_of,
    spark_environment,
    texts,
    write_table,
)

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


class Run:
    """``dptext privatize`` of a table to ``out``, at work in a folder of its own."""

    def __init__(self, program, folder, embedding, **env):
        self.folder, self.temporary = folder, folder / "tmp"
        options = [
            "--input",
            "in",
            "--output",
            "out",
            "--embedding",
            str(embedding.path),
            "--text",
            "text",
        ]
        self.process = subprocess.Popen(
            [*program, *options, "--mechanism", "laplace", "--epsilon", "10"],
            cwd=folder,
            # This tree's package, and its own temporary folder for logs.
            env=spark_environment()
            | {"PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary)}
            | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait(self, until):
        def met():
            assert self.process.poll() is None, self.process.communicate()
            return until()

        return wait_for(met, "it did not get there", PATIENCE)

    def wait_for_write(self):
        self.wait(lambda: list(self.folder.glob(".out.*.part/table")))

    def java(self):
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.Error):  # ended meanwhile
                found += [process] * ("SparkSubmit" in " ".join(process.cmdline()))
        return found

    def end(self):
        """The exit code, and what was printed; nothing is on standard output, nor left beside the input."""
        output, errors = self.process.communicate(timeout=PATIENCE)
        assert (output, names(self.folder)) == ("", {"in", "tmp"})
        stages = [line for line in errors.splitlines(keepends=True) if line.endswith(" ...\n")]
        return self.process.returncode, errors.removeprefix("".join(stages))

    def logs(self):
        return list(self.temporary.glob("dptext-spark-*.log"))


@pytest.fixture
def start(ring, tmp_path):
    write_table(tmp_path / "in" / "a.parquet", {"text": texts(300_000)})
    (tmp_path / "tmp").mkdir()
    runs = []

    def run(*program, **env):
        command = list(program) or [sys.executable, "-m", "dptext_spark", "privatize"]
        runs.append(Run(command, tmp_path, ring, **env))
        return runs[-1]

    yield run
    for left in runs:
        with suppress(ProcessLookupError):
            os.killpg(left.process.pid, signal.SIGKILL)
        left.process.wait()


@pytest.mark.long
@pytest.mark.parametrize(
    ("at", "number"),
    [
        pytest.param("write", signal.SIGINT, id="Ctrl-C twice during the write"),
        pytest.param("start", signal.SIGTERM, id="SIGTERM while the JVM starts"),
    ],
)
def test_a_signal(start, at, number):
    """Rejects a hidden folder that stays, a traceback, py4j's words, Spark's, and a log that nobody needs."""
    # And a JVM that stays behind and waits for its driver.
    run = start()
    java = run.wait(run.java)
    if at == "write":
        run.wait_for_write()
    for _ in range(2 if at == "write" else 1):
        os.killpg(run.process.pid, number)  # as a terminal sends it: to all of the group
        time.sleep(0.1)
    said = f"dptext privatize: Interrupted by {number.name}. No output was written.\n"
    assert run.end() == (128 + number, said)
    assert run.logs() == []
    psutil.wait_procs(java, timeout=PATIENCE)
    assert not [process for process in java if process.is_running()]


@pytest.mark.long
def test_a_jvm_that_ends_during_the_write(start):
    """One line, which names a log that its owner alone can read."""
    run = start()
    run.wait_for_write()
    for java in run.java():
        with suppress(
            psutil.NoSuchProcess
        ):  # a child of it that has its name until it runs its program
            java.terminate()
    ended = run.end()
    (log,) = run.logs()
    said = f"no output was written. Got: the end of Spark's Java process. See Spark's log {log}.\n"
    assert ended == (1, f"dptext privatize: The Spark job failed and {said}")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert "WARN" in log.read_text()


@pytest.fixture
def open_folder():
    """A folder where everyone may write; those of pytest are their owner's alone."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


@pytest.mark.long
@pytest.mark.skipif(
    bool(os.getuid()) or shutil.which("setpriv") is None, reason="only root can be another"
)
@pytest.mark.parametrize("program", ["dptext", "spark-submit"])
def test_a_user_without_a_name(program, ring, open_folder):
    """As containers run by a number. Rejects "basedir must be absolute" and a LoginException."""
    write_table(open_folder / "in" / "a.parquet", {"text": ["w00 w01"]})
    shutil.copytree(ring.path, open_folder / "bundle")
    start = [sys.executable, "-m", "dptext_spark", "privatize"]
    if program == "spark-submit":
        submit = Path(sys.executable).with_name("spark-submit")
        ivy = f"spark.jars.ivy={open_folder}/ivy"
        start = [submit, "--master", "local[2]", "--conf", ivy, ROOT / "jobs" / "privatize.py"]
    # The capability lets it read this Python, wherever it lies.
    capabilities = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    result = command(
        *[
            "setpriv",
            "--reuid=2147483641",
            "--regid=2147483641",
            "--clear-groups",
            *capabilities,
            *start,
        ],
        *["--input", "in", "--output", "out", "--embedding", "bundle", "--text", "text"],
        *["--mechanism", "laplace", "--epsilon", "10"],
        env={"PYTHONPATH": str(ROOT), "HOME": "/", "TMPDIR": str(open_folder)},
        cwd=open_folder,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(rows_of(open_folder / "out")) == 1


@pytest.mark.long
def test_sigterm_to_spark_submit(start):
    """There the JVM is above Python, and removes what was written when it is told to end."""
    submit = Path(sys.executable).with_name("spark-submit")
    run = start(str(submit), "--master", "local[2]", str(ROOT / "jobs" / "privatize.py"))
    run.wait_for_write()
    run.process.terminate()
    run.process.communicate(timeout=PATIENCE)
    assert run.process.returncode == 143
    assert names(run.folder) == {"in", "tmp"}


SUBMITTED = [Path(sys.executable).with_name("spark-submit"), "--master", "local[2]"]


@pytest.mark.long
@pytest.mark.parametrize("program", ["dptext", "spark-submit"])
def test_names_of_files_under_the_locale_c(program, ring, tmp_path):
    """Rejects a table without its files outside ASCII, which Java passes over, and exit code 0."""
    for name in ("märz", "april"):
        write_table(tmp_path / "in" / f"{name}.parquet", {"text": texts(3)})
    start = [sys.executable, "-m", "dptext_spark", "privatize"]
    if program == "spark-submit":
        start = [*SUBMITTED, ROOT / "jobs" / "privatize.py"]
    options = ["--input", "in", "--output", "out", "--embedding", ring.path, "--text", "text"]
    options += ["--mechanism", "laplace", "--epsilon", "10"]
    done = command(*start, *options, env={"LC_ALL": "C", "PYTHONPATH": str(ROOT)}, cwd=tmp_path)
    if program == "dptext":
        assert (done.returncode, len(rows_of(tmp_path / "out"))) == (0, 6), done.stderr
    else:
        assert done.returncode == 2, done.stdout
        assert (
            "märz.parquet. Got: a locale of ANSI_X3.4-1968. Set LC_ALL=C.UTF-8 where" in done.stdout
        )


LOGGED = """\
rootLogger.level = info
rootLogger.appenderRef.it.ref = it
appender.it.type = Console
appender.it.name = it
appender.it.target = SYSTEM_ERR
appender.it.layout.type = PatternLayout
appender.it.layout.pattern = OWN %p %m%n
"""


@pytest.mark.parametrize(
    "own",
    [
        pytest.param(False, id="Stack Overflow 27781187: Spark's own settings"),
        pytest.param(True, id="a log4j2 file of the user's stays", marks=pytest.mark.long),
    ],
)
def test_our_line_is_seen_under_spark_submit(line, tmp_path, own):
    """Rejects 60 to 350 lines of Spark's around ours, and a cluster's log that loses its own level."""
    write_table(tmp_path / "in" / "x.parquet", {"id": [1], "text": ["w1"]})
    (tmp_path / "log.properties").write_text(LOGGED)
    options = ["--driver-java-options", "-Dlog4j2.configurationFile=log.properties"] if own else []
    submit = [Path(sys.executable).with_name("spark-submit"), "--master", "local[1]", *options]
    arguments = f"--input in --output out --embedding {line.path} --text nope"
    arguments += " --mechanism laplace --epsilon 5"
    env = {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    job = ROOT / "jobs" / "privatize.py"
    result = command(*submit, job, *arguments.split(), cwd=tmp_path, env=env)
    assert result.returncode == 2, result.stderr
    message = "The input table lacks columns. Allowed: id, text. Got: nope."
    stages, _, last = result.stdout.partition("\n\n")
    assert last == f"dptext privatize: {message}\n"
    assert all(stage.endswith(" ...") for stage in stages.splitlines())
    assert ("OWN INFO" in result.stderr) == own
    assert own or len(result.stderr.splitlines()) < 20, result.stderr
