"""Experiments behind figures of the documents: each shows its help; small runs go where their figures should.

Seeds are fixed: the numbers are the same every time.
"""

import importlib
import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

from dptext_spark import demo
from dptext_spark.embedding.build import build_embedding
from dptext_spark.evaluation.measures import Risk
from dptext_spark.mechanisms import mechanism
from scripts.experiments import (
    authors,
    estimates,
    feyisetan_2019,
    feyisetan_2020,
    feyisetan_2021,
    mechanisms,
    shared,
    xu_2020,
)

FOLDER = Path(__file__).parents[2] / "scripts" / "experiments"
MODULES = sorted(file.stem for file in FOLDER.glob("*.py") if file.stem != "shared")
NEEDS = {"transformer": "torch"}
"""What the locks do not have: too large for one experiment."""


@pytest.mark.parametrize("module", MODULES)
def test_an_experiment_is_imported_and_shows_its_help(module):
    if module in NEEDS:
        pytest.importorskip(NEEDS[module])
    main = importlib.import_module(f"scripts.experiments.{module}").main
    for name in getattr(main, "commands", [""]):
        result = CliRunner().invoke(main, [*name.split(), "--help"])
        assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def ball(demo_bundle, tmp_path_factory):
    """The demo's words in a ball of 10 dimensions, by their main directions."""
    vectors = np.asarray(demo_bundle.vectors, dtype=np.float64)
    vectors = vectors - vectors.mean(axis=0)
    flat = vectors @ np.linalg.eigh(vectors.T @ vectors)[1][:, -10:]
    lengths = np.linalg.norm(flat, axis=1, keepdims=True)
    points = flat / lengths * np.tanh(0.5 * lengths / lengths.max())
    folder = tmp_path_factory.mktemp("balls") / "made"
    return shared.made_embedding(demo_bundle.words.to_pylist(), points, folder, "poincare")


def demo_queries(count):
    """Some of the demo's queries, evenly spread, and the intent of each."""
    table = pq.read_table(demo.QUERIES)
    table = table.take(shared.evenly(count, len(table)))
    return table["text"].to_pylist(), table["intent"].to_pylist()


def rises(*values):
    return all(one < other for one, other in itertools.pairwise(values))


@pytest.mark.long
@pytest.mark.parametrize("spec", ["laplace:select=vickrey,t=0.5", "exponential", "hyperbolic-icdm"])
def test_tokens_become_what_the_mechanism_makes_of_them(demo_bundle, ball, spec):
    """Rejects repetitions or tokens of one word that share noise, and an epsilon that is not used."""
    embedding = ball if "hyperbolic" in spec else demo_bundle
    words, epsilon = np.arange(0, 1000, 100), 4.0 if spec == "exponential" else 16.0
    texts = shared.WordRows(words=np.tile([*words, -1], 603), rows=np.arange(6633), count=6633)
    grid = [mechanism(spec, epsilon=e) for e in (epsilon / 4, epsilon)]
    (weak, again), (strong, _) = shared.releases(texts, grid, embedding, repetitions=2)
    stays = shared.staying(grid, embedding, words, runs=1000)["n_w"]
    for rows, own in ((weak, stays[0]), (strong, stays[1])):
        outputs = rows.words.reshape(-1, 11)
        assert (outputs[:, -1] == -1).all() and len(np.unique(outputs[:, 0])) > 1
        # A standard deviation of 0.02 each, for ten words.
        assert np.abs((outputs[:, :-1] == words).mean(axis=0) - own).max() < 0.1
    assert (weak.words != again.words).any() and weak.kept(texts) < strong.kept(texts)


@pytest.mark.long
def test_clipped_noise_makes_central_words_of_all(tmp_path):
    """Rejects noise that is moved by an isometry: four words near the centre are nearest to all points."""
    rng, words = np.random.default_rng(0), np.arange(120)
    directions = rng.standard_normal((120, 20))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    radii = np.append(np.linspace(0.3, 1.0, 4), rng.uniform(3.0, 6.0, 116))
    points, names = directions * np.tanh(radii / 2.0)[:, None], [f"w{i}" for i in words]
    ball = shared.made_embedding(names, points, tmp_path / "ball", "poincare")
    outputs = feyisetan_2019.clipped_outputs(ball, 8.0, words)
    frequent = np.argsort(-np.bincount(outputs.ravel(), minlength=120), kind="stable")[:4]
    assert {*frequent.tolist()} == {*range(4)}
    assert feyisetan_2019.n_w("hyperbolic-icdm", [8.0], ball, words)[1][0] > 900.0


