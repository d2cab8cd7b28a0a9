"""Matrix products whose bits hang on the row alone, as exact as they say."""

from __future__ import annotations

import numpy as np
import pytest

from dptext_spark.geometry.products import ExactProduct


@pytest.mark.parametrize("size", [1, 7, 50, 300])
def test_exact_product_is_the_product(size: int) -> None:
    """Rejects a cut that loses more bits than it says, and a forgotten part."""
    rng = np.random.default_rng(size)
    rows, matrix = rng.uniform(-1, 1, (200, size)), rng.normal(size=(size, size)) * 37.0
    exact = rows.astype(np.longdouble) @ matrix.astype(np.longdouble)
    product = ExactProduct.of(matrix).times(rows)
    assert np.abs(product - exact).max() < size * np.abs(matrix).max() * 2.0**-39


def test_exact_product_depends_on_the_row_alone() -> None:
    """Rejects a plain BLAS product, whose last bits follow the rows beside it."""
    rng = np.random.default_rng(0)
    rows, matrix = rng.uniform(-1, 1, (257, 300)), rng.normal(size=(300, 300))
    product = ExactProduct.of(matrix)
    whole = product.times(rows)
    single = np.concatenate([product.times(rows[i : i + 1]) for i in range(len(rows))])
    assert whole.tobytes() == single.tobytes()
    plain = np.concatenate([rows[i : i + 1] @ matrix for i in range(len(rows))])
    assert (rows @ matrix).tobytes() != plain.tobytes()
