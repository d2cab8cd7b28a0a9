"""How many more words a transformer recovers than the attackers of the product.

An encoder reads all outputs of a row and scores the candidates of each place. It learns from many
simulated releases of a public corpus. Its score is one more feature of the log-linear mix of
``adaptive``, whose weights are learned on rows that the encoder never saw. It needs PyTorch, which
the package does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

from dptext_spark.channel.channel import Channel
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.attackers import ATTACKERS, Adaptive, Attacker, Evidence, Known
from dptext_spark.evaluation.candidates import Candidates
from dptext_spark.evaluation.local import evaluate
from dptext_spark.evaluation.measures import Risk
from dptext_spark.evaluation.rows import SimulatedRows, Simulation
from dptext_spark.geometry import Floats, Ints
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.policies import TextPolicy
from scripts.experiments import shared
from scripts.experiments.shared import FILE, FOLDER

ROWS: Final = 1000
WIDTH: Final = 128
HEADS: Final = 4
LAYERS: Final = 3
ROWS_AT_ONCE: Final = 64
LEARNING_RATE: Final = 1e-3
LEAST: Final = 1e-8
READ_WORDS: Final = 32  # candidates that the encoder reads at each place


class Encoder(nn.Module):
    """Scores candidates by all outputs of a row."""

    def __init__(self, vectors: Floats) -> None:
        super().__init__()
        words, dimension = vectors.shape
        scaled = torch.tensor(vectors / vectors.std(), dtype=torch.float32)
        self.words = nn.Embedding.from_pretrained(scaled, freeze=False)
        self.entry = nn.Linear(2 * dimension, WIDTH)
        self.places = nn.Embedding(512, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.exit = nn.Linear(WIDTH, dimension)
        self.bias = nn.Embedding(words, 1)
        nn.init.zeros_(self.bias.weight)
        nn.init.zeros_(self.exit.weight)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return the logarithms of P[candidate], up to a number for each token: (rows, n, K)."""
        likeliest = batch.words[:, :, :READ_WORDS]
        posterior = torch.softmax(batch.scores[:, :, :READ_WORDS], dim=2)
        expected = (posterior[..., None] * self.words(likeliest)).sum(dim=2)
        first = self.words(likeliest[:, :, 0])
        places = torch.arange(likeliest.shape[1]).clamp(max=511)
        states = self.entry(torch.cat([expected, first], dim=2)) + self.places(places)
        states = self.layers(states, src_key_padding_mask=batch.is_missing)
        guesses = self.exit(states)
        fit = (self.words(batch.words) * guesses[:, :, None, :]).sum(dim=3)
        return batch.scores + fit + self.bias(batch.words)[..., 0]


@dataclass(frozen=True)
class Batch:
    """Some rows, filled up to the longest."""

    words: torch.Tensor  # (rows, n, K), candidates
    scores: torch.Tensor  # (rows, n, K), ln of prior times emission; far below 0 for none
    is_missing: torch.Tensor  # (rows, n), beyond a row's end
    target: torch.Tensor  # (rows, n), which candidate is right; -1: not to be learned
    places: Ints  # (tokens,), where the rows' tokens are in (rows * n)


