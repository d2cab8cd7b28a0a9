"""spark-submit jobs/estimate.py --input P --release R ...: the same as ``dptext estimate``."""

import sys

from dptext_spark.__main__ import main

if __name__ == "__main__":
    main(["estimate", *sys.argv[1:]])
