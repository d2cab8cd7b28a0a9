"""spark-submit jobs/privatize.py --input P --output P ...: the same as ``dptext privatize``."""

import sys

from dptext_spark.__main__ import main

if __name__ == "__main__":
    main(["privatize", *sys.argv[1:]])
