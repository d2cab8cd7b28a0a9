"""Released vectors: projected, noised, rounded to the public grid, the same however the rows are cut."""

import math

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from threadpoolctl import threadpool_limits

from dptext_spark import vector_sanitizer as vectors
from dptext_spark.errors import BundleError, InputError
from dptext_spark.mechanisms.vectors import ProjectedVectors, PublicPrior
from dptext_spark.noise import ReleaseNoise
from dptext_spark.text.policies import WORDS_ALONE
from dptext_spark.text.tokens import PLAIN, Segmentation, tokenize
from dptext_spark.vector_sanitizer import VectorSanitizer
from dptext_spark.word_reader import WordReader
from tests.helpers import worlds


def mechanism(length=300, **parameters):
    return ProjectedVectors(**{"epsilon": 10.0} | parameters).of_length(length)


def sanitizer(used, embedding=None, *, tokenizer=PLAIN, by_word=False):
    """A release under the fixed key."""
    fingerprint = embedding.fingerprint if embedding else ""
    noise = ReleaseNoise.of(
        worlds.KEY, salt="", noise_parameters=used.noise_parameters(), fingerprint=fingerprint
    )
    reader = embedding and WordReader(
        bundle=embedding, policy=WORDS_ALONE.model_copy(update={"tokenizer": tokenizer})
    )
    return VectorSanitizer(mechanism=used, noise=noise, reader=reader, by_word=by_word)


def lists(rows, kind=None):
    """An Arrow column of float32 lists, unless another kind of number is asked for."""
    return pa.array(
        [None if row is None else list(row) for row in rows], pa.list_(kind or pa.float32())
    )


def random_lists(rows):
    """300 numbers a row, of length about 1."""
    return lists(
        np.random.default_rng(1).normal(0, 1 / math.sqrt(300), (rows, 300)).astype(np.float32)
    )


def run(private, values, ids=None, column="v", **options):
    ids = range(len(values)) if ids is None else ids
    return private.sanitize(values, pa.array(ids), column=column, **options).values.to_pylist()


@pytest.fixture(scope="module")
def release():
    return sanitizer(mechanism())


def test_a_row_is_a_pure_function_of_key_id_and_content(release, monkeypatch):
    values, ids = random_lists(50), list(range(50))
    whole = run(release, values)
    assert len({tuple(row) for row in whole}) == 50
    assert run(release, values.take(ids[::-1]), ids[::-1]) == whole[::-1]
    assert [run(release, values[i : i + 1], [i])[0] for i in ids] == whole
    assert run(release, values, [str(i) for i in ids]) == whole
    with threadpool_limits(limits=2):
        assert run(sanitizer(mechanism()), values) == whole
    monkeypatch.setattr(vectors, "CHUNK", 7)
    assert run(release, values) == whole
    assert (
        run(release, values, [i + 50 for i in ids]) != whole != run(release, values, column="other")
    )
    one, other = run(release, values.take([0, 0]))
    assert one != other


def test_either_width_of_floats_gives_the_same_numbers_and_nulls_stay(release):
    narrow = lists([None, *random_lists(3).to_pylist(), None])
    wide, large = narrow.cast(pa.list_(pa.float64())), narrow.cast(pa.large_list(pa.float32()))
    for values in (narrow, wide, large):
        result = release.sanitize(values, pa.array(range(5)), column="v")
        assert result.values.type == values.type and result.values.to_pylist() == run(
            release, narrow
        )
        assert [row is None for row in result.values.to_pylist()] == [
            True,
            False,
            False,
            False,
            True,
        ]
        assert result.counts.null.tolist() == [1, 0, 0, 0, 1]
        assert result.counts.released.tolist() == [0, 1, 1, 1, 0]
    assert run(release, narrow)[2] == run(release, narrow[2:3], [2])[0]
    assert run(release, lists([]), pa.array([], pa.int64())) == []
    assert run(release, lists([[0.0] * 300])) == run(release, lists([[-0.0] * 300]))  # one content


def test_numbers_that_cannot_be_released(release):
    good = [0.125] * 300
    odd = [
        [*good, 0.5],
        [],
        [None, *good[1:]],
        [math.nan, math.inf, *good[2:]],
        [-math.inf, *good[1:]],
    ]
    faults = "2 vectors of another length than 300, 1 elements that are null, 3 elements that are infinite"
    with pytest.raises(InputError, match=faults) as caught:
        run(release, lists([good, *odd]))
    assert "0.125" not in str(caught.value)


