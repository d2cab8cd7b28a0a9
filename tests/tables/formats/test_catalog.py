"""Tables by name, in the catalog of Spark."""

import pytest

from dptext_spark.errors import ConfigError, InputError
from tests.helpers.lakes import ROWS, Catalog, write_rows
from tests.helpers.tables import run_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_tables_by_name_that_cannot_be_read_or_added_to(options, tmp_path, spark):
    plain = write_rows(tmp_path / "plain" / "x.parquet", ROWS)
    lake = Catalog(spark, tmp_path)
    try:
        lake.write_rows("queries", ROWS)
        lake.write_rows("clean", [{"id": 1, "note": "x"}])
        spark.sql("create view lake.seen as select *, rand() r from lake.queries")
        given = {
            "input": "lake.queries",
            "format": "table",
            "output": "lake.clean",
            "mode": "append",
        }
        for changes, message in [
            ({}, "do not fit .*Got: text is string in the output and absent in the table"),
            ({"input": "lake.db.t"}, r"lake.db.t cannot be read.*--packages: io.delta"),
            ({"output": "spark_catalog.lake.queries"}, "is the input"),
            ({"input": "lake.seen", "output": "lake.x"}, "can give different rows each time"),
            ({"input": f"parquet.`{plain}`", "output": "lake.x"}, "cannot be read"),
        ]:
            with pytest.raises((ConfigError, InputError), match=message):
                run_table(**options | {"reports": tmp_path / "reports"} | given | changes)
        assert (len(lake.rows("clean")), len(lake.rows("queries"))) == (1, 4)
    finally:
        spark.sql("drop database lake cascade")
