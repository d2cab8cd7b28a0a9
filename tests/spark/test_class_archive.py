"""Java's classes kept in the environment: used where they are there, made whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark import SparkContext
from pyspark.sql import SparkSession

from dptext_spark.errors import JobError
from dptext_spark.spark import class_archive
from dptext_spark.spark.class_archive import SUBMIT_OPTIONS, archive_option, archive_path, main, make_archive


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the archive of an environment goes that has none yet, and a space in its path."""
    place = tmp_path / "an environment" / "spark-classes.jsa"
    monkeypatch.setattr(class_archive, "archive_path", lambda: place)
    monkeypatch.delenv(SUBMIT_OPTIONS, raising=False)
    return place


def released(content: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have releases leave an archive of this content, or none."""

    def release(folder: Path, environment: dict[str, str]) -> None:
        _, _, path = environment[SUBMIT_OPTIONS].strip('"').partition("=")
        assert Path(path).parent == folder
        if content is not None:
            Path(path).write_bytes(content)

    monkeypatch.setattr(class_archive, "_release", release)


def test_an_archive_is_used_where_there_is_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejects an option for a file that is not there, a path that is two words, and one beside another's."""
    assert archive_option() == ""
    place.parent.mkdir()
    place.touch()
    assert archive_option() == f'"-XX:SharedArchiveFile={place}"'
    monkeypatch.setenv(SUBMIT_OPTIONS, "-XX:ArchiveClassesAtExit=other.jsa")
    assert archive_option() == ""


def test_it_is_made_whole_or_not_at_all(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejects an old one that is lost to a failure, and files that are left."""
    released(None, monkeypatch)
    assert make_archive() == 0 and archive_option() == ""
    assert "Spark starts as before" in CliRunner().invoke(main).output
    released(b"classes", monkeypatch)
    assert make_archive() == 7

    def fail(*_: object) -> None:
        raise JobError("A release of the demo's queries failed", got="no memory")

    monkeypatch.setattr(class_archive, "_release", fail)
    result = CliRunner().invoke(main)
    assert result.exit_code == 1 and "no memory" in result.output
    assert [file.name for file in place.parent.iterdir()] == [place.name]
    assert place.read_bytes() == b"classes"


def test_an_environment_that_cannot_be_written_to(place: Path) -> None:
    place.parent.write_text("no folder")
    with pytest.raises(JobError, match="could not be written"):
        make_archive()


@pytest.mark.spark
def test_java_maps_the_archive_of_this_environment(spark: SparkSession) -> None:
    """Rejects an option that Java does not get, and an archive of other classes, which it does not take."""
    jvm = SparkContext._gateway.proc.pid  # type: ignore[union-attr]
    assert (archive_path().name in Path(f"/proc/{jvm}/maps").read_text()) == archive_path().is_file()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.e2e
def test_a_new_environment_gets_one(place: Path) -> None:
    """Rejects a file that is looked for before Java has written it."""
    if not make_archive():
        pytest.fail("This Java keeps no classes: run this with Java 17")
    assert place.stat().st_size > 50_000_000
