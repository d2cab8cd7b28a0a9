"""Where a run reads and writes: checked before Spark starts, as far as can be seen, and with Spark."""

import pytest

from dptext_spark.errors import ConfigError
from dptext_spark.spark import session_settings
from dptext_spark.tables.places import Places
from tests.helpers.tables import refused

APART = [("Input", "--input", "a/in"), ("Output", "--output", "out")]
WITHIN = [("Input", "--input", "a/in"), ("Output", "--output", "a/in/out")]
ELSEWHERE = [(what, option, f"hdfs://host/{path}") for what, option, path in WITHIN]


@pytest.mark.usefixtures("alone")
def test_before_spark_starts_only_certain_places_are_compared():
    """Rejects an answer for places that Spark may find elsewhere: by scheme, or by its settings."""
    Places.of(APART).check_apart()
    Places.of(ELSEWHERE).check_apart()
    with pytest.raises(ConfigError, match="Output and input lie inside one another"):
        Places.of(WITHIN).check_apart()
    with session_settings({"spark.hadoop.fs.defaultFS": "hdfs://host"}):
        Places.of(WITHIN).check_apart()


@pytest.mark.spark
def test_with_spark_all_places_are_seen(spark):
    """Rejects places that are checked before Spark starts and never again."""
    places = Places.of(ELSEWHERE).with_spark(spark)
    assert places.visible == [*places.paths]


@pytest.mark.spark
def test_output_and_input_must_not_lie_inside_one_another(dptext, spark, table, tmp_path):

    def check_apart(places):
        Places.of(places).with_spark(spark).check_apart()

    (tmp_path / "link").symlink_to(table)
    for source, output in [
        (table, tmp_path),
        (table / "a.parquet", table),
        (table, f"file:{tmp_path}/other/../in/"),
        (tmp_path / "link", table),
        (table, tmp_path / "link" / "out"),
        (f"{tmp_path}/i*", table / "out"),
    ]:
        places = [("Input", "--input", str(source)), ("Output", "--output", str(output))]
        with pytest.raises(ConfigError, match="inside one another"):
            check_apart(places)
    assert refused(dptext(table, output=table / "out"), "inside one another")
    # A name that only begins alike is no folder above.
    neighbour = ("Output", "--output", str(tmp_path / "in-sanitized"))
    check_apart([("Input", "--input", str(table)), neighbour])
