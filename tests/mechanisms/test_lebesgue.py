"""``hyperbolic-lebesgue``: its constants and losses, and the paper's chain as oracle."""

import itertools

import numpy as np
import pytest
from scipy import stats

from dptext_spark.accounting.laws import LebesgueRange, loss_beyond
from dptext_spark.accounting.row_budget import RowBudget
from dptext_spark.geometry.ball import rims
from dptext_spark.mechanisms import HyperbolicIcdm, HyperbolicLebesgue
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.helpers.radii import law, rim_of


def metropolis(word, epsilon, *, chains, steps):
    """End points of independent chains whose law is exp(-epsilon d(x, word)) dx, (chains, n)."""
    rng, n = np.random.default_rng(7), len(word)
    x = rng.standard_normal((chains, n))
    x *= (rng.random(chains) ** (1.0 / n) / np.linalg.norm(x, axis=1))[:, None]
    height = -epsilon * distance(x, word)
    for _ in range(steps):
        scales = 10.0 ** rng.uniform(-2.0, 0.0, (chains, 1))
        proposal = x + scales * rng.standard_normal((chains, n))
        inside = np.square(proposal).sum(axis=1) < 1.0
        proposal = np.where(inside[:, None], proposal, x)
        proposed = -epsilon * distance(proposal, word)
        accepted = inside & (np.log(rng.random(chains)) < proposed - height)
        x = np.where(accepted[:, None], proposal, x)
        height = np.where(accepted, proposed, height)
    return x


def distance(x, word):
    gaps = np.square(x - word).sum(axis=-1)
    return np.arccosh(1.0 + 2.0 * gaps / rims(np.atleast_2d(x)) / (1.0 - word @ word))


def test_draws_are_those_of_a_metropolis_chain(tmp_path):
    """By length, distance and angle; false-alarm rate 1e-4. Rejects the noise that is moved to the word."""
    word, epsilon, count = np.array([0.5, -0.3, 0.2]), 3.0, 6000
    world = worlds.build(tmp_path, [word, -word], geometry="poincare")
    chain = metropolis(word, epsilon, chains=count, steps=400)

    def least(mechanism):
        uniforms = np.random.default_rng(3).random((count, mechanism.uniforms_per_token(3) - 1))
        bound = mechanism.bind(world, ExactSearch.over(world))
        points = bound.points(np.zeros(count, dtype=np.int64), uniforms)
        drawn = points[:, 1:] / (1.0 + np.exp(-points[:, :1]))
        measures = (
            lambda x: np.linalg.norm(x, axis=1),
            lambda x: distance(x, word),
            lambda x: (x @ word) / np.linalg.norm(x, axis=1),
        )
        return 3 * min(stats.ks_2samp(own(chain), own(drawn)).pvalue for own in measures)

    assert least(HyperbolicLebesgue(epsilon=epsilon)) > 1e-4
    assert least(HyperbolicIcdm(epsilon=epsilon)) < 1e-6
    assert least(HyperbolicLebesgue(epsilon=1.3 * epsilon)) < 1e-6


@pytest.mark.parametrize(("n", "epsilon"), [(2, 0.5), (5, 3.0), (5, 60.0), (50, 8.0)])
def test_constants_change_by_what_is_claimed_and_no_less(n, epsilon):
    """Rejects the claim of epsilon: far out, the constant falls by all of the lesser of epsilon and n."""
    radii = np.linspace(0.0, 14.0, 57)
    logs = law(n, epsilon).log_masses(rim_of(radii))
    falls = -np.diff(logs) / np.diff(radii)
    claimed = min(epsilon, n)
    assert (falls >= 0.0).all() and (falls <= claimed + 1e-9).all()
    assert falls[-1] > 0.98 * claimed
    bound = LebesgueRange(dimension=n, epsilon=epsilon).bound(2.0)
    assert bound == pytest.approx(2.0 * (epsilon + claimed), rel=1e-15)


def test_losses_are_bounded_with_and_without_a_delta():
    """On a grid of the disc: rejects epsilon as the interval of losses, and as the largest loss."""
    epsilon, n = 3.0, 2
    words = np.array([[0.0, 0.0], [0.5, 0.1], [0.9, 0.0], [0.93, 0.05], [-0.6, 0.4]])
    radii, angles = np.meshgrid(np.sqrt((np.arange(600) + 0.5) / 600), np.linspace(0, 6.28, 600))
    x = np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=-1).reshape(-1, 2)
    logs = np.stack([-epsilon * distance(x, word) for word in words])
    logs -= np.log(np.exp(logs).sum(axis=1))[:, None]
    claim = LebesgueRange(dimension=n, epsilon=epsilon)
    largest = []
    for one, other in itertools.permutations(range(5), 2):
        between = float(distance(words[one][None], words[other])[0])
        losses, masses = logs[one] - logs[other], np.exp(logs[one])
        assert losses.max() <= claim.bound(between) + 0.02
        assert np.ptp(losses) <= 2.0 * epsilon * between + 0.02
        largest.append(losses.max() / between)
        t = loss_beyond(claim, between, delta=0.01)
        delta = float((masses * -np.expm1(np.minimum(t - losses, 0.0))).sum())
        assert delta <= 0.01
    assert max(largest) > 1.3 * epsilon


def test_rows_keep_to_a_budget(ball, tmp_path):
    """By 2 epsilon; rejects rows that get twice the epsilon that they may, and a refusal where n is 1."""
    budget = RowBudget(loss=30.0, within=2.0)
    epsilons = HyperbolicLebesgue(epsilon=9.0).row_epsilons(budget, ball)
    assert [epsilons.epsilon(words) for words in (1, 2, 10)] == pytest.approx([7.5, 3.75, 0.75])
    line = worlds.build(tmp_path, [[0.1], [-0.2]], geometry="poincare")
    assert HyperbolicLebesgue(epsilon=9.0).row_epsilons(budget, line).epsilon(10) == 0.75
