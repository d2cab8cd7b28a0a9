"""What a second core, or a second executor, brings to the whole job.

    python -m scripts.benchmarks.scaling --data DATA

Measured as the growth of the job is. Executors are those of a standalone cluster on this machine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import click

from scripts.benchmarks.growth import FEW, Run, grown
from scripts.benchmarks.section import Given, section

# As many as the whole job is measured with: its first seconds, in which Java compiles, and its last task are
# little beside them.
WORDS: Final = 1_200_000
COUNTS: Final = (1, 2)


@section
@click.option("--words", default=WORDS, show_default=True, help="of the table")
def main(given: Given, words: int) -> dict[str, Any]:
    """Run both series."""
    whole = Run("glove-300d", 1_000, 20, FEW) if given.small else Run("glove-300d", 20_000, 300, words)
    series = {
        name: [replace(whole, cores=count, cluster=name == "executors") for count in COUNTS]
        for name in ("cores", "executors")
    }
    found = grown("A second core, a second executor", given, series)
    found["notes"] += [
        "A run on one core has that core alone, for its Java and its driver, too.",
        "Executors have one core each, in a standalone cluster on this machine, all of whose cores they, the "
        "driver and the cluster's own processes share.",
    ]
    return found


if __name__ == "__main__":
    main()
