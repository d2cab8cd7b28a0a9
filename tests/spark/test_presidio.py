"""The recipe of Presidio, with a stand-in for it: its code runs as it stands, and its spans are masked."""

import re
from pathlib import Path

import pytest

from dptext_spark import Laplace, TextPolicy, privatize

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "recipes" / "presidio.md"

STAND_IN = """
import os, re
from types import SimpleNamespace

class AnalyzerEngine:
    def __init__(self):
        with open({log!r}, "a") as log:
            log.write(f"{{os.getpid()}}\\n")

    def analyze(self, text, language, entities):
        assert (language, entities) == ("en", ["PERSON", "LOCATION"])
        found = re.finditer("[A-Z]\\\\w+( [A-Z]\\\\w+)*", text)
        return [SimpleNamespace(start=each.start(), end=each.end()) for each in found]
"""


def test_the_recipe_masks_names(spark, ring, tmp_path):
    """Rejects a model that is loaded for each batch or text, and code that is no longer right."""
    module, job = re.findall(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    log = tmp_path / "loaded"
    for name, code in (
        ("presidio_analyzer", STAND_IN.format(log=str(log))),
        ("find_names", module),
    ):
        file = tmp_path / f"{name}.py"
        file.write_text(code, encoding="utf-8")
        spark.sparkContext.addPyFile(str(file))
    rows = [
        (1, "w01 met Ann Lee, w02"),
        (2, "the w03"),
        (3, None),
        *((n, "w04 Bo") for n in range(4, 40)),
    ]
    frame = spark.createDataFrame(rows, "ticket int, message string").repartition(4, "ticket")
    frame.write.parquet(str(tmp_path / "tickets.parquet"))
    exec(job.replace('"tickets', f'"{tmp_path}/tickets'), {"spark": spark})
    found = spark.read.parquet(str(tmp_path / "tickets-with-names"))
    made = privatize(
        found,
        embedding=ring,
        mechanism=Laplace(epsilon=1e6),
        id="ticket",
        text="message",
        keep="ticket",
        policy=TextPolicy(mask_spans="names", oov="drop"),
    )
    released = {row["ticket"]: row["message"] for row in made.collect()}
    assert [released[n] for n in (1, 2, 3, 4)] == ["w01 [MASK] w02", "w03", None, "w04 [MASK]"]
    workers = log.read_text(encoding="utf-8").splitlines()
    assert len({*workers}) == len(workers)
