"""Joint releases: the running code keeps to what is claimed of them, and named faults of it do not.

The false-alarm rate of a draw is ALPHA, by exact bounds and Bonferroni. Keys follow from fixed seeds, so that
a run is deterministic.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from dptext_spark.accounting.joint import joint_loss
from dptext_spark.audit import joint_releases, verdict
from dptext_spark.audit.joint_releases import Settings
from dptext_spark.audit.joint_trial import JointOutcome, JointTrial
from dptext_spark.audit.power import Share
from dptext_spark.audit.scenarios import SCENARIOS, Release
from dptext_spark.audit.worlds import worlds
from dptext_spark.cli import main
from dptext_spark.mechanisms import MECHANISMS, Laplace, Mechanism
from dptext_spark.noise import ColumnNoise, ReleaseNoise
from dptext_spark.options import AuditOptions
from dptext_spark.text.policies import ContentWords, Drop, Mask, Slots
from dptext_spark.text.token_columns import AS_IT_IS, Tokens

pytestmark = pytest.mark.statistical

ALPHA = 0.001  # of one draw
NAMES = {scenario.name for scenario in SCENARIOS}


def joint(folder: Path, *, draws: int = 0, runs: int = 2000, **given: Any) -> JointOutcome:
    """Audit the world of joint releases, under Laplace noise unless something else is given."""
    options = AuditOptions.of({"mechanism": "laplace", "epsilon": 2.0, "world": ("joint",), **given})
    (world,) = worlds(options, folder)
    return JointTrial(world=world, options=options, runs=runs, alpha=ALPHA, draws=draws).run()


def found(outcome: JointOutcome) -> set[str]:
    """The scenarios in which something was found."""
    print(outcome.describe())
    assert all(witness.kind == "joint" for witness in outcome.witnesses)
    shown = {scenario.name for scenario in outcome.scenarios if scenario.nats > scenario.claim}
    assert len(shown) == len(outcome.witnesses)
    return shown


# The running code

REAL: dict[str, dict[str, Any]] = {
    "mahalanobis": {"lambda": 0.5, "select": "vickrey", "t": 0.25},
    "projection": {"dimension": 1},
    "vectors": {"dimension": 1},
}


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_joint_releases_of_a_real_mechanism_pass(name: str, tmp_path: Path) -> None:
    """False-alarm rate over seeds: ALPHA for each."""
    outcome = joint(tmp_path, mechanism=name, **REAL.get(name, {}))
    assert found(outcome) == set()
    assert {s.name for s in outcome.scenarios} <= NAMES
    assert len(outcome.scenarios) == {"vectors": 5, "exponential": 11}.get(name, len(NAMES))


def test_faults_are_found_in_most_draws_and_nothing_else_is(tmp_path: Path) -> None:
    """Rejects a scenario that could not find its fault. False alarms: 10 ALPHA over choices of the seed."""
    outcome = joint(tmp_path, draws=10)
    assert found(outcome) == set()
    assert (outcome.alarms.found, outcome.alarms.draws) == (0, 10)
    assert {s.name: s.caught.found for s in outcome.scenarios if s.caught.found < 9} == {}


@pytest.mark.parametrize("epsilon", [1e-12, 1e9])
@pytest.mark.parametrize("name", ["laplace", "hyperbolic", "exponential"])
def test_extreme_epsilons_have_joint_releases_too(name: str, epsilon: float, tmp_path: Path) -> None:
    assert found(joint(tmp_path, mechanism=name, epsilon=epsilon, runs=100)) == set()


# Faults of the running code

ROW_KEY, RELEASE_NOISE = ColumnNoise.row_key, Mechanism.release_noise
LAW, CONTEXT, PROTECTED = Laplace.law, Settings._context, Slots.protected
Patch = pytest.MonkeyPatch


def noise_anew(patch: Patch) -> None:
    """A second run of a release has other noise."""
    numbers = count()
    patch.setattr(
        ColumnNoise,
        "row_key",
        lambda self, row_id, content: ROW_KEY(self, row_id, (*content, b"%d" % next(numbers))),
    )


def no_epsilon(patch: Patch) -> None:
    def law(self: Laplace, dimension: int) -> Mapping[str, Any]:
        return {name: value for name, value in LAW(self, dimension).items() if name != "epsilon"}

    patch.setattr(Laplace, "law", law)


def no_content(patch: Patch) -> None:
    patch.setattr(ColumnNoise, "row_key", lambda self, row_id, content: ROW_KEY(self, row_id, ()))


def no_label(patch: Patch) -> None:
    def release_noise(self: Mechanism, key: Any, *, salt: str, **parts: Any) -> ReleaseNoise:
        return RELEASE_NOISE(self, key, salt="", **parts)

    patch.setattr(Mechanism, "release_noise", release_noise)


def no_id(patch: Patch) -> None:
    """All that tells rows apart is the number of the run."""
    patch.setattr(
        ColumnNoise,
        "row_key",
        lambda self, row_id, content: ROW_KEY(self, row_id.partition(b" ")[2], content),
    )


def unknown_words_kept(patch: Patch) -> None:
    patch.setattr(Mask, "stand_in", AS_IT_IS)
    patch.setattr(Drop, "stand_in", AS_IT_IS)


def a_word_that_passes(patch: Patch) -> None:
    patch.setattr(ContentWords, "protected", lambda self, tokens, slots: ~tokens.flag(lambda t: t == "w3"))


def slots_by_their_words(patch: Patch) -> None:
    """Whatever has a word of a slot is protected as well, as it was before slots had positions."""

    def protected(self: Slots, tokens: Tokens, slots: Any) -> np.ndarray:
        inside = PROTECTED(self, tokens, slots)
        marked = {*zip(tokens.rows[inside].tolist(), tokens.codes[inside].tolist(), strict=True)}
        everywhere = zip(tokens.rows.tolist(), tokens.codes.tolist(), strict=True)
        return np.array([token in marked for token in everywhere])

    patch.setattr(Slots, "protected", protected)


def changed_rows_counted_once(patch: Patch) -> None:
    """The account takes all versions of a row for one release."""
    patch.setattr(
        Settings, "_context", lambda self, release: CONTEXT(self, replace(release, row=(release.row_id,)))
    )


def equal_versions_not_told(patch: Patch) -> None:
    """The account adds up losses whichever rows are equal, and versions of a row are equal for one input."""
    patch.setattr(
        joint_releases,
        "joint_loss",
        lambda one, other, losses: min(joint_loss(one, other, losses), sum(losses)),
    )
    edited = next(scenario for scenario in SCENARIOS if scenario.name == "an edited word")
    wrong = replace(edited, released=edited.fault.released)
    patch.setattr("dptext_spark.audit.joint_trial.SCENARIOS", (wrong,))


FAULTS: list[tuple[Callable[[Patch], None], set[str]]] = [
    (noise_anew, {"a row twice", "two release vocabularies", "another selection"}),
    (no_epsilon, {"two epsilons"}),
    (no_content, {"an edited word"}),
    (no_label, {"two tables"}),
    (no_id, {"two rows"}),
    (unknown_words_kept, {"--oov mask", "--oov drop"}),
    (a_word_that_passes, {"--protect content"}),
    (slots_by_their_words, {"--protect slots"}),
    (changed_rows_counted_once, {"an edited row"}),
    (equal_versions_not_told, {"an edited word"}),
]


@pytest.mark.parametrize(("fault", "names"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
def test_a_fault_of_the_running_code_is_found(
    fault: Callable[[Patch], None], names: set[str], tmp_path: Path, monkeypatch: Patch
) -> None:
    fault(monkeypatch)
    assert found(joint(tmp_path)) == names


def test_every_scenario_has_a_fault_of_the_running_code() -> None:
    assert set[str]().union(*(names for _, names in FAULTS)) == NAMES


# What is said


def test_a_share_of_draws_has_exact_bounds() -> None:
    """Clopper and Pearson: (alpha / 2)^(1 / n) and its complement at the ends."""
    least = 0.025 ** (1 / 20)
    assert Share.of(20, 20) == Share(found=20, draws=20, low=pytest.approx(least), high=1.0)
    assert Share.of(0, 20) == Share(found=0, draws=20, low=0.0, high=pytest.approx(1.0 - least))
    assert Share.of(38, 40).describe() == "in 38 of 40 draws (83 to 99 %)"


def command(*arguments: str) -> Any:
    fixed = ["audit", "--mechanism", "laplace", "--epsilon", "2", "--world", "joint"]
    return CliRunner().invoke(main, [*fixed, *arguments])


def test_the_command_says_what_it_found_and_how_to_find_it_again(tmp_path: Path, monkeypatch: Patch) -> None:
    no_label(monkeypatch)
    path = tmp_path / "audit.json"
    result = command("--runs", "12500", "--noise-seed", "3", "--report", str(path))
    assert result.exit_code == 1
    assert "joint (euclidean, 8 words, n=1, 500 runs): 12 pairs of joint releases; VIOLATION" in result.output
    assert "VIOLATION in joint (euclidean): two tables: (w3 | w" in result.output
    (world,) = json.loads(path.read_text())["worlds"]
    (witness,) = world["witnesses"]
    assert witness["kind"] == "joint"
    assert witness["nats"] > witness["claim"] == pytest.approx(2.0)
    assert {s["caught"]["draws"] for s in world["scenarios"]} == {20}
    program, *arguments = shlex.split(witness["command"])
    assert program == "dptext"
    again = CliRunner().invoke(main, arguments)
    assert f"VIOLATION in joint (euclidean): {witness['message']}." in again.output


def test_joint_releases_share_the_runs(monkeypatch: Patch) -> None:
    given = {"mechanism": "laplace", "epsilon": 2.0, "world": ("joint",)}
    seen = []
    monkeypatch.setattr(JointTrial, "run", lambda self: seen.append(self.runs))
    for runs in ({}, {"runs": 8000}, {"runs": 100}):
        verdict.run_audit(AuditOptions.of({**given, **runs}))
    assert seen == [1600, 320, 100]


def test_pairs_of_words_are_not_for_joint_releases() -> None:
    result = command("--pair", "w0:w1")
    assert result.exit_code == 2
    assert "Option --pair is not for world joint" in result.output


def test_releases_that_hide_nothing_have_no_bound(tmp_path: Path) -> None:
    """An unknown word in the place of a known one is told; so are inputs that repeat contexts elsewhere."""
    options = AuditOptions.of({"mechanism": "laplace", "epsilon": 2.0, "world": ("joint",)})
    (world,) = worlds(options, tmp_path)
    settings = Settings(world=world, options=options)
    first, second, unknown = (Release(row=(word,)) for word in ("w3", "w5", "unheardof"))
    compared = SCENARIOS[0].released
    for one, other in [((first,), (unknown,)), ((first, first), (first, second))]:
        nats, _ = settings.claim(replace(compared, one=one, other=other))
        assert nats == np.inf
    nats, delta = settings.claim(replace(compared, one=(first, first), other=(second, second)))
    assert (nats, delta) == (pytest.approx(2.0), 0.0)
