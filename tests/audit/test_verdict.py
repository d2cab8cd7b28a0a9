"""The audit: real mechanisms pass, named wrong ones do not, and what it says about its power is measured.

The false-alarm rate of one audit is 1 - confidence, 0.001 by default, by exact bounds and Bonferroni. The
noise seed is fixed, so a run is deterministic.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from scipy import special, stats

from dptext_spark import privatizer
from dptext_spark.audit import bounds
from dptext_spark.audit.verdict import run_audit
from dptext_spark.cli import main
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import PoincareBall
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import MECHANISMS, Exponential, Hyperbolic, Laplace, Mahalanobis
from dptext_spark.mechanisms.euclidean import EuclideanNoise
from dptext_spark.mechanisms.exponential import ExponentialChoice
from dptext_spark.mechanisms.hyperbolic import HyperbolicNoise
from dptext_spark.noise import ColumnNoise
from dptext_spark.options import WORLDS, AuditOptions, PrivatizeOptions
from dptext_spark.privatizer import Privatizer
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import Search
from dptext_spark.text.policies import TextPolicy
from dptext_spark.vectors.projected_vectors import VectorNoise
from tests.helpers import worlds

pytestmark = pytest.mark.statistical

SMALL = ("line", "star", "clusters")
ALPHA = 0.001  # of one audit


def audit(mechanism: str, *arguments: Any, worlds: tuple[str, ...] = ("line",)) -> Result:
    named = [part for world in worlds for part in ("--world", world)]
    options = ["audit", "--mechanism", mechanism, "--epsilon", "2", *named, *map(str, arguments)]
    return CliRunner().invoke(main, options)


def verdict(result: Result, code: int) -> str:
    assert result.exit_code == code, (result.output, result.exception)
    print(result.output)
    return result.output


# Real mechanisms

REAL: dict[str, list[list[Any]]] = {
    "laplace": [[], ["--select", "vickrey", "--t", 0.3]],
    "mahalanobis": [["--lambda", 0.5], ["--lambda", 0.5, "--select", "vickrey", "--t", 0.7]],
    "hyperbolic": [["--epsilon", 1.5], ["--epsilon", 1.5, "--select", "vickrey", "--t", 0.5]],
    "hyperbolic-icdm": [["--epsilon", 0.5]],
    "projection": [["--dimension", 1], ["--dimension", 2, "--sensitivity", "spectral"]],
    "exponential": [[], ["--truncate", 1.0]],
    "vectors": [["--dimension", 1]],
}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [(name, parameters) for name in MECHANISMS for parameters in REAL.get(name, [[]])],
    ids=str,
)
def test_a_real_mechanism_passes(name: str, parameters: list[Any]) -> None:
    """False-alarm rate over seeds: ALPHA for each."""
    edge = ("edge",) if PoincareBall in MECHANISMS[name].spaces else ()
    result = audit(name, *parameters, "--runs", 4000, worlds=(*SMALL, *edge))
    assert "PASS" in verdict(result, 0)


@pytest.mark.parametrize(
    ("name", "parameters", "factor"),
    [
        ("laplace", [], 1.3),
        ("mahalanobis", ["--lambda", 0.5], 1.3),
        ("hyperbolic", [], 1.3),
        ("projection", ["--dimension", 1], 1.3),
        ("vectors", ["--dimension", 1], 1.3),
        ("exponential", [], 2.0),
    ],
)
def test_the_line_catches_a_slightly_larger_epsilon(name: str, parameters: list[Any], factor: float) -> None:
    options = {"mechanism": name, "epsilon": 2.0, "world": ("line",), "runs": 20_000}
    named = dict(zip([p.removeprefix("--") for p in parameters[::2]], parameters[1::2], strict=True))
    report = run_audit(AuditOptions.of({**options, **named}))
    caught = [outcome.caught for outcome in report.outcomes]
    print(f"{name}: caught from epsilon x {caught}")
    assert not report.witnesses
    assert caught[0] is not None
    assert caught[0] <= factor
    # Where probabilities are known nothing is drawn.
    powers = [outcome.power for outcome in report.outcomes if name != "exponential"]
    assert all(power.draws == (5 if name == "vectors" else 20) for power in powers)
    assert all(2 * power.found > power.draws for power in powers)


def test_power_is_a_share_of_draws_under_keys_of_their_own() -> None:
    """Rejects one draw that is counted over and over: it is found always or never."""
    options = {"mechanism": "laplace", "epsilon": 2.0, "world": ("line",), "runs": 8000}
    shares = []
    for seed in range(4):
        (outcome,) = run_audit(AuditOptions.of({**options, "noise-seed": seed})).outcomes
        shares.append(outcome.power)
        assert f"would have caught epsilon x {outcome.caught:g} in {outcome.power.found} of 20 draws" in (
            outcome.describe()
        )
    print(shares)
    assert any(10 < share.found < 20 for share in shares)
    assert all(share.low < share.found / 20 <= share.high for share in shares)


def test_no_false_alarm_over_twenty_seeds() -> None:
    """Rate 20 ALPHA over choices of the seeds; at most, for the bounds are exact and shared out."""
    options = {"mechanism": "laplace", "epsilon": 2.0, "world": ("line",), "runs": 500}
    for seed in range(20):
        assert not run_audit(AuditOptions.of({**options, "noise-seed": seed})).witnesses


def test_a_world_without_power_says_so(large: Embedding) -> None:
    options = {"mechanism": "laplace", "epsilon": 2.0, "world": ("bundle",), "runs": 1000}
    report = run_audit(AuditOptions.of({**options, "embedding": large.path}))
    assert report.outcomes[0].caught is None
    assert "could not have caught even epsilon x 4" in report.describe()
    assert report.outcomes[0].pairs == 8


# Mutants: each claims what its parent does


def as_(kind: type[Any], bound: Any) -> Any:
    """Give a bound mechanism another class."""
    return kind(**{f.name: getattr(bound, f.name) for f in fields(bound)})


@dataclass(frozen=True, kw_only=True)
class ShapeOne(EuclideanNoise):
    """Gamma of shape 1, not n."""

    def lengths(self, uniforms: np.ndarray) -> np.ndarray:
        return special.gammaincinv(1, uniforms) / self.epsilon


@dataclass(frozen=True, kw_only=True)
class PerCoordinate(EuclideanNoise):
    """Laplace noise in each coordinate."""

    def noise(self, uniforms: np.ndarray) -> np.ndarray:
        return stats.laplace(scale=1 / self.epsilon).ppf(uniforms[:, 1:])


@dataclass(frozen=True, kw_only=True)
class Renormalised(EuclideanNoise):
    """Directions scaled to length 1 after A^(1/2)."""

    def directions(self, uniforms: np.ndarray) -> np.ndarray:
        directions = super().directions(uniforms)
        return directions / np.linalg.norm(directions, axis=1, keepdims=True)


@dataclass(frozen=True, kw_only=True)
class DropsTheTrueWord(EuclideanNoise):
    """Vickrey selection that never answers with the input word."""

    def __call__(self, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        nearest, _ = self.search.nearest_two(self.points(words, uniforms[:, :-1]))
        return np.where(nearest[:, 0] == words, nearest[:, 1], nearest[:, 0])


@dataclass(frozen=True, kw_only=True)
class TellsTheInput(EuclideanNoise):
    """The input itself, with probability 0.01."""

    def __call__(self, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        tells = uniforms[:, -1] < 0.01
        return np.where(tells, words, super().__call__(words, uniforms))


@dataclass(frozen=True, kw_only=True)
class FixedDirection(EuclideanNoise):
    """All words of a batch share a direction."""

    def directions(self, uniforms: np.ndarray) -> np.ndarray:
        return np.broadcast_to(super().directions(uniforms)[:1], (len(uniforms), uniforms.shape[1])).copy()


@dataclass(frozen=True, kw_only=True)
class AddsInTheBall(HyperbolicNoise):
    """Euclidean addition of the noise and clipping to the ball, as in the paper's Algorithm 1."""

    def points(self, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        radii, directions = self.noise(uniforms)
        points = self.vectors[words] + np.tanh(radii / 2)[:, None] * directions
        points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True) / (1 - 1e-5), 1.0)
        squares = np.square(points).sum(axis=1)
        return np.column_stack([np.log((1 + squares) / (1 - squares)), 2 * points / (1 + squares)[:, None]])


