"""``python -m dptext_spark``: the command ``dptext``."""

from dptext_spark.cli import main

if __name__ == "__main__":
    main()
