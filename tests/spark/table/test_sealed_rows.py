"""Sealed names of rows: of the noise that is drawn, and of nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptext_spark import Embedding, Laplace, Privatizer
from dptext_spark.noise import ColumnNoise, ReleaseNoise
from dptext_spark.privatizer import noise_of_rows
from dptext_spark.spark.table.sealed_rows import SealPlan, _seal
from tests.helpers.tables import texts
from tests.helpers.worlds import KEY, release

TEXTS = pa.array([*texts(6), "w01", None, "", "w01"])
TOKENS = pa.array([text.split() if text else None for text in TEXTS.to_pylist()])
IDS = pa.array(range(len(TEXTS)))


@pytest.mark.parametrize("values", [TEXTS, TOKENS], ids=["text", "tokens"])
@pytest.mark.parametrize("places", [None, 3])
def test_the_key_of_a_row_is_the_one_that_noise_is_drawn_from(
    values: pa.Array, places: int | None, ring: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejects names that forget a part of the noise's context, or have one that it has not."""
    drawn, fill = set(), ColumnNoise.fill

    def filled(self: ColumnNoise, out: Any, row_key: bytes, first_token: int) -> None:
        drawn.add(row_key)
        fill(self, out, row_key, first_token)

    monkeypatch.setattr(ColumnNoise, "fill", filled)
    mechanism, noise = Laplace(epsilon=3.0), release(Laplace(epsilon=3.0), ring, salt="label")
    positions = None if places is None else np.arange(len(values))[:, None] * places
    Privatizer(embedding=ring, mechanism=mechanism, noise=noise).sanitize(
        values, IDS, column="c", positions=positions
    )
    width = mechanism.uniforms_per_token(ring.dimension)
    options: dict[str, Any] = {"noise": noise, "width": width, "identity": "", "positions": positions}
    keys = [key for _, key in noise_of_rows(values, IDS, column="c", **options)]
    assert len({*keys}) == len(values) and len(drawn) == 8  # two rows have no words
    assert drawn == {key for key, text in zip(keys, TEXTS.to_pylist(), strict=True) if text}


def sealed(batch: pa.RecordBatch, salt: str = "label", key: bytes = b"ledger") -> pa.Table:
    noise = ReleaseNoise.of(KEY, salt=salt, law={"epsilon": 3.0}, fingerprint="f")
    plan = SealPlan(key=KEY.derive(key), noise=noise, width=4, identity="")
    return pa.Table.from_batches(_seal(plan, (("a", (0,)), ("b", (1, -1))), 2, [batch]))


def batch(a: list[Any], b: list[Any]) -> pa.RecordBatch:
    columns = [pa.array(a), pa.array(b, pa.list_(pa.string())), pa.array(range(len(a)))]
    return pa.RecordBatch.from_arrays(columns, names=["c0", "c1", "c2"])


def test_what_names_depend_on() -> None:
    """Rejects contents that are equal for two ids or columns, contexts without the label, raw values."""
    first = sealed(batch(["w01", "w01"], [["w01"], ["w02", "w03"]])).to_pydict()
    assert first["column"] == ["a", "a", "b", "b"] and first["row"][:2] == first["row"][2:]
    assert len({*first["content"]}) == len({*first["context"]}) == 4
    assert {len(value) for name in ("row", "content", "context") for value in first[name]} == {16}

    label = sealed(batch(["w01", "w01"], [["w01"], ["w02", "w03"]]), salt="other").to_pydict()
    assert (label["row"], label["content"]) == (first["row"], first["content"])
    assert not {*label["context"]} & {*first["context"]}

    moved = sealed(batch(["w01", "w09"], [["w01"], ["w03", "w02"]])).to_pydict()
    same = [left == right for left, right in zip(first["content"], moved["content"], strict=True)]
    assert same == [True, False, True, False]
    assert same == [left == right for left, right in zip(first["context"], moved["context"], strict=True)]

    other = sealed(batch(["w01", "w01"], [["w01"], ["w02", "w03"]]), key=b"another").to_pydict()
    assert not {*other["row"]} & {*first["row"]}


def test_what_noise_follows_from_beside_the_column_is_in_its_context() -> None:
    """Slots cut texts, and under a row budget epsilon follows from the words of all columns of a row.

    Rejects contexts that are equal where the noise is not: a ledger would count them once.
    """
    slots = pa.array([[{"start": 0, "end": 3}], [{"start": 0, "end": 2}]])
    noise = ReleaseNoise.of(KEY, salt="label", law={"epsilon": 3.0}, fingerprint="f")

    def contexts(given: pa.RecordBatch, *, whole: bool) -> list[bytes]:
        plan = SealPlan(key=KEY, noise=noise, width=4, identity="", whole=whole)
        found = pa.Table.from_batches(_seal(plan, (("a", (0,)), ("b", (1, -1))), 2, [given]))
        return list(found["context"].to_pylist())

    plain = batch(["w01 w02", "w03"], [["w01"], ["w02"]])
    longer = batch(["w01 w02", "w03"], [["w01"], ["w02", "w02"]])
    for whole, same in ((False, [True, True, True, False]), (True, [True, False, True, False])):
        pairs = zip(contexts(plain, whole=whole), contexts(longer, whole=whole), strict=True)
        assert [one == other for one, other in pairs] == same

    def marked(spans: pa.Array) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*plain.columns, spans], names=["c0", "c1", "c2", "c3"])

    pairs = zip(contexts(marked(slots), whole=False), contexts(marked(slots[::-1]), whole=False), strict=True)
    assert not any(one == other for one, other in pairs)
    again = zip(contexts(marked(slots), whole=False), contexts(marked(slots), whole=False), strict=True)
    assert all(one == other for one, other in again)
