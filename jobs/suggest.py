"""spark-submit jobs/suggest.py --input P ...: the same as ``dptext suggest``."""

import sys

from dptext_spark.__main__ import main

if __name__ == "__main__":
    main(["suggest", *sys.argv[1:]])
