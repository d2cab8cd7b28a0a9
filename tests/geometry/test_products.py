"""Exact products: bits that depend on the row alone."""

import numpy as np
import pytest

from dptext_spark.geometry.products import ExactProduct


@pytest.mark.parametrize("size", [1, 7, 50, 300])
def test_a_product_is_exact_and_depends_on_the_row_alone(size):
    """Rejects a cut that loses more bits than it says, a forgotten part, and sums of BLAS."""
    rng = np.random.default_rng(size)
    rows, matrix = rng.uniform(-1, 1, (200, size)), rng.normal(size=(size, size)) * 37.0
    product = ExactProduct.of(matrix)
    whole, exact = product.times(rows), rows.astype(np.longdouble) @ matrix.astype(np.longdouble)
    assert np.abs(whole - exact).max() < size * np.abs(matrix).max() * 2.0**-39
    single = np.concatenate([product.times(rows[i : i + 1]) for i in range(len(rows))])
    plain = np.concatenate([rows[i : i + 1] @ matrix for i in range(len(rows))])
    assert whole.tobytes() == single.tobytes()
    assert size < 300 or (rows @ matrix).tobytes() != plain.tobytes()
