"""Numbers: where a phone number begins; test_find.py has the spellings of all."""

import pytest

from dptext_spark.text.patterns.find import find
from dptext_spark.text.patterns.names import NUMBER, TYPES
from tests.helpers.made_texts import AROUND

ALL = frozenset([*TYPES, NUMBER])


@pytest.mark.parametrize(
    "phone", ["0170 1234567", "+49 170 1234567", "(030) 123-4567", "0049 170 1234567"]
)
def test_a_phone_number_begins_where_it_says(phone):
    """Rejects a mark that has the room before it, as three tags for one number."""
    for before in AROUND:
        spans = find(f"{before} {phone} x", ALL)
        assert (len(before) + 1, len(before) + 1 + len(phone), "phone") in spans
