"""One Spark session for the whole run, and bundles and tables that the Spark tests share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from py4j.java_gateway import JVMView
from pyspark import SparkContext
from pyspark.sql import SparkSession

from dptext_spark.cli import main
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.spark import session as session_module
from dptext_spark.tables.formats.format import Format
from dptext_spark.tables.source import TableSource, own_session
from dptext_spark.tables.storage import Storage
from tests.helpers import worlds
from tests.helpers.cluster import QUICK_JAVA, write_key
from tests.helpers.tables import texts, write_table

Opened = Callable[..., TableSource]

# For a JVM that runs a thousand small queries: room, so that it collects less often.
_ROOM = "-XX:NewSize=800m -XX:MetaspaceSize=512m"


def _remembered(look_up: Callable[[JVMView, str], Any]) -> Callable[[JVMView, str], Any]:
    """Look for a Java class once: PySpark asks for some at every call, and py4j searches all jars."""

    def class_of(view: JVMView, name: str) -> Any:
        classes = vars(view).setdefault("remembered", {})
        if name not in classes:
            classes[name] = look_up(view, name)
        return classes[name]

    return class_of


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that ``dptext`` starts and jobs find, on two cores; what fails is not tried again."""
    with pytest.MonkeyPatch.context() as patch:
        settings = session_module._LOCAL_SETTINGS
        patch.setitem(settings, "spark.master", "local[2]")
        patch.setitem(settings, "spark.sql.shuffle.partitions", "2")
        # Each call of a DataFrame's would ask the JVM six times where it stands.
        patch.setitem(settings, "spark.python.sql.dataFrameDebugging.enabled", "false")
        patch.setitem(settings, "spark.python.daemon.module", "tests.helpers.daemon")
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
        patch.setenv("JAVA_TOOL_OPTIONS", f"{QUICK_JAVA} {_ROOM}")
        patch.setattr(JVMView, "__getattr__", _remembered(JVMView.__getattr__))
        session = session_module.session("tests")
        patch.delenv("JAVA_TOOL_OPTIONS")
        yield session
        session.stop()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in which no Spark runs or is configured."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    for name in [*os.environ]:
        if name.startswith(("SPARK", "PYSPARK", "HADOOP", "YARN")):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_key(tmp_path_factory.mktemp("key") / "key", worlds.KEY.secret)


@pytest.fixture
def ring_release(ring: Embedding, key_file: Path, tmp_path: Path) -> dict[str, Any]:
    """Options of a release of the table ``in`` under the fixed key, with words of the ring."""
    return {
        "input": tmp_path / "in",
        "output": tmp_path / "out",
        "embedding": ring.path,
        "key_file": key_file,
        "name": worlds.LABEL,
    }


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A folder of two files: 12 rows of ids and ring words, some of them unknown."""
    for name, start in (("a", 0), ("b", 6)):
        ids = list(range(start, start + 6))
        rows = [f"{text} Unheardof{i}" for i, text in zip(ids, texts(6), strict=True)]
        write_table(tmp_path / "in" / f"{name}.parquet", {"id": ids, "text": rows})
    return tmp_path / "in"


@pytest.fixture
def dptext(ring: Embedding, key_file: Path, tmp_path: Path) -> Callable[..., Result]:
    """``dptext privatize`` in this process, on the ring unless told otherwise."""

    def invoke(
        source: Path | str, *arguments: str | Path, output: Path | str = tmp_path / "out"
    ) -> Result:
        given = {
            "--input": source,
            "--output": output,
            "--embedding": ring.path,
            "--key-file": key_file,
            "--name": worlds.LABEL,
            "--mechanism": "laplace",
            "--epsilon": "10",
        }
        others = {name: value for name, value in given.items() if name not in arguments}
        options = [part for pair in others.items() for part in pair]
        options += ["--text", "text", *arguments]
        return CliRunner().invoke(main, ["privatize", *map(str, options)])

    return invoke


@pytest.fixture
def opened(spark: SparkSession) -> Opened:
    """Open a table as a run does; its format is the end of its name unless told."""

    def source(place: Path | str, name: str = "", **options: str) -> TableSource:
        read = Format.named(
            name or str(place).partition(".")[2].partition(".")[0], str(place), options
        )
        read.check_can_read(has_id=True, grows=False)
        read.check_files(Storage(spark))
        return read.open(own_session(spark))

    return source
