"""Words that the policy of a run would mark are never found, drawn, measured or attacked."""

import numpy as np
import pytest

from dptext_spark import Exponential, Laplace, Release
from dptext_spark.calibration.estimators import Grid, estimator
from dptext_spark.channel.local import channel_of
from dptext_spark.channel.matrix import MatrixSource
from dptext_spark.embedding.lists import make_lists
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch
from dptext_spark.search.withheld import Withheld, withheld_by
from dptext_spark.text.policies import WORDS_ALONE, TextPolicy
from tests.helpers import worlds

WORDS, RELEASED = 300, 200
NAMES = [f"20{row:03}" if row % 3 == 1 else f"word{row % 100}x{row // 100}" for row in range(WORDS)]
"""Every third one is a number of five figures."""

PLAIN = [row for row in range(RELEASED) if row % 3 != 1]
POLICY = TextPolicy()


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    bundle = worlds.build(folder, worlds.uneven(WORDS, 20), NAMES, release_words=RELEASED)
    make_lists(bundle, 16)
    return bundle


@pytest.fixture(scope="module")
def others(numbers, tmp_path_factory):
    """The same world without its numbers: words in the same order."""
    rows = [row for row in range(WORDS) if row % 3 != 1]
    vectors = numbers.vectors[rows]
    names = [NAMES[row] for row in rows]
    folder = tmp_path_factory.mktemp("others")
    return worlds.build(folder, vectors, names, release_words=len(PLAIN))


def points(seed, dimension=20):
    return np.random.default_rng(seed).standard_normal((500, dimension)) * 0.5


def without_marks(search, bundle):
    return search.without_marks(POLICY, bundle)


def test_the_words_follow_from_policy_and_bundle(numbers):
    """Rejects words by the default policy where the run has another one, and any where nothing is marked."""
    search = ExactSearch.over(numbers)
    assert without_marks(search, numbers).outputs.tolist() == PLAIN
    assert search.without_marks(WORDS_ALONE, numbers) == search
    assert search.without_marks(TextPolicy(numbers="words"), numbers) == search
    assert without_marks(search, numbers).without_marks(WORDS_ALONE, numbers) == search
    assert withheld_by(POLICY, numbers).among(WORDS).sum() == WORDS // 3


def test_a_policy_must_leave_words(tmp_path):
    """Rejects a release whose only words are numbers."""
    bundle = worlds.build(tmp_path, worlds.uneven(5, 3), ["2001", "2002", "2003", "2004", "word"])
    with pytest.raises(ConfigError, match=r"marks nearly all words.*--identifiers off"):
        without_marks(ExactSearch.over(bundle), bundle)


