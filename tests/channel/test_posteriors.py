"""Channels by whole posteriors: densities, laws by counting, sums in any order, enough points.

False alarms: a case of the real mechanism fails at the rate REAL over seeds, which are fixed. Wrong channels
are the package with one part replaced; each must be further from the counts than that.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats

from dptext_spark.accounting.laws import LebesgueLaw, VolumeLaw
from dptext_spark.channel import posteriors as module
from dptext_spark.channel.posteriors import (
    BLOCK_POINTS,
    JUDGED_BLOCKS,
    Guesser,
    LocalRounds,
    PosteriorSums,
)
from dptext_spark.geometry.projection import gaussian_projection
from dptext_spark.mechanisms import (
    Hyperbolic,
    HyperbolicIcdm,
    HyperbolicLebesgue,
    Laplace,
    Mahalanobis,
    Projection,
)
from dptext_spark.mechanisms.hyperbolic import HyperbolicDensity
from dptext_spark.mechanisms.noisy import AdditiveDensity
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch
from tests.helpers.hidden_worlds import law_of, normalised

REAL = 1e-6  # false-alarm rate of one case, over seeds
DRAWS = 120_000
BLOCKS = 150


MECHANISMS = {
    "laplace": (Laplace(epsilon=2.5), "space"),
    "mahalanobis": (Mahalanobis(epsilon=2.5, lambda_=0.8), "space"),
    "projection": (Projection(epsilon=4.0, dimension=3, seed=2), "wide"),
    "hyperbolic": (Hyperbolic(epsilon=2.5), "ball"),
    "hyperbolic-icdm": (HyperbolicIcdm(epsilon=2.0), "ball"),
    "hyperbolic-lebesgue": (HyperbolicLebesgue(epsilon=2.0), "ball"),
    "vickrey": (Laplace(epsilon=3.0, select="vickrey", t=0.4), "space"),
    "vickrey in the ball": (Hyperbolic(epsilon=3.0, select="vickrey", t=0.4), "ball"),
    "ivf": (Laplace(epsilon=2.5), "space"),
}


BALL = Hyperbolic | HyperbolicIcdm | HyperbolicLebesgue


def log_constants(vectors, epsilon):
    """ln of the integral over the disc of exp(-epsilon d(x, w)), for each word, by equal cells."""
    radii = np.sqrt((np.arange(2000) + 0.5) / 2000)
    angles = 2 * np.pi * (np.arange(2000) + 0.5) / 2000
    x = (radii[:, None] * np.exp(1j * angles)).ravel()
    logs = []
    for word in vectors[:, 0] + 1j * vectors[:, 1]:
        cosh = 1 + 2 * np.abs(x - word) ** 2 / (1 - np.abs(x) ** 2) / (1 - abs(word) ** 2)
        logs.append(np.log(np.exp(-epsilon * np.arccosh(cosh)).mean()))
    return np.array(logs)


def by_formula(mechanism, vectors, points):
    """Log-densities of points (t, ...) around the words, float64 (t, V), each as its source has it."""
    n = vectors.shape[1]
    if isinstance(mechanism, BALL):
        p = vectors.astype(np.longdouble)
        squares = np.square(p).sum(axis=1)
        time = (1 + squares) / (1 - squares)
        space = 2 * p / (1 - squares)[:, None]
        q = np.exp(points[:, 0].astype(np.longdouble))
        d = np.arccosh(np.maximum(q[:, None] * (time - points[:, 1:] @ space.T), 1.0))
        if isinstance(mechanism, Hyperbolic):
            return (-mechanism.epsilon * d).astype(np.float64)
        if isinstance(mechanism, HyperbolicLebesgue):
            constants = log_constants(vectors, mechanism.epsilon)
            return (-mechanism.epsilon * d).astype(np.float64) - constants
        # Feyisetan et al. 2019 by Lebesgue measure, over the element of volume (2 / (1 - rho²))^n.
        rho = np.tanh(d / 2)
        log_density = mechanism.epsilon * np.log((1 - rho) / (1 + rho)) + n * np.log(1 - rho**2)
        return log_density.astype(np.float64)
    vectors, scale = vectors.astype(np.float64), mechanism.epsilon
    shape = np.eye(n)
    if isinstance(mechanism, Mahalanobis):
        covariance = np.cov(vectors.T)
        shape = (
            mechanism.lambda_ * covariance * n / np.trace(covariance)
            + (1 - mechanism.lambda_) * shape
        )
    if isinstance(mechanism, Projection):
        matrix = gaussian_projection(mechanism.seed, mechanism.dimension, n)
        pairs = (vectors[:, None] - vectors)[np.triu_indices(len(vectors), 1)]
        stretch = (np.linalg.norm(pairs @ matrix.T, axis=1) / np.linalg.norm(pairs, axis=1)).max()
        vectors, shape, scale = vectors @ matrix.T, np.eye(mechanism.dimension), scale / stretch
    offsets = points[:, None] - vectors
    return -scale * np.sqrt(np.einsum("tvi,ij,tvj->tv", offsets, np.linalg.inv(shape), offsets))


def still_points(mechanism, vectors):
    """Where words are without noise."""
    if isinstance(mechanism, BALL):
        squares = np.square(vectors).sum(axis=1)
        return np.column_stack(
            [np.log((1 + squares) / (1 - squares)), 2 * vectors / (1 + squares)[:, None]]
        )
    if isinstance(mechanism, Projection):
        return (
            vectors @ gaussian_projection(mechanism.seed, mechanism.dimension, vectors.shape[1]).T
        )
    return vectors


@pytest.mark.parametrize(
    "name",
    [
        "laplace",
        "mahalanobis",
        "projection",
        "hyperbolic",
        "hyperbolic-icdm",
        "hyperbolic-lebesgue",
    ],
)
def test_densities_are_those_of_the_papers(built, name):
    """Up to one number for each point; rejects another norm, and a density by another measure."""
    mechanism, world = MECHANISMS[name]
    embedding = built[world]
    vectors = np.asarray(embedding.vectors, dtype=np.float64)
    words = np.array([0, 2, 3, 5, 7])
    bound = mechanism.bind(embedding, ExactSearch.over(embedding))
    density = bound.density(words)
    uniforms = np.random.default_rng(1).random(
        (500, mechanism.uniforms_per_token(vectors.shape[1]) - 1)
    )
    points = bound.points(np.arange(500) % len(vectors), uniforms)
    still = density.still(np.arange(len(vectors)))
    np.testing.assert_allclose(still, still_points(mechanism, vectors), rtol=1e-12, atol=1e-14)
    for given in (points.astype(density.dtype), still):
        computed = density(given).astype(np.float64)
        expected = by_formula(mechanism, vectors, given.astype(np.float64))[:, words]
        assert density(given).dtype == np.float32
        differences = (computed - computed[:, :1]) - (expected - expected[:, :1])
        assert np.abs(differences).max() < 5e-3 * np.sqrt(mechanism.epsilon)
        # The constants' quadrature is good to about 1e-5.
        assert np.median(np.abs(differences)) < (1e-4 if "lebesgue" in name else 1e-5)


def test_single_precision_is_enough_for_many_dimensions(small):
    """Rejects squared distances that lose what tells words apart, at an epsilon that keeps most words."""
    mechanism = Laplace(epsilon=15.0)
    vectors = np.asarray(small.vectors, dtype=np.float64)
    bound = mechanism.bind(small, ExactSearch.over(small))
    points = bound.points(np.arange(300), np.random.default_rng(1).random((300, 51))).astype(
        np.float32
    )
    computed = bound.density(np.arange(300))(points).astype(np.float64)
    expected = by_formula(mechanism, vectors, points.astype(np.float64))
    assert np.abs((computed - computed[:, :1]) - (expected - expected[:, :1])).max() < 1e-3


def drawn(guesser):
    """Outputs of many points, in order, and the points."""
    parts = [guesser.draw(block) for block in range(BLOCKS)]
    outputs = np.concatenate([part.outputs for part in parts])
    order = np.argsort(outputs, kind="stable")
    return outputs[order], np.concatenate([part.points for part in parts])[order]


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Draws of the mechanism itself in a small world, and a guesser."""

    guesser: Guesser
    prior: np.ndarray
    counts: np.ndarray  # (words, outputs), of words drawn by the prior
    drawn: tuple[np.ndarray, np.ndarray]  # outputs in order, and noisy points that have them

    @classmethod
    def of(cls, name, built):
        mechanism, world = MECHANISMS[name]
        embedding = built[world]
        search = ExactSearch.over(embedding)
        if name == "ivf":
            search = IvfSearch.over(embedding, lists=4, probes=1)
        size = len(embedding.words)
        rng = np.random.default_rng(3)
        prior = rng.permutation(1.0 / np.arange(1, size + 1) ** 2.5)
        prior /= prior.sum()
        words = rng.choice(size, DRAWS, p=prior)
        uniforms = rng.random((DRAWS, mechanism.uniforms_per_token(embedding.dimension)))
        outputs = mechanism.bind(embedding, search)(words, uniforms)
        counts = np.bincount(words * size + outputs, minlength=size * size).reshape(size, size)
        guesser = Guesser.of(mechanism, embedding, search, prior, seed=1)
        return cls(guesser=guesser, prior=prior, counts=counts, drawn=drawn(guesser))

    def posterior(self, judging=None, points=None):
        """P[word | output] (words, outputs) by a guesser who judges points."""
        judging = judging or self.guesser
        first = judging.imagined(self.guesser.outputs)
        sums = first.added(judging.sums(*(points or self.drawn)), self.prior)
        channel = sums.channel(self.prior, outputs=len(self.prior), size=0, difference=None)
        return normalised(self.prior[:, None] * law_of(channel))

    def excess(self, posterior):
        """By how much a chi-square statistic of the counts is above its limit: 1 or less is no alarm."""
        # The channel's own error adds no more variance than as many draws as it has points would, of
        # weights up to 2. Cells of few expected draws are pooled.
        totals = self.counts.sum(axis=0)
        expected = posterior * totals
        is_rare = expected < 10.0
        pooled = [np.where(is_rare, table, 0.0).sum(axis=0) for table in (self.counts, expected)]
        distance = np.square(self.counts - expected)[~is_rare] / expected[~is_rare]
        statistic = distance.sum()
        has_pool = pooled[1] >= 10.0
        statistic += (np.square(pooled[0] - pooled[1])[has_pool] / pooled[1][has_pool]).sum()
        cells = np.count_nonzero(~is_rare) + np.count_nonzero(has_pool)
        freedom = cells - np.count_nonzero(totals)
        limit = stats.chi2.isf(REAL, freedom) * (1.0 + 2.0 * DRAWS / (BLOCKS * BLOCK_POINTS))
        return statistic / limit


