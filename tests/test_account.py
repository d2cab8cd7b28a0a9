"""dptext account: upper bounds on what outputs reveal."""

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner

from dptext_spark.cli import main
from dptext_spark.mechanisms import Laplace


def account(bundle, arguments):
    given = f"account --embedding {bundle.path} --mechanism laplace {arguments}"
    return CliRunner().invoke(main, given.split())


def test_a_bundle(demo_bundle):
    """The guarantee's own numbers; rejects a table that mixes epsilons, words, distances or deltas up."""
    # Also rejects a number that is shown below its bound, and a verdict about the wrong settings.
    given = "--epsilon 4 5 --words 1 7 --deltas 1e-6 0.01"
    result = account(demo_bundle, given)
    assert result.exit_code == 0, result.output
    table, rest = result.output.split("\n\n", 1)
    header, *rows = table.splitlines()
    assert re.split(" {2,}", header) == [
        "mechanism",
        "from",
        "distance",
        "words",
        "pure",
        "1e-06",
        "0.01",
    ]
    losses = json.loads(account(demo_bundle, given + " --json").stdout)["losses"]
    guarantees = {
        str(m): m.guarantee(demo_bundle) for m in (Laplace(epsilon=4.0), Laplace(epsilon=5.0))
    }
    expected, far = [], guarantees[losses[0]["mechanism"]].distances
    for name, guarantee in guarantees.items():
        for distance in (far.nearest, far.tenth, far.hundredth, far.largest):
            for words in (1, 7):
                beyond = [guarantee.loss_beyond(delta, distance, words) for delta in (1e-6, 0.01)]
                expected.append(
                    (name, distance, words, [words * guarantee.loss(distance), *beyond])
                )
    found = [
        (x["mechanism"], x["distance"], x["words"], [x["pure"], *x["beyond"].values()])
        for x in losses
    ]
    assert [row[:3] for row in found] == [row[:3] for row in expected]
    for row, (*_, numbers), (*_, bounds) in zip(rows, found, expected, strict=True):
        assert numbers == pytest.approx(bounds)
        for number, shown in zip(bounds, row.split()[-3:], strict=True):
            assert number * (1 - 1e-12) <= float(shown) <= 1.001 * number
    assert rest.count("Euclidean distance") == 3
    vectors = demo_bundle.vectors.astype(float)
    sample = demo_bundle.space.metric().sample()
    gaps = np.linalg.norm(vectors[sample][:, None, :1] - vectors[None, :, :1], axis=2) ** 2
    for column in range(1, vectors.shape[1]):
        gaps += np.square(vectors[sample, column][:, None] - vectors[:, column])
    ordered = np.sqrt(np.sort(gaps, axis=1)[:, [1, 10, 100]])
    for spread, of_rank, line in zip(
        json.loads(account(demo_bundle, given + " --json").stdout)["distances"],
        ordered.T,
        rest.splitlines()[-5:-2],
        strict=True,
    ):
        expected = np.percentile(of_rank, [5, 25, 50, 75, 95])
        assert [*spread["percentiles"].values()] == pytest.approx(expected, rel=1e-5)
        assert [float(cell) for cell in line.split()[1:]] == pytest.approx(expected, rel=1e-3)
    assert rest.splitlines()[-1].startswith("Verdict: ")


@pytest.mark.parametrize(
    ("epsilons", "distance", "verdict"),
    [
        # ln 10^6 is 13.8: with one word at that distance pure losses are below epsilon.
        ("2 3", 4, "with Laplace(epsilon=2.0), Laplace(epsilon=3.0)."),
        ("2 90", 1, "with Laplace(epsilon=2.0)."),
        ("90", 1, "no setting keeps the odds below a factor of 10^6"),
    ],
)
def test_the_verdict(demo_bundle, epsilons, distance, verdict):
    result = account(demo_bundle, f"--epsilon {epsilons} --distance {distance} --words 1")
    assert result.exit_code == 0, result.output
    last = result.output.splitlines()[-1]
    assert (
        verdict in last and f"1 word at distance {distance}, except with probability 1e-06" in last
    )


def test_what_is_refused(demo_bundle):
    for arguments in ("--deltas 0", "--words 0", "--distance 0"):
        result = account(demo_bundle, f"--epsilon 5 {arguments}")
        assert (
            result.exit_code == 2 and f"{arguments.split()[0]} has a wrong value" in result.output
        )
