"""spark-submit jobs/poincare.py --pairs P --output BUNDLE ...: the same as ``dptext poincare``."""

import sys

from dptext_spark.__main__ import main

if __name__ == "__main__":
    main(["poincare", *sys.argv[1:]])
