"""The audit: real mechanisms pass, named wrong ones do not, and it says what it could not catch.

The false-alarm rate of one audit is 1 - confidence, 0.001 by default, by exact bounds and Bonferroni. The
noise seed is fixed, so a run is deterministic.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from scipy import special, stats

from dptext_spark.audit import bounds, sampling
from dptext_spark.audit.sampling import sampled
from dptext_spark.audit.verdict import run_audit
from dptext_spark.cli import main
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import MECHANISMS, Exponential, Hyperbolic, Laplace, Mahalanobis
from dptext_spark.mechanisms.euclidean import EuclideanNoise
from dptext_spark.mechanisms.exponential import ExponentialChoice
from dptext_spark.mechanisms.hyperbolic import HyperbolicNoise
from dptext_spark.mechanisms.vectors import VectorNoise
from dptext_spark.noise import ColumnNoise, NoiseKey
from dptext_spark.options import WORLDS, AuditOptions, PrivatizeOptions
from dptext_spark.release import Release
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import Search
from dptext_spark.text.policies import TextPolicy
from tests.helpers import worlds

pytestmark = pytest.mark.statistical

SMALL = ("line", "star", "clusters")


def audit(**given: Any) -> tuple[dict[str, Any], ...]:
    """Audit a mechanism, Laplace noise on a line unless something else is given: the facts of its worlds."""
    own = ",".join(f"{name}={given.pop(name)}" for name in [*given] if name not in AuditOptions.fields())
    options = {"mechanism": "laplace", "epsilon": 2.0, "world": ("line",), "runs": 1000, **given}
    options["mechanism"] += f":{own}" if own else ""
    report = run_audit(AuditOptions.of(options))
    print(report.describe())
    return report.worlds


def command(*arguments: Any) -> Result:
    fixed = ["audit", "--mechanism", "laplace", "--epsilon", "2", "--world", "line"]
    return CliRunner().invoke(main, [*fixed, *map(str, arguments)])


# Real mechanisms

REAL: dict[str, list[dict[str, Any]]] = {
    "laplace": [{}, {"select": "vickrey", "t": 0.3}],
    "mahalanobis": [{"lambda": 0.5}, {"lambda": 0.5, "select": "vickrey", "t": 0.7}],
    "hyperbolic": [{"epsilon": 1.5}, {"epsilon": 1.5, "select": "vickrey", "t": 0.5}],
    "hyperbolic-icdm": [{"epsilon": 0.5}],
    "projection": [{"dimension": 1}, {"dimension": 2, "sensitivity": "spectral"}],
    "exponential": [{}, {"truncate": 1.0}],
    "vectors": [{"dimension": 1, "runs": 1000}],
}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [(name, parameters) for name in MECHANISMS for parameters in REAL.get(name, [{}])],
    ids=str,
)
def test_a_real_mechanism_passes(name: str, parameters: dict[str, Any]) -> None:
    """False-alarm rate over seeds: 0.001 for each. Rejects worlds in which nothing could be caught."""
    found = audit(**{"mechanism": name, "world": SMALL, "runs": 4000, **parameters})
    assert len(found) == len(SMALL) * len(MECHANISMS[name].spaces)
    assert all(facts["violations"] == [] for facts in found)
    assert all(facts["caught"] for facts in found if facts["world"] == "line")


def test_the_line_catches_a_slightly_larger_epsilon() -> None:
    assert audit(runs=20_000)[0]["caught"] <= 1.3


@pytest.mark.parametrize("name", ["hyperbolic", "exponential"])
def test_a_real_mechanism_passes_at_the_edge_of_the_ball(name: str, tmp_path: Path) -> None:
    """Six words one nat apart, the outermost at 1 - 1e-6."""
    radii = np.tanh((2 * np.arctanh(1 - 1e-6) - np.arange(6) / 2) / 2)
    bundle = worlds.build(tmp_path, radii[:, None] * np.eye(1, 2), geometry="poincare")
    (facts,) = audit(mechanism=name, world=("bundle",), embedding=bundle.path, runs=4000)
    assert facts["violations"] == []
    assert facts["caught"] <= 4.0


def test_a_world_without_power_says_so(large: Embedding) -> None:
    options = {"mechanism": "laplace", "epsilon": 2.0, "world": ("bundle",), "runs": 1000}
    report = run_audit(AuditOptions.of({**options, "embedding": large.path}))
    assert report.worlds[0]["caught"] is None
    assert "nothing up to x 4" in report.describe()
    assert report.worlds[0]["pairs"] == 8


# Mutants: each claims what its parent does

Change = Callable[[Any], Any]


def changed(kind: type[Any], **methods: Callable[..., Any]) -> Change:
    """Give a bound mechanism other methods."""
    wrong = type("Wrong", (kind,), methods)
    return lambda bound: wrong(**{f.name: getattr(bound, f.name) for f in fields(bound)})


def doubled(bound: Any) -> Any:
    return replace(bound, epsilon=2 * bound.epsilon)


def renormalised(self: EuclideanNoise, uniforms: np.ndarray) -> np.ndarray:
    """Directions scaled to length 1 after A^(1/2)."""
    directions = EuclideanNoise.directions(self, uniforms)
    return directions / np.linalg.norm(directions, axis=1, keepdims=True)


def one_direction(self: EuclideanNoise, uniforms: np.ndarray) -> np.ndarray:
    """All words of a batch share it."""
    directions = EuclideanNoise.directions(self, uniforms)
    return np.broadcast_to(directions[:1], directions.shape).copy()


def without_the_true_word(
    self: EuclideanNoise, words: np.ndarray, uniforms: np.ndarray, *_: Any
) -> np.ndarray:
    """Vickrey selection that never answers with the input word."""
    nearest, _ = self.search.nearest_two(self.points(words, uniforms[:, :-1]))
    return np.where(nearest[:, 0] == words, nearest[:, 1], nearest[:, 0])


def tells_the_input(self: EuclideanNoise, words: np.ndarray, uniforms: np.ndarray, *_: Any) -> np.ndarray:
    return np.where(uniforms[:, -1] < 0.01, words, EuclideanNoise.__call__(self, words, uniforms))


def adds_in_the_ball(self: HyperbolicNoise, words: np.ndarray, uniforms: np.ndarray, *_: Any) -> np.ndarray:
    """Euclidean addition of the noise and clipping to the ball, as in the paper's Algorithm 1."""
    radii, directions = self.noise(uniforms)
    points = self.vectors[words] + np.tanh(radii / 2)[:, None] * directions
    points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True) / (1 - 1e-5), 1.0)
    squares = np.square(points).sum(axis=1)
    return np.column_stack([np.log((1 + squares) / (1 - squares)), 2 * points / (1 + squares)[:, None]])