@pytest.mark.long
def test_words_in_slots_are_perturbed(demo_bundle, ball, tmp_path):
    """Rejects an epsilon that is not used, random words that are no floor, and slots elsewhere in a query."""
    world, queries = (
        feyisetan_2019.World.of(ball, demo_bundle, tmp_path),
        pq.read_table(demo.QUERIES),
    )
    queries = queries.to_pylist()
    for query in queries:
        query["spans"] = [(slot["start"], slot["end"]) for slot in query["slots"]]
    texts = feyisetan_2019.of_queries(world, queries, np.arange(len(queries)) % 4 == 0)
    for number in range(0, len(queries), 50):
        query, own = queries[number], texts.words.rows == number
        inside = " ".join(query["text"][start:end] for start, end in query["spans"])
        expected = shared.WordRows.of([inside], demo_bundle).words
        assert texts.words.words[own & texts.slots].tolist() == expected.tolist()
    slots = feyisetan_2019.in_slots(texts.words, world, 20)
    loose = replace(texts, slots=slots, tested=np.zeros(2002, dtype=bool))
    chosen = {
        **{name: name for name in (feyisetan_2019.ORIGINAL, feyisetan_2019.RANDOM)},
        **{f"ball {e}": mechanism("hyperbolic-icdm", epsilon=e) for e in (0.125, 60.0)},
        **{f"flat {e}": mechanism("laplace", epsilon=e) for e in (4.0, 16.0)},
    }
    learner = LogisticRegression(C=10.0, max_iter=300), feyisetan_2019.known_words
    for every in (texts, loose):
        table = feyisetan_2019.tried(
            {"intents": every}, world, chosen, learner, rows=2002, repetitions=1
        )
        cells = [row.split(" | ") for row in table.splitlines()[2:]]
        stay = {label.strip("| "): float(share.rstrip("%")) for label, share, _ in cells}
        score = {label.strip("| "): float(right.split()[0]) for label, _, right in cells}
        for low, high in (("ball 0.125", "ball 60.0"), ("flat 4.0", "flat 16.0")):
            assert rises(stay["random words"], stay[low], stay[high]) and rises(
                score[low], score[high]
            )
        assert score["random words"] < score["original texts"] and stay["original texts"] == 100.0


@pytest.mark.long
def test_tasks_and_auditors_lose_by_noise(demo_bundle):
    """Rejects an epsilon that is not used, and an auditor who sees no training data."""
    texts, intents = demo_queries(600)
    authors = [" ".join(texts[start : start + 10]) for start in range(0, 400, 10)]
    read = {"intents": texts[:300], "audit": authors, "": [" ".join(texts[400:])]}
    parts = {name: shared.WordRows.of(own, demo_bundle) for name, own in read.items()}
    labels, reference = {"intents": np.array(intents[:300])}, parts.pop("")
    corpus = feyisetan_2020.Corpus(parts=parts, labels=labels, reference=reference)
    found = feyisetan_2020.measured(corpus, demo_bundle, epsilons=(1.0, 8.0), repetitions=2)
    (weak, strong, none) = (
        [of[name].mean for name in ("intents", "auditor (AUC)")] for of in found.values()
    )
    assert rises(weak[0], 0.5, strong[0]) and rises(0.3, weak[1], 0.7, strong[1], none[1])


@pytest.mark.long
def test_vectors_are_released(demo_bundle):
    """Rejects an epsilon that is not used, a Delta for another, and noise that is no floor of tasks."""
    # A delta that leaves half of the demo's 50 dimensions; the paper's would leave 46.
    setup = feyisetan_2021.Setup(embedding=demo_bundle, seeds=(0,), delta=0.01)
    laws = setup.laws(beta := feyisetan_2021.TABLE_BETA, 0)
    stretch = feyisetan_2021.text_stretch(laws["paper"], demo_bundle, 1000)
    assert rises(
        laws["vocabulary"].constant, laws["paper"].constant, stretch, laws["spectral"].constant
    )
    pairs, (texts, intents) = feyisetan_2021.sample(demo_bundle, 60), demo_queries(500)
    for name in laws:
        assert rises(
            *(feyisetan_2021.errors(setup, pairs, beta, name, e) for e in (200.0, 20.0, 2.0))
        )
    task = feyisetan_2021.Task(shared.WordRows.of(texts, demo_bundle), np.array(intents))

    def score(reading, name, epsilon):
        return feyisetan_2021.of_texts(setup, task, reading, name, epsilon).mean

    assert rises(score("text", "paper", math.inf), score("text", "plain", math.inf))
    for reading in feyisetan_2021.READINGS:
        assert rises(score(reading, "plain", 2.0), score(reading, "plain", 200.0))


