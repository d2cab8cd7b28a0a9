"""The audit's Spark job: the counts of the local sampler, and the command from end to end."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from dptext_spark.audit import trial
from dptext_spark.cli import main
from dptext_spark.jobs import audit as job
from dptext_spark.mechanisms import Exponential, Laplace
from tests.helpers.tables import spark_settings
from tests.helpers.worlds import KEY, among

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.parametrize(
    "mechanism", [Laplace(epsilon=10.0), Exponential(epsilon=10.0)], ids=lambda m: m.name
)
def test_spark_counts_what_the_local_sampler_counts(ring, spark, mechanism):
    """Rejects counts that depend on batches."""
    given = ring, mechanism, np.array([3, 10, 11]), 1030, KEY, among(64)
    with spark_settings(spark, execution_arrow_maxRecordsPerBatch=2):
        counts, strays = trial.sampled(*given, job.tallied_by_spark)
    np.testing.assert_array_equal(trial.sampled(*given, trial.tallied)[0], counts)
    assert counts.sum(axis=1).tolist() == [1030] * 3
    assert strays.tolist() == [0] * 4


def audited(ring, folder, pair):
    command = f"audit --embedding {ring.path} --mechanism laplace --epsilon 10 --world bundle --runs 2000"
    path = folder / "audit.json"
    result = CliRunner().invoke(main, [*command.split(), "--pair", pair, "--report", str(path)])
    return result, json.loads(path.read_text())


def test_the_command_passes_a_real_mechanism(ring, tmp_path):
    result, report = audited(ring, tmp_path, "w03:w05")
    assert (result.exit_code, report["verdict"]) == (0, "PASS"), (result.output, result.exception)
    assert report["worlds"][0]["pairs"] == 2
    assert report["worlds"][0]["caught"] is not None


def test_the_command_refuses_a_mechanism_that_claims_too_much(ring, tmp_path, monkeypatch):
    """The claim is made on the driver, the noise in the workers, which know nothing of it."""
    honest = Laplace.guarantee
    monkeypatch.setattr(
        Laplace, "guarantee", lambda self, e: honest(self.model_copy(update={"epsilon": self.epsilon / 4}), e)
    )
    result, report = audited(ring, tmp_path, "w03:w10")
    assert (result.exit_code, report["verdict"]) == (1, "VIOLATION"), (result.output, result.exception)
    assert "VIOLATION in bundle" in result.output
