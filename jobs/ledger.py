"""spark-submit jobs/ledger.py show PATH: the same as ``dptext ledger``."""

import sys

from dptext_spark.__main__ import main

if __name__ == "__main__":
    main(["ledger", *sys.argv[1:]])
