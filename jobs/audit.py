"""spark-submit jobs/audit.py --mechanism M --epsilon E: the same as ``dptext audit``."""

import sys

from dptext_spark.__main__ import main

if __name__ == "__main__":
    main(["audit", *sys.argv[1:]])
