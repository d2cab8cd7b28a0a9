"""Types of a user's user: read from a file, checked, and found before the built-in ones."""

import pickle

import pytest

from dptext_spark.errors import ConfigError
from dptext_spark.text.patterns.find import find
from dptext_spark.text.patterns.names import NUMBER, TYPES
from dptext_spark.text.patterns.user import UserPatterns

FILE = """
allow = ["support@example.com", "+49 170 1234567"]
allow_patterns = ['20[0-9]{2}']

[[types]]
name = "customer"
pattern = 'K-[0-9]{8}'
check = "luhn"

[[types]]
name = "project"
words = ["Falcon", "Blue Harbour"]
"""


def types(**entry):
    return {"types": [{"name": "own", **entry}]}


def test_a_file_is_found_in_texts(tmp_path):
    """Rejects a built-in type that takes a user's, one case or space, and an allowed span that is marked."""
    path = tmp_path / "patterns.toml"
    path.write_text(FILE)
    user = UserPatterns.read(path, TYPES)
    text = (
        "FALCON blue \u00a0harbour Falcons K-12345674 K-12345678, in 2023 or 3023, "
        "support\uff20example.com, 0049 170 1234567, +49 171 1234567"
    )
    spans = [(name, text[start:end]) for start, end, name in find(text, {*TYPES, NUMBER}, user)]
    assert spans == [
        ("project", "FALCON"),
        ("project", "blue \u00a0harbour"),
        ("customer", "K-12345674"),
        ("number", "12345678"),
        ("number", "3023"),
        ("phone", "+49 171 1234567"),
    ]
    assert pickle.loads(pickle.dumps(user)) == user


def test_each_part_of_the_file_has_its_identity():
    """Rejects an identity without a field: noise of two sets of marks would be equal."""
    tables = [
        {},
        types(pattern="a1"),
        types(pattern="a2"),
        types(words=["a1"]),
        types(pattern="a1", check="luhn"),
        {"allow": ["a1"]},
        {"allow_patterns": ["a1"]},
    ]
    identities = {UserPatterns.of(table, TYPES).identity for table in tables}
    assert len(identities) == len(tables)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"types": [{"name": "email", "pattern": "a"}]}, "wrong name.*Got: email"),
        ({"types": [{"name": "A b", "pattern": "a"}]}, "wrong name"),
        (types(), "needs a pattern, or words"),
        (types(pattern="a", words=["b"]), "needs a pattern, or words"),
        (types(pattern="a", chek="luhn"), "Perhaps you meant check"),
        (types(pattern="a", check="lun"), "Perhaps you meant luhn"),
        (types(pattern="(a"), "is wrong"),
        (types(pattern="a*"), "matches an empty text"),
        (types(pattern=r"(?:a|a|aa)+(?:b|\1)\Z()"), "is wrong|more than"),
        ({"allow_patterns": ["x?"]}, "number 1 matches an empty text"),
        ({"allow": "x"}, "must be a list of texts"),
        ({"allow": [""]}, "must be a list of texts"),
        ({"alow": []}, "Perhaps you meant allow"),
    ],
)
def test_what_is_refused(table, message):
    with pytest.raises(ConfigError, match=message):
        UserPatterns.of(table, TYPES)


def test_a_pattern_that_backtracks_without_end_is_refused():
    """Rejects a pattern that is compiled only: its first hostile row would hold a worker for hours."""
    with pytest.raises(ConfigError, match="looks at one text for more than 1 s"):
        UserPatterns.of(types(pattern="(a|aa)+#"), TYPES)


def test_what_cannot_be_read(tmp_path):
    path = tmp_path / "patterns.toml"
    with pytest.raises(ConfigError, match="cannot be read"):
        UserPatterns.read(path, TYPES)
    path.write_text("[[types]\n")
    with pytest.raises(ConfigError, match=r"is not TOML.*patterns.toml.*line 1"):
        UserPatterns.read(path, TYPES)
