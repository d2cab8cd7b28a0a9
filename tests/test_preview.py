"""dptext try: what a sentence becomes, as privatize would have it."""

import json
import re

import pytest
from click.testing import CliRunner

from dptext_spark import preview
from dptext_spark.cli import main
from dptext_spark.mechanisms import Mahalanobis
from dptext_spark.noise import NoiseKey
from dptext_spark.options import TryOptions
from tests.helpers import worlds
from tests.helpers.worlds import KEY

SENTENCE = "play some jazz in boston"


@pytest.fixture
def attempt(demo_bundle):
    """``dptext try`` with the demo's bundle."""

    def invoke(*arguments, stdin=None):
        given = ["try", *arguments, "--embedding", demo_bundle.path]
        return CliRunner().invoke(main, [*map(str, given)], input=stdin)

    return invoke


LAPLACE = ("--mechanism", "laplace", "--epsilon")


def test_a_table_of_draws(attempt):
    """Rejects an epsilon upside down, draws or runs that share noise, and a mechanism that is left out."""
    result = attempt(SENTENCE, *LAPLACE, 1, "1e6", "--mechanism", "exponential")
    assert result.exit_code == 0, result.output
    count, blank, header, *rows = result.output.splitlines()
    assert (count, blank) == ("5 words.", "")
    assert header.split() == ["mechanism", "epsilon", "replaced", "becomes"]
    settings = [
        f"{name} {epsilon}" for name in ("laplace", "exponential") for epsilon in ("1", "1e+06")
    ]
    assert [" ".join(row.split()[:2]) for row in rows[::3]] == settings
    again = attempt(SENTENCE, *LAPLACE, 1).output.splitlines()[3:]
    assert len({row.split("%")[1] for row in [*rows[:3], *again]}) == 6
    assert [row.split("%")[1].strip() for row in rows[3:6]] == [SENTENCE] * 3
    assert all(re.search(r" 0%  ", row) for row in rows[3:6])


def test_the_draws_are_those_of_privatize(demo_bundle, monkeypatch):
    """Rejects a preview with a policy, search or noise of its own."""
    monkeypatch.setattr(NoiseKey, "generate", lambda: KEY)
    sentence, policy = "the weather in Zzyzx", {"oov": "random", "protect": "content"}
    given = {
        "sentence": sentence,
        "embedding": demo_bundle.path,
        "epsilon": 6,
        "draws": 4,
        **policy,
    }
    found = preview.run(TryOptions.of({**given, "mechanism": "mahalanobis:lambda=0.5"}))
    sanitizer = worlds.sanitizer(demo_bundle, Mahalanobis(epsilon=6.0, lambda_=0.5), **policy)
    expected = sanitizer.sanitize([sentence] * 4, [1, 2, 3, 4], column=preview.COLUMN)
    assert [draw["text"] for draw in found.facts["draws"]] == expected.values.to_pylist()
    assert (found.facts["unprotected"], found.facts["out_of_vocabulary"]["tokens"]) == (2, 1)


def test_what_is_wrong_is_said(attempt):
    """Rejects a message that quotes the sentence."""
    result = attempt(SENTENCE, *LAPLACE, 5, "--protect", "slots:x")
    assert re.search("A sentence has no column of spans.*Got: x", result.output)
    assert result.exit_code == 2 and SENTENCE not in result.output
    assert "no sentence to try" in attempt(" ", *LAPLACE, 5).output


def test_standard_input_the_report_as_json_and_what_is_counted(attempt):
    """A sentence that is piped need not be in the shell's history."""
    for arguments in ([], ["-"]):
        result = attempt(*arguments, *LAPLACE, "1e6", stdin="jazz in boston\n")
        assert result.output.splitlines()[-1].endswith("jazz in boston"), result.output
    result = attempt(SENTENCE + " Zzyzx", *LAPLACE, "1e6", 5, "--json")
    value = json.loads(result.stdout)
    assert (value["words"], value["out_of_vocabulary"]) == (6, {"policy": "mask", "tokens": 1})
    assert [draw["epsilon"] for draw in value["draws"]] == [5.0] * 3 + [1e6] * 3
    assert (value["draws"][-1]["text"], value["draws"][-1]["replaced"]) == (
        f"{SENTENCE} [MASK]",
        0.0,
    )
    said = attempt(SENTENCE + " Zzyzx", *LAPLACE, 5, "--protect", "content").output
    assert said.splitlines()[0] == "6 words, 1 outside the vocabulary (mask), 2 not protected."
