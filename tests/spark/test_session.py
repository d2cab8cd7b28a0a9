"""The session: settings that the command line gives to one that starts, and to one that runs."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from dptext_spark.errors import ConfigError
from dptext_spark.spark import session as session_module
from dptext_spark.spark.session import session
from dptext_spark.spark.settings import WANTED, session_settings
from tests.helpers.tables import spark_settings


def test_settings_of_a_session_that_starts() -> None:
    """Rejects defaults that win over the user's, and Java options that lose where logs go."""
    given = {"spark.master": "local[1]", "spark.driver.extraJavaOptions": "-Dmine=1"}
    with session_settings(given, verbose=True):
        found = session_module._settings(WANTED.get())
    own = session_module._LOCAL_SETTINGS
    assert (found["spark.master"], found["spark.log.level"]) == ("local[1]", "INFO")
    assert found["spark.driver.extraJavaOptions"] == f"{own['spark.driver.extraJavaOptions']} -Dmine=1"
    assert session_module._settings(WANTED.get()) == own


@pytest.mark.spark
def test_settings_of_a_session_that_runs(spark: SparkSession) -> None:
    """Rejects one that is given in vain, and a message that quotes a password."""
    name = "spark.sql.shuffle.partitions"
    with spark_settings(spark, shuffle_partitions=spark.conf.get(name)):
        with session_settings({name: "3"}, verbose=False):
            assert session("other").conf.get(name) == "3"
        wrong = {name: "4", "spark.driver.memory": "2g", "spark.hadoop.fs.s3a.secret.key": "hunter2"}
        with session_settings(wrong, verbose=False), pytest.raises(ConfigError) as caught:
            session("other")
        assert spark.conf.get(name) == "3"
    assert "Got: spark.driver.memory, spark.hadoop.fs.s3a.secret.key." in str(caught.value)
    assert "spark-submit" in str(caught.value) and "hunter2" not in str(caught.value)
