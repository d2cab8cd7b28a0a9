"""spark-submit jobs/vectors.py --input P --output P ...: the same as ``dptext vectors``."""

import sys

from dptext_spark.__main__ import main

if __name__ == "__main__":
    main(["vectors", *sys.argv[1:]])
