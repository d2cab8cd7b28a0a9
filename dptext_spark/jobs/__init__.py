"""One module for each command: read, call, write, report."""

import dptext_spark.spark  # noqa: F401 - before what an older Spark has not
