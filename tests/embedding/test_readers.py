"""Readers of embedding sources: every format, every fault with its place, and never a word in a message."""

import errno
import gzip
import hashlib
import io
import re
import traceback
import zipfile
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dptext_spark.embedding import readers
from dptext_spark.embedding.readers import reader_of
from dptext_spark.errors import BundleError
from tests.helpers.bundles import vectors_of

WORDS = ["the", "of", "naïve", "東京", "don't", "3.14", "nan", "a\u00a0b", '"', '"q"']
VECTORS = vectors_of(len(WORDS))
BOM = b"\xef\xbb\xbf"


def text_of(words, vectors, *, header=False, end="\n"):
    lines = [f"{len(words)} {vectors.shape[1]}"] if header else []
    lines += [
        f"{word} " + " ".join(map(str, row)) for word, row in zip(words, vectors, strict=True)
    ]
    return "".join(line + end for line in lines).encode()


def binary_of(*rows, promised=0, n=2, end=b"\n"):
    header = f"{promised or len(rows)} {n}\n".encode()
    return header + b"".join(word + b" " + np.array(v, "<f4").tobytes() + end for word, v in rows)


def open_source(path, format="auto", **options):
    return reader_of(path, format)(path=path, judge=lambda _: iter(()), **options)


def read(path, **options):
    blocks = list(source := open_source(path, **options))
    words = [word for names, _ in blocks for word in names]
    return words, np.concatenate([vectors for _, vectors in blocks]), source.sha256


def written(path, content):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def fault(path, **options):
    with pytest.raises(BundleError) as caught:
        read(path, **{"strict": True, **options})
    # What a UnicodeDecodeError holds is the word, so it must not hang on as a visible cause.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    assert "secretword" not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


@pytest.mark.parametrize("name", ["g.txt", "g.vec.gz"])
@pytest.mark.parametrize("header", [False, True])
def test_text(tmp_path, name, header):
    for end in ("\n", " \n", "\r\n"):
        content = text_of(WORDS, VECTORS, header=header, end=end)
        for whole in (content, BOM + content, content[:-1]):  # with a mark, without a last break
            words, vectors, digest = read(written(tmp_path / name, whole))
            assert (words, vectors.tobytes()) == (WORDS, VECTORS.tobytes())
            assert digest == hashlib.sha256(whole).hexdigest()


@pytest.mark.parametrize("header", [b"", b"5 2\n"])
def test_words_that_contain_spaces(tmp_path, header):
    rows = (
        b". . 0.5 0.25\nat name@domain.com 1.0 2.0\nx 1.5 2.5\n. . . -1.5 2e-3\nwindows 10 .5 1.\n"
    )
    words, vectors, _ = read(written(tmp_path / "g.txt", header + rows))
    assert words == [". .", "at name@domain.com", "x", ". . .", "windows 10"]
    assert (
        vectors.tolist()
        == np.float32([[0.5, 0.25], [1, 2], [1.5, 2.5], [-1.5, 2e-3], [0.5, 1]]).tolist()
    )