@pytest.mark.long
def test_lambda_is_more_noise(demo_bundle, monkeypatch):
    """Rejects a lambda or an epsilon that is not used."""
    for name, values in {
        "TEXT_LAMBDAS": (0.0, 1.0),
        "TEXT_EPSILONS": (1.0, 8.0),
        "BETWEEN": (14.0,),
    }.items():
        monkeypatch.setattr(xu_2020, name, values)
    texts, intents = demo_queries(400)
    labels = np.array([i in ("PlayMusic", "AddToPlaylist") for i in intents])
    cells = xu_2020.classified(texts, labels, demo_bundle)
    kept = {setting: cell["kept"].mean for setting, cell in cells.items()}
    assert rises(kept[0.0, 1.0], 0.01, kept[0.0, 8.0], kept[0.0, 14.0], kept[0.0, np.inf])
    assert rises(kept[1.0, 8.0], kept[0.0, 8.0])
    assert rises(*(cells[0.0, e]["accuracy"].mean for e in (1.0, 8.0, np.inf)))


@pytest.mark.long
def test_mechanisms_are_compared_at_equal_success(demo_bundle, ball):
    """Rejects equal epsilons in place of equal success, and vickrey selection as a gain in words kept."""
    # In the ball too what is kept is judged by the Euclidean vectors, which have the same words.
    texts, intents = demo_queries(120)
    every_text, _ = demo_queries(1200)
    world = mechanisms.World(
        texts=texts,
        labels=intents,
        embedding=demo_bundle,
        judge=demo_bundle,
        release_words=2000,
        corpus=[text for text in every_text if text not in texts],
        candidates=16,
    )
    near = {
        "laplace": 4.5,
        "laplace:select=vickrey,t=0.5": 5.5,
        "exponential": 3.4,
        "hyperbolic": 12.0,
    }
    epsilons, kept = {}, {}
    floors = world.kept(world.released(None), None)
    for spec, start in near.items():
        of_spec = replace(world, embedding=ball) if spec == "hyperbolic" else world
        configured, comparison = mechanisms.matched(of_spec, spec, 0.5, near=0.04, start=start)
        (outcome,) = comparison.outcomes
        share = mechanisms.recovered(outcome.sums)
        assert abs(share - 0.5) <= 0.04 and comparison.floor_of(Risk()) < share
        epsilons[spec] = configured.epsilon
        kept[spec] = of_spec.kept(of_spec.released(configured), outcome.channel)
        for name, (value, low, high) in kept[spec].items():
            assert floors[name][0] < value and low < value < high, (spec, name)
    laplace, vickrey, exponential, hyperbolic = kept
    assert epsilons[exponential] < epsilons[laplace] < epsilons[vickrey]
    assert kept[vickrey]["kept"][0] < kept[laplace]["kept"][0]
    assert kept[laplace]["similarity"][0] > kept[hyperbolic]["similarity"][0]


def test_estimates_are_nearer_to_the_originals_than_counts(tmp_path):
    """Rejects a channel of another epsilon, and figures of the originals in place of the release's."""
    embedding = build_embedding(demo.GLOVE, tmp_path / "glove", limit=1000)
    texts, labels = demo_queries(1500)
    every_text, _ = demo_queries(2002)
    world = estimates.World(
        texts=texts,
        labels=np.array(labels),
        embedding=embedding,
        public_texts=[text for text in every_text if text not in texts],
    )
    configured = mechanism("exponential", epsilon=3.0)
    ((released,),) = shared.releases(world.original, [configured], embedding)
    analysis = world.analysis("exponential", 3.0, released, tmp_path / "channels")
    rows = np.arange(world.original.count)
    # Groups of so few rows are scatter: all are one here.
    whole = replace(world, labels=np.zeros(len(texts)))
    estimated, counted = estimates.group_errors(whole, analysis, released, rows)
    assert estimated < 0.8 * counted
    estimated, counted = estimates.overlaps(world, analysis, released)
    assert estimated > 1.3 * counted
    other = world.analysis("exponential", 4.5, released, tmp_path / "channels")
    wrong = replace(other, source=analysis.source)  # its noise, and the other epsilon's topics
    assert 0.92 <= estimates.coverage(world, [analysis], 3, 300) <= 0.98
    assert estimates.coverage(world, [wrong], 3, 300) < 0.7
    learned = estimates.classes(world, analysis, released)
    assert learned["in context"] > learned["released words"]


