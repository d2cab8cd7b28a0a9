"""Why there is no ``--protect rare``: the proofs of docs/mathematics.md, enumerated in fractions.

A world of words on a line under the exponential mechanism, exp(epsilon / 2) = 2, the last two in one place.
Some bigrams are frequent; words of rare ones are perturbed, others pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise, product
from math import prod

import pytest

from dptext_spark.errors import ConfigError
from dptext_spark.text.policies import TextPolicy

Row = tuple[int, ...]
Rate = Callable[[Row, int], Fraction]
"""How likely a place of a row is perturbed."""

PLACE = (0, 1, 2, 2)
WORDS = range(4)
FREQUENT = {(0, 1), (1, 2), (2, 1)}
STEP = Fraction(4)
"""exp(epsilon): what two neighbouring words may be told apart by."""


def perturbed(word: int, output: int) -> Fraction:
    weights = [Fraction(1, 2) ** abs(PLACE[word] - PLACE[other]) for other in WORDS]
    return weights[output] / sum(weights)


def released(word: int, output: int, rate: Fraction) -> Fraction:
    """Perturbed at this rate, raw otherwise; which of both is not told."""
    return (1 - rate) * (word == output) + rate * perturbed(word, output)


def law(row: Row, outputs: Row, rate: Rate) -> Fraction:
    places = zip(row, outputs, strict=True)
    return prod((released(w, y, rate(row, i)) for i, (w, y) in enumerate(places)), start=Fraction(1))


def by_left(row: Row, place: int) -> Fraction:
    """Perturb what seldom follows the word before it."""
    return Fraction(place == 0 or row[place - 1 : place + 1] not in FREQUENT)


def by_both(row: Row, place: int) -> Fraction:
    """Perturb what is in any rare bigram."""
    pairs = [row[i : i + 2] for i in (place - 1, place) if 0 <= i < len(row) - 1]
    return Fraction(any(pair not in FREQUENT for pair in pairs))


def impossible(row: Row, other: Row, rate: Rate) -> list[Row]:
    """Outputs that one row has and the other never."""
    outputs = product(WORDS, repeat=len(row))
    return [y for y in outputs if law(row, y, rate) > 0 and law(other, y, rate) == 0]


def worst(row: Row, other: Row, rate: Rate) -> Fraction:
    """The largest factor between two rows; its logarithm is the loss."""
    outputs = product(WORDS, repeat=len(row))
    return max(law(row, y, rate) / law(other, y, rate) for y in outputs)


@pytest.mark.parametrize("rate", [by_left, by_both])
def test_a_rare_and_a_frequent_word_have_no_bound(rate: Rate) -> None:
    """Rejects the claim that a hidden word keeps epsilon times distance: 2 is hidden after 0, and 1 passes.

    Whatever comes out of 2 and is not 1 never comes out of 1.
    """
    hidden, passing = (0, 2), (0, 1)
    assert rate(hidden, 1) == 1 and rate(passing, 1) == 0
    assert {y[1] for y in impossible(hidden, passing, rate)} >= {0, 2, 3}
    assert worst(hidden, passing, lambda *_: Fraction(1)) <= STEP  # as it is where all are perturbed


@pytest.mark.parametrize("rate", [by_left, by_both])
def test_nor_have_two_hidden_words(rate: Rate) -> None:
    """Rejects a bound among hidden words alone, as stop words leave it: a neighbour tells them apart.

    After 3 the words 0 and 1 are both rare, and both perturbed. But (1, 2) is frequent and (0, 2) is not.
    """
    first, second = (3, 0, 2), (3, 1, 2)
    assert [rate(row, 1) for row in (first, second)] == [1, 1]
    assert impossible(first, second, rate)


def geometric(noise: int) -> Fraction:
    """Noise of a count, P proportional to 2^-|noise|: a private count, at ln 2."""
    return Fraction(1, 3) * Fraction(1, 2) ** abs(noise)


def tail(least: int) -> Fraction:
    """P[noise >= least]."""
    return 1 - tail(1 - least) if least <= 0 else Fraction(2, 3) * Fraction(1, 2) ** least


def table_law(rows: Sequence[Row], outputs: Sequence[Row], threshold: int) -> Fraction:
    """The law of a table's outputs where one private count of (0, 1), never told, decides for all rows."""
    count = sum(row == (0, 1) for row in rows)
    frequent = tail(threshold - count)
    total = Fraction(0)
    for known, share in (({(0, 1)}, frequent), (set[tuple[int, int]](), 1 - frequent)):

        def rate(row: Row, place: int, known: set[tuple[int, int]] = known) -> Fraction:
            return Fraction(place == 0 or row not in known)

        total += share * prod(
            (law(*both, rate) for both in zip(rows, outputs, strict=True)), start=Fraction(1)
        )
    return total


def test_a_private_model_does_not_help() -> None:
    """Rejects a bound from the privacy of the counts: with every other row the loss grows by -ln N_w.

    One row of m + 1 has 2 in place of 1 after 0; the others show by what passes that (0, 1) is frequent.
    """
    assert sum(geometric(k) for k in range(-40, 41)) > 1 - Fraction(1, 2) ** 38
    assert tail(1) == sum(geometric(k) for k in range(1, 60)) + tail(60)
    stays = perturbed(1, 1)
    losses = []
    for others in range(1, 12):
        rest = [(0, 1)] * others
        outputs = [(0, 0), *rest]
        hidden, passing = ([(0, word), *rest] for word in (2, 1))
        losses.append(table_law(hidden, outputs, 2) / table_law(passing, outputs, 2))
    growth = [after / before for before, after in pairwise(losses)]
    assert all(factor > 1 / stays for factor in growth[2:])
    assert losses[-1] > STEP**6  # the words are 1 apart: STEP is what was promised, 2 for the count


def test_what_a_decision_by_chance_costs() -> None:
    """The bound of the note holds over all pairs, and each of its terms is met where the distance is 0.

    Rejects a bound that lacks the neighbour's term, and one that counts a factor 1 / rho alone.
    """
    rho = Fraction(1, 4)

    def rate(row: Row, place: int) -> Fraction:
        return max(rho, by_left(row, place))

    def own(word: int) -> Fraction:
        return 1 + (1 - rho) / (rho * perturbed(word, word))

    def beside(word: int) -> Fraction:
        return max(1 / rho, rho + (1 - rho) / perturbed(word, word))

    bound = max(map(own, WORDS)) * max(map(beside, WORDS))
    for before, first, second, after in product(WORDS, repeat=4):
        if first != second:
            factor = STEP ** abs(PLACE[first] - PLACE[second]) * bound
            assert worst((before, first, after), (before, second, after), rate) <= factor
    assert worst((2,), (3,), lambda *_: rho) == own(2) > 1 / rho
    assert worst((3, 1), (2, 1), rate) == beside(1) > 1


def test_a_user_who_asks_for_it_is_told_why() -> None:
    for value in ("rare", "rare:3"):
        with pytest.raises(ConfigError, match=r"no --protect rare: .*without any bound.*content or slots"):
            TextPolicy(protect=value)
