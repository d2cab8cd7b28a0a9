"""What a report will lack, named before the work begins."""

import subprocess
import sys

from dptext_spark.report.text import missing_library
from tests.helpers.drawing import without_drawing
from tests.helpers.tables import ROOT

BLOCKED = """
import sys
sys.modules |= dict.fromkeys(("jinja2", "markupsafe", "matplotlib"))
from dptext_spark.report.text import missing_library
from dptext_spark.jobs import calibrate, evaluate, poincare
print(missing_library())
"""


def test_what_is_missing_is_named_and_jobs_load_without_it():
    """Rejects a check of one library alone, and an early import."""
    assert missing_library() == ""
    with without_drawing("matplotlib"):
        assert missing_library() == "matplotlib"
    printed = subprocess.check_output([sys.executable, "-c", BLOCKED], cwd=ROOT, text=True)
    assert printed == "jinja2\n"