def density_of(counted, name, built, **changed):
    """The density of the case's mechanism with some part changed."""
    mechanism, world = MECHANISMS[name]
    bound = mechanism.bind(built[world], ExactSearch.over(built[world]))
    return replace(bound, **changed).density(counted.guesser.words)


def wrong_ways(counted, name, built):
    """Wrong channels by name: P[word | output]."""
    guesser, posterior = counted.guesser, counted.posterior
    uniform = np.full(len(guesser.prior), 1.0 / len(guesser.prior))
    without_prior = replace(guesser, prior=uniform, drawn=guesser.drawn / guesser.prior * uniform)
    mechanism, world = MECHANISMS[name]
    embedding = built[world]
    louder = mechanism.at(1.25 * mechanism.epsilon).bind(embedding, ExactSearch.over(embedding))
    law = posterior() / counted.prior[:, None]
    yield "without the prior", posterior(without_prior)
    yield "of another epsilon", posterior(replace(guesser, density=louder.density(guesser.words)))
    yield "transposed", normalised(counted.prior[:, None] * law.T)
    if not isinstance(mechanism, BALL) or mechanism.t is not None:
        # Elsewhere in the ball rare words hardly share outputs with frequent ones: weights change little.
        yield "without weights of drawn words", posterior(replace(guesser, drawn=guesser.prior))
    if isinstance(mechanism, HyperbolicLebesgue):
        noise = Hyperbolic(epsilon=mechanism.epsilon).bind(embedding, ExactSearch.over(embedding))
        density = HyperbolicDensity(noise, guesser.words)
        yield "of one constant for all words", posterior(replace(guesser, density=density))
    if isinstance(mechanism, Hyperbolic | HyperbolicIcdm):
        kind = LebesgueLaw if isinstance(mechanism, Hyperbolic) else VolumeLaw
        law = kind(dimension=embedding.dimension, epsilon=mechanism.epsilon)
        density = density_of(counted, name, built, law=law)
        yield "by the other measure", posterior(replace(guesser, density=density))
    if isinstance(mechanism, Mahalanobis):
        density = density_of(counted, name, built, norm=None)
        yield "in the Euclidean norm", posterior(replace(guesser, density=density))
    if name.startswith("vickrey"):
        bound = replace(guesser.bound, vickrey=None)
        yield "of the nearest words alone", posterior(points=drawn(replace(guesser, bound=bound)))
    if name == "ivf":
        exact = mechanism.bind(embedding, ExactSearch.over(embedding))
        yield "of the exact search", posterior(points=drawn(replace(guesser, bound=exact)))


