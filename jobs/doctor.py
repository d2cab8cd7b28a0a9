"""spark-submit jobs/doctor.py --embedding B ...: the same as ``dptext doctor``."""

import sys

from dptext_spark.__main__ import main

if __name__ == "__main__":
    main(["doctor", *sys.argv[1:]])
