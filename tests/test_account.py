"""dptext account: upper bounds on what outputs reveal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dptext_spark.cli import main
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Laplace


def account(bundle: Embedding, *arguments: object) -> Result:
    given = ("--embedding", bundle.path, "--mechanism", "laplace", *arguments)
    return CliRunner().invoke(main, ["account", *map(str, given)])


def test_a_bundle(demo_bundle: Embedding, tmp_path: Path) -> None:
    """The guarantee's own numbers; rejects a table that mixes epsilons, words, distances or deltas up.

    Also rejects a number that is shown below its bound, and a verdict about the wrong settings.
    """
    report = tmp_path / "account.json"
    result = account(
        demo_bundle, *("--epsilon", 4, 5, "--words", 1, 7, "--deltas", "1e-6", "0.01", "--report", report)
    )
    assert result.exit_code == 0, result.output
    table, rest = result.output.split("\n\n", 1)
    header, *rows = table.splitlines()
    assert re.split(" {2,}", header) == ["mechanism", "from", "distance", "words", "pure", "1e-06", "0.01"]
    losses = json.loads(report.read_text())["losses"]
    assert len(rows) == len(losses) == 2 * 4 * 2
    guarantees = {str(m): m.guarantee(demo_bundle) for m in (Laplace(epsilon=4.0), Laplace(epsilon=5.0))}
    for row, found in zip(rows, losses, strict=True):
        guarantee = guarantees[found["mechanism"]]
        pure = found["words"] * guarantee.loss(found["distance"])
        beyond = [guarantee.loss_beyond(d, found["distance"], found["words"]) for d in (1e-6, 0.01)]
        assert [found["pure"], *found["beyond"].values()] == pytest.approx([pure, *beyond])
        for number, shown in zip([pure, *beyond], row.split()[-3:], strict=True):
            assert number * (1 - 1e-12) <= float(shown) <= 1.001 * number
    far = guarantees[losses[0]["mechanism"]].distances
    assert far is not None
    assert [x["distance"] for x in losses[:8:2]] == [far.nearest, far.tenth, far.hundredth, far.largest]
    assert rest.count("Euclidean distance") == 2
    *_, verdict, _, path = rest.splitlines()
    assert verdict.startswith("Verdict: ") and path == f"Report: {report}"


@pytest.mark.parametrize(
    ("epsilons", "distance", "verdict"),
    [
        # ln 10^6 is 13.8: with one word at that distance pure losses are below epsilon.
        ((2.0, 3.0), 4.0, "with Laplace(epsilon=2.0), Laplace(epsilon=3.0)."),
        ((2.0, 90.0), 1.0, "with Laplace(epsilon=2.0)."),
        ((90.0,), 1.0, "no setting keeps the odds below a factor of 10^6"),
    ],
)
def test_the_verdict(
    demo_bundle: Embedding, epsilons: tuple[float, ...], distance: float, verdict: str
) -> None:
    result = account(demo_bundle, "--epsilon", *epsilons, "--distance", distance, "--words", 1)
    assert result.exit_code == 0, result.output
    last = result.output.splitlines()[-1]
    assert verdict in last and f"1 word at distance {distance:g}, except with probability 1e-06" in last


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "Option --epsilon is missing"),
        (("--epsilon", 5, "--deltas", 0), 2, "--deltas has a wrong value"),
        (("--epsilon", 5, "--words", 0), 2, "--words has a wrong value"),
        (("--epsilon", 5, "--distance", 0), 2, "--distance has a wrong value"),
        (("--epsilon", 5, "--words", 1, "--report", "none/a.json"), 1, "cannot be written"),
    ],
)
def test_what_is_refused(
    demo_bundle: Embedding, arguments: tuple[object, ...], code: int, message: str
) -> None:
    result = account(demo_bundle, *arguments)
    assert (result.exit_code, message in result.output) == (code, True), result.output