@pytest.mark.statistical
@pytest.mark.parametrize("name", MECHANISMS)
def test_posteriors_are_those_of_draws_of_the_mechanism(built, name):
    """Chi-square of words by output, of draws that no density was asked for; wrong channels are rejected."""
    counted = Counted.of(name, built)
    assert counted.excess(counted.posterior()) <= 1.0
    for wrong, posterior in wrong_ways(counted, name, built):
        assert counted.excess(posterior) > 1.0, wrong


def guesser_of(embedding, mechanism, *, words):
    """A guesser of the first so many words."""
    prior = np.zeros(len(embedding.words))
    prior[:words] = 1.0 / np.arange(1, words + 1)
    prior /= prior.sum()
    return Guesser.of(mechanism, embedding, ExactSearch.over(embedding), prior, seed=4), prior


FIELDS = ("outputs", "weight", "keys", "total")


def one_by_one(density, points):
    """Laplace log-densities without a matrix product."""
    gaps = points[:, None].astype(np.float32) - density._centres
    return -density._noise.rate * np.sqrt(np.square(gaps).sum(axis=2))


def test_sums_do_not_depend_on_order_or_parts(small, monkeypatch):
    """To the last bit, with more words than cells. Rejects floating-point sums, and cells of parts.

    Densities come one by one here: in a matrix product, their last bits may hang on the place in the matrix.
    """
    monkeypatch.setattr(module, "MOST_CELLS", 40)
    monkeypatch.setattr(AdditiveDensity, "__call__", one_by_one)
    guesser, prior = guesser_of(small, Laplace(epsilon=6.0), words=150)
    parts = [guesser.draw(block) for block in range(3)]
    outputs = np.concatenate([part.outputs for part in parts])
    points = np.concatenate([part.points for part in parts])
    order = np.argsort(outputs, kind="stable")
    sums = guesser.sums(outputs[order], points[order])
    assert len(sums.keys) == 40 * len(sums.outputs) and (np.diff(sums.keys) > 0).all()
    shuffled = np.lexsort((np.random.default_rng(1).permutation(len(outputs)), outputs))
    again = guesser.sums(outputs[shuffled], points[shuffled])
    # Each output's points in one part, of which there are three, at borders that cut no block of points.
    dealt = []
    for number in range(3):
        chosen = shuffled[outputs[shuffled] % 3 == number]
        dealt.append(guesser.sums(outputs[chosen], points[chosen]))
    monkeypatch.setattr(module, "_CELLS", 1000)
    in_small_parts = guesser.sums(outputs[order], points[order])
    joined = PosteriorSums.joined(dealt, vocabulary=len(prior))
    for other in (again, joined, in_small_parts):
        for field in FIELDS:
            np.testing.assert_array_equal(getattr(other, field), getattr(sums, field))


