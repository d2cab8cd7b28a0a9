"""Attackers that users write: found by name, refused in one form, and tried like ours, on workers too."""

import sys

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from dptext_spark.channel.channel import Channel
from dptext_spark.errors import ConfigError
from dptext_spark.evaluation import attackers
from dptext_spark.evaluation.own_attackers import load_attacker
from dptext_spark.evaluation.rows import Simulation
from dptext_spark.evaluation.simulate import (
    ATTACKED,
    KNOWN,
    SampledRows,
    count_pairs,
    knowledge_of,
    languages_of,
    simulate,
    third_of,
)
from dptext_spark.evaluation.target import Target
from dptext_spark.options import EvaluateOptions
from dptext_spark.search.exact import ExactSearch
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.spark.failures import spark_errors
from dptext_spark.tables.batch import ID
from dptext_spark.tables.columns import TableColumns
from dptext_spark.text.policies import TextPolicy
from tests.helpers.made_texts import sentences

MODULE = '''
from dataclasses import dataclass
import numpy as np
from dptext_spark.evaluation.attackers import Attacker

@dataclass(frozen=True, kw_only=True)
class Copy(Attacker):
    """Takes every output for its word."""

    name = "copy"
    knows = "the output alone"
    shadow: int

    @classmethod
    def learn(cls, known, channel, *, candidates):
        return cls(shadow=len(known.shadow.inputs))

    def guess(self, evidence):
        return guessed(evidence.rows.outputs[0], self.shadow)

def guessed(outputs, shadow):
    """What workers need of the module besides the class."""
    return outputs[:, None] if shadow else np.zeros((len(outputs), 1), dtype=np.int64)

class Broken(Copy):
    name = "broken"
    def guess(self, evidence):
        raise ValueError("w1 w2")

class Wrong(Copy):
    name = "wrong"
    def guess(self, evidence):
        return [0.5]

class Unnamed(Copy):
    pass

class Abstract(Attacker):
    name = "abstract"
    knows = "nothing"

class Other:
    pass
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that the driver can import, and workers cannot."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_attackers_of_a_test.py").write_text(MODULE)
    (tmp_path / "broken_module_of_a_test.py").write_text("import nothing_of_this_name")
    (tmp_path / "taken_of_a_test.py").write_text(MODULE.replace('"copy"', '"in-context"'))
    (tmp_path / "strongest_of_a_test.py").write_text(MODULE.replace('"copy"', '"strongest"'))
    (tmp_path / "silent_of_a_test.py").write_text(
        MODULE.replace('    knows = "the output alone"\n', "")
    )
    before = dict(attackers.ATTACKERS)
    yield "own_attackers_of_a_test"
    attackers.ATTACKERS.clear()
    attackers.ATTACKERS.update(before)
    for name in [name for name in sys.modules if name.endswith("_of_a_test")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("Copy", "Option --attacker has a wrong value.*MODULE:CLASS"),
        ("own_attackers_of_a_test:", "Option --attacker has a wrong value"),
        ("../own_attackers_of_a_test.py:Copy", "Option --attacker has a wrong value"),
        ("no_module_of_this_name:Copy", "cannot be imported.*ModuleNotFoundError.*PYTHONPATH"),
        ("broken_module_of_a_test:Copy", "cannot be imported.*nothing_of_this_name"),
        (
            "own_attackers_of_a_test:copy",
            "has no class copy.*Allowed: Copy.*Perhaps you meant Copy",
        ),
        (
            "own_attackers_of_a_test:Other",
            "Class Other of --attacker is not an attacker.*a subclass of",
        ),
        ("own_attackers_of_a_test:Abstract", "lacks methods.*without guess, learn"),
        ("own_attackers_of_a_test:Unnamed", "has no name of its own"),
        ("taken_of_a_test:Copy", "name of attacker Copy is taken by InContext"),
        ("strongest_of_a_test:Copy", "has a name that is not allowed"),
        ("silent_of_a_test:Copy", "Attacker copy lacks knows"),
    ],
)
def test_what_is_no_attacker_is_refused(module, spec, message):
    """Rejects a class that takes the place of ours under its name, and Python's own errors."""
    with pytest.raises(ConfigError, match=message):
        load_attacker(spec)
    assert attackers.ATTACKERS["in-context"] is attackers.InContext


def test_targets_name_an_attacker_of_the_same_command(module):
    """Rejects a target that is read before the module is imported."""
    given = {
        "input": "in",
        "text": "t",
        "embedding": "e",
        "output": "o",
        "mechanism": "laplace",
        "epsilon": 1.0,
    }
    given |= {"target": "recovery(top1, copy) <= 0.5"}
    with pytest.raises(ConfigError, match="--target has a wrong value"):
        EvaluateOptions.of(given)
    options = EvaluateOptions.of(given | {"attacker": [f"{module}:Copy"]})
    assert Target.parse(str(options.target)).risk.attacker == "copy"


@pytest.mark.spark
def test_workers_try_an_attacker_whose_module_they_do_not_have(spark, small, module):
    """Rejects classes that are sent by name, and ours alone; a failure names the attacker and no word."""
    rows = [(f"r{number}", text) for number, text in enumerate(sentences(45, 1))]
    columns = TableColumns(text=("text",), keep=(), id="id")
    df = spark.createDataFrame(rows, "id string, text string")
    frame = columns.select(df).withColumn("third", third_of(F.col(ID))).coalesce(1).persist()
    simulation = Simulation(
        bundle=BundleFiles.send(spark, small), policy=TextPolicy(), search=ExactSearch.over(small)
    )
    sampled = SampledRows(frame=frame, simulation=simulation, ways=columns.field_paths(df.schema))
    counts = count_pairs(sampled)
    languages = languages_of(
        sampled, dict.fromkeys(ATTACKED, counts[KNOWN].pairs), of_attacked=False
    )
    uniform = Channel.uniform(len(small.words), simulation.search.release_words)

    def attacked(*names):
        for name in names:
            load_attacker(f"{module}:{name}")
        tried = {
            name: attackers.ATTACKERS[name] for name in ("context-free", *map(str.lower, names))
        }
        attackers.ATTACKERS.clear()
        attackers.ATTACKERS.update(tried)
        known = knowledge_of(sampled, languages, uniform, None, versions=1, candidates=5)
        return simulate(sampled, None, known, 1)

    found = attacked("Copy")
    for third in ATTACKED:
        kept, copied = found[third]["kept"], found[third]["recovered/1/copy/1"]
        assert copied.size[0] == kept.size[0] > 50
        assert copied.ratio[0] == kept.ratio[0]  # outputs that are their words
    for name, message in (
        ("Broken", "The attacker broken failed"),
        ("Wrong", "attacker wrong gives no guesses"),
    ):
        with pytest.raises(ConfigError, match=message) as caught, spark_errors():
            attacked(name)
        assert "w1 w2" not in str(caught.value)
    frame.unpersist()


def test_an_attacker_is_tried_in_this_process(small, module):
    """And of its module no other, such as one that fails."""
    from dptext_spark.evaluation.local import evaluate
    from dptext_spark.mechanisms import Exponential

    load_attacker(f"{module}:Copy")
    texts = pa.array(sentences(12, 1))
    found = evaluate(
        texts,
        list(range(12)),
        embedding=small,
        mechanisms=[Exponential(epsilon=3.0)],
        candidates=20,
    )
    sums = found.outcomes[0].sums
    np.testing.assert_array_equal(sums["recovered/1/copy/1"].ratio[0], sums["kept"].ratio[0])