SEARCHES = {
    "exact": ExactSearch.over,
    "ivf": lambda bundle: IvfSearch.over(bundle, lists=16, probes=16),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_find_what_they_find_without_the_words(numbers, others, name):
    """Rejects a word that is left out once it was found, and second words that are none."""
    search = without_marks(SEARCHES[name](numbers), numbers).of_words(numbers)
    expected = ExactSearch.over(others).of_words(others)
    chosen = points(1)
    to_ids = np.array(PLAIN)
    np.testing.assert_array_equal(search(chosen), to_ids[expected(chosen)])
    ids, distances = search.nearest_two(chosen)
    expected_ids, expected_distances = expected.nearest_two(chosen)
    np.testing.assert_array_equal(ids, to_ids[expected_ids])
    np.testing.assert_allclose(distances, expected_distances)


def test_codes_find_what_they_find_without_the_words(tmp_path):
    """Rejects codes of withheld words: the best of them would rule out the nearest of the others."""
    count = 12_000
    names = [f"19{row:05}" if row % 2 else f"w{row % 100}x{row // 100}" for row in range(count)]
    bundle = worlds.build(tmp_path, worlds.uneven(count, 50), names)
    search = without_marks(ExactSearch.over(bundle), bundle)
    bound = search.of_words(bundle)
    assert bound.coarse is not None, "this machine has no products of codes"
    chosen = points(2, 50)
    scores = chosen @ bundle.vectors[::2].T.astype(np.float64) - bundle.space.half_norms[::2]
    order = np.argsort(-scores, axis=1)[:, :2] * 2
    np.testing.assert_array_equal(bound(chosen), order[:, 0])
    np.testing.assert_array_equal(bound.nearest_two(chosen)[0], order)


def test_the_ball_finds_no_withheld_word(tmp_path):
    """Rejects a ball whose search looks at the first words alone."""
    vectors = np.random.default_rng(4).uniform(-0.4, 0.4, (40, 2))
    names = [f"20{row:03}" if row % 2 else f"word{row}" for row in range(40)]
    bundle = worlds.build(tmp_path, vectors, names, geometry="poincare")
    search = without_marks(ExactSearch.over(bundle), bundle)
    for spec in ("hyperbolic", "hyperbolic-lebesgue", "exponential"):
        bound = mechanism(spec, epsilon=3.0).bind(bundle, search)
        width = mechanism(spec, epsilon=3.0).uniforms_per_token(2)
        uniforms = np.random.default_rng(5).random((400, width))
        outputs = bound(np.zeros(400, dtype=np.int64), uniforms)
        assert (outputs % 2 == 0).all() and len({*outputs.tolist()}) > 3, spec


@pytest.mark.parametrize("truncate", [None, 1.5])
@pytest.mark.parametrize("epsilon", [0.5, 6.0, 60.0])
def test_exponential_has_the_law_of_a_vocabulary_without_the_words(
    numbers, others, epsilon, truncate
):
    """Rejects withheld words that take a share of the law: its far words are counted, too."""
    configured = Exponential(epsilon=epsilon, truncate=truncate)
    bound = configured.bind(numbers, without_marks(ExactSearch.over(numbers), numbers))
    expected = configured.bind(others, ExactSearch.over(others))
    words = np.arange(len(others.words))
    ids = np.array([row for row in range(WORDS) if row % 3 != 1])
    law = bound.probabilities(ids)
    assert law.shape == (len(ids), RELEASED)
    np.testing.assert_array_equal(law[:, PLAIN], expected.probabilities(words))
    assert (np.delete(law, PLAIN, axis=1) == 0.0).all()
    width = configured.uniforms_per_token(20)
    uniforms = np.random.default_rng(6).random((2000, width))
    inputs = np.random.default_rng(7).integers(0, len(words), 2000)
    drawn = expected(inputs, uniforms.copy())
    np.testing.assert_array_equal(bound(ids[inputs], uniforms.copy()), np.array(PLAIN)[drawn])


def test_exponential_noise_knows_which_words_are_withheld(numbers):
    """Rejects one noise for two vocabularies: pairs of outputs would tell words apart."""
    search = ExactSearch.over(numbers)
    release = {"salt": "", "embedding": numbers}
    contexts = set()
    for policy in (POLICY, WORDS_ALONE):
        among = search.without_marks(policy, numbers)
        noise = Exponential(epsilon=1.0).release_noise(worlds.KEY, search=among, **release)
        contexts.add(noise.column("a", purpose="b", uint64s_per_token=1).row_key(b"", ()))
    assert len(contexts) == 2


RELEASES = {
    "laplace": Laplace(epsilon=1.0),
    "vickrey": mechanism("laplace:select=vickrey,t=0.5", epsilon=1.0),
    "projection": mechanism("projection:dimension=8", epsilon=1.0),
    "exponential": Exponential(epsilon=1.0),
}


@pytest.mark.parametrize("name", RELEASES)
def test_no_release_has_a_word_that_its_policy_would_mark(numbers, name):
    """Rejects releases by another search than the policy's, and random words of all."""
    texts = [" ".join(NAMES[row] for row in PLAIN) + " unheard" * 40] * 4
    oov = {"oov": "random"}
    sanitized = worlds.sanitizer(numbers, RELEASES[name], **oov)
    outputs = sanitized.sanitize(texts, [*range(4)], column="text").values.to_pylist()
    assert not {*NAMES[1::3]} & {*" ".join(outputs).split()}
    every = worlds.sanitizer(numbers, RELEASES[name], identifiers="off", numbers="words", **oov)
    outputs = every.sanitize(texts, [*range(4)], column="text").values.to_pylist()
    assert {*NAMES[1::3]} & {*" ".join(outputs).split()}


@pytest.mark.parametrize("name", RELEASES)
def test_statistics_and_channels_are_of_the_words_of_the_release(numbers, name):
    """Rejects a channel, a calibration or a matrix of other words than the run's."""
    configured = RELEASES[name]
    release = Release.open(embedding=numbers, mechanism=configured, policy=POLICY)
    estimated = estimator([configured], numbers, search=release.search, runs=50)
    transitions = estimated(np.array(PLAIN[:20]), block=0)
    assert {*transitions.output.tolist()} <= {*PLAIN}
    assert transitions.release_words == len(PLAIN)
    prior = np.zeros(WORDS)
    prior[PLAIN] = 1.0 / len(PLAIN)
    channel = channel_of(configured, numbers, release.search, prior)
    table = channel.table(np.arange(RELEASED), np.array(PLAIN))
    assert not table[[row for row in range(RELEASED) if row % 3 == 1]].any()
    assert table[PLAIN].any(axis=1).all()


def test_a_matrix_has_no_withheld_output(numbers, tmp_path):
    """Rejects random words that may be withheld ones, and one file of a matrix for two policies."""
    names = set()
    for policy in (POLICY, WORDS_ALONE):
        release = Release.open(embedding=numbers, mechanism=Laplace(epsilon=4.0), policy=policy)
        source = MatrixSource(
            mechanism=release.mechanism,
            embedding=numbers,
            search=release.search,
            prior=np.full(WORDS, 1.0 / WORDS),
        )
        names.add(source.name)
        matrix = source.matrix(tmp_path)[0].with_unknown(0.1)
        withheld = np.setdiff1d(np.arange(RELEASED), release.search.outputs)
        assert not matrix.table[:, withheld].any()
        np.testing.assert_allclose(matrix.table.sum(axis=1), 1.0, rtol=1e-5)
    assert len(names) == 2


def test_calibration_measures_words_that_texts_can_have(numbers):
    """Rejects a sample with words that are marks in every text."""
    search = without_marks(ExactSearch.over(numbers), numbers)
    rest = {"runs": 10, "seed": 0, "confidence": 0.9, "eta": 0.1}
    grid = Grid.over(numbers, search, [Laplace(epsilon=3.0)], words=50, **rest)
    words = np.concatenate([grid.block(number) for number in range(grid.blocks)])
    assert len({*words.tolist()}) == 50 and (words % 3 != 1).all()
    everything = Grid.over(numbers, search, [Laplace(epsilon=3.0)], words="all", **rest)
    assert everything.words == everything.vocabulary == WORDS - WORDS // 3


def test_a_set_of_words_is_small_and_comparable():
    """Rejects flags by which equal sets differ, and words beyond the bundle's."""
    flags = np.zeros(13, dtype=np.bool_)
    assert Withheld.of(flags) == Withheld() and not Withheld.of(flags)
    flags[[2, 12]] = True
    withheld = Withheld.of(flags)
    assert withheld == Withheld.of(flags.copy()) and len(withheld.bits) == 2
    assert withheld.others(13).tolist() == [0, 1, *range(3, 12)]
    assert withheld.among(4).tolist() == [False, False, True, False]