def batches(
    rows: SimulatedRows, candidates: Candidates, prior: Floats, order: Ints
) -> Iterator[tuple[Ints, Batch]]:
    """Yield the tokens of rows in an order, and a batch of them."""
    frequencies = np.append(np.log(np.maximum(prior, LEAST)), 0.0)
    for start in range(0, len(order), ROWS_AT_ONCE):
        part = order[start : start + ROWS_AT_ONCE]
        tokens = rows.tokens(part)
        lengths = np.diff(rows.offsets)[part]
        longest = int(lengths.max())
        row = np.repeat(np.arange(len(part)), lengths)
        place = np.arange(len(tokens)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        flat = row * longest + place
        words = candidates.words[tokens]
        is_none = (words < 0) | (words >= len(prior))
        words = np.where(is_none, 0, words)
        scores = candidates.log_emission[tokens] + frequencies[words]
        scores = np.where(is_none | np.isneginf(scores), -100.0, scores)
        scores -= scores.max(axis=1, keepdims=True)
        matches = (words == rows.inputs[tokens][:, None]) & ~is_none
        is_learned = rows.perturbed[tokens] & matches.any(axis=1)
        target = np.where(is_learned, matches.argmax(axis=1), -1)
        size = (len(part), longest)
        is_missing = np.zeros(len(tokens), dtype=np.bool_)
        single = scores.astype(np.float32)
        batch = Batch(
            words=filled(words, flat, size, 0),
            scores=filled(single, flat, size, 0.0),
            is_missing=filled(is_missing, flat, size, True),
            target=filled(target, flat, size, -1),
            places=flat,
        )
        yield tokens, batch


def filled(values: Any, places: Ints, size: tuple[int, int], rest: Any) -> torch.Tensor:
    """Put values (tokens, ...) at their places among (rows, n)."""
    table = np.full((size[0] * size[1], *values.shape[1:]), rest, dtype=values.dtype)
    table[places] = values
    return torch.tensor(table.reshape(*size, *values.shape[1:]))


class Transformer(Attacker):
    """The mix of ``adaptive`` with the encoder's score."""

    name = "transformer"
    knows = "all that adaptive knows, read by an encoder"
    floors = (Adaptive.name, *Adaptive.floors)

    # Set before an evaluation: what is simulated, under which mechanism, on which texts.
    simulation: ClassVar[Simulation]
    mechanism: ClassVar[Mechanism]
    corpus: ClassVar[SimulatedRows]
    epochs: ClassVar[int]

    def __init__(self, encoder: Encoder | None, weights: Floats) -> None:
        self._encoder = encoder
        self._weights = weights

    @classmethod
    def learn(cls, known: Known, channel: Channel, *, candidates: int) -> Self:
        if channel.method == "none":
            return cls(None, np.array([0.0, 0.0, 0.0, 1.0, 0.0]))
        language = known.language_without_shadow
        _, rows = cls.corpus.shadow_and_others()
        rows = rows.taken(np.flatnonzero(np.diff(rows.offsets)))
        torch.manual_seed(0)
        encoder = Encoder(np.asarray(cls.simulation.embedding.vectors, dtype=np.float64))
        optimizer = torch.optim.AdamW(encoder.parameters(), lr=LEARNING_RATE)
        shadow = Evidence.of(known.shadow, channel, language, most=candidates)
        order = np.argsort(-np.diff(known.shadow.offsets), kind="stable")
        order = order[np.diff(known.shadow.offsets)[order] > 0]
        ids = pa.array(range(len(rows.offsets) - 1), pa.int64())
        best = np.inf
        best_state = encoder.state_dict()
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cls.epochs)
        for epoch in range(cls.epochs):
            by = f"transformer {epoch}".encode()
            released = cls.simulation.release(rows, ids, cls.mechanism, by=by)
            candidate_words = Candidates.of(released, channel, language.words, most=candidates)
            encoder.train()
            shuffled = np.random.default_rng(epoch).permutation(len(rows.offsets) - 1)
            for _, batch in batches(released, candidate_words, language.words, shuffled):
                optimizer.zero_grad()
                loss = cross_entropy(encoder(batch), batch)
                loss.backward()
                nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
                optimizer.step()
            schedule.step()
            held_out = cls._loss(encoder, shadow, order)
            click.echo(f"epoch {epoch}: loss {held_out:.4f} on shadow rows", err=True)
            if held_out < best:
                best = held_out
                best_state = {name: value.clone() for name, value in encoder.state_dict().items()}
        encoder.load_state_dict(best_state)
        return cls(encoder, _weights(_features(encoder, shadow), shadow))

    @staticmethod
    def _loss(encoder: Encoder, evidence: Evidence, order: Ints) -> float:
        """Compute the mean of -ln P[word] of words that are among the candidates."""
        encoder.eval()
        total = 0.0
        count = 0
        with torch.no_grad():
            parts = batches(evidence.rows, evidence.candidates, evidence.language.words, order)
            for _, batch in parts:
                number = int((batch.target >= 0).sum())
                total += float(cross_entropy(encoder(batch), batch)) * number
                count += number
        return total / max(count, 1)

    def guess(self, evidence: Evidence) -> Ints:
        words = evidence.candidates.words
        scores = np.where(words < 0, -np.inf, _features(self._encoder, evidence) @ self._weights)
        return np.take_along_axis(words, np.argsort(-scores, axis=1, kind="stable"), axis=1)


def cross_entropy(scores: torch.Tensor, batch: Batch) -> torch.Tensor:
    return nn.functional.cross_entropy(
        scores.flatten(0, 1), batch.target.flatten(), ignore_index=-1
    )


