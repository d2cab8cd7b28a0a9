"""Tables and blocks on a terminal."""

from dptext_spark.display import rendered, table


def test_tables_align_and_blocks_are_parted_by_an_empty_line():
    """The first column to the left, numbers to the right."""
    rows = [["epsilon", "n_w"], ["better:", "lower"], ["2", "0.5"]]
    assert table(rows) == ["epsilon    n_w", "better:  lower", "2          0.5"]
    assert table(rows, numbers=False) == ["epsilon  n_w", "better:  lower", "2        0.5"]
    blocks = ["One.", {"title": "laplace", "table": [["a", "b"]]}, ["x", "y"]]
    assert rendered(blocks) == "One.\n\nlaplace\na  b\n\nx\ny"