@dataclass(frozen=True, kw_only=True)
class DrawsTwice(ExponentialChoice):
    """Draws without the half in the exponent, but states the right probabilities."""

    def probabilities(self, words: np.ndarray) -> np.ndarray:
        return as_(ExponentialChoice, replace(self, epsilon=self.epsilon / 2)).probabilities(words)


@dataclass(frozen=True, kw_only=True)
class TopThree(ExponentialChoice):
    """Words beyond the three nearest cannot come out; the probabilities say so."""

    def probabilities(self, words: np.ndarray) -> np.ndarray:
        whole = super().probabilities(words)
        cut = np.where(whole >= np.sort(whole, axis=1)[:, -3:-2], whole, 0.0)
        return cut / cut.sum(axis=1, keepdims=True)

    def __call__(self, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        distinct, places = np.unique(words, return_inverse=True)
        cumulative = self.probabilities(distinct).cumsum(axis=1)[places]
        return np.minimum((cumulative <= uniforms[:, :1]).sum(axis=1), cumulative.shape[1] - 1)


@dataclass(frozen=True, kw_only=True)
class TopThreeUnsaid(TopThree):
    """The same, stating the probabilities of the whole law."""

    def probabilities(self, words: np.ndarray) -> np.ndarray:
        return ExponentialChoice.probabilities(self, words)

    def __call__(self, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        return as_(TopThree, self)(words, uniforms)


class Unstated:
    """A draw whose probabilities nobody computes."""

    def __init__(self, bound: Any) -> None:
        self._bound = bound

    def __call__(self, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        return self._bound(words, uniforms)


def mutant(parent: type[Any], change: Callable[[Any], Any]) -> type[Any]:
    """A mechanism with its parent's claim, whose bound form is changed."""

    class Mutant(parent):  # type: ignore[misc]
        def bind(self, embedding: Embedding, search: Search) -> Any:
            return change(parent.bind(self, embedding, search))

    return Mutant


def doubled(bound: Any) -> Any:
    values = {f.name: getattr(bound, f.name) for f in fields(bound)}
    return type(bound)(**{**values, "epsilon": 2 * bound.epsilon})


MUTANTS: list[tuple[str, type[Any], Callable[[Any], Any], str, list[Any], str]] = [
    ("epsilon doubled", Laplace, doubled, "line", [], "loss"),
    ("epsilon doubled in the plane", Laplace, doubled, "star", [], "loss"),
    ("Gamma shape 1", Laplace, lambda b: as_(ShapeOne, b), "star", [], "loss"),
    ("Laplace per coordinate", Laplace, lambda b: as_(PerCoordinate, b), "star", ["--runs", 40_000], "loss"),
    (
        "renormalised",
        Mahalanobis,
        lambda b: as_(Renormalised, b),
        "clusters",
        ["--lambda", 0.9, "--runs", 80_000],
        "loss",
    ),
    (
        "Vickrey without the true word",
        Laplace,
        lambda b: as_(DropsTheTrueWord, b),
        "line",
        ["--select", "vickrey", "--t", 0.5],
        "loss",
    ),
    (
        "input told once in a hundred",
        Laplace,
        lambda b: as_(TellsTheInput, b),
        "clusters",
        ["--runs", 40_000],
        "loss",
    ),
    ("one direction for all", Laplace, lambda b: as_(FixedDirection, b), "line", [], "loss"),
    ("addition in the ball", Hyperbolic, lambda b: as_(AddsInTheBall, b), "line", [], "loss"),
    ("exponential without 1/2", Exponential, doubled, "clusters", [], "loss"),
    ("draws without 1/2", Exponential, lambda b: as_(DrawsTwice, doubled(b)), "line", [], "probabilities"),
    ("top three", Exponential, lambda b: as_(TopThree, b), "line", [], "loss"),
    ("top three, unsaid", Exponential, lambda b: as_(TopThreeUnsaid, b), "line", [], "probabilities"),
    ("top three, unstated", Exponential, lambda b: Unstated(as_(TopThree, b)), "line", [], "loss"),
]


@pytest.mark.parametrize(
    ("parent", "change", "world", "parameters", "kind"), [m[1:] for m in MUTANTS], ids=[m[0] for m in MUTANTS]
)
def test_a_wrong_mechanism_is_caught(
    parent: type[Any],
    change: Callable[[Any], Any],
    world: str,
    parameters: list[Any],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setitem(MECHANISMS, "mutant", mutant(parent, change))
    runs = [] if "--runs" in parameters else ["--runs", 8000]
    path = tmp_path / "audit.json"
    result = audit("mutant", *parameters, *runs, "--report", path, worlds=(world,))
    assert "VIOLATION" in verdict(result, 1)
    assert "breaks its guarantee" in result.output
    report = json.loads(path.read_text())
    found = [w for outcome in report["worlds"] for w in outcome["witnesses"]]
    assert report["verdict"] == "VIOLATION"
    assert kind in {w["kind"] for w in found}
    for witness in found:
        if witness["kind"] == "loss":
            assert witness["nats"] > witness["claim"]


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
    given = {"mechanism": "vectors", "dimension": 1, "epsilon": 2.0, "world": ("line",), "runs": 8000}
    found = run_audit(AuditOptions.of(given)).witnesses
    assert "loss" in {witness.kind for witness in found}


def test_a_release_of_vectors_is_no_mechanism_for_words() -> None:
    given = {"input": "in", "output": "out", "embedding": "b", "epsilon": 2.0, "text": "text"}
    with pytest.raises(ConfigError, match=r"mechanism is unknown. Allowed: [^.]*projection. Got: 'vectors'"):
        PrivatizeOptions.of({**given, "mechanism": "vectors"})


def test_the_command_of_a_witness_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MECHANISMS, "laplace", mutant(Laplace, doubled))
    options = {"mechanism": "laplace", "epsilon": 2.0, "world": ("line",), "runs": 5000, "noise-seed": 3}
    (witness,) = run_audit(AuditOptions.of(options)).witnesses
    program, *arguments = shlex.split(witness.command)
    assert program == "dptext"
    result = CliRunner().invoke(main, arguments)
    hits, misses = witness.evidence
    counts = f"{hits:,.0f} times of 2,500, {witness.pair[1]} {misses:,.0f} times"
    assert counts in witness.message
    assert counts in verdict(result, 1)


# Leaks and repeated noise, in the code around mechanisms


def test_an_unknown_word_that_passes_is_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privatizer, "TextPolicy", lambda: TextPolicy(oov="keep-unprotected"))
    assert "stand for an unknown word" in verdict(audit("laplace", "--runs", 1000), 1)


def test_a_word_that_may_not_be_released_is_a_leak(small: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_words(cls: type[ExactSearch], embedding: Embedding, release_words: object = None) -> ExactSearch:
        return cls(release_words=len(embedding.words))

    arguments = ("--embedding", small.path, "--runs", 1000)
    options = {"mechanism": "laplace", "epsilon": 2.0, "world": ("bundle",), "runs": 1000}
    assert not run_audit(AuditOptions.of({**options, "embedding": small.path})).witnesses
    monkeypatch.setattr(ExactSearch, "over", classmethod(all_words))
    (witness,) = run_audit(AuditOptions.of({**options, "embedding": small.path})).witnesses
    assert witness.kind == "leak"
    assert shlex.join(map(str, arguments[:2])) in witness.command


def without_id(self: ColumnNoise, row_id: bytes, content: tuple[Any, ...]) -> bytes:
    return ROW_KEY(self, b"", content)


def without_word(self: ColumnNoise, row_id: bytes, content: tuple[Any, ...]) -> bytes:
    return ROW_KEY(self, row_id.partition(b"-")[2], ())


def one_position(self: ColumnNoise, out: np.ndarray, row_key: bytes, first_position: int) -> None:
    FILL(self, out, row_key, first_position)
    out[:] = out[:1]


ROW_KEY, FILL = ColumnNoise.row_key, ColumnNoise.fill


@pytest.mark.parametrize(
    ("name", "replacement", "message"),
    [
        ("row_key", without_id, "words at one place in two rows are not"),
        ("row_key", without_word, "two words at one place are not"),
        ("fill", one_position, "words of one row are not"),
    ],
)
def test_repeated_noise_is_found(
    name: str, replacement: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ColumnNoise, name, replacement)
    assert message in verdict(audit("laplace", "--runs", 400), 1)


# Bounds


def test_a_loss_bound_counts_delta_and_never_less_than_nothing() -> None:
    hits, misses = np.array([500, 10, 0]), np.array([100, 500, 1000])
    free, with_delta = (bounds.loss_bound(hits, misses, 1000, 1e-6, delta) for delta in (0.0, 0.1))
    assert 0.9 < free[0] < np.log(5)
    assert 0 < with_delta[0] < free[0]
    assert free[1:].tolist() == with_delta[1:].tolist() == [0, 0]
    assert bounds.loss_bound(hits, misses, 1000, 1e-6, 1.0).tolist() == [0, 0, 0]


def test_exact_losses_are_the_largest_log_ratios() -> None:
    table = np.random.default_rng(1).dirichlet(np.ones(6), size=4)
    pairs = np.array([(i, j) for i in range(4) for j in range(4) if i != j])
    losses = bounds.exact_losses(pairs, table, 0.0)
    for (one, other), nats, event in zip(pairs, losses.nats, losses.events, strict=True):
        ratios = np.log(table[one] / table[other])
        assert nats == pytest.approx(ratios.max(), rel=1e-12)
        assert event.tolist() == [ratios.argmax()]


def test_a_probability_that_underflowed_is_no_violation() -> None:
    """It is above 0 in real numbers: a loss of 690 nats at most can be shown by it."""
    with np.errstate(all="raise"):
        losses = bounds.exact_losses(np.array([[0, 1]]), np.array([[1.0, 0.0], [0.0, 1.0]]), 0.0)
    assert losses.nats[0] == pytest.approx(300 * np.log(10))


# Options and worlds


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--world", "plane"],
            "--world has a wrong value.*line, star, clusters, edge, joint or bundle.*plane",
        ),
        (["--world", "bundle"], "--embedding is missing"),
        (["--world", "edge"], "edge.*Poincaré"),
        (["--pair", "w1:w9"], "two different words of the 8.*w1:w9"),
        (["--pair", "w1:w1"], "two different words"),
        (["--pair", "w1"], "two different words"),
        (["--runs", 99], "--runs .*100 or more.*99"),
        (["--confidence", 1], "--confidence"),
        (["--noise-seed", -1], "--noise-seed"),
        (["--lambda", 0.5], "--lambda is not an option"),
        (["--report", "/nonexistent/report.json", "--runs", 100], "report /nonexistent/report.json cannot"),
    ],
)
def test_wrong_options(arguments: list[Any], message: str) -> None:
    result = audit("laplace", *arguments)
    assert result.exit_code == 2, result.output
    assert re.search(message, result.output, re.DOTALL), result.output


