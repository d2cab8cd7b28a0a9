"""Every case of scripts/soak, small: it runs, and finds what it must find."""

import pytest
from click.testing import CliRunner

from scripts.cluster.soak import CASES, Watched, main
from tests.helpers.cluster import Wrong, can_hide


@pytest.mark.long
@pytest.mark.e2e
@pytest.mark.parametrize("name", CASES)
def test_a_small_soak_finds_no_fault(name, tmp_path):
    """In processes of its own: rejects a case that only runs at its full size."""
    if name == "cluster" and not can_hide(tmp_path):
        pytest.skip("this machine cannot stand for several hosts")
    options = ["--scale", "0.002", "--folder", str(tmp_path), "--output", str(tmp_path / "plot")]
    done = CliRunner().invoke(main, [name, *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "plot/soak.png").exists()


def watched(**memory):
    """A run of 100 looks with these megabytes."""
    return Watched(
        name="run", code=0, log="", seconds=100.0, processor=100.0, memory={"java": [], **memory}
    )


def test_growth_is_a_fault():
    """Rejects a limit that no leak reaches, and one that the start reaches."""
    level = [10.0] * 20 + [400.0] * 100
    leak = [10.0] * 20 + [400.0 + 4.0 * second for second in range(100)]
    watched(driver=level, workers=level).check_flat()
    for faulty in ({"driver": leak, "workers": level}, {"driver": level, "workers": leak}):
        with pytest.raises(Wrong, match="grew by"):
            watched(**faulty).check_flat()
    with pytest.raises(Wrong, match="java has"):
        watched(driver=level, workers=level, java=[1_600.0]).check_flat()
