"""Detectors on real workers: the recipe's function, with a stand-in for the library that it calls."""

import re
from pathlib import Path

import pytest

from dptext_spark import Laplace, TextPolicy, privatize
from dptext_spark.errors import DptextError
from dptext_spark.spark.failures import spark_errors

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "recipes" / "presidio.md"

STAND_IN = """
import os, re
from types import SimpleNamespace

class AnalyzerEngine:
    def __init__(self):
        with open({log!r}, "a") as log:
            log.write(f"{{os.getpid()}}\\n")

class BatchAnalyzerEngine:
    def __init__(self, analyzer):
        pass

    def analyze_iterator(self, texts, language, batch_size, entities):
        assert (language, entities) == ("en", ["PERSON", "LOCATION"])
        for text in texts:
            names = re.finditer("[A-Z]\\\\w+( [A-Z]\\\\w+)*", text)
            yield [SimpleNamespace(start=name.start(), end=name.end()) for name in names]
"""


def test_the_recipe_masks_names(spark, ring, tmp_path, monkeypatch):
    """Rejects a model that is loaded for each batch, spans of other rows, and code of old."""
    (module,) = re.findall(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    log = tmp_path / "loaded"
    code = {"presidio_analyzer": STAND_IN.format(log=str(log)), "find_names": module}
    for name, text in code.items():
        tmp_path.joinpath(f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    texts = {1: "w01 met Ann Lee, w02", 2: "the w03", 3: None}
    texts |= {number: f"w04 Bo{'b' * number}" for number in range(4, 40)}
    frame = spark.createDataFrame([*texts.items()], "ticket int, message string")
    frame = frame.repartition(2, "ticket")

    def release():
        return privatize(
            frame,
            embedding=ring,
            mechanism=Laplace(epsilon=1e6),
            id="ticket",
            text="message",
            keep="ticket",
            policy=TextPolicy(spans_by="find_names:names", oov="drop"),
        )

    with (
        pytest.raises(DptextError, match=r"find_names .*cannot be imported.*py-files"),
        spark_errors(),
    ):
        release().collect()
    for name in code:
        spark.sparkContext.addPyFile(str(tmp_path / f"{name}.py"))
    by_ticket = {row["ticket"]: row["message"] for row in release().collect()}
    assert [by_ticket[n] for n in (1, 2, 3)] == ["w01 [MASK] w02", "w03", None]
    assert {by_ticket[n] for n in range(4, 40)} == {"w04 [MASK]"}
    workers = log.read_text(encoding="utf-8").splitlines()
    assert len({*workers}) == len(workers)