@pytest.mark.parametrize("longest", [1e12, 1e300])
def test_vectors_too_long_for_the_grid_are_refused_with_the_length_that_fits(longest):
    used = mechanism(3)
    private, below = sanitizer(used), used.longest * 0.999
    rows = [[0.0, longest, -longest], [0.0, 0.0, 0.0], [below, 0.0, 0.0], [used.longest] * 3]
    with pytest.raises(InputError, match=r"length below [\d.e+]+, .*Got: 2 longer vectors"):
        run(private, lists(rows, pa.float64()))
    got = np.array(run(private, lists(rows[1:3], pa.float64())))
    assert representable(got, used.grid) and np.abs(got).max() > below / 2


def test_wrong_types_and_ids(release, line):
    texts, pair = sanitizer(mechanism(1), line), random_lists(2)
    for private, values, ids, message in [
        (release, pa.array(["text"]), [1], "Allowed: list of float32 or float64. Got: string"),
        (release, pa.array([[1, 2]]), [1], "Got: list<"),
        (texts, lists([[1.0]]), [1], "Allowed: string. Got: list<"),
        (texts, pa.array([b"\xff\xfe"]).view(pa.string()), [1], "not valid UTF-8"),
        (release, pair, [1], "Column v has 2 rows but 1 id"),
        (release, pair, [1, None], "must not be null"),
    ]:
        with pytest.raises(InputError, match=message):
            run(private, values, ids)
    worker = vectors.VectorWorker(sanitizers=(("v", release),))
    passed = worker.sanitize(lists([None, None]), pa.array([1, 2]), column="w")
    assert (passed.values.to_pylist(), passed.counts.null.tolist()) == ([None, None], [1, 1])
    with pytest.raises(InputError, match="were not there when the job began"):
        worker.sanitize(lists([None, [1.0]]), pa.array([1, 2]), column="w")


def representable(values, grid):
    """Whether all numbers are whole multiples of the grid that float32 holds with a bit to spare."""
    steps = values / grid
    return bool((steps == np.rint(steps)).all() and (np.abs(steps) < 2.0**23).all())


def test_a_text_is_the_average_of_its_known_words(small):
    """At a huge epsilon the noise is gone: what is left is the average, rounded."""
    used = mechanism(50, epsilon=1e3)
    texts = ["w0", "w1 w2", "W1, w2; nothing w1", None, "", "unheard of", "w7 " * 5000]
    result = sanitizer(used, small).sanitize(
        pa.array(texts), pa.array(range(len(texts))), column="t"
    )
    assert result.values.type == pa.list_(pa.float32()) and result.values[3].as_py() is None
    names = {name: row for row, name in enumerate(small.words.to_pylist())}
    for text, got in zip(texts, result.values.to_pylist(), strict=True):
        rows = [names[word.lower()] for word in tokenize(text or "") if word.lower() in names]
        average = small.vectors[rows].astype(np.float64).sum(axis=0) / max(len(rows), 1)
        image = used.projection.matrix @ average
        assert text is None or np.linalg.norm(np.array(got) - image) < 200 * used.scale
    counts = result.counts
    assert counts.known.tolist() == [1, 2, 3, 0, 0, 0, 5000]
    assert counts.unknown.tolist() == [0, 0, 1, 0, 0, 2, 0]
    assert counts.wordless.tolist() == [0, 0, 0, 0, 1, 1, 0]
    assert counts.released.tolist() == [1, 1, 1, 0, 1, 1, 1]


def test_texts_are_cut_without_a_trace_and_share_no_noise(small, tmp_path, monkeypatch):
    """Long texts are summed in parts that start at the text's first word, whatever stands before it."""
    # Rejects noise by content alone: the averages of two tokenizers would tell their difference.
    private, icu = (
        sanitizer(mechanism(50), small, tokenizer=Segmentation.of(t)) for t in ("words", "icu")
    )
    of_one_average = pa.array(["w1 w2", "w1  w2", "w2 w1", "w1 w2 unheardof", "", "unheardof"])
    rows = [
        *run(private, of_one_average, [1] * 6, trust_id=True),
        *run(icu, of_one_average, [1] * 6, trust_id=True),
    ]
    assert len({tuple(row) for row in rows}) == 12
    rng = np.random.default_rng(5)
    texts = [
        " ".join(f"w{i}" for i in rng.integers(0, 400, size))
        for size in (3, 9000, 0, 1, 2048, 4097)
    ]
    whole = run(private, pa.array(texts))
    assert [run(private, pa.array(texts[i : i + 1]), [i])[0] for i in range(6)] == whole
    assert run(private, pa.array(texts).cast(pa.large_string())) == whole
    monkeypatch.setattr("dptext_spark.text.columns.SLICE_BYTES", 10)
    assert run(private, pa.array(texts)) == whole
    bundle = worlds.build(tmp_path, worlds.uneven(2, 3), ["\u6211", "\u559c\u6b22"])
    icu = sanitizer(mechanism(3), bundle, tokenizer=Segmentation.of("icu"))
    assert (
        icu.sanitize(pa.array(["\u6211\u559c\u6b22"]), pa.array([1]), column="t").counts.known[0]
        == 2
    )


