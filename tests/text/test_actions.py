"""An action for each type of identifiers, and types of a user's own, in what comes out."""

import datetime
import pickle
import re

import pyarrow as pa
import pytest

from dptext_spark import Laplace, Release, Sanitizer, TextPolicy
from dptext_spark.errors import ConfigError
from dptext_spark.noise import NoiseKey
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.actions import MOST_DAYS, Action, Span
from dptext_spark.text.patterns.names import MARKS
from tests.helpers import worlds

EXACT = Laplace(epsilon=1e6)
FILE = {
    "types": [
        {"name": "customer", "pattern": "K-[0-9]{8}"},
        {"name": "project", "words": ["Falcon", "Blue Harbour"]},
    ],
    "allow": ["help@example.com"],
}


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    names = ["w1", "w2", "falcon", "k", "may", "help"]
    return worlds.build(tmp_path_factory.mktemp("few"), worlds.uneven(6, 3), names)


def sanitized(bundle, values, *, key=worlds.KEY, persons=None, ids=None, column="t", **options):
    private = worlds.sanitizer(bundle, EXACT, key=key, oov="drop", **options)
    ids = ids or range(len(values))
    return private.sanitize(values, ids, column=column, persons=persons).values.to_pylist()


TEXT = "w1 john@example.com +49 170 1234567 https://x.com/y 12/05/1984 w2 4711"
TAG = "[0-9a-f]{16}"


@pytest.mark.parametrize(
    ("identifiers", "released"),
    [
        ("url=drop", "w1 [EMAIL] [PHONE] [DATE] w2 [NUMBER]"),
        ("email=drop,phone=drop,url=drop,date=drop,number=drop", "w1 w2"),
        ("date=year", "w1 [EMAIL] [PHONE] [URL] [DATE-1984] w2 [NUMBER]"),
        ("number=words,phone=drop", "w1 [EMAIL] [URL] [DATE] w2"),
        ("email=surrogate:a,url=mask", f"w1 [EMAIL-{TAG}] [PHONE] [URL] [DATE] w2 [NUMBER]"),
        ("surrogate:a", f"w1 [EMAIL-{TAG}] [PHONE-{TAG}] [URL] [DATE] w2 [NUMBER]"),
        ("surrogate:a:email", f"w1 [EMAIL-{TAG}] [NUMBER] [NUMBER] w2 [NUMBER]"),
    ],
)
def test_each_type_has_its_action(few, identifiers, released):
    """Rejects the action of one type for another, tags of dates by default, a mark of what is dropped."""
    expected = re.escape(released).replace(re.escape(TAG), TAG)
    assert re.fullmatch(expected, sanitized(few, [TEXT], identifiers=identifiers)[0])


def test_dropped_spans_are_counted_and_not_shown(few):
    """Rejects a row budget that counts what no output shows, and gaps where a span was."""
    release = worlds.sanitizer(few, EXACT, identifiers="url=drop", layout="keep")
    result = release.sanitize(["w1, https://x.com/y; w2"], [1], column="t")
    assert result.values.to_pylist() == ["w1; w2"]
    counts = {name: int(count[0]) for name, count in result.counts._asdict().items()}
    assert (counts["tokens"], counts["url"], counts["dropped"]) == (3, 1, 1)
    texts = pa.array(["w1 https://x.com/y w2"])
    assert release.release.reader.visible_words(texts).tolist() == [2]


def dates_of(text):
    found = re.findall(r"\[DATE-([0-9]{4}-[0-9]{2}-[0-9]{2})\]", text)
    return [datetime.date.fromisoformat(each) for each in found]


def test_dates_of_a_row_move_together(few):
    """Rejects a move for each date, one without key or label, one number for all rows, and large ones."""
    text = "12/05/1984 w1 May 22, 1984 and 2001-01-01T10:00, 1 May"
    rows = [text] * 60
    first = sanitized(few, rows, identifiers="date=shift:a")
    days = []
    for row in first:
        one, other, last = dates_of(row)
        assert (other - one).days == 10 and (last - one).days == 6078
        assert row.endswith("[DATE]")  # of no year
        days.append((one - datetime.date(1984, 5, 12)).days)
    assert len({*days}) > 40 and max(map(abs, days)) <= MOST_DAYS and min(days) < 0 < max(days)
    assert sanitized(few, rows, identifiers="date=shift:a", column="u", name="n") == first
    for other in ({"identifiers": "date=shift:b"}, {"key": NoiseKey(bytes(32))}):
        assert sanitized(few, rows, **{"identifiers": "date=shift:a", **other}) != first


def test_dates_of_a_person_move_together(few):
    """Rejects moves by row where persons are named, and persons whose rows are taken for each other's."""
    persons = ["p", "q", "p", None, None, "3"]
    rows = sanitized(few, ["12/05/1984"] * 6, identifiers="date=shift:a", persons=persons)
    assert rows[0] == rows[2] and len({*rows}) == 5


def test_a_shift_needs_no_key_file(few):
    """A fresh key moves dates of one release alike; rejects dates that do not move without a key."""
    policy = TextPolicy(identifiers="date=shift:a")
    release = Release.open(embedding=few, mechanism=EXACT, policy=policy)
    text = "12/05/1984 13/05/1984"
    moves = set()
    for _ in range(8):
        private = pickle.loads(pickle.dumps(Sanitizer.open(release)))
        one, other = dates_of(private.sanitize([text], [1], column="t").values.to_pylist()[0])
        assert (other - one).days == 1
        moves.add(one)
    assert len(moves) > 5


