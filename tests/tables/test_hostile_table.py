"""No unknown word of a hostile table shows, neither in the output nor in a report."""

import re
import unicodedata

import pyarrow as pa
import pytest

from dptext_spark.mechanisms import Laplace
from dptext_spark.text.patterns.names import MARKS
from tests.helpers.tables import hashes, rows_of, run_table, write_table
from tests.helpers.worlds import sanitizer

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SECRETS = [
    "ZEBULON Quartzman",
    "zebulon.quartzman@example.com",
    "4111-1111-1111-1111 4111111111111111",
    "SSN 078-05-1120, tel. +49 (0)30 1234567",
    "Åse Çağla naïveté Ωmega Straße ŠKODA",
    "A\u030ase C\u0327ag\u0306la nai\u0308vete\u0301",
    "\ufb01ancée \u2167 x\u00b2 \u017fecretly \u210cilbert",
    "\uff33\uff25\uff23\uff32\uff25\uff34\uff39",
    "\U0001d42c\U0001d41e\U0001d41c\U0001d42b\U0001d41e\U0001d42d\U0001d432",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f3f3\ufe0f\u200d\U0001f308 \U0001f1e9\U0001f1ea",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd \u0645\u0631\u062d\u0628\u0627 \u202equartzman\u202c",
    "Quartz\u200bman Zebu\u00adlon zero\u2060width \ufeffQuartzman\u200d",
    "O\u2019Quartzman d'Zebulon rock'n'quartz Quartzman's Zebulonn't",
    "\u0661\u0662\u0663\u0664 \u0967\u0968\u0969 \u6771\u4eac\u90fd",
    "\u0e20\u0e32\u0e29\u0e32 \u0939\u093f\u0928\u094d\u0926\u0940",
    "\u0130STANBULLU d\u0131\u015far\u0131l\u0131",
    "snake_case_quartz https://quartz.example/zebulon?q=1 QmFzZTY0U2VjcmV0",
    "nul\x00quartz tab\tquartzman\nline\r\nzebulon\u2028end\u0085",
    "\u0301\u0302 \u200b \u00ad",
    "q" * 50_000,
    "zebulon\u20ddquartz quartz\u0336man",
]


def forms(word):
    """A word under every normal form, before and after case folding."""
    found = set()
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        normal = unicodedata.normalize(form, word)
        found |= {normal, unicodedata.normalize(form, normal.casefold())}
    return found


def pieces(text):
    """Words of a text however one cuts it: at white space, at anything that is no letter or digit."""
    return {piece for cut in (r"\s+", r"\W+", r"[\W_]+") for piece in re.split(cut, text) if piece}


def leaks(given, released, vocabulary):
    """Input tokens that stand in the output in any form, but not in the release vocabulary."""
    words = [*vocabulary, "[MASK]", *MARKS]
    known = {*words}.union(*map(pieces, words))
    allowed = {form for word in known for form in forms(word)}
    # A clitic is joined to whatever word comes before it, and may make an input token's letters with it.
    uncut = (" ".join(apart(text, known)) for text in released if text)
    seen = {form for text in uncut for piece in pieces(text) for form in forms(piece)}
    private = {piece for text in given if text for piece in pieces(text)}
    return {piece for piece in private if forms(piece) & seen and not forms(piece) & allowed}


def apart(text, words):
    """The words of an output text, clitics apart from the words that they are joined to."""
    clitic = re.compile(r"(.+)(n't|'(?:s|m|d|ll|re|ve))")
    found = []
    for piece in text.split(" "):
        while piece not in words and (joined := clitic.fullmatch(piece)):
            piece, last = joined.groups()
            found.append(last)
        found.append(piece)
    return found


@pytest.mark.parametrize(
    ("oov", "unknown"),
    [
        ("mask", 9_000),
        ("drop", 9_000),
        ("random", 9_000),
        pytest.param("mask", 990_000, marks=pytest.mark.long),
    ],
)
def test_no_unknown_token_of_a_hostile_table_comes_out(demo_bundle, tmp_path, oov, unknown):
    vocabulary = demo_bundle.words.to_pylist()
    plain = [word for word in vocabulary if word.isalpha()][:500]
    long = " ".join([*(f"zq{i}" for i in range(unknown)), *plain, *plain])
    given = [None, "", *SECRETS, " ".join(SECRETS), long]
    split = ([*secret.split(" "), None, ""] for secret in SECRETS)
    words = [None, [], *split, [" ".join(SECRETS)], ["Zebulon"]]
    source = write_table(
        tmp_path / "in" / "x.parquet",
        {
            "text": given,
            "words": pa.array(words, pa.list_(pa.string())),
            "other": ["Zebulon"] * len(given),
        },
    )
    before = hashes(tmp_path / "in")
    given_options = {"input": source, "output": tmp_path / "out", "embedding": demo_bundle.path}
    report = run_table(**given_options, text=["text"], tokens=["words"], oov=oov)
    rows = rows_of(tmp_path / "out")
    assert [set(row) for row in rows] == [{"text", "words"}] * len(given)
    assert [row["text"] is None for row in rows] == [text is None for text in given]
    assert rows[1] == {"text": "", "words": []}
    released = [row["text"] for row in rows]
    tokens = [token for row in rows if row["words"] for token in row["words"] if token]
    assert leaks(given, released, vocabulary) == set()
    assert leaks([w for row in words if row for w in row if w], tokens, vocabulary) == set()
    allowed = {*vocabulary, *(f"[{kind.upper()}]" for kind in MARKS)}
    assert {word for text in released if text for word in apart(text, allowed)} <= allowed
    assert set(tokens) <= allowed
    if oov != "drop":
        assert len(apart(released[-1], allowed)) == unknown + 2 * len(plain)
    assert report.facts["columns"]["text"]["out_of_vocabulary"]["tokens"] >= unknown
    assert hashes(tmp_path / "in") == before
    written = (tmp_path / "out.private" / "report.json").read_text() + report.describe()
    assert not re.search("zebulon|quartz|4111|zq1|qqq", written, re.IGNORECASE)


def test_the_leak_check_catches_words_in_any_normal_form_and_case(demo_bundle):
    passing = {"oov": "keep-unprotected", "identifiers": "off", "numbers": "words"}
    privatizer = sanitizer(demo_bundle, Laplace(epsilon=10.0), **passing)
    released = privatizer.sanitize(
        pa.array(SECRETS), pa.array(range(len(SECRETS))), column="text"
    ).values
    caught = leaks(SECRETS, released.to_pylist(), demo_bundle.words.to_pylist())
    assert caught >= {"Quartzman", "4111111111111111", "q" * 50_000, "\u05e9\u05dc\u05d5\u05dd"}
    for form in ("NFD", "NFKC"):
        disguised = [unicodedata.normalize(form, secret).upper() for secret in SECRETS]
        assert leaks(SECRETS, disguised, ["in"]) >= {"naïveté", "Quartzman", "\ufb01ancée"}
    assert leaks(SECRETS, ["in [MASK]"], ["in"]) == set()