def test_words_become_hypernyms(tmp_path):
    """Rejects hyponyms that count as hypernyms, pairs without closure, and a guesser who sees nothing."""
    branches = 2.0 * np.pi * np.arange(3) / 3.0
    leaves = 2.0 * np.pi * np.arange(9) / 9.0 - 2.0 * np.pi / 9.0
    points = [(0.02, 0.0)]
    points += [0.5 * np.array([np.cos(angle), np.sin(angle)]) for angle in branches]
    points += [0.95 * np.array([np.cos(angle), np.sin(angle)]) for angle in leaves]
    names = ["root", *(f"branch{i}" for i in range(3)), *(f"leaf{i}" for i in range(9))]
    ball = shared.made_embedding(names, np.array(points), tmp_path / "ball", "poincare")
    pairs = [f"branch{i}\troot" for i in range(3)] + [f"leaf{i}\tbranch{i // 3}" for i in range(9)]
    (tmp_path / "pairs.tsv").write_text("\n".join(["hyponym\thypernym", *pairs]), encoding="utf-8")
    hierarchy = feyisetan_2019.Hierarchy.of(ball, tmp_path / "pairs.tsv", 13, closure=True)
    assert hierarchy.ancestors.sum(axis=1).tolist() == [1.0, *[2.0] * 3, *[3.0] * 9]
    shares = {}
    for name in ("hyperbolic-lebesgue", "exponential"):
        configured, success = feyisetan_2019.of_success(hierarchy, name, 0.4)
        stay, above, common, often = map(float, hierarchy.kept(configured))
        assert abs(success - 0.4) < 0.01 and stay + above <= 1.0 and 0.0 < often <= 1.0
        assert stay < common < 1.0
        shares[name] = above
    # As listed, a leaf's hypernym has one that the leaf lacks: it is a hypernym all the same.
    listed = feyisetan_2019.Hierarchy.of(ball, tmp_path / "pairs.tsv", 13, closure=False)
    assert float(listed.kept(mechanism("hyperbolic-lebesgue", epsilon=1.4))[1]) > 0.1
    assert shares["exponential"] < 0.2 < 2.0 * shares["exponential"] < shares["hyperbolic-lebesgue"]


@pytest.mark.long
def test_sparse_words_are_those_far_from_their_nearest_word(demo_bundle, monkeypatch):
    """Rejects groups in the opposite order, means that are not equal, and a lambda that is not used."""
    monkeypatch.setattr(xu_2020, "SPARSITY_EPSILON", 5.0)
    monkeypatch.setattr(xu_2020, "SEARCHED", (5.0, 6.0, 7.0, 8.0))
    monkeypatch.setattr(xu_2020, "BLOCKS", 4)
    words = np.arange(0, 1000, 4)
    nearest = xu_2020.nearest_distances(demo_bundle, words[:5])
    vectors = np.asarray(demo_bundle.vectors, dtype=np.float64)
    for word, distance in zip(words, nearest, strict=False):
        others = np.linalg.norm(np.delete(vectors, word, axis=0) - vectors[word], axis=1)
        assert abs(others.min() - distance) < 1e-4
    columns, rows = xu_2020.by_sparsity(demo_bundle, words)
    distances = [float(column.rpartition("(")[2].rstrip(")")) for column in columns[4:]]
    assert rises(*distances)
    means = [float(row[3]) for row in rows]
    medians = [[float(cell.split(" / ")[1]) for cell in row[4:]] for row in rows]
    assert [row[1] for row in rows] == ["0", "0.5", "1", "0.5", "1"]
    assert rises(*means[2::-1]) and rises(*medians[0])
    assert max(means[0], *means[3:]) - min(means[0], *means[3:]) < 4.0
    assert medians[2][2] < medians[0][2]


def test_noise_on_bags_is_longer_than_their_distances():
    """Rejects bags that are not of length 1, a noise of one coordinate, and the paper's Delta as proven."""
    texts, _ = demo_queries(60)
    bags = feyisetan_2021.kgram_bags(texts, 4096)
    assert np.allclose(np.linalg.norm(bags, axis=1), 1.0)
    _, table = feyisetan_2021.of_bags(texts)
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    (_, name, dimension, *spectral), (_, _, _, *paper), (_, direct, *hashed) = rows[:3]
    assert name == "random, spectral" and float(spectral[1]) == 20.0 and float(paper[0]) == 1.9
    assert abs(float(paper[1]) - 20.0 * float(spectral[0]) / 1.9) < 0.5
    assert abs(float(spectral[2]) - int(dimension) * float(spectral[0]) / 20.0) < 0.1
    assert float(spectral[3]) > 1.4
    # Hashed to 11 places, they keep something.
    assert direct == "none" and hashed[:4] == ["11", "1", "20", "0.55"]
    assert float(hashed[4]) < 0.4 and float(hashed[5]) < 0.4


def test_authors_are_named_by_their_letters():
    """Rejects guesses by the released mails' own profiles, and a test of authors who are not chosen."""
    own = {"a": "the zebra crosses quickly", "b": "my walrus sings on sundays", "c": "rain"}
    train = [(text, author) for author, text in own.items() for _ in range(5)]
    koppel = authors.Koppel.of(train)
    assert koppel.guesses(["a zebra crosses", "walrus on sunday"]).tolist() == ["a", "b"]
    chosen = authors.of_authors(train, frozenset("ab"))
    assert {author for _, author in chosen} == {"a", "b"} and len(chosen) == 10
    assert not {"c"} & {*authors.Koppel.of(chosen).names.tolist()}