def states_half(self: ExponentialChoice, words: np.ndarray) -> np.ndarray:
    """The probabilities that the claim needs, whatever is drawn."""
    right = ExponentialChoice(**{f.name: getattr(self, f.name) for f in fields(self)})
    return replace(right, epsilon=self.epsilon / 2).probabilities(words)


def top_three(self: ExponentialChoice, words: np.ndarray, uniforms: np.ndarray, *_: Any) -> np.ndarray:
    """Words beyond the three nearest cannot come out."""
    distinct, places = np.unique(words, return_inverse=True)
    whole = self.probabilities(distinct)
    cut = np.where(whole >= np.sort(whole, axis=1)[:, -3:-2], whole, 0.0)
    cumulative = (cut / cut.sum(axis=1, keepdims=True)).cumsum(axis=1)[places]
    return np.minimum((cumulative <= uniforms[:, :1]).sum(axis=1), cumulative.shape[1] - 1)


E, X = EuclideanNoise, ExponentialChoice
SHAPE_ONE = changed(E, lengths=lambda self, u: special.gammaincinv(1, u) / self.epsilon)
PER_COORDINATE = changed(E, noise=lambda self, u: stats.laplace(scale=1 / self.epsilon).ppf(u[:, 1:]))
MUTANTS: dict[str, tuple[type[Any], Change, str, dict[str, Any]]] = {
    "epsilon doubled": (Laplace, doubled, "line", {}),
    "epsilon doubled in the plane": (Laplace, doubled, "star", {}),
    "Gamma shape 1": (Laplace, SHAPE_ONE, "star", {}),
    "Laplace per coordinate": (Laplace, PER_COORDINATE, "star", {"runs": 40_000}),
    "renormalised": (
        Mahalanobis,
        changed(E, directions=renormalised),
        "clusters",
        {"lambda": 0.97, "runs": 40_000},
    ),
    "Vickrey without the true word": (
        Laplace,
        changed(E, __call__=without_the_true_word),
        "line",
        {"select": "vickrey", "t": 0.5},
    ),
    "input told once in a hundred": (
        Laplace,
        changed(E, __call__=tells_the_input),
        "clusters",
        {"runs": 40_000},
    ),
    "one direction for all": (Laplace, changed(E, directions=one_direction), "line", {}),
    "addition in the ball": (Hyperbolic, changed(HyperbolicNoise, points=adds_in_the_ball), "line", {}),
    "exponential without 1/2": (Exponential, doubled, "clusters", {}),
    "draws without 1/2": (
        Exponential,
        lambda bound: changed(X, probabilities=states_half)(doubled(bound)),
        "clusters",
        {},
    ),
    "top three": (Exponential, changed(X, __call__=top_three), "line", {}),
}


