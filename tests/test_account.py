"""dptext account: what outputs tell, in numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dptext_spark.accounting.composition import loss_beyond
from dptext_spark.cli import main
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Laplace


def account(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["account", *map(str, arguments)])


FIGURES = [
    (50, 28.8, 1, "1e-06", 21.1),
    (50, 14.4, 1, "1e-06", 9.5),
    (300, 30.0, 1, "1e-06", 9.0),
    (300, 30.0, 1, "1e-09", 11.0),
    (300, 67.5, 1, "1e-06", 24.3),
    (300, 30.0, 10, "1e-06", 40.0),
    (50, 14.4, 10, "1e-06", 48.0),
]


def test_one_command_for_all_known_figures() -> None:
    """Each figure, known to its last digit, is met by bounds within a hundredth of each other."""
    result = account("--noise-dimension", 50, 300, "--pure", 14.4, 28.8, 30, 67.5, "--words", 1, 10, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)["losses"]
    assert len(told) == 2 * 4 * 2
    for n, s, words, delta, t in FIGURES:
        name = f"noise in {n} dimensions"
        (found,) = (
            x["beyond"][delta]
            for x in told
            if (x["mechanism"], x["words"], x["pure"]) == (name, words, pytest.approx(s * words))
        )
        assert found["least"] < found["most"] < 1.01 * found["least"]
        assert found["least"] - 0.5 < t < found["most"] + 0.5 and abs(t / found["most"] - 1.0) < 0.01


def test_a_bundle(demo_bundle: Embedding, tmp_path: Path) -> None:
    """The guarantee's own numbers; rejects a table that mixes epsilons, words or distances up."""
    report = tmp_path / "account.json"
    result = account(
        *("--embedding", demo_bundle.path, "--mechanism", "laplace", "--epsilon", 10, 20),
        *("--words", 1, 7, "--deltas", "1e-6", "--report", report),
    )
    assert result.exit_code == 0, result.output
    header, *rows = result.output.split("\n\n")[0].splitlines()
    assert re.split(" {2,}", header) == ["mechanism", "from", "distance", "words", "pure", "1e-06"]
    told = json.loads(report.read_text())["losses"]
    assert len(rows) == len(told) == 2 * 4 * 2
    guarantees = {str(m): m.guarantee(demo_bundle) for m in (Laplace(epsilon=10.0), Laplace(epsilon=20.0))}
    for row, found in zip(rows, told, strict=True):
        guarantee = guarantees[found["mechanism"]]
        assert found["pure"] == pytest.approx(found["words"] * guarantee.loss(found["distance"]))
        most = guarantee.loss_beyond(1e-6, found["distance"], found["words"])
        assert found["beyond"]["1e-06"]["most"] == most
        least, shown = map(float, re.search(r"(\S+) to (\S+)$", row).groups())  # type: ignore[union-attr]
        assert least <= found["beyond"]["1e-06"]["least"] <= most <= shown <= 1.001 * most
    far = guarantees[told[0]["mechanism"]].distances
    assert far is not None
    assert [x["distance"] for x in told[:8:2]] == [far.nearest, far.tenth, far.hundredth, far.largest]
    assert report.read_text().count("Euclidean distance") == 2


def test_distances_of_ones_own(demo_bundle: Embedding) -> None:
    arguments = ("--embedding", demo_bundle.path, "--mechanism", "exponential", "--epsilon", 2)
    result = account(*arguments, "--distance", 0.5, 1, "--words", 3, "--deltas", 0.01, "--json")
    told = json.loads(result.stdout)["losses"]
    assert [(x["distance"], x["pure"]) for x in told] == [(0.5, 3.0), (1.0, 6.0)]
    law = Laplace(epsilon=2.0).guarantee(demo_bundle).law
    other = loss_beyond(law, 1.0, words=3, delta=0.01)
    assert told[1]["beyond"]["0.01"]["most"] != pytest.approx(other, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "It is not said whose losses"),
        (("--mechanism", "laplace", "--epsilon", 5), "It is not said whose losses"),
        (("--pure", 5), "--noise-dimension and --pure go together"),
        (("--noise-dimension", 5, "--pure", 5, "--distance", 1), "do not go together: --distance"),
        (("--noise-dimension", 5, "--pure", 5, "--deltas", 0), "--deltas has a wrong value"),
        (("--noise-dimension", 5, "--pure", 5, "--words", 0), "--words has a wrong value"),
        (("--noise-dimension", 0, "--pure", 5), "--noise-dimension has a wrong value"),
    ],
)
def test_what_is_refused(arguments: tuple[object, ...], message: str) -> None:
    result = account(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_a_report_that_cannot_be_written(tmp_path: Path) -> None:
    result = account("--noise-dimension", 5, "--pure", 5, "--report", tmp_path / "none" / "a.json")
    assert (result.exit_code, "cannot be written" in result.output) == (1, True)