def bag_sanitizer(kgrams=2, tokenizer=PLAIN, **parameters):
    """A release of bags under the fixed key."""
    used = ProjectedVectors(**{"epsilon": 10.0, "kgrams": kgrams} | parameters).of_bags()
    noise = ReleaseNoise.of(
        worlds.KEY, salt="", noise_parameters={"same": "for all"}, fingerprint=""
    )
    return VectorSanitizer(mechanism=used, noise=noise, reader=used.bags(tokenizer))


@pytest.mark.parametrize("projection", [None, "random"])
def test_bags_are_released_with_their_counts(projection):
    """At a huge epsilon the noise is gone; rejects a projection that is not the public one."""
    texts = ["play the song", "", None, "song", "Play THE song!"]
    private = bag_sanitizer(epsilon=1e3, dimension=40, projection=projection)
    result = private.sanitize(pa.array(texts), pa.array(range(5)), column="t")
    assert result.values.type == pa.list_(pa.float32()) and result.values[2].as_py() is None
    present = [text for text in texts if text is not None]
    used = private.mechanism
    expected = used.bags(PLAIN).read(pa.array(present), "t").vectors @ used.projection.matrix.T
    got = np.array([row for row in result.values.to_pylist() if row is not None])
    assert np.abs(got - expected).max() < 100 * used.scale
    assert representable(got, used.grid)
    counts = result.counts
    assert (counts.known.tolist(), counts.unknown.tolist()) == ([2, 0, 0, 1, 2], [0] * 5)
    assert (counts.wordless.tolist(), counts.null.tolist()) == ([0, 1, 0, 0, 0], [0, 0, 1, 0, 0])
    with pytest.raises(InputError, match=r"Allowed: string\. Got: list<"):
        run(private, lists([[1.0]]))


def test_bags_share_no_noise(monkeypatch):
    """Rejects noise by content alone: two bags of one text would tell their difference."""
    icu = Segmentation.of("icu")
    kinds = [bag_sanitizer(1, dimension=6), bag_sanitizer(2, dimension=6)]
    kinds += [bag_sanitizer(1, dimension=6, tokenizer=icu)]
    texts = pa.array(["", "", "play the song", "play  the song"])
    whole = [run(kind, texts) for kind in kinds]
    # Of the empty text the noise alone is released.
    assert len({tuple(row) for rows in whole for row in rows}) == 12
    monkeypatch.setattr(vectors, "CHUNK", 1)
    assert [run(kind, texts) for kind in kinds] == whole
    assert run(kinds[1], texts[::-1], [3, 2, 1, 0]) == whole[1][::-1]


def test_the_noise_of_bags_is_of_epsilon():
    """Rejects noise of another epsilon or of n dimensions, and a bag that is not what was hashed."""
    texts = [f"play song {row % 7}" for row in range(3000)]
    private = bag_sanitizer(1, epsilon=8.0, dimension=6)
    bags = private.mechanism.bags(PLAIN).read(pa.array(texts), "t").vectors.toarray()
    lengths = np.linalg.norm(np.array(run(private, pa.array(texts))) - bags, axis=1)
    law = stats.gamma(6, scale=1 / 8.0)
    assert stats.kstest(lengths, law.cdf).pvalue > 1e-4  # the false-alarm rate
    for wrong in (stats.gamma(6, scale=1 / 9.0), stats.gamma(5, scale=1 / 8.0)):
        assert stats.kstest(lengths, wrong.cdf).pvalue < 1e-4


