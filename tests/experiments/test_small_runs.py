"""Experiments behind figures of the documents: each shows its help; small runs go where their figures should.

Seeds are fixed: the numbers are the same every time.
"""

import importlib
import itertools
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from dptext_spark import demo
from dptext_spark.mechanisms import mechanism
from scripts.experiments import feyisetan_2019, feyisetan_2020, feyisetan_2021, mechanisms, shared, xu_2020
from scripts.experiments.feyisetan_2019 import World

FOLDER = Path(__file__).parents[2] / "scripts" / "experiments"
MODULES = sorted(file.stem for file in FOLDER.glob("*.py") if file.stem != "shared")


@pytest.mark.parametrize("module", MODULES)
def test_an_experiment_is_imported_and_shows_its_help(module):
    main = importlib.import_module(f"scripts.experiments.{module}").main
    for name in getattr(main, "commands", [""]):
        result = CliRunner().invoke(main, [*name.split(), "--help"])
        assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def large(demo_bundle):
    """8,000 words in 50 dimensions."""
    return demo_bundle


@pytest.fixture(scope="module")
def ball(large, tmp_path_factory):
    """The same words in a ball of 10 dimensions, by their main directions."""
    vectors = np.asarray(large.vectors, dtype=np.float64)
    vectors = vectors - vectors.mean(axis=0)
    flat = vectors @ np.linalg.eigh(vectors.T @ vectors)[1][:, -10:]
    lengths = np.linalg.norm(flat, axis=1, keepdims=True)
    points = flat / lengths * np.tanh(0.5 * lengths / lengths.max())
    folder = tmp_path_factory.mktemp("balls") / "made"
    return shared.made_embedding(large.words.to_pylist(), points, folder, "poincare")


@pytest.fixture(scope="module")
def world(large, ball, tmp_path_factory):
    return World.of(ball, large, tmp_path_factory.mktemp("world"))


def demo_queries(count):
    """Some of the demo's queries, evenly spread, and the intent of each."""
    table = pq.read_table(demo.QUERIES)
    table = table.take(shared.evenly(count, len(table)))
    return table["text"].to_pylist(), table["intent"].to_pylist()


def rises(*values):
    return all(one < other for one, other in itertools.pairwise(values))


@pytest.mark.long
@pytest.mark.parametrize("spec", ["laplace:select=vickrey,t=0.5", "exponential", "hyperbolic-icdm"])
def test_tokens_become_what_the_mechanism_makes_of_them(large, ball, spec):
    """Rejects repetitions or tokens of one word that share noise, and an epsilon that is not used."""
    embedding = ball if "hyperbolic" in spec else large
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
    """A ball with few words near the centre and most near the edge, and Gaussian vectors."""
    # Rejects noise that is moved by an isometry, an epsilon that is not used, and bounds below epsilon d.
    rng, names, words = np.random.default_rng(0), [f"w{i}" for i in range(120)], np.arange(120)
    directions = rng.standard_normal((120, 20))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    radii = np.append(np.linspace(0.3, 1.0, 4), rng.uniform(3.0, 6.0, 116))
    points = directions * np.tanh(radii / 2.0)[:, None]
    flat = shared.made_embedding(names, rng.standard_normal((120, 20)), tmp_path / "flat")
    curved = shared.made_embedding(names, points, tmp_path / "ball", "poincare")

    outputs = feyisetan_2019.Clipped(ball=curved, epsilon=8.0).outputs(words, 1000, seed=0)
    stays = np.count_nonzero(outputs == words[:, None], axis=1)
    ((_, average),) = feyisetan_2019.of_same_worst_case([float(stays.max())], flat, words)
    _, isometry = feyisetan_2019.n_w("hyperbolic-icdm", [8.0], curved, words)
    assert rises(stays.mean(), float(average)) and rises(stays.mean(), stays[:4].mean())
    assert rises(900.0, isometry[0])
    frequent = np.argsort(-np.bincount(outputs.ravel(), minlength=120), kind="stable")[:4]
    assert {*frequent.tolist()} == {*range(4)}

    weak = feyisetan_2019.Clipped(ball=curved, epsilon=0.5)
    _, _, nats, claimed = weak.largest_loss(words, weak.outputs(words, 1000, seed=0), draws=4000)
    assert rises(claimed, nats)


