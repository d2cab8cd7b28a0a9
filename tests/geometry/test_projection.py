"""Random projection: its dimension and matrix, and its largest stretch against brute force."""

import numpy as np
import pytest

from dptext_spark.geometry import projection
from dptext_spark.geometry.projection import (
    PublicProjection,
    gaussian_projection,
    least_dimension,
    main_axes,
    spectral_constant,
    vocabulary_constant,
)
from tests.statistical.oracles import stretches


def test_the_paper_s_dimensions():
    """Rejects log(1/delta) without its root, and the natural logarithm of n; off by one, as documented."""
    printed = {0.93: 50, 0.66: 100, 0.468: 200}
    rows = {beta: least_dimension(300, beta, 1e-6) for beta in printed}
    assert rows == {0.93: 51, 0.66: 100, 0.468: 199}
    constants = np.linspace(42.0, 46.0, 40_001)
    fits = [constants * 0 == 0] * 3
    for beta, dimension in printed.items():
        for place, rounding in enumerate((np.floor, np.rint, np.ceil)):
            fits[place] = fits[place] & (rounding(constants / beta**2) == dimension)
    assert [fit.any() for fit in fits] == [True, False, False]
    assert constants[fits[0]][[0, -1]] == pytest.approx([43.80, 44.00], abs=0.01)


def test_the_matrix_is_public_and_never_changes():
    """A release is described by its seed: another matrix for it would make old vectors meaningless."""
    expected = [
        [0.24094114176331896, -1.472692946884688, 1.194771275154092],
        [0.3293855868670054, -0.478184150450898, 0.2554340521202146],
    ]
    np.testing.assert_array_equal(gaussian_projection(0, 2, 3), expected)


def test_images_are_exact_and_do_not_hang_on_the_batch():
    """Rejects `vectors @ matrix.T` by BLAS, and one scale for all rows, which small rows would vanish in."""
    project = PublicProjection(gaussian_projection(3, 54, 300))
    vectors = (
        np.random.default_rng(0).standard_normal((501, 300))
        * np.geomspace(1e-30, 1e30, 501)[:, None]
    )
    vectors[7] = 0.0
    with np.errstate(all="raise"):
        images = project.times(vectors)
    for size in (1, 64):
        parts = [project.times(vectors[i : i + size]) for i in range(0, len(vectors), size)]
        assert np.concatenate(parts).tobytes() == images.tobytes()
    exact = vectors.astype(np.longdouble) @ project.matrix.T.astype(np.longdouble)
    errors = np.linalg.norm((images - exact).astype(np.float64), axis=1)
    assert (
        errors <= project.error * np.linalg.norm(vectors, axis=1)
    ).all() and project.error < 1e-8
    assert not images[7].any() and project.times(vectors[:0]).shape == (0, 54)


def spread(count, columns):
    return np.random.default_rng(count).standard_normal((count, columns)).astype(np.float32)