def mutant(parent: type[Any], change: Change) -> type[Any]:
    """A mechanism with its parent's claim, whose bound form is changed."""

    class Mutant(parent):  # type: ignore[misc]
        def bind(self, embedding: Embedding, search: Search) -> Any:
            return change(parent.bind(self, embedding, search))

    return Mutant


@pytest.mark.parametrize(("parent", "change", "world", "given"), MUTANTS.values(), ids=MUTANTS)
def test_a_wrong_mechanism_is_caught(
    parent: type[Any], change: Change, world: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MECHANISMS, "mutant", mutant(parent, change))
    found = audit(**{"mechanism": "mutant", "world": (world,), "runs": 8000, **given})
    assert any(facts["violations"] and facts["nats"] > facts["claim"] for facts in found)


def half_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = VectorNoise.scale.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(VectorNoise, "scale", property(lambda self: scale(self) / 2))


def one_noise_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ColumnNoise, "row_key", lambda self, row_id, content: bytes(32))


@pytest.mark.parametrize("fault", [half_the_noise, one_noise_for_all_rows], ids=lambda f: f.__name__)
def test_a_wrong_release_of_vectors_is_caught(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the way that ``dptext vectors`` goes: rejects an audit of a mechanism that no release uses."""
    fault(monkeypatch)
    (facts,) = audit(mechanism="vectors", dimension=1, runs=2000)
    assert facts["nats"] > facts["claim"]


def test_a_release_of_vectors_is_no_mechanism_for_words() -> None:
    given = {"input": "in", "output": "out", "embedding": "b", "epsilon": 2.0, "text": "text"}
    with pytest.raises(ConfigError, match="Mechanism vectors releases vectors, no words"):
        PrivatizeOptions.of({**given, "mechanism": "vectors"})


def test_a_violation_is_reported_and_its_command_repeats_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(MECHANISMS, "laplace", mutant(Laplace, doubled))
    path = tmp_path / "audit.json"
    result = command("--runs", 5000, "--noise-seed", 3, "--report", path)
    assert result.exit_code == 1
    assert "The running code breaks its guarantee" in result.output
    report = json.loads(path.read_text())
    assert report["verdict"] == "VIOLATION"
    (facts,) = report["worlds"]
    hits, misses = facts["hits"]
    counts = f"{hits:,.0f} times of 2,500, {facts['pair'][1]} {misses:,.0f} times"
    program, *arguments = shlex.split(facts["command"])
    assert program == "dptext"
    again = CliRunner().invoke(main, arguments)
    assert again.exit_code == 1
    assert all("VIOLATION in line (euclidean)" in each.output for each in (result, again))
    assert all(counts in each.output for each in (result, again))


def test_an_unknown_word_that_passes_is_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "Release", partial(Release, policy=TextPolicy(oov="keep-unprotected")))
    (facts,) = audit()
    assert facts["violations"] == ["1,000 outputs of an unknown word are not [MASK]"]


def test_a_word_that_may_not_be_released_is_a_leak(small: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_words(cls: type[ExactSearch], embedding: Embedding, release_words: object = None) -> ExactSearch:
        return cls(release_words=len(embedding.words))

    given = {"world": ("bundle",), "embedding": small.path}
    assert audit(**given)[0]["violations"] == []
    monkeypatch.setattr(ExactSearch, "over", classmethod(all_words))
    (facts,) = audit(**given)
    assert "outside the release vocabulary" in facts["violations"][0]
    assert shlex.join(["--embedding", str(small.path)]) in facts["command"]


# Bounds


@pytest.mark.parametrize("delta", [0.0, 0.1])
def test_a_loss_bound_is_that_of_clopper_and_pearson_and_never_negative(delta: float) -> None:
    hits, misses = np.array([500, 10, 0]), np.array([100, 500, 1000])
    ends = [stats.binomtest(n, 1000).proportion_ci(1 - 2e-4, method="exact") for n in (500, 100)]
    shown = bounds.loss_bound(hits, misses, 1000, 1e-4, delta)
    assert shown[0] == pytest.approx(np.log((ends[0].low - delta) / ends[1].high))
    assert shown[1:].tolist() == [0, 0]
    assert bounds.loss_bound(hits, misses, 1000, 1e-4, 1.0).tolist() == [0, 0, 0]


@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_a_bound_is_wrong_as_rarely_as_it_says(delta: float) -> None:
    """The probability of all counts that show too much, added up. Rejects one bound for two, and none."""
    runs, level, p, q = 150, 0.02, 0.4, 0.1
    counts = np.arange(runs + 1)
    hits, others = (each.ravel() for each in np.meshgrid(counts, counts, indexing="ij"))
    wrong = bounds.loss_bound(hits, others, runs, level, delta) > np.log((p - delta) / q)
    law = np.outer(stats.binom.pmf(counts, runs, p), stats.binom.pmf(counts, runs, q)).ravel()
    assert 1e-5 < law[wrong].sum() <= 2 * level


def test_the_chance_of_a_false_alarm_is_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over worlds, the pairs of eight and of nine words both ways, and two bounds of each."""
    levels = []

    def recorded(*given: Any) -> bounds.Losses:
        levels.append(given[4])
        return bounds.sampled_losses(*given)

    monkeypatch.setattr("dptext_spark.audit.trial.sampled_losses", recorded)
    audit(world=("line", "star"), runs=100, confidence=0.99)
    assert {*np.round(levels, 12)} == {round(0.01 / 2 / (2 * pairs), 12) for pairs in (8 * 7, 9 * 8)}


def test_events_are_chosen_and_tested_on_different_outputs() -> None:
    """Rejects an event that is tested on the outputs that chose it, and two halves under one key."""
    counts = np.array([[50, 0], [0, 50]])
    pairs = np.array([[0, 1], [1, 0]])
    assert (bounds.sampled_losses(pairs, counts, counts, 50, 0.01, 0.0).nats > 1).all()
    assert (bounds.sampled_losses(pairs, counts, counts[::-1], 50, 0.01, 0.0).nats == 0).all()
    keys: list[NoiseKey] = []

    def recorded(*given: Any) -> Any:
        keys.append(given[4])
        return sampled(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dptext_spark.audit.verdict.sampled", recorded)
        audit(runs=100)
    assert len({key.derive(b"").secret for key in keys[:2]}) == 2


# Options and worlds


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--world", "plane"], "--world has a wrong value.*line, star, clusters or bundle.*plane"),
        (["--world", "bundle"], "--embedding is missing"),
        (["--pair", "w1:w9"], "two different words of the 8.*w1:w9"),
        (["--pair", "w1:w1"], "two different words"),
        (["--pair", "w1"], "two different words"),
        (["--runs", 99], "--runs .*100 or more.*99"),
        (["--confidence", 1], "--confidence"),
        (["--noise-seed", -1], "--noise-seed"),
        (["--lambda", 0.5], "No such option.*--lambda"),
        (["--report", "/nonexistent/report.json", "--runs", 100], "report /nonexistent/report.json cannot"),
    ],
)
def test_wrong_options(arguments: list[Any], message: str) -> None:
    result = command(*arguments)
    assert result.exit_code == 2, result.output
    assert re.search(message, result.output, re.DOTALL), result.output


def test_all_worlds_are_looked_at_by_default() -> None:
    assert AuditOptions.of({"mechanism": "laplace", "epsilon": 1.0, "embedding": "b"}).worlds == WORLDS


@pytest.mark.parametrize("epsilon", [1e-12, 1e9])
@pytest.mark.parametrize("name", ["laplace", "hyperbolic", "hyperbolic-icdm", "exponential"])
def test_extreme_epsilons_have_worlds_too(name: str, epsilon: float) -> None:
    options = {"mechanism": name, "epsilon": epsilon, "world": SMALL, "runs": 200}
    report = run_audit(AuditOptions.of(options))
    assert not report.broken
    json.loads(report.to_json())


def test_a_mechanism_that_needs_dimensions_gets_them() -> None:
    assert audit(mechanism="projection", dimension=6)[0]["dimension"] == 8


def test_pairs_of_words_with_colons(tmp_path: Path) -> None:
    bundle = worlds.build(tmp_path, [[1.0, 0], [0, 1], [1, 1]], names=["12:30", "a", "b"])
    (facts,) = audit(embedding=bundle.path, world=("bundle",), pair=("12:30:a",))
    assert facts["pairs"] == 2
    assert set(facts["pair"]) == {"12:30", "a"}