@pytest.mark.long
def test_words_in_slots_are_perturbed(large, world):
    """Rejects an epsilon that is not used, and random words that are no floor."""
    texts, intents = demo_queries(2002)
    words, labels = shared.WordRows.of(texts, large), np.array(intents)
    slots, free = feyisetan_2019.in_slots(words, world, 20), np.zeros(len(texts), dtype=bool)
    every = {"intents": feyisetan_2019.Texts(words=words, slots=slots, labels=labels, tested=free)}
    chosen = {
        "original": feyisetan_2019.ORIGINAL,
        "random": feyisetan_2019.RANDOM,
        **{f"ball {e}": mechanism("hyperbolic-icdm", epsilon=e) for e in (0.125, 60.0)},
        **{f"flat {e}": mechanism("laplace", epsilon=e) for e in (4.0, 16.0)},
    }
    found = feyisetan_2019.tried(every, world, chosen, rows=len(texts), seeds=[0])
    stay = {label: means[feyisetan_2019.STAY].mean for label, means in found.items()}
    score = {label: means["intents"].mean for label, means in found.items()}
    for low, high in (("ball 0.125", "ball 60.0"), ("flat 4.0", "flat 16.0")):
        assert rises(stay["random"], stay[low], stay[high]) and rises(score[low], score[high])
    assert score["random"] < score["original"] and stay["original"] == 1.0


@pytest.mark.long
def test_slots_of_queries_are_attacked(large, world):
    """Rejects an attacker without the mechanism, slots elsewhere in a query, and training on originals."""
    queries = pq.read_table(demo.QUERIES).to_pylist()[::4]
    texts = feyisetan_2019.of_queries(
        world,
        [query["text"] for query in queries],
        [[(slot["start"], slot["end"]) for slot in query["slots"]] for query in queries],
        labels=np.array([query["intent"] for query in queries]),
        tested=np.arange(len(queries)) % 3 == 0,
    )
    for number in range(0, len(queries), 50):
        query, own = queries[number], texts.words.rows == number
        inside = " ".join(query["text"][slot["start"] : slot["end"]] for slot in query["slots"])
        expected = shared.WordRows.of([inside], large).words
        assert texts.words.words[own & texts.slots].tolist() == expected.tolist()
    chosen = {e: mechanism("laplace", epsilon=float(e)) for e in ("4", "16")}
    chosen = {feyisetan_2019.RANDOM: feyisetan_2019.RANDOM, **chosen}
    found = feyisetan_2019.attacked(texts, world, chosen, seeds=[0], runs=50)
    for name in ("slot words that stay", "recovered"):
        assert rises(*(found[label][name].mean for label in (*chosen, feyisetan_2019.ORIGINAL)))
    intents = {label: means["intents right"].mean for label, means in found.items()}
    assert intents[feyisetan_2019.RANDOM] < intents[feyisetan_2019.ORIGINAL]


@pytest.mark.long
def test_the_papers_sampler_does_not_sample_its_target():
    printed = CliRunner().invoke(feyisetan_2019.sampler, ["--chains", "1000", "--steps", "200"]).output
    target, space = (
        [float(row.split("|")[-2]) for row in printed.splitlines() if name in row]
        for name in ("the target", "the hyperboloid's space")
    )
    assert (len(target), len(space)) == (8, 8)
    assert max(target) < 1e-6 and min(space[1:4:2]) > 1e-4


@pytest.mark.long
def test_tasks_and_auditors_lose_by_noise(large):
    """Rejects an epsilon that is not used, and an auditor who sees no training data."""
    texts, intents = demo_queries(600)
    asked = shared.WordRows.of(texts[:300], large)
    some = asked.take(np.arange(100))
    authors = [" ".join(texts[start : start + 10]) for start in range(0, 400, 10)]
    corpus = feyisetan_2020.Corpus(
        parts={"intents": asked, "answers": some, "audit": shared.WordRows.of(authors, large)},
        labels={"intents": np.array(intents[:300])},
        answers=some,
        reference=shared.WordRows.of([" ".join(texts[400:])], large),
    )
    found = feyisetan_2020.measured(corpus, large, epsilons=(1.0, 8.0), repetitions=2)
    figures = {name: [of[name].mean for of in found.values()] for name in found[np.inf]}
    assert rises(*figures["paraphrases, first"]) and figures["paraphrases, first"][-1] == 1.0
    assert rises(0.3, figures["auditor (AUC)"][0], 0.7, *figures["auditor (AUC)"][1:])
    for name in ("intents", "intents, trained on perturbed texts alone"):
        assert rises(figures[name][0], 0.5, figures[name][1])