def test_all_worlds_are_looked_at_by_default() -> None:
    assert AuditOptions.of({"mechanism": "laplace", "epsilon": 1.0, "embedding": "b"}).worlds == WORLDS


@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 1e9])
@pytest.mark.parametrize("name", ["laplace", "hyperbolic", "hyperbolic-icdm", "exponential"])
def test_extreme_epsilons_have_worlds_too(name: str, epsilon: float) -> None:
    chosen = (*SMALL, *(("edge",) if name != "laplace" else ()))
    options = {"mechanism": name, "epsilon": epsilon, "world": chosen, "runs": 200}
    report = run_audit(AuditOptions.of(options))
    assert len(report.outcomes) == len(chosen) + (len(SMALL) if name == "exponential" else 0)
    assert not report.witnesses
    json.loads(report.to_json())


def test_a_mechanism_that_needs_dimensions_gets_them() -> None:
    options = {"mechanism": "projection", "epsilon": 2.0, "world": ("line",), "runs": 200, "dimension": 6}
    assert run_audit(AuditOptions.of(options)).outcomes[0].dimension == 8


def test_pairs_of_words_with_colons(tmp_path: Path) -> None:
    bundle = worlds.build(tmp_path, [[1.0, 0], [0, 1], [1, 1]], names=["12:30", "a", "b"])
    options = {
        "mechanism": "laplace",
        "epsilon": 2.0,
        "embedding": bundle.path,
        "world": ("bundle",),
        "runs": 200,
    }
    report = run_audit(AuditOptions.of({**options, "pair": ("12:30:a",)}))
    assert report.outcomes[0].pairs == 2
    assert set(report.outcomes[0].closest) == {"12:30", "a"}


def test_a_policy_patch_reaches_the_privatizer(line: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the leak's test stands for what it says."""
    monkeypatch.setattr(privatizer, "TextPolicy", lambda: TextPolicy(oov="keep-unprotected"))
    assert Privatizer(embedding=line, mechanism=Laplace(epsilon=1.0)).policy.oov.name == "keep-unprotected"