def _features(encoder: Encoder | None, evidence: Evidence) -> Floats:
    """What the mix weighs: float64 (t, K, 5), or (t, K, 6) with an encoder."""
    words = evidence.candidates.words
    prior = evidence.language.words
    frequency = np.append(prior, 1.0)[np.minimum(words, len(prior))]
    probabilities = (frequency, evidence.by_pairs, evidence.by_triples)
    features = [np.log(np.maximum(probability, LEAST)) for probability in probabilities]
    features.insert(0, np.maximum(evidence.candidates.log_emission, -700.0))
    features.append(evidence.by_topics)
    if encoder is not None:
        features.append(_read(encoder, evidence))
    return np.stack(features, axis=2)


def _read(encoder: Encoder, evidence: Evidence) -> Floats:
    """Let the encoder score all candidates: ln P[candidate], float64 (t, K)."""
    encoder.eval()
    rows = evidence.rows
    scores = np.zeros(evidence.candidates.words.shape)
    lengths = np.diff(rows.offsets)
    order = np.argsort(-lengths, kind="stable")
    order = order[lengths[order] > 0]
    with torch.no_grad():
        parts = batches(rows, evidence.candidates, evidence.language.words, order)
        for tokens, batch in parts:
            logarithm = torch.log_softmax(encoder(batch), dim=2).flatten(0, 1)
            scores[tokens] = logarithm.numpy()[batch.places]
    return np.maximum(scores, -50.0)


def _weights(features: Floats, evidence: Evidence) -> Floats:
    """Find the weights under which the words of the rows are likeliest."""
    rows = evidence.rows
    words = evidence.candidates.words
    matches = words == rows.inputs[:, None]
    tokens = np.flatnonzero(rows.perturbed & matches.any(axis=1))
    of_tokens = torch.tensor(features[tokens])
    missing = torch.tensor(words[tokens] < 0)
    target = torch.tensor(matches[tokens].argmax(axis=1))
    weights = torch.zeros(features.shape[2], dtype=torch.float64)
    weights[3] = 1.0
    start = weights.clone()
    weights.requires_grad_(True)
    optimizer = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        scores = (of_tokens @ weights).masked_fill(missing, -torch.inf)
        penalty = (weights - start).square().sum()
        loss = nn.functional.cross_entropy(scores, target) + 1e-3 * penalty
        loss.backward()
        return loss

    optimizer.step(closure)
    return weights.detach().numpy()


@click.command()
@click.argument("bundle", type=FOLDER)
@click.option("--data", type=FILE, required=True, help="Parquet table, such as Snips, 2017.")
@click.option("--text", default="text", show_default=True, help="Its column of texts.")
@click.option("--mechanism", "spec", required=True, help="With its parameters but epsilon.")
@click.option("--epsilon", type=float, required=True)
@click.option("--release-words", default=5000, show_default=True)
@click.option("--epochs", default=10, show_default=True, help="Releases of the corpus.")
def main(
    bundle: Path,
    data: Path,
    text: str,
    spec: str,
    epsilon: float,
    release_words: int,
    epochs: int,
) -> None:
    table = pq.read_table(data, columns=[text]).rename_columns(["text"])
    rows = table.take(shared.evenly(ROWS, len(table)))["text"].to_pylist()
    attacked = {*rows}
    corpus = [line for line in table["text"].to_pylist() if line not in attacked]
    embedding = Embedding.open(bundle)
    search = ExactSearch.over(embedding, release_words)
    configured = mechanism(spec, epsilon=epsilon)
    simulation = Simulation(bundle=embedding, policy=TextPolicy.of(None), search=search)
    Transformer.simulation = simulation
    Transformer.mechanism = configured
    Transformer.corpus = simulation.public.read(pa.array(corpus))
    Transformer.epochs = epochs
    comparison = evaluate(
        rows,
        list(range(len(rows))),
        embedding=embedding,
        mechanisms=[configured],
        corpus=corpus,
        search=search,
    )
    lines = []
    for attacker in ATTACKERS:
        recovered = Risk(attacker=attacker)
        totals = recovered.totals(comparison.outcomes[0].sums)
        lines.append((attacker, f"{float(totals.ratio[0]):.3f}"))
    click.echo(f"{len(rows):,} rows, {len(corpus):,} texts of a public corpus.\n")
    click.echo(shared.markdown(("attacker", f"recovered, {spec} at {epsilon:g}"), lines))


if __name__ == "__main__":
    main()
