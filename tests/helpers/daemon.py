"""PySpark's daemon, with what workers import already imported: each worker that it forks starts at once."""

import gc
import runpy
from importlib import import_module
from typing import Final

_IMPORTED: Final = (
    "pandas",
    "pyarrow.compute",
    "dptext_spark.channel.on_spark",
    "dptext_spark.evaluation.simulate",
    "dptext_spark.tables.columns",
    "dptext_spark.vector_sanitizer",
)

if __name__ == "__main__":
    for name in _IMPORTED:
        import_module(name)
    gc.freeze()  # a worker collects garbage after each task: not what was imported
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