def test_own_types_are_marked_named_and_counted(few):
    """Rejects one's own type that needs no mark, an allowed address that is marked, and tags by spelling."""
    text = "FALCON k-x K-12345678 help@example.com blue  harbour"
    released = sanitized(few, [text], identifier_patterns=FILE)
    assert released == ["[PROJECT] k [CUSTOMER] help [PROJECT]"]
    private = worlds.sanitizer(few, EXACT, identifier_patterns=FILE)
    assert int(private.sanitize([text], [1], column="t").counts.user[0]) == 3
    tags = sanitized(few, [text], identifier_patterns=FILE, identifiers="surrogate:a")[0]
    assert re.fullmatch(rf"\[PROJECT-{TAG}\] k \[CUSTOMER-{TAG}\] help \[PROJECT-{TAG}\]", tags)
    named = {"identifier_patterns": FILE, "identifiers": "project=words,customer=drop"}
    assert sanitized(few, [text], **named) == ["falcon k help"]
    off = {"identifier_patterns": FILE, "identifiers": "off"}
    assert sanitized(few, [text], **off) == ["[PROJECT] k [CUSTOMER] help [PROJECT]"]


def test_own_patterns_are_in_the_noise_and_leave_it_as_it_is_where_there_are_none(few):
    """Rejects a file that decides on words and is not in their noise's context."""

    def key(**options):
        private = worlds.sanitizer(few, EXACT, **options)
        ((key, *_),) = private.contexts(["w1"], [1], column="t")
        return key

    other = {**FILE, "allow": []}
    keys = [key(), key(identifier_patterns=FILE), key(identifier_patterns=other)]
    keys += [key(identifier_patterns=FILE, identifiers="project=drop")]
    assert len({*keys}) == 4
    assert key(identifiers="email=mask", identifier_patterns=None) != keys[1]
    assert TextPolicy(identifier_patterns=FILE).marks_identity.startswith(
        TextPolicy().marks_identity
    )


def test_own_words_are_not_output(few):
    """Rejects an own word that comes out of noise, and one that is withheld though it is allowed."""
    search = ExactSearch.over(few)

    def outputs(**options):
        return search.without_marks(TextPolicy(**options), few).outputs.tolist()

    assert outputs(identifier_patterns=FILE) == [0, 1, 3, 4, 5]
    assert outputs(identifier_patterns={**FILE, "allow": ["falcon"]}) == [*range(6)]
    assert outputs(identifier_patterns=FILE, identifiers="project=words") == [*range(6)]


def test_a_policy_with_own_types_travels_whole(few, tmp_path):
    """Rejects workers and saved pipelines that read the driver's file again."""
    path = tmp_path / "patterns.toml"
    path.write_text(
        "allow = ['help@example.com']\n[[types]]\nname = 'customer'\npattern = 'K-[0-9]{8}'\n"
        "[[types]]\nname = 'project'\nwords = ['Falcon', 'Blue Harbour']\n"
    )
    policy = TextPolicy(identifier_patterns=path)
    path.unlink()
    assert policy == TextPolicy(identifier_patterns=FILE)
    assert pickle.loads(pickle.dumps(policy)) == policy == TextPolicy(**policy.to_json())
    assert hash(policy) == hash(TextPolicy(identifier_patterns=FILE))


WRONG = {
    "surrogate:people,email": r"Got: surrogate:people,email\. Give surrogate:people:email",
    "surrogate:email": r"Give surrogate:LABEL:email",
    "surrogate:people:date": r"Type date takes no surrogate.*Give date=mask",
    "ip=surrogate:a": r"Type ip takes no surrogate",
    "email=shift:a": r"Action shift is for dates\. Allowed: date=shift:a",
    "email=year": r"Action year is for dates",
    "emial=mask": r"Perhaps you meant email",
    "project=mask": r"Types of identifiers are unknown",
    "email=mask,email=drop": r"must name each type once",
    "email=mask,phone": r"must name each type once, with its action.*Got: 'phone'",
    "email=hide": r"The action .* is unknown\. Allowed: mask, surrogate:LABEL, drop, words, year",
}


@pytest.mark.parametrize("identifiers", WRONG)
def test_wrong_actions_are_refused(identifiers):
    """Rejects an action that its type cannot have, and types that are taken for a label."""
    with pytest.raises(ConfigError, match=WRONG[identifiers]):
        TextPolicy(identifiers=identifiers)


def test_each_action_says_what_it_reveals():
    """Rejects scopes without the dictionary of tags, intervals, years, and types that are words."""
    identifiers = "email=surrogate:a,date=shift:b,url=drop,ip=words"
    said = " ".join(TextPolicy(identifiers=identifiers).describe())
    for part in (
        "Marks of email have a tag, such as .EMAIL-3f9a2c51d07be644.",
        "one key and the name a. Anyone who can put a text into such a table has a dictionary",
        "INTERVALS BETWEEN DATES ARE RELEASED AS THEY ARE",
        "Spans of url are left out",
        "Spans of ip are words and numbers like all others",
    ):
        assert re.search(part, said)
    assert "url" not in said.partition("recognizes (")[2].partition(")")[0]
    assert "AS IT IS, OUTSIDE" in " ".join(TextPolicy(identifiers="date=year").describe())


@pytest.mark.parametrize("action", ["mask", "drop", "words", "year", "surrogate:a", "shift:a"])
def test_an_action_says_whether_it_looks_at_the_text(action):
    """Rejects a tag or a date of no text, and a second search for spans that become plain marks."""
    acting = Action.of(action)
    key = acting.key(worlds.KEY)
    stand_ins = {acting.stand_in(Span("date", text), key) for text in ("12/05/1984", "1/1/2021")}
    assert (len(stand_ins) == 2) == acting.of_text


def test_marks_have_codes_of_their_own():
    """Rejects an own type with the code of a built-in one."""
    names = TextPolicy(identifier_patterns=FILE).mark_names
    assert names == (*MARKS, "customer", "project")
