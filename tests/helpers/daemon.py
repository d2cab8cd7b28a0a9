"""PySpark's daemon, with what workers import already imported: each worker that it forks starts at once."""

import gc
import runpy

if __name__ == "__main__":
    gc.freeze()  # a worker collects garbage after each task: not what was imported
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
