"""spark-submit jobs/calibrate.py --embedding B --epsilon E: the same as ``dptext calibrate``."""

import sys

from dptext_spark.__main__ import main

if __name__ == "__main__":
    main(["calibrate", *sys.argv[1:]])