def test_a_bundle_that_changes_while_it_is_in_use_gives_no_vectors(tmp_path):
    bundle = worlds.build(tmp_path, worlds.uneven(20, 3))
    private = sanitizer(mechanism(3), bundle)
    assert len(run(private, pa.array(["w1 w2"]))) == 1
    file = bundle.path / "vectors.npy"
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(BundleError, match=r"changed while it was in use.*vectors\.npy"):
        run(private, pa.array(["w1 w2"]))


def by_axes(bundle, epsilon, **parameters):
    """Vectors of a bundle's words, projected to its main axes."""
    prior = PublicPrior.of(bundle.space)
    return ProjectedVectors(epsilon=epsilon, **parameters).of_length(bundle.dimension, prior)


WORD_LISTS = [["w3", None, "W7", "", "nowhere", "w3"], None, [], ["w0"]]


@pytest.mark.parametrize("kind", ["lists", "texts"])
def test_each_word_has_a_vector_in_its_place(small, kind):
    """Rejects shuffled positions, an unknown word that shows, and one noise for equal words."""
    # At a huge epsilon the noise is gone: what is left are images.
    used = by_axes(small, 1e3, dimension=20)
    values = pa.array(WORD_LISTS)
    expected = WORD_LISTS
    if kind == "texts":
        values = pa.array(["w3 W7, nowhere w3", None, "", "w0"])
        expected = [["w3", "w7", "nowhere", "w3"], None, [], ["w0"]]
    private = sanitizer(used, small, by_word=True)
    result = private.sanitize(values, pa.array(range(4)), column="t")
    assert result.values.type == pa.list_(pa.list_(pa.float32()))
    names = {name: row for row, name in enumerate(small.words.to_pylist())}
    for words, row_vectors in zip(expected, result.values.to_pylist(), strict=True):
        assert (words is None) == (row_vectors is None)
        for word, vector in zip(words or [], row_vectors or [], strict=True):
            assert (not word) == (vector is None)
            if word:
                row = names.get(word.lower())
                image = np.zeros(20)
                if row is not None:
                    image = used.projection.matrix @ small.vectors[row].astype(float)
                assert np.linalg.norm(np.array(vector) - image) < 200 * used.scale
    released = [vector for row in result.values.to_pylist() for vector in row or [] if vector]
    assert len({tuple(vector) for vector in released}) == 5  # the two w3 differ
    counts = result.counts
    assert (counts.known.tolist(), counts.unknown.tolist()) == ([3, 0, 0, 1], [1, 0, 0, 0])
    assert (counts.released.tolist(), counts.null.tolist()) == ([4, 0, 0, 1], [0, 1, 0, 0])


def test_words_vectors_do_not_hang_on_the_batch(small, monkeypatch):
    """Rejects noise by the place in a batch, and vectors of words that share a text's noise."""
    private = sanitizer(by_axes(small, 10.0, dimension=5), small, by_word=True)
    rows = pa.array([[f"w{i % 50}" for i in range(size)] for size in (3, 0, 700, 1)])
    whole = run(private, rows)
    assert [run(private, rows[i : i + 1], [i])[0] for i in range(4)] == whole
    monkeypatch.setattr("dptext_spark.sanitizer.CHUNK", 7)
    monkeypatch.setattr("dptext_spark.sanitizer._CHUNK_UNIFORMS", 1)
    assert run(private, rows) == whole
    mean_of_one = run(sanitizer(by_axes(small, 10.0, dimension=5), small), pa.array(["w0"]))
    assert mean_of_one != run(private, pa.array(["w0"]))[0]


def test_the_noise_of_main_axes_is_of_epsilon(small):
    """Rejects noise of another epsilon, or of n dimensions in place of m: lengths are Gamma of shape m."""
    used = by_axes(small, 8.0, dimension=6)
    rows = pa.array([["w1"] * 3000])
    released = np.array(run(sanitizer(used, small, by_word=True), rows)[0])
    noise = released - used.projection.matrix @ small.vectors[1].astype(float)
    lengths = np.linalg.norm(noise, axis=1)
    law = stats.gamma(6, scale=used.sensitivity / 8.0)
    assert stats.kstest(lengths, law.cdf).pvalue > 1e-4  # the false-alarm rate
    coordinates = (noise / lengths[:, None])[:, 0]
    assert stats.kstest((1 + coordinates) / 2, stats.beta(2.5, 2.5).cdf).pvalue > 1e-4
    for wrong in (stats.gamma(6, scale=1 / 4.0), stats.gamma(small.dimension, scale=1 / 8.0)):
        assert stats.kstest(lengths, wrong.cdf).pvalue < 1e-4
