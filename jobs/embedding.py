"""spark-submit jobs/embedding.py SOURCE --output BUNDLE: the same as ``dptext embedding``."""

import sys

from dptext_spark.__main__ import main

if __name__ == "__main__":
    main(["embedding", *sys.argv[1:]])
