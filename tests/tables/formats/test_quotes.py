"""CSV lines are read by the grammar that the options name, wherever a file is cut into splits."""

from itertools import combinations
from types import SimpleNamespace

import pyarrow as pa
import pytest

from dptext_spark.tables.formats.quotes import (
    DROPPED,
    LINE,
    OPEN,
    SEVERAL,
    Fault,
    Grammar,
    first_fault,
)


def read(text, grammar, cuts=(0,)):
    """What is found in a file that is cut into splits before these lines."""
    lines = text.removesuffix("\n").split("\n")
    starts = [max(cut for cut in cuts if cut <= number) for number in range(len(lines))]
    rows = [
        ("f", start, line, line.endswith("\r")) for start, line in zip(starts, lines, strict=True)
    ]
    batch = pa.RecordBatch.from_pylist([dict(zip(LINE, row, strict=True)) for row in rows])
    splits = pa.Table.from_batches(list(grammar.splits([batch]))).to_pylist()
    for split in splits:
        split |= {name: SimpleNamespace(**split[name]) for name in ("outside", "inside")}
    return first_fault([SimpleNamespace(**split) for split in splits])


SLASH = {"escape": "\\", "escape_escape": "\\"}
ONE_LINE = {"spans_lines": False, "finds_ends": False}
CASES = [
    # (options, text, the first fault and its line)
    ({}, 'id,v\n1,"a\nb ""c"""\n2,d"e\n3,""\n', None),
    ({}, 'id,v\n1,"a\n2,b\n', (OPEN, 2)),
    ({}, 'id,v\n1,"a\n2,b""\n', (OPEN, 2)),
    ({}, 'id,v\n1,"a\n2,"b"\n', (OPEN, 2)),
    ({}, 'id,v\n1,"a\n2,b",c"\n4,"d""\n', (OPEN, 4)),
    ({}, 'id,v\n1,"a"b\n', (OPEN, 2)),
    ({}, 'id,v\n1,"a" \n', (OPEN, 2)),
    ({"blanks_after": True}, 'id,v\n1,"a" ,"b"\t\n', None),
    ({}, 'id,v\n1, "a\n', None),
    ({"blanks_before": True}, 'id,v\n1, "a\n', (OPEN, 2)),
    (ONE_LINE, 'id,v\n1,"a\nb"\n', (OPEN, 2)),
    ({"separator": ";"}, 'id;v\n1;"a;b"\n2,"c\n', None),
    ({"separator": "||"}, 'id||v\n1||"a|b"||c\n2||"c"|d\n', (OPEN, 3)),
    # Spark doubles the quote of this value, where the file ends.
    ({"separator": "||"}, 'id||v\n1||a"', (OPEN, 2)),
    ({"quote": "'", "escape": "'"}, "id,v\n1,'a''b'\n2,\"c\n3,'d\n", (OPEN, 4)),
    ({"quote": ""}, 'id,v\n1,"a\n', None),
    (SLASH, 'id,v\n1,"a\\"b\\\\"\n2,"c\\n"\n', None),
    (SLASH, 'id,v\n1,"a\\"\n', (OPEN, 2)),
    (SLASH, 'id,v\n1,"a""b"\n', (OPEN, 2)),
    ({"escape": "\\", "escape_escape": "#"}, 'id,v\n1,"#\\"\n2,"a#b"\n', (DROPPED, 3)),
    ({"comment": "#"}, 'id,v\n#"\n1,"a\n#"\n', None),
    ({}, '\ufeff"id",v\n1,a\n', None),
    ({}, 'id,v\n1,a\0b\n2,"c\nd\0"\n', (DROPPED, 4)),
    ({}, "id,v\n1,\0\n", (DROPPED, 2)),
    ({}, 'id,v\r\n1,"a\r\n2,b\r\n', (OPEN, 2)),
    ({}, 'id,v\r1,"a\r""b"\r2,"c\r', (OPEN, 4)),
]


@pytest.mark.parametrize(("options", "text", "fault"), CASES)
def test_faults_have_their_first_line_however_a_file_is_cut(options, text, fault):
    """Rejects splits that are read as if each began outside of quotes, and lines that count from a split."""
    expected = None if fault is None else Fault(*fault)
    lines = text.count("\n") if "\r1" not in text else 1
    inner = range(1, lines)
    cuts = [(0, *cut) for size in range(len(inner) + 1) for cut in combinations(inner, size)]
    assert {read(text, Grammar(**options), cut)[0] for cut in cuts} == {expected}


def test_line_ends_inside_quotes_are_found_where_the_file_s_lines_end_so():
    """Rejects those of a file of LF, which stay, and a file of CR whose splits do not know how it began."""
    grammar = Grammar()
    assert read('id,v\r\n1,"a\nb\r\nc"\r\n', grammar) == (None, Fault("\r\n", 3))
    assert read('id,v\r1,"a\rb"\r', grammar) == (None, Fault("\r", 2))
    assert read('id,v\n1,"a\r\nb"\n', grammar) == (None, None)
    assert read('id,v\r\n1,"a\nb"\r\n', grammar) == (None, None)
    assert read('id,v\r1,"a\nb"\r2,"c\n"', grammar, cuts=(0, 1))[0].kind == SEVERAL