@pytest.mark.parametrize("most", [1, 3, 50])
def test_the_likeliest_cells_are_those_of_a_sort(most, monkeypatch):
    """Rejects tied cells beyond the room, of which the last come first, and outputs with few cells cut."""
    monkeypatch.setattr(module, "MOST_CELLS", most)
    rng = np.random.default_rng(most)
    outputs = np.repeat(np.arange(40), rng.integers(1, 12, 40))
    total = rng.integers(0, 4, len(outputs)).astype(np.float64)  # many are equal
    order = np.lexsort((-total, outputs))
    rank = np.arange(len(order)) - np.searchsorted(outputs[order], outputs[order])
    expected = np.sort(order[rank < most])
    np.testing.assert_array_equal(module._likeliest_cells(outputs, total), expected)


def test_what_has_no_cell_shares_what_is_left(small, monkeypatch):
    """By the prior: rejects cells whose rest is lost, and a rest that words with cells share."""
    guesser, prior = guesser_of(small, Laplace(epsilon=6.0), words=150)
    rounds = LocalRounds(guesser=guesser)
    whole = rounds.imagined().added(rounds.drawn(range(2)), prior)
    monkeypatch.setattr(module, "MOST_CELLS", 20)
    first = rounds.imagined()
    drawn = rounds.drawn(range(2))
    sums = first.added(drawn, prior)
    np.testing.assert_allclose(sums.weight, whole.weight, rtol=1e-12)
    channel = sums.channel(prior, outputs=200, size=0, difference=None)
    exact = whole.channel(prior, outputs=200, size=0, difference=None)
    mass = (prior[:, None] * law_of(channel)).sum(axis=0)
    np.testing.assert_allclose(mass, sums.weight / sums.weight.sum(), rtol=1e-6)
    np.testing.assert_allclose(mass, (prior[:, None] * law_of(exact)).sum(axis=0), rtol=1e-6)
    likeliest = (prior[:, None] * law_of(exact)).argmax(axis=0)
    assert ((prior[:, None] * law_of(channel)).argmax(axis=0) == likeliest).mean() > 0.99
    # Of one output by hand: a cell of one alone has the other's rest.
    words = sums.keys[sums.keys // 300 == 7] % 300
    lists = [
        dict(zip(part.keys.tolist(), part.total.tolist(), strict=True)) for part in (first, drawn)
    ]
    totals = dict(zip(sums.keys.tolist(), sums.total.tolist(), strict=True))
    for word in words.tolist():
        expected = 0.0
        for part, cells in zip((first, drawn), lists, strict=True):
            listed = {key % 300: total for key, total in cells.items() if key // 300 == 7}
            place = part.outputs.tolist().index(7)
            rest = part.weight[place] - sum(listed.values())
            rest /= 1.0 - prior[list(listed)].sum()
            expected += listed.get(word, prior[word] * rest)
        assert totals[7 * 300 + word] == pytest.approx(expected, rel=1e-9)


def test_points_are_drawn_until_half_of_them_do_as_well(built, monkeypatch):
    """Rejects a limit that is not looked at, and a difference that is judged on the points drawn."""
    mechanism = MECHANISMS["laplace"][0]
    guesser, prior = guesser_of(built["space"], mechanism, words=10)
    rounds = LocalRounds(guesser=guesser)
    monkeypatch.setattr(module, "_MOST_BLOCKS", 8)
    loose = rounds.channel(prior, outputs=10, limit=1.0)
    endless = rounds.channel(prior, outputs=10, limit=-1.0)
    assert (loose.size, endless.size) == (BLOCK_POINTS, 8 * BLOCK_POINTS)
    half = rounds.imagined()
    for blocks in (range(1), range(1, 2), range(2, 4)):
        half = half.added(rounds.drawn(blocks), prior)
    every = half.added(rounds.drawn(range(4, 8)), prior)
    judged = [guesser.draw(block, judged=True) for block in range(JUDGED_BLOCKS)]
    points = np.concatenate([part.points for part in judged]).astype(np.float64)
    outputs = np.concatenate([part.outputs for part in judged])
    vectors = np.asarray(built["space"].vectors, dtype=np.float64)
    posterior = prior * np.exp(by_formula(mechanism, vectors, points))
    posterior /= posterior.sum(axis=1, keepdims=True)
    right = [
        posterior[np.arange(len(points)), sums.guesses()[outputs]].mean() for sums in (half, every)
    ]
    assert endless.difference == pytest.approx(right[1] - right[0], abs=1e-6)
    # As many rounds as it takes, and no more.
    differences = []
    for most in (1, 2):
        monkeypatch.setattr(module, "_MOST_BLOCKS", most)
        differences.append(rounds.channel(prior, outputs=10, limit=-1.0).difference)
    assert differences[0] > differences[1] >= 0.0
    monkeypatch.setattr(module, "_MOST_BLOCKS", 8)
    assert rounds.channel(prior, outputs=10, limit=differences[0]).size == BLOCK_POINTS
    assert rounds.channel(prior, outputs=10, limit=0.99 * differences[0]).size == 2 * BLOCK_POINTS
    # Points are judged that come by the prior itself, and that were not drawn.
    frequent = np.bincount(np.concatenate([part.words for part in judged]), minlength=10)
    assert stats.chisquare(frequent, prior * len(points)).pvalue > REAL
    assert not np.isin(points[:, 0], guesser.draw(0).points[:, 0].astype(np.float64)).any()
