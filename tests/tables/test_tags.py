"""How many tags a released table has, and which rows they link, in its private report."""

import re

from dptext_spark.report.facts import tags_of
from dptext_spark.tables.tags import count_tags
from tests.helpers.tables import by_id, run_table, write_table

ROWS = [
    "a@x.com and b@x.com",
    "A@X.com, a\uff20x.com",
    "c@x.com",
    "+49 170 1234567",
    "0049 170 1234567, a@x.com",
    "nothing",
]


def test_tags_are_counted_by_type(spark):
    """Rejects tags of a row that count twice, rows that link themselves, and types taken together."""
    a, b, c = (f"[EMAIL-{letter * 16}]" for letter in "abc")
    phone = f"[PHONE-{'d' * 16}]"
    texts = [f"{a} {b} {b}", f"{a} {a}", c, phone, f"{phone} {a}", "[EMAIL] [DATE-1984] word", None]
    counts = count_tags(spark.createDataFrame([(text,) for text in texts], "value string"))
    assert counts == [
        {"type": "email", "tags": 3, "linked": 3, "largest": 3},
        {"type": "phone", "tags": 1, "linked": 2, "largest": 2},
    ]
    assert tags_of(counts)["said"] == [
        "Tags of email: 3; they link 3 rows; the most frequent is in 3",
        "Tags of phone: 1; they link 2 rows; the most frequent is in 2",
    ]


def test_a_table_with_actions_and_own_patterns(spark, ring, tmp_path):
    """Rejects a file that workers must read, dates that move by row, a public report without the hash."""
    file = tmp_path / "patterns.toml"
    file.write_text("[[types]]\nname = 'customer'\npattern = 'K-[0-9]{4}'\n")
    key = tmp_path / "key"
    key.write_text("0" * 64)
    key.chmod(0o600)
    texts = [f"w01 {row} K-1234 on 12/05/1984" for row in ROWS]
    columns = {"id": [*range(6)], "text": texts, "who": ["p", "q"] * 3}
    given = {
        "input": write_table(tmp_path / "in" / "part.parquet", columns).parent,
        "output": tmp_path / "out",
        "embedding": ring.path,
        "id": "id",
        "keep": ("id",),
        "person": "who",
        "key_file": key,
        "name": "tags",
        "identifiers": "email=surrogate:a,customer=surrogate:a,date=shift:a,phone=drop",
        "identifier_patterns": file,
        "epsilon": 1e6,
    }
    report = run_table(**given)
    rows = by_id(spark.read.parquet(str(tmp_path / "out")))
    dates = [re.search(r"\[DATE-[0-9-]{10}\]", rows[row])[0] for row in range(6)]
    assert dates[0] == dates[2] == dates[4] != dates[1] == dates[3] == dates[5]
    assert all("[PHONE" not in text and "[CUSTOMER-" in text for text in rows.values())
    counts = {counts["type"]: counts for counts in report.facts["tags"]["types"]}
    assert counts["email"] == {"type": "email", "tags": 3, "linked": 3, "largest": 3}
    assert counts["customer"] == {"type": "customer", "tags": 1, "linked": 6, "largest": 6}
    assert report.facts["columns"]["text"]["marks"]["user"] == 6
    public = (tmp_path / "out.release.json").read_text()
    assert report.facts["identifier_patterns"] in public and "K-[0-9]" not in public
    assert "64 bits" in public and '"tags"' not in public
    assert "K-[0-9]" not in (tmp_path / "out.private" / "report.json").read_text()
