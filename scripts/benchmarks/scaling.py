"""What a second core, or a second executor, brings to the whole job.

    python -m scripts.benchmarks.scaling --data DATA

Measured as the growth of the job is. Executors are those of a standalone cluster on this machine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import click

from scripts.benchmarks.growth import FEW, Run, grown, sized
from scripts.benchmarks.section import Given, section

# Runs take so many times as long as those that show growth: beside them the last task is little.
LONGER: Final = 4
COUNTS: Final = (1, 2)


@section
@click.option("--longer", default=LONGER, show_default=True, help="than runs of the section growth")
def main(given: Given, longer: int) -> dict[str, Any]:
    """Run both series."""
    whole = Run("glove-300d", 1_000, 20, FEW) if given.small else sized(Run("glove-300d", 20_000, 300, 0))
    if not given.small:
        whole = replace(whole, words=longer * whole.words)
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
