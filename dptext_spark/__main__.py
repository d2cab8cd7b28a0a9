"""The command ``dptext``, which is ``python -m dptext_spark`` too, and what ``jobs/*.py`` call."""

from __future__ import annotations

from collections.abc import Sequence

from dptext_spark import interrupts


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``dptext`` with arguments, those of this process by default."""
    # Libraries take seconds to load, and Ctrl-C in the midst of that is no reason for a traceback.
    interrupts.end_at_once()
    from dptext_spark.cli import main as dptext

    dptext(arguments, prog_name="dptext")


if __name__ == "__main__":
    main()
