"""Is-a pairs of a table: read alike from all formats, and filtered as brute force does."""

import random
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptext_spark.errors import InputError
from dptext_spark.poincare.pairs import filter_pairs, read_pairs
from dptext_spark.text.policies import stop_words
from tests.helpers.poincare import write_tsv

pytestmark = pytest.mark.spark


def brute_force(rows, vocabulary, min_count, min_links):
    """The filters once more, in plain Python: what each leaves, and the pairs."""
    usable = [
        (low, high, count)
        for low, high, count in rows
        if low and high and f"{low}{high}" == "".join(f"{low}{high}".split()) and (count or 0) >= 0
    ]
    different = [row for row in usable if row[0] != row[1]]
    seen = Counter()
    for low, high, count in different:
        seen[low, high] += count or 0
    counted = any(count is not None for *_, count in rows)
    left, pairs = [len(rows), len(usable), len(different), len(seen)], set(seen)
    keeps = [
        lambda pair: vocabulary is None or {*pair} <= {*vocabulary},
        lambda pair: not counted or seen[pair] >= min_count,
        lambda pair: not {*pair} & stop_words(),
    ]
    for keep in keeps:
        pairs = {*filter(keep, pairs)}
        left.append(len(pairs))
    links = Counter(word for pair in pairs for word in pair)
    pairs = {pair for pair in pairs if min(links[word] for word in pair) > min_links}
    return [*left, len(pairs)], pairs


@pytest.mark.parametrize(("seed", "min_links"), [(3, 4), (0, 10)])
def test_the_filters_are_those_of_brute_force(spark, seed, min_links):
    """With counts and a vocabulary, and without; every filter has work to do, or it could be missing."""
    rng, full = random.Random(seed), seed == 3
    words = [*(f"w{row}" for row in range(12)), "the", "two words", "", "a\u00a0b", None]
    rows = []
    for _ in range(120):
        low, high = rng.choices(words, [10] * 12 + [2] * 5, k=2)
        rows.append((low, high, rng.randint(0, 12) if full else None))
    vocabulary = [*(f"w{row}" for row in range(10)), "the"] if full else None
    frame = spark.createDataFrame(
        rows, "hyponym string, hypernym string, count bigint"
    ).repartition(3)
    given = {"vocabulary": vocabulary, "min_count": 9}
    steps, table = filter_pairs(frame, **given, min_links=min_links)
    left, pairs = brute_force(rows, **given, min_links=min_links)
    assert [steps[0]["left"] + steps[0]["removed"], *(step["left"] for step in steps)] == left
    assert (
        set(zip(*(table[end].to_pylist() for end in ("hyponym", "hypernym")), strict=True)) == pairs
    )
    assert table.num_rows == len(pairs) > 0
    idle = {step["name"] for step in steps if step["removed"] == 0}
    needless = {"pairs seen fewer than 9 times", "pairs with a word outside the vocabulary"}
    assert idle == (set() if full else needless)


def test_pairs_are_read_alike_from_text_and_parquet(spark, tmp_path):
    """A count that is none makes a row unusable; a third column is one by its name, where there are names."""
    rows = [("dog", "mammal", 3), ('"cat', "mammal\\", 12)]
    columns = zip(*rows, strict=True)
    table = {"x": [1, 2]} | dict(
        zip(("hyponym", "hypernym", "count"), map(list, columns), strict=True)
    )
    pq.write_table(pa.table(table), tmp_path / "table.parquet")
    none = [("a", "b", 5), ("a", "c", "many"), ("b", "c", ""), ("b",)]
    for name, given, header, expected in (
        ("table.parquet", [], "", rows),
        ("packed.tsv.gz", rows, "", rows),
        (
            "far.tsv",
            rows,
            "word\thypernym\tdistance\n",
            [(low, high, None) for low, high, _ in rows],
        ),
        ("dos.txt", [("a", "b", "x", 3)], "w\thypernym\tnote\tcount\r\n", [("a", "b", 3)]),
        ("none.tsv", none, "", [("a", "b", 5), ("a", "c", -1), ("b", "c", -1), ("b", None, -1)]),
    ):
        if given:
            write_tsv(tmp_path / name, given, header, "\r\n" if "\r" in header else "\n")
        found = read_pairs(spark, str(tmp_path / name)).collect()
        assert {tuple(row) for row in found} == {*expected}, name
    pq.write_table(pa.table({"hyponym": ["a"]}), tmp_path / "half.parquet")
    for name in ("half.parquet", "absent.tsv"):
        with pytest.raises(InputError, match="Parquet with hyponym and hypernym"):
            read_pairs(spark, str(tmp_path / name))