def near_twins(count, columns):
    """Each vector has one at a small distance, so that their score drowns in single precision."""
    half = spread(count // 2, columns) * 10
    return np.concatenate([half, half + 1e-3 * spread(count // 2, columns)[::-1]]).astype(
        np.float32
    )


VOCABULARIES = {
    "spread": spread,
    "twins": lambda count, columns: np.repeat(spread(count // 3, columns), 3, axis=0),
    "near twins": near_twins,
    "far from the origin": lambda count, columns: spread(count, columns) + np.float32(1e4),
    "one long": lambda count, columns: (
        spread(count, columns) * np.float32([[1e12], [1e-9], [1e-9], *[[1]] * (count - 3)])
    ),
    "tiny": lambda count, columns: spread(count, columns) * np.float32(1e-37),
}


@pytest.fixture(params=[None, (7, 3), (4, 16)], ids=str)
def blocks(request, monkeypatch):
    names = ("_LEFT_BLOCK", "_RIGHT_BLOCK", "_SAMPLED_PAIRS")
    for name, size in zip(names, (*request.param, 1) if request.param else (), strict=False):
        monkeypatch.setattr(projection, name, size)


def assert_exact(vectors, matrix):
    project, largest = PublicProjection(matrix), float(stretches(vectors, matrix).max())
    with np.errstate(all="raise"):
        found = vocabulary_constant(vectors, project)
    assert largest <= found <= largest + project.error + 2.0**-29


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_the_largest_stretch_is_that_of_brute_force(vocabulary):
    for count, columns, rows in ((60, 20, 5), (45, 3, 1), (30, 4, 4)):
        assert_exact(
            VOCABULARIES[vocabulary](count, columns), gaussian_projection(1, rows, columns)
        )


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("pair", [(0, 1), (0, 39), (6, 7), (7, 8), (38, 39)])
def test_the_largest_stretch_is_found_wherever_it_is(pair):
    """Rejects blocks that do not meet, and a diagonal that is cut off by one."""
    matrix, vectors = gaussian_projection(2, 3, 30), spread(40, 30)
    vectors[pair[1]] = vectors[pair[0]] + 0.3 * np.linalg.svd(matrix)[2][0]
    assert_exact(vectors, matrix)


def test_single_precision_without_its_slack_is_rejected(monkeypatch):
    """Vectors are not stretched at all but for near twins: the largest stretch is one of theirs."""
    cases = []
    for seed in range(10):
        matrix = gaussian_projection(seed, 8, 40)
        kernel = np.linalg.svd(matrix)[2][8:]
        flat = spread(60 + seed, 40) @ kernel.T @ kernel
        twins = 10 * flat + 2e-3 * spread(80 + seed, 40)[: len(flat)]
        cases.append((np.concatenate([10 * flat, twins]).astype(np.float32), matrix))
    # Small blocks: the first twins raise the ratio, and the score of the last ones drowns.
    for name, size in (("_LEFT_BLOCK", 8), ("_RIGHT_BLOCK", 8), ("_SAMPLED_PAIRS", 64)):
        monkeypatch.setattr(projection, name, size)
    for case in cases:
        assert_exact(*case)


def test_no_vocabulary_is_stretched_more_than_the_spectral_constant():
    """And one that is not stretched at all has a small bound."""
    for seed in range(3):
        matrix = gaussian_projection(seed, 20, 50)
        spectral, exact = spectral_constant(matrix), float(np.linalg.svd(matrix)[1][0])
        assert exact < spectral < exact + 1e-8
        assert vocabulary_constant(spread(300, 50), PublicProjection(matrix)) < spectral
    matrix = gaussian_projection(0, 2, 3)
    vectors = np.stack([np.zeros(3), np.cross(*matrix)]).astype(np.float32)
    found = vocabulary_constant(vectors, PublicProjection(matrix))
    assert stretches(vectors, matrix).max() < 1e-6 < found < 0.01 * spectral_constant(matrix)


def test_main_axes_stretch_nothing():
    """Rejects axes of another length, the narrowest ones, and a constant that forgets their rounding."""
    rng = np.random.default_rng(4)
    spread_out = rng.standard_normal((400, 12)) * np.geomspace(1.0, 0.01, 12)
    rotation = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    values, axes = np.linalg.eigh(np.cov((spread_out @ rotation).T))
    for rows in (1, 5, 12):
        matrix = main_axes(axes, rows)
        exact = float(np.linalg.svd(matrix)[1][0])
        assert exact <= spectral_constant(matrix) <= 1.0 + 2.0**-20
        assert np.abs(matrix @ matrix.T - np.eye(rows)).max() < 2.0**-20
        explained = np.trace(np.cov(matrix @ (spread_out @ rotation).T).reshape(rows, rows))
        assert explained == pytest.approx(values[::-1][:rows].sum(), rel=1e-4)
        assert (matrix * 2.0**24 == np.rint(matrix * 2.0**24)).all()
