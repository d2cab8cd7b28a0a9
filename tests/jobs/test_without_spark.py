"""Mistakes that are told before a Java machine is started, which takes many seconds."""

import os
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark import SparkContext, java_gateway
from pyspark.sql import SparkSession

from dptext_spark.cli import main
from tests.helpers.cluster import write_key
from tests.helpers.tables import hashes, texts, write_table
from tests.helpers.worlds import KEY


@pytest.fixture
def no_spark(monkeypatch):
    """A process in which no Spark runs, is configured, or may be started."""

    def refuse(*_, **__):
        raise AssertionError("Spark was started")

    for name in [
        name for name in os.environ if name.startswith(("SPARK", "PYSPARK", "HADOOP", "YARN"))
    ]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(java_gateway, "launch_gateway", refuse)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", refuse)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", refuse)


PRIVATIZE = (
    "privatize --input {in} --output new --embedding {ring} --mechanism laplace --epsilon 5 "
)
VECTORS = "vectors --input {in} --output new --epsilon 5 --dimension 2 --vector v "
CALIBRATE = "calibrate --embedding {ring} --mechanism laplace --epsilon 5 --output new "
EVALUATE = "evaluate --input {in} --text text --embedding {ring} "
EVALUATE += "--mechanism laplace --epsilon 5 --output new "
POINCARE = "poincare --output new --pairs "


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (PRIVATIZE + "--text txet", "Allowed: id, text, v. Got: txet. Perhaps you meant text."),
        (PRIVATIZE + "--text text --output old", "The output old exists"),
        (PRIVATIZE + "--text text --reports filed", "The report filed/private/report.json exists"),
        (PRIVATIZE + "--text text --id id --output-format table", "Option --reports is missing"),
        (PRIVATIZE + "--text text --output {in}/new", "inside one another"),
        (PRIVATIZE + "--text text --embedding nowhere", "This is not an embedding bundle"),
        (PRIVATIZE + "--text text --embedding {damaged}", "vectors.npy of the bundle is damaged"),
        (
            PRIVATIZE + "--text text --key-file {open} --name s --embedding nowhere",
            "2 things are wrong",
        ),
        (
            PRIVATIZE + "--text text --embedding {ball}",
            "laplace does not work on this embedding bundle",
        ),
        (
            PRIVATIZE + "--text text --embedding {flat} --mechanism mahalanobis:lambda=1",
            "without noise",
        ),
        (PRIVATIZE + "--text text --release-words 99", "2 to 64 words of this bundle. Got: 99."),
        (PRIVATIZE + "--text text --write-option compression=zip", "Allowed: snappy"),
        (PRIVATIZE + "--text text --ledger {in}/ledger", "inside one another"),
        ("ledger show nowhere", "There is no ledger nowhere"),
        (VECTORS + "--keep nope", "Got: nope"),
        (VECTORS + "--text text --embedding nowhere", "This is not an embedding bundle"),
        (
            CALIBRATE + "--embedding {ball} --epsilon 6",
            "calibrate: Mechanism laplace does not work",
        ),
        (CALIBRATE + "--output old", "The output old exists and is no calibration"),
        (CALIBRATE + "--output done", "The calibration done exists"),
        (CALIBRATE + "--target max(n_w)<=0.5 --words 30", "words are too few"),
        (CALIBRATE + "--release-words 65", "--release-words"),
        (EVALUATE + "--input nowhere", "The input nowhere cannot be read as a table"),
        (EVALUATE + "--text nope", "Got: nope"),
        (EVALUATE + "--output old", "The output old exists and is no evaluation"),
        (EVALUATE + "--output {in}/new", "inside one another"),
        (EVALUATE + "--release-words 99", "--release-words"),
        (EVALUATE + "--format csv", "Name the rows with --id"),
        (POINCARE + "nowhere.tsv", "The pairs nowhere.tsv cannot be read"),
        (POINCARE + "{in} --output old", "The output exists"),
    ],
)
def test_a_mistake_starts_no_java(command, message, ring, ball, flat, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(Path("in/x.parquet"), {"id": [1, 2], "text": texts(2), "v": [[1.0, 2.0]] * 2})
    Path("note.txt").write_text("a note")
    Path("filed/private").mkdir(parents=True)
    Path("filed/private/report.json").touch()
    for folder in ("old", "done"):
        Path(folder).mkdir(parents=True)
    Path("done/calibration.json").touch()
    write_key(Path("open"), KEY.secret).chmod(0o644)
    shutil.copytree(ring.path, "damaged")
    content = bytearray(Path("damaged/vectors.npy").read_bytes())
    content[-5] ^= 1
    Path("damaged/vectors.npy").write_bytes(content)
    before = hashes(tmp_path)
    places = {"ring": ring.path, "ball": ball.path, "flat": flat.path, "in": tmp_path / "in"}
    places |= {name: tmp_path / name for name in ("damaged", "open")}
    name, *words = command.format(**places).split()
    options = dict(
        zip(words[::2], words[1::2], strict=True)
    )  # the last of two is the one that is tried
    result = CliRunner().invoke(
        main, [name, *(word for option in options.items() for word in option)]
    )
    assert (result.exit_code, message in result.output) == (2, True), (
        result.output,
        result.exception,
    )
    assert KEY.secret.hex()[:16] not in result.output
    assert hashes(tmp_path) == before


@pytest.mark.usefixtures("no_spark")
def test_what_is_right_goes_on_to_spark(ring, tmp_path):
    """Rejects a sentinel that is never reached."""
    write_table(tmp_path / "in" / "x.parquet", {"id": [1, 2], "text": texts(2)})
    given = PRIVATIZE.replace(" new ", f" {tmp_path}/new ")
    command = given.format(ring=ring.path, **{"in": tmp_path / "in"}).split()
    result = CliRunner().invoke(main, [*command, "--text", "text"])
    assert "Spark was started" in str(result.exception)


@pytest.mark.parametrize(
    ("there", "said"),
    [
        pytest.param(["out", "out.release.json"], "The output out exists", id="output and reports"),
        pytest.param(
            ["out.release.json"], "The public report out.release.json exists", id="reports alone"
        ),
        pytest.param(
            [".out.app-1.part", "out.release.json"],
            "Another run .* out, or was killed",
            id="killed",
        ),
    ],
)
@pytest.mark.usefixtures("no_spark")
def test_a_second_run_is_told_of_the_output_first(line, tmp_path, monkeypatch, there, said):
    """Rejects advice to move the reports, after which the output is in the way. Source: own trial."""
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "in" / "x.parquet", {"id": [1], "text": ["w1"]})
    for name in there:
        (tmp_path / name).mkdir()
    command = f"privatize --input in --output out --embedding {line.path} --text text"
    result = CliRunner().invoke(main, f"{command} --mechanism laplace --epsilon 5".split())
    assert result.exit_code == 2 and re.search(f"privatize: {said}", result.output), result.output
