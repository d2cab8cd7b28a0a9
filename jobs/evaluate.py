"""spark-submit jobs/evaluate.py --input P --text COL ...: the same as ``dptext evaluate``."""

import sys

from dptext_spark.__main__ import main

if __name__ == "__main__":
    main(["evaluate", *sys.argv[1:]])