@pytest.mark.long
def test_vectors_are_released(large):
    """Rejects an epsilon that is not used, a Delta for another, and noise that is no floor of tasks."""
    # A delta that leaves half of the demo's 50 dimensions; the paper's would leave 46.
    setup, beta = feyisetan_2021.Setup(embedding=large, seeds=(0,), delta=0.01), feyisetan_2021.TABLE_BETA
    laws = setup.laws(beta, 0)
    constants = {name: law.constant for name, law in laws.items()}
    stretch = feyisetan_2021.text_stretch(laws["paper"], large, 1000)
    assert rises(constants["vocabulary"], constants["paper"], stretch, constants["spectral"])
    pairs = feyisetan_2021.sample(large, 60)
    for name in laws:
        errors = [feyisetan_2021.errors(setup, pairs, beta, name, e) for e in (200.0, 20.0, 2.0)]
        assert rises(*(error["distance"].mean for error in errors))
    texts, intents = demo_queries(500)
    task = feyisetan_2021.Task(shared.WordRows.of(texts, large), np.array(intents))
    score = partial(feyisetan_2021.of_texts, setup, task)
    assert rises(score("text", "paper", math.inf).mean, score("text", "plain", math.inf).mean)
    for reading in feyisetan_2021.READINGS:
        assert rises(*(score(reading, "plain", epsilon).mean for epsilon in (2.0, 200.0)))


@pytest.mark.long
def test_lambda_is_more_noise(large):
    """Rejects a lambda or an epsilon that is not used, and blocks whose words are mixed up."""
    texts, intents = demo_queries(400)
    task = xu_2020.Task("queries", texts, np.array([i in ("PlayMusic", "AddToPlaylist") for i in intents]))
    cells = xu_2020.classified(task, large, (0.0, 1.0), (1.0, 8.0), between=(14.0,), repetitions=2)
    kept = {setting: cell["kept"].mean for setting, cell in cells.items()}
    assert rises(kept[0.0, 1.0], 0.01, kept[0.0, 8.0], kept[0.0, 14.0], kept[0.0, np.inf])
    assert rises(kept[1.0, 8.0], kept[0.0, 8.0])
    assert rises(*(cells[0.0, e]["accuracy"].mean for e in (1.0, 8.0, np.inf)))

    words = shared.evenly(200, len(large.words))
    plain, noisy = (
        xu_2020.measured(large, each, xu_2020.EPSILONS, words, 10, 0)["n_w"] for each in (0.0, 1.0)
    )
    alone = xu_2020.measured(large, 0.0, xu_2020.EPSILONS, words[:20], 1, 1)["n_w"]
    assert np.abs(plain[:, :20].mean(axis=1) - alone.mean(axis=1)).max() < 5.0
    assert (noisy.mean(axis=1)[1:4] < plain.mean(axis=1)[1:4]).all()


@pytest.mark.long
def test_mechanisms_are_compared_at_equal_success(large, ball):
    """Rejects equal epsilons in place of equal success, and vickrey selection as a gain in words kept."""
    # In the ball too what is kept is judged by the Euclidean vectors, which have the same words.
    texts, intents = demo_queries(120)
    world = mechanisms.World(
        texts=texts, labels=intents, embedding=large, judge=large, release_words=2000, runs=30, candidates=16
    )
    near = {"laplace": 7.5, "laplace:select=vickrey,t=0.5": 8.5, "exponential": 3.4, "hyperbolic": 18.5}
    epsilons, kept = {}, {}
    for spec, start in near.items():
        own = replace(world, embedding=ball) if spec == "hyperbolic" else world
        epsilons[spec], floor = mechanisms.matched(own, spec, 0.5, near=0.04, start=start)
        configured = mechanism(spec, epsilon=epsilons[spec])
        share, again = own.recovered(configured)
        assert abs(share - 0.5) <= 0.04 and floor == again < share
        kept[spec] = own.kept(own.released(configured))
    floors = world.kept(world.random())
    for found in kept.values():
        assert all(found[name][0] > floors[name][0] for name in floors)
        assert all(low < value < high for value, low, high in found.values())
    laplace, vickrey, exponential, hyperbolic = kept
    assert epsilons[exponential] < epsilons[laplace] / 2 < epsilons[laplace] < epsilons[vickrey]
    assert kept[vickrey]["kept"][0] < kept[laplace]["kept"][0]
    assert kept[laplace]["similarity"][0] > kept[hyperbolic]["similarity"][0]
