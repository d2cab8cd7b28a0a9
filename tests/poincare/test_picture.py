"""Pictures of embeddings in the disc."""

import numpy as np

from dptext_spark.poincare import Relations, picture
from tests.helpers.poincare import points


def test_a_picture_is_drawn_of_points_that_keep_their_norms(tmp_path):
    ball, flat = points(20, 6), points(20, 2)
    kept = picture.disk_coordinates(ball)
    np.testing.assert_allclose(np.linalg.norm(kept, axis=1), np.linalg.norm(ball, axis=1))
    assert picture.disk_coordinates(flat) is flat
    relations = Relations.from_words(["$a_$", "b_{", "é"], ["b_{", "c", "c"])
    for dimension in (2, 3):
        path = tmp_path / f"{dimension}.png"
        picture.draw(points(4, dimension), relations, path)
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5_000
