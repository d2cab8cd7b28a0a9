"""Bundles in half precision: rounded before all else, and computed with as if they were not short."""

import numpy as np
import pytest

from dptext_spark.calibration.rays import NearestOnRays
from dptext_spark.channel.channel import Channel
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.lists import make_lists
from dptext_spark.errors import BundleError
from dptext_spark.geometry.products import gamma, words_times
from dptext_spark.mechanisms import mechanism
from dptext_spark.mechanisms.exponential import NearByScreening
from dptext_spark.options import EmbeddingOptions
from dptext_spark.sealing import sealed, unsealed
from dptext_spark.search.codes import CodedWords
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch
from tests.helpers import worlds
from tests.helpers.bundles import WORDS, ball_of, glove, vectors_of

MECHANISMS = (
    "laplace",
    "laplace:select=vickrey,t=0.4",
    "mahalanobis:lambda=0.3",
    "exponential",
    "exponential:truncate=0.5",
    "projection:dimension=20",
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two bundles of the same numbers, which half precision has: in half and in single precision."""
    numbers = worlds.uneven(1100, 24).astype(np.float16)
    bundles = []
    for precision in ("half", "single"):
        folder = tmp_path_factory.mktemp(precision)
        bundles.append(worlds.build(folder, numbers, precision=precision))
        make_lists(bundles[-1], 12)
    return bundles


def test_a_half_bundle_computes_what_a_single_one_of_the_same_numbers_does(pair):
    """Rejects products, differences and sums in half precision, and norms of other numbers."""
    half, single = pair
    assert (half.vectors.dtype, single.vectors.dtype) == (np.float16, np.float32)
    assert isinstance(half.vectors, np.memmap)
    assert half.fingerprint != single.fingerprint
    for file in single.path.glob("*.npy"):
        if file.name != "vectors.npy":
            assert (half.path / file.name).read_bytes() == file.read_bytes()
    words = np.arange(0, 1100, 7)
    others = words[::-1]
    measured = []
    for embedding in pair:
        metric = embedding.space.metric()
        points = np.random.default_rng(3).standard_normal((700, 24)) * 0.7
        exact = ExactSearch.over(embedding).of_words(embedding)
        lists = IvfSearch.over(embedding, lists=12, probes=3).of_words(embedding)
        channel = Channel.uniform(1100, 2)
        codes = CodedWords.of(np.asarray(embedding.vectors), 8)
        rays = NearestOnRays(exact, points[:9], np.full((2, 9), 0.3))
        measured.append(
            [
                metric.between(words, others),
                metric.to_all(words),
                *metric.nearest(words, (1, 10)),
                metric.largest(),
                embedding.space.variance,
                exact(points),
                *exact.nearest_two(points),
                lists(points),
                *lists.nearest_two(points),
                channel.means(np.full(1100, 1 / 1100), embedding.vectors),
                codes.codes,
                rays.chosen(points[:4], None, np.zeros(9)),
            ]
        )
    for of_half, of_single in zip(*measured, strict=True):
        np.testing.assert_array_equal(of_half, of_single)


@pytest.mark.parametrize("spec", MECHANISMS)
def test_mechanisms_release_the_same_words_by_the_same_uniforms(spec, pair):
    """Rejects screening and bounds of distances in half precision, and constants of other numbers."""
    configured = mechanism(spec, epsilon=6.0)
    inputs = np.arange(900) % 1100
    uniforms = np.random.default_rng(0).random((900, configured.uniforms_per_token(24)))
    released = []
    for embedding in pair:
        search = ExactSearch.over(embedding)
        bound = configured.bind(embedding, search)
        guarantee = configured.guarantee(embedding, search=search).to_json()
        del guarantee["fingerprint"]
        released.append((bound(inputs, uniforms.copy()).tolist(), guarantee))
    assert released[0] == released[1]


def test_bounds_of_distances_and_products_are_those_of_single_precision(pair):
    """Rejects differences in half precision, and scores of another product than single precision's."""
    _, single = pair
    rng = np.random.default_rng(5)
    words = rng.integers(1100, size=4000)
    rows = rng.integers(1000, size=4000)
    bounds = []
    for embedding in pair:
        near = NearByScreening(
            metric=embedding.space.metric(),
            half_norms=embedding.space.half_norms[:1000],
            release_words=1000,
        )
        bounds.append(np.array(near.bounds(words, rows)))
    np.testing.assert_array_equal(*bounds)
    points = rng.standard_normal((70, 24)).astype(np.float32)
    exact = np.abs(single.vectors).astype(np.float64) @ np.abs(points).T.astype(np.float64)
    for embedding in pair:
        products = words_times(embedding.vectors, points)
        errors = np.abs(products - single.vectors.astype(np.float64) @ points.T.astype(np.float64))
        assert products.dtype == np.float32 and (errors <= gamma(24) * exact).all()


@pytest.mark.parametrize("normalize", ["none", "unit"])
def test_vectors_are_rounded_once_before_all_else(normalize, tmp_path):
    """Rejects norms of the numbers of the source, and vectors that are rounded and scaled after it."""
    rows = vectors_of(400, 30)
    source = glove(tmp_path / "g.txt", worlds.words(400), rows)
    half = build_embedding(source, tmp_path / "h", normalize=normalize, precision="half")
    expected = rows.astype(np.float64)
    if normalize == "unit":
        expected /= np.sqrt(np.square(expected).sum(axis=1))[:, None]
        twice = rows.astype(np.float16).astype(np.float64)
        twice /= np.sqrt(np.square(twice).sum(axis=1))[:, None]
        assert (twice.astype(np.float16) != expected.astype(np.float16)).any()
    np.testing.assert_array_equal(half.vectors, expected.astype(np.float16))
    exact = np.square(half.vectors.astype(np.float64)).sum(axis=1) / 2
    np.testing.assert_array_equal(half.space.half_norms, exact.astype(np.float32))
    assert (exact != np.square(expected).sum(axis=1) / 2).all()
    assert half.manifest.precision == "half"
    assert "30 dimensions in half precision" in half.manifest.describe()
    single = build_embedding(source, tmp_path / "s", normalize=normalize)
    sizes = [(bundle.path / "vectors.npy").stat().st_size - 128 for bundle in (half, single)]
    assert sizes == [400 * 30 * 2, 400 * 30 * 4]


def test_what_half_precision_cannot_hold_is_left_out_or_refused(tmp_path):
    """Rejects infinities, vectors that lose their digits, and a ball of few digits at its edge."""
    names = worlds.words(40)
    rows = vectors_of(40, 3)
    rows[4] = [70_000, 1, 1]
    rows[7] = 1e-3
    source = glove(tmp_path / "g.txt", names, rows)
    left_out = []
    half = build_embedding(source, tmp_path / "h", precision="half", left_out=left_out)
    assert len(half.words) == 38
    assert [reason.describe() for reason in left_out] == [
        "1 row, the vector holds NaN, an infinity or a number too large (line 5)",
        "1 row, the vector's length is not between 0.01 and 65504 (line 8)",
    ]
    assert len(build_embedding(source, tmp_path / "s").words) == 40
    for options in ({"geometry": "poincare", "precision": "half"}, {"precision": "double"}):
        with pytest.raises(BundleError, match=r"cannot have precision (half|double)\. Allowed: "):
            worlds.build(tmp_path, ball_of(9, 2), **options)
    given = {"source": "g.txt", "output": "b", "precision": "half"}
    assert EmbeddingOptions.of(given).precision == "half"


@pytest.mark.parametrize("geometry", ["euclidean", "poincare"])
def test_a_bundle_of_before_has_the_one_precision_of_its_geometry(geometry, tmp_path):
    """Rejects a manifest that must name what no bundle named."""
    bundle = worlds.build(tmp_path, ball_of(len(WORDS), 2) + 1e-9, geometry=geometry)
    manifest = bundle.path / "manifest.json"
    entries = unsealed(manifest.read_bytes())
    assert entries.pop("precision") == {"euclidean": "single", "poincare": "double"}[geometry]
    manifest.write_bytes(sealed(entries))
    assert Embedding.open(bundle.path).manifest == bundle.manifest