@given(
    words=st.lists(
        st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])), min_size=1, unique=True
    ),
    values=st.lists(st.floats(-3e38, 3e38, allow_nan=False), min_size=1, max_size=9),
    form=st.sampled_from(["%r", "%.5f", "%.17e", "%+.9g"]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_words_as_they_stand_and_numbers_as_python_reads_them(tmp_path, words, values, form):
    """Rejects parsers that take quotes, commas, odd blanks or NA for more than letters, or round twice."""
    assume(not any(re.fullmatch(r"[\d.e+-]+", word.split(" ")[-1]) for word in words))
    read_as = ["a", *(word.strip() for word in words)]
    assume(all(read_as) and len({*read_as}) == len(read_as))
    fields = [form % value for value in values]
    path = written(
        tmp_path / "g.txt", "".join(f"{w} {' '.join(fields)}\n" for w in ["a", *words]).encode()
    )
    assume(not words[0].startswith("\ufeff"))
    exact = np.array([[float(field) for field in fields]] * (len(words) + 1))
    for dtype in ("<f4", "<f8"):
        found, vectors, _ = read(path, dtype=dtype)
        assert (found, vectors.tobytes()) == (read_as, exact.astype(dtype).tobytes())


@pytest.mark.parametrize("name", ["w.bin", "W.BIN.gz", "w.txt"])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_binary(tmp_path, name, end):
    """Also vectors that hold the bytes of space and line break; the format overrules the name."""
    format = "word2vec-binary" if name == "w.txt" else "auto"
    blank = np.frombuffer(b"    \n\n\n\n  \n " * len(WORDS), "<f4").reshape(-1, 3)
    for expected in (VECTORS, blank):
        content = binary_of(
            *((w.encode(), v) for w, v in zip(WORDS, expected, strict=True)), n=3, end=end
        )
        words, vectors, digest = read(written(tmp_path / name, content), format=format)
        assert (words, vectors.tobytes()) == (WORDS, expected.tobytes())
        assert digest == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(tmp_path, dtype, order):
    expected = np.array(VECTORS, dtype=dtype, order=order)
    np.save(tmp_path / "vectors.npy", expected)
    vocabulary = written(tmp_path / "vocab.txt", BOM + "\r\n".join(WORDS).encode())
    words, vectors, digest = read(tmp_path / "vectors.npy")
    assert words == WORDS
    np.testing.assert_array_equal(vectors, expected.astype(np.float32))
    if order == "C":
        both = (tmp_path / "vectors.npy").read_bytes() + vocabulary.read_bytes()
        assert digest == hashlib.sha256(both).hexdigest()
    np.testing.assert_array_equal(read(tmp_path)[1], vectors)
    other = vocabulary.rename(tmp_path / "names.txt")
    assert read(tmp_path / "vectors.npy", vocabulary=other)[0] == WORDS


def test_limit_reads_and_hashes_only_the_first_rows(tmp_path):
    """Of a text as ``head`` gives it, of a binary and an array the header and the rows."""
    content = text_of(WORDS, VECTORS, header=True)
    head = b"".join(content.splitlines(keepends=True)[:3])
    binary = binary_of(*((w.encode(), v) for w, v in zip(WORDS, VECTORS, strict=True)), n=3)
    size = len(b"10 3\n") + len("the of  ") + 1 + 2 * 12 - 1  # not the break after the second row
    np.save(tmp_path / "vectors.npy", VECTORS)
    written(tmp_path / "vocab.txt", "\n".join(WORDS).encode())
    array = (tmp_path / "vectors.npy").read_bytes()[: 128 + 2 * 12] + b"the\nof\n"
    for path, hashed in (
        (written(tmp_path / "g.txt.gz", content), head),
        (written(tmp_path / "h.txt", head + b"broken"), head),
        (written(tmp_path / "w.bin", binary), binary[:size]),
        (tmp_path, array),
    ):
        words, vectors, digest = read(path, limit=2)
        assert (words, vectors.tobytes()) == (WORDS[:2], VECTORS[:2].tobytes())
        assert digest == hashlib.sha256(hashed).hexdigest()
    assert read(tmp_path / "g.txt.gz", limit=100)[2] == hashlib.sha256(content).hexdigest()


def test_blocks_are_bounded_and_places_run_on(tmp_path, capsys):
    """And progress is silent without a terminal."""
    content = text_of([f"w{i}" for i in range(9000)], vectors_of(9000, 2))
    path = written(tmp_path / "g.txt", content)
    sizes = [len(block) for block, _ in open_source(path)]
    assert sum(sizes) == 9000 and max(sizes) <= 4096
    assert capsys.readouterr() == ("", "")
    assert "line 8501" in fault(written(path, content.replace(b"w8500 ", b"w17 ")))


A, B, S = (b"a", [1.0, 2.0]), (b"b", [3.0, 4.0]), (b"secretword", [5.0, 6.0])
FAULTS = {
    "too few fields": (b"a 1 2\nsecretword 3\nb 5 6\n", "line 2: .*number of fields"),
    "too many fields": (b"a 1.5 2\nsecretword 3.5 4.5 5.5\n", "line 2: .*number of fields"),
    "an integer too many": (b"a 0.5 0.5\nsecretword 1 0 0.25\n", "line 2: .*number of fields"),
    "empty line": (b"a 1 2\n\nb 5 6\n", "line 2: .*number of fields.*Got: 0 fields"),
    "text for a number": (b"a 1 2\nb secretword 2\n", "line 2: .*not a number"),
    "text first": (b"secretword x\nb 1 2\n", "line 1: .*not a number"),
    "number before text first": (b"secretword 0.5 x 0.5\nb 1 2\n", "line 2: .*number of fields"),
    "underscore": (b"a 1 2\nsecretword 1_0 2\n", "line 2: .*not a number"),
    "number not UTF-8": (b"a 1 2\nsecretword 1\xff 2\n", "line 2: .*not a number"),
    "beyond float32": (b"a 1 2\nsecretword 1e39 2\n", "line 2: .*too large"),
    "header of another dimension": (b"2 3\nsecretword 1 2\nb 1 2\n", "line 2: .*number of fields"),
    "fewer rows than promised": (b"3 2\na 1 2\nb 3 4\n", "line 3: .*ends.*3 rows.*2 rows"),
    "more rows than promised": (
        b"2 2\na 1 2\nb 3 4\nsecretword 5 6\n",
        "line 4: .*ends.*2 rows.*3 rows",
    ),
    "header of no rows": (b"0 2\n", "line 1: .*header"),
    "header of absurd dimension": (b"2 99999999999\na 1\n", "line 1: .*header"),
    "cut in mid line": (b"a 1 2\nb 3 4\nsecretword 5", "line 3: .*cut short"),
    "invalid UTF-8": (b"a 1 2\nsecretword\xff\xfe 3 4\n", "line 2: .*UTF-8"),
    "line separator": ("a 1 2\nsecret\u2028word 3 4\n".encode(), "line 2: .*control"),
    "binary with more rows than promised": (binary_of(A, B, S, promised=2), "row 3: .*more rows"),
    "binary cut in a vector": (binary_of(A, S)[:-5], "row 2: .*cut short"),
    "binary cut in a word": (binary_of(A, S)[:-12], "row 2: .*cut short"),
    "binary cut in the header": (b"2 ", "row 1: .*header"),
    "binary without a header": (b"secretword 0.1 \0\0\n", "row 1: .*header"),
    "binary line break in a word": (binary_of(A, (b"secret\nword", [1, 2])), "row 2: .*control"),
    "binary word without end": (b"2 2\n" + b"x" * 165_537, "row 1: .*cut short"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_text_and_binary(tmp_path, name):
    content, message = FAULTS[name]
    for file in ("w.bin", "w.bin.gz") if name.startswith("binary") else ("g.txt", "g.txt.gz"):
        assert re.search(rf"{file}, {message}", fault(written(tmp_path / file, content)))


@pytest.mark.parametrize(("name", "place"), [("g.txt.gz", "line"), ("w.bin.gz", "row")])
def test_gz_cut_short_or_damaged(tmp_path, name, place):
    words, vectors = [f"w{i}" for i in range(1000)], vectors_of(1000)
    rows = ((w.encode(), v) for w, v in zip(words, vectors, strict=True))
    whole = gzip.compress(binary_of(*rows, n=3) if place == "row" else text_of(words, vectors))
    checksum = bytes([whole[-8] ^ 1])
    for damaged in (whole[: len(whole) // 2], whole[:-4], whole[:9], whole[:-8] + checksum):
        (tmp_path / name).write_bytes(damaged)
        assert re.search(rf"{place} \d+: the file is cut short or damaged", fault(tmp_path / name))


def npy(array, **options):
    np.save(file := io.BytesIO(), array, **options)
    return file.getvalue()


THREE = npy(vectors_of(3))


@pytest.mark.parametrize(
    ("matrix", "words", "message"),
    [
        (THREE, b"a\nb\n", "differ in length.*3 words.*2 lines; row 3"),
        (THREE, b"a\nb\nc\nsecretword\n", "differ in length.*3 words.*4 lines; row 4"),
        (THREE, b"secretword\nb\nsecretword\n", "row 3: .*duplicate"),
        (npy(np.float64([[1, 2], [3, 1e300]])), b"a\nb\n", "row 2: .*too large"),
        (npy(np.arange(6).reshape(3, 2)), b"a\nb\nc\n", "not a matrix of vectors.*int64"),
        (npy(vectors_of(3)[0]), b"a\nb\nc\n", r"not a matrix of vectors.*\(3,\)"),
        (
            npy(np.array([[{}, 1]], dtype=object), allow_pickle=True),
            b"a\n",
            "not a complete .npy file",
        ),
        *(
            (cut, b"a\nb\nc\n", "not a complete .npy")
            for cut in (THREE[:-1], THREE + b"\0", THREE[:20], b"x")
        ),
    ],
)
def test_faults_of_npy(tmp_path, matrix, words, message):
    written(tmp_path / "vectors.npy", matrix)
    written(tmp_path / "vocab.txt", words)
    assert re.search(message, fault(tmp_path))


def test_faults_of_options(tmp_path, monkeypatch):
    path = written(tmp_path / "g.txt", b"a 1\n" + b"x" * 5000)
    np.save(tmp_path / "x.npy", vectors_of(2))
    assert re.search("format.*text, word2vec-binary, npy", fault(path, format="glove"))
    assert "missing" in fault(tmp_path / "absent.txt") and "missing" in fault(tmp_path)
    assert "limit" in fault(path, limit=0) and "vocabulary" in fault(path, vocabulary=path)
    assert "vocab.txt" in fault(tmp_path / "x.npy")
    monkeypatch.setattr(
        readers, "_LONGEST_LINE", 1000
    )  # a line without end does not fill the memory
    assert "line 2: the line is too long" in fault(path)


@pytest.mark.parametrize(
    ("record", "offset", "changed", "message"),
    [
        pytest.param(
            b"PK\5\6", 16, b"\xff\xff\xff\x7f", "cut short or damaged", id="place that lies"
        ),
        pytest.param(
            b"PK\1\2", 6, b"\x63", "a zip that cannot be read directly", id="later version"
        ),
    ],
)
def test_a_zip_with_other_records_is_one_error(tmp_path, record, offset, changed, message):
    """Rejects an error of the system about a place, and one of Python's zip about what it lacks."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("glove.txt", text_of(WORDS, VECTORS))
    content = archive.getvalue()
    place = content.rindex(record) + offset
    path = tmp_path / "glove.zip"
    path.write_bytes(content[:place] + changed + content[place + len(changed) :])
    with pytest.raises(BundleError, match=message):
        list(open_source(path, "text"))


def test_a_header_that_is_no_python_is_damaged(tmp_path):
    """Rejects an error of NumPy's tokenizer."""
    np.save(tmp_path / "vectors.npy", VECTORS)
    content = (tmp_path / "vectors.npy").read_bytes()
    (tmp_path / "vectors.npy").write_bytes(content.replace(b"(", b"'", 1))
    (tmp_path / "vocab.txt").write_text("a\n" * len(WORDS))
    with pytest.raises(BundleError, match=r"not a complete \.npy file"):
        list(open_source(tmp_path / "vectors.npy"))


def test_a_disk_that_fails_is_no_damage(tmp_path, monkeypatch):
    """Rejects a trace, and "fetch the file again"."""
    (tmp_path / "glove.txt").write_bytes(text_of(WORDS, VECTORS))
    source = open_source(tmp_path / "glove.txt")
    failure = OSError(errno.EIO, "Input/output error")
    monkeypatch.setattr(readers, "_decompressed", Mock(side_effect=failure))
    with pytest.raises(BundleError, match=r"cannot be read\. Got: .*Input/output error"):
        list(source)
