"""Readers of embedding sources: every format, every fault with its place, and never a word in a message."""

from __future__ import annotations

import gzip
import hashlib
import re
import traceback
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dptext_spark.embedding import readers
from dptext_spark.embedding.readers import open_source
from dptext_spark.errors import BundleError

WORDS = ["the", "of", "naïve", "東京", "don't", "3.14", "nan", "a\u00a0b"]


def vectors_of(rows: int, n: int = 3, seed: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, n)).astype(np.float32)


def text_of(words: list[str], vectors: np.ndarray, *, header: bool = False, end: str = "\n") -> bytes:
    lines = [f"{len(words)} {vectors.shape[1]}"] if header else []
    lines += [f"{word} " + " ".join(str(v) for v in row) for word, row in zip(words, vectors, strict=True)]
    return "".join(line + end for line in lines).encode()


def binary_of(words: list[str], vectors: np.ndarray, *, end: bytes = b"\n") -> bytes:
    rows = (w.encode() + b" " + v.astype("<f4").tobytes() + end for w, v in zip(words, vectors, strict=True))
    return f"{len(words)} {vectors.shape[1]}\n".encode() + b"".join(rows)


def read(path: Path, **options: object) -> tuple[list[str], np.ndarray, str]:
    source = open_source(path, **options)  # type: ignore[arg-type]
    blocks = list(source)
    words = [word for block, _ in blocks for word in block]
    return words, np.concatenate([vectors for _, vectors in blocks]), source.sha256


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def fault(path: Path, **options: object) -> str:
    with pytest.raises(BundleError) as caught:
        read(path, **options)
    # What a UnicodeDecodeError holds is the word, so it must not hang on as a visible cause.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    assert "secretword" not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


# Formats


@pytest.mark.parametrize("name", ["g.txt", "g.vec", "g.txt.gz", "g.vec.gz"])
@pytest.mark.parametrize("header", [False, True])
def test_text(tmp_path: Path, name: str, header: bool) -> None:
    expected = vectors_of(len(WORDS))
    for end in ("\n", " \n", "\r\n"):
        content = text_of(WORDS, expected, header=header, end=end)
        for whole in (content, b"\xef\xbb\xbf" + content, content[:-1]):  # with a mark, without a last break
            words, vectors, digest = read(written(tmp_path / name, whole))
            assert (words, vectors.dtype) == (WORDS, np.float32)
            np.testing.assert_array_equal(vectors, expected)
            assert digest == hashlib.sha256(whole).hexdigest()


@pytest.mark.parametrize("header", [b"", b"5 2\n"])
def test_tokens_that_contain_spaces(tmp_path: Path, header: bytes) -> None:
    content = (
        header + b". . 0.5 0.25\nat name@domain.com 1.0 2.0\nx 1.5 2.5\n. . . -1.5 2e-3\nwindows 10 .5 1.\n"
    )
    words, vectors, _ = read(written(tmp_path / "g.txt", content))
    assert words == [". .", "at name@domain.com", "x", ". . .", "windows 10"]
    assert vectors.tolist() == np.float32([[0.5, 0.25], [1, 2], [1.5, 2.5], [-1.5, 2e-3], [0.5, 1]]).tolist()


@pytest.mark.parametrize(
    ("extra", "vector"), [("0.123", "0.5 0.25"), ("-1e-5", "0.5 0.25"), (".5", "1 2"), ("1", "0 0.25")]
)
def test_a_number_too_many_is_no_token_with_a_space(tmp_path: Path, extra: str, vector: str) -> None:
    path = written(tmp_path / "g.txt", f"a 0.5 0.5\nsecretword {extra} {vector}\n".encode())
    message = fault(path)
    assert "g.txt, line 2" in message
    assert "length" in message


numbers = st.floats(-3e38, 3e38, allow_nan=False, width=64)


@given(
    values=st.lists(numbers, min_size=1, max_size=40), form=st.sampled_from(["%r", "%.5f", "%.17e", "%+.9g"])
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_text_values_equal_float32_of_float(tmp_path: Path, values: list[float], form: str) -> None:
    fields = [form % value for value in values]
    path = written(tmp_path / "g.txt", ("w " + " ".join(fields) + "\n").encode())
    expected = np.array([np.float32(float(field)) for field in fields])
    assert read(path)[1][0].tobytes() == expected.tobytes()
    wide = np.array([float(field) for field in fields])
    assert read(path, dtype=np.float64)[1][0].tobytes() == wide.tobytes()


@pytest.mark.parametrize("name", ["w.bin", "w.bin.gz", "W.BIN"])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_binary(tmp_path: Path, name: str, end: bytes) -> None:
    """Also vectors that hold the bytes of space and line break."""
    blank = np.frombuffer(b"    \n\n\n\n  \n " * len(WORDS), "<f4").reshape(-1, 3)
    for expected in (vectors_of(len(WORDS)), blank):
        content = binary_of(WORDS, expected, end=end)
        words, vectors, digest = read(written(tmp_path / name, content))
        assert words == WORDS
        np.testing.assert_array_equal(vectors, expected)
        assert digest == hashlib.sha256(content).hexdigest()


def test_format_overrules_the_name(tmp_path: Path) -> None:
    expected = vectors_of(len(WORDS))
    binary = written(tmp_path / "w.txt", binary_of(WORDS, expected))
    np.testing.assert_array_equal(read(binary, format="word2vec-binary")[1], expected)
    text = written(tmp_path / "t.bin", text_of(WORDS, expected))
    np.testing.assert_array_equal(read(text, format="text")[1], expected)


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(tmp_path: Path, dtype: str, order: str) -> None:
    expected = np.array(vectors_of(len(WORDS)), dtype=dtype, order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "vectors.npy", expected)
    vocabulary = written(tmp_path / "vocab.txt", "".join(w + "\n" for w in WORDS).encode())
    words, vectors, digest = read(tmp_path / "vectors.npy")
    assert words == WORDS
    np.testing.assert_array_equal(vectors, expected.astype(np.float32))
    if order == "C":
        both = (tmp_path / "vectors.npy").read_bytes() + vocabulary.read_bytes()
        assert digest == hashlib.sha256(both).hexdigest()
    np.testing.assert_array_equal(read(tmp_path)[1], vectors)
    other = vocabulary.rename(tmp_path / "names.txt")
    assert read(tmp_path / "vectors.npy", vocabulary=other)[0] == WORDS


def test_blocks_are_bounded_and_places_run_on(tmp_path: Path) -> None:
    rows = 9000
    words = [f"w{i}" for i in range(rows)]
    content = text_of(words, vectors_of(rows, 2))
    path = written(tmp_path / "g.txt", content)
    sizes = [len(block) for block, _ in open_source(path)]
    assert sum(sizes) == rows
    assert max(sizes) <= 4096
    assert "line 8501" in fault(written(path, content.replace(b"w8500 ", b"w17 ")))


# Limit and hash


def test_limit_reads_and_hashes_only_the_first_rows(tmp_path: Path) -> None:
    expected = vectors_of(len(WORDS))
    content = text_of(WORDS, expected, header=True)
    head = b"".join(content.splitlines(keepends=True)[:4])
    words, vectors, digest = read(written(tmp_path / "g.txt.gz", content), limit=3)
    assert words == WORDS[:3]
    np.testing.assert_array_equal(vectors, expected[:3])
    assert digest == hashlib.sha256(head).hexdigest()
    assert read(written(tmp_path / "h.txt", head + b"broken"), limit=3)[2] == digest
    assert read(tmp_path / "g.txt.gz", limit=100)[2] == hashlib.sha256(content).hexdigest()


def test_limit_of_binary_and_npy(tmp_path: Path) -> None:
    expected = vectors_of(len(WORDS))
    content = binary_of(WORDS, expected)
    words, vectors, digest = read(written(tmp_path / "w.bin", content), limit=2)
    assert words == WORDS[:2]
    np.testing.assert_array_equal(vectors, expected[:2])
    # The header, two rows, and the line break between them; the one after the last row is not read.
    size = len(b"8 3\n") + len("the of  ") + 1 + 2 * 12 - 1
    assert digest == hashlib.sha256(content[:size]).hexdigest()
    np.save(tmp_path / "vectors.npy", expected)
    written(tmp_path / "vocab.txt", "\n".join(WORDS).encode())
    words, vectors, digest = read(tmp_path, limit=2)
    assert words == WORDS[:2]
    stored = (tmp_path / "vectors.npy").read_bytes()
    assert digest == hashlib.sha256(stored[: 128 + 2 * 12] + b"the\nof\n").hexdigest()


def test_hash_is_given_only_after_the_pass_and_the_pass_happens_once(tmp_path: Path) -> None:
    source = open_source(written(tmp_path / "g.txt", b"a 1\nb 2\n"))
    with pytest.raises(BundleError, match="too early"):
        _ = source.sha256
    list(source)
    with pytest.raises(BundleError, match="twice"):
        list(source)


def test_progress_is_silent_without_a_terminal_unless_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "g.txt", b"a 1\nb 2\n")
    read(path)
    assert capsys.readouterr().err == ""
    read(path, progress=True)
    shown = capsys.readouterr()
    assert "100%" in shown.err
    assert shown.out == ""


# Faults

FAULTS_OF_TEXT = {
    "duplicate": (b"a 1 2\nsecretword 3 4\nb 5 6\nsecretword 7 8\n", r"line 4: .*duplicate.* line 2 "),
    "duplicate below a header": (b"3 1\nsecretword 3\nb 5\nsecretword 7\n", r"line 4: .*duplicate.* line 2 "),
    "too few fields": (b"a 1 2\nsecretword 3\nb 5 6\n", "line 2: .*length"),
    "too many fields": (b"a 1.5 2\nsecretword 3.5 4.5 5.5\n", "line 2: .*length"),
    "empty line": (b"a 1 2\n\nb 5 6\n", "line 2: .*length"),
    "only a word": (b"a 1 2\nsecretword\nb 5 6\n", "line 2: .*length"),
    "text for a number": (b"a 1 2\nb secretword 2\n", "line 2: .*not a number"),
    "text first": (b"secretword x\nb 1 2\n", "line 1: .*not a number"),
    "number before text first": (b"secretword 0.5 x 0.5\nb 1 2\n", "line 1: .*not a number"),
    "hexadecimal": (b"a 1 2\nsecretword 0x10 2\n", "line 2: .*not a number"),
    "underscore": (b"a 1 2\nsecretword 1_0 2\n", "line 2: .*not a number"),
    "decimal comma": (b"a 1 2\nsecretword 1,5 2\n", "line 2: .*not a number"),
    "number not UTF-8": (b"a 1 2\nsecretword 1\xff 2\n", "line 2: .*not a number"),
    "tab for a space": (b"a 1 2\nsecretword 1\t2\n", "line 2: "),
    "NaN": (b"a 1 2\nb 1 2\nsecretword nan 2\n", "line 3: .*NaN"),
    "infinity": (b"a 1 2\nsecretword -inf 2\n", "line 2: .*infinity"),
    "beyond float32": (b"a 1 2\nsecretword 1e39 2\n", "line 2: .*too large"),
    "beyond float64": (b"a 1 2\nsecretword 1e999 2\n", "line 2: .*too large"),
    "header of another dimension": (b"2 3\nsecretword 1 2\nb 1 2\n", "line 2: .*length"),
    "header of a smaller dimension": (b"2 1\nsecretword 1 2\nb 1 2\n", "line 2: .*length"),
    "fewer rows than promised": (b"3 2\na 1 2\nb 3 4\n", "line 3: .*ends.*3 rows.*2 rows"),
    "header alone": (b"3 2\n", "line 1: .*ends"),
    "more rows than promised": (b"2 2\na 1 2\nb 3 4\nsecretword 5 6\n", "line 4: .*too many"),
    "header of no rows": (b"0 2\n", "line 1: .*header"),
    "header of no dimension": (b"2 0\na\nb\n", "line 1: .*header"),
    "header of absurd dimension": (b"2 99999999999\na 1\n", "line 1: .*header"),
    "cut in mid line": (b"a 1 2\nb 3 4\nsecretword 5", "line 3: .*cut short"),
    "cut in a word": (b"a 1 2\nb 3 4\nsecretword", "line 3: .*cut short"),
    "cut in a number": (b"a 1 2\nb 3 4\nsecretword 5 -", "line 3: .*cut short"),
    "invalid UTF-8": (b"a 1 2\nsecretword\xff\xfe 3 4\n", "line 2: .*UTF-8"),
    "surrogate": (b"a 1 2\nsecretword\xed\xa0\x80 3 4\n", "line 2: .*UTF-8"),
    "empty file": (b"", "line 1: .*empty"),
    "empty word": (b"a 1 2\n 3 4\n", "line 2: .*word is empty"),
    "word of spaces": (b"a 1 2\n   3 4\n", "line 2: .*word is empty"),
    "NUL": (b"a 1 2\nsecretword\0 3 4\n", "line 2: .*control"),
    "tab in a word": (b"a 1 2\nsecret\tword 3 4\n", "line 2: .*control"),
    "carriage return in a word": (b"a 1 2\nsecret\rword 3 4\n", "line 2: .*control"),
    "next line": ("a 1 2\nsecretword\x85 3 4\n".encode(), "line 2: .*control"),
    "line separator": ("a 1 2\nsecretword\u2028 3 4\n".encode(), "line 2: .*control"),
}


@pytest.mark.parametrize(("content", "message"), FAULTS_OF_TEXT.values(), ids=FAULTS_OF_TEXT)
def test_faults_of_text(tmp_path: Path, content: bytes, message: str) -> None:
    for name in ("g.txt", "g.txt.gz"):
        assert re.search(rf"{name}, {message}", fault(written(tmp_path / name, content)))


def rows_of(*rows: tuple[bytes, list[float]], promised: int | None = None, n: int = 2) -> bytes:
    header = f"{len(rows) if promised is None else promised} {n}\n".encode()
    return header + b"".join(w + b" " + np.array(v, "<f4").tobytes() + b"\n" for w, v in rows)


A, B, S = (b"a", [1.0, 2.0]), (b"b", [3.0, 4.0]), (b"secretword", [5.0, 6.0])
FAULTS_OF_BINARY = {
    "duplicate": (rows_of(A, S, B, S), "row 4: .*duplicate.* row 2 "),
    "NaN": (rows_of(A, (b"secretword", [1, float("nan")])), "row 2: .*NaN"),
    "fewer rows than promised": (rows_of(A, B, promised=3), "row 3: .*cut short"),
    "more rows than promised": (rows_of(A, B, S, promised=2), "row 3: .*too many"),
    "cut in a vector": (rows_of(A, S)[:-5], "row 2: .*cut short"),
    "cut in a word": (rows_of(A, S)[:-12], "row 2: .*cut short"),
    "cut in the header": (b"2 ", "row 1: .*header"),
    "text": (b"secretword 0.1 0.2\n", "row 1: .*header"),
    "empty file": (b"", "row 1: .*empty"),
    "invalid UTF-8": (rows_of(A, (b"secretword\xff", [1, 2])), "row 2: .*UTF-8"),
    "empty word": (rows_of(A, (b"", [1, 2])), "row 2: .*empty"),
    "line break in a word": (rows_of(A, (b"secret\nword", [1, 2])), "row 2: .*control"),
    "word without end": (b"2 2\n" + b"x" * 70_000, "row 1: .*does not end"),
    "header of absurd dimension": (b"2 99999999999\na 1234", "row 1: .*header"),
}


@pytest.mark.parametrize(("content", "message"), FAULTS_OF_BINARY.values(), ids=FAULTS_OF_BINARY)
def test_faults_of_binary(tmp_path: Path, content: bytes, message: str) -> None:
    for name in ("w.bin", "w.bin.gz"):
        assert re.search(rf"{name}, {message}", fault(written(tmp_path / name, content)))


@pytest.mark.parametrize("name", ["g.txt.gz", "w.bin.gz"])
def test_gz_cut_short_or_damaged(tmp_path: Path, name: str) -> None:
    words = [f"w{i}" for i in range(1000)]
    content = (binary_of if "bin" in name else text_of)(words, vectors_of(1000))
    whole = gzip.compress(content)
    for damaged in (whole[: len(whole) // 2], whole[:-4], whole[:9], b"no gzip" * 9):
        (tmp_path / name).write_bytes(damaged)
        assert re.search(r"(line|row) \d+: the file is cut short", fault(tmp_path / name))
    flipped = bytearray(whole)
    flipped[-8] ^= 1  # the checksum
    (tmp_path / name).write_bytes(flipped)
    assert "damaged" in fault(tmp_path / name)


@pytest.mark.parametrize(
    ("vectors", "words", "message"),
    [
        (vectors_of(3), b"a\nb\n", "differ in length.*3 words.*2 lines; row 3"),
        (vectors_of(2), b"a\nb\nsecretword\n", "differ in length.*2 words.*3 lines; row 3"),
        (vectors_of(3), b"secretword\nb\nsecretword\n", "row 3: .*duplicate.*row 1 "),
        (vectors_of(3), b"a\n\nb\n", "row 2: .*empty"),
        (np.float32([[1, 2], [3, np.inf]]), b"a\nb\n", "row 2: .*infinity"),
        (np.float64([[1, 2], [3, 1e300]]), b"a\nb\n", "row 2: .*too large"),
        (np.arange(6).reshape(3, 2), b"a\nb\nc\n", "no matrix of vectors.*int64"),
        (vectors_of(3)[0], b"a\nb\nc\n", r"no matrix of vectors.*\(3,\)"),
        (np.zeros((0, 3), np.float32), b"", "npy"),
    ],
)
def test_faults_of_npy(tmp_path: Path, vectors: np.ndarray, words: bytes, message: str) -> None:
    np.save(tmp_path / "vectors.npy", vectors)
    written(tmp_path / "vocab.txt", words)
    assert re.search(message, fault(tmp_path))


def test_npy_cut_short_too_long_or_of_objects(tmp_path: Path) -> None:
    written(tmp_path / "vocab.txt", b"a\nb\nc\n")
    np.save(tmp_path / "vectors.npy", np.array([[{}, 1]], dtype=object), allow_pickle=True)
    objects = (tmp_path / "vectors.npy").read_bytes()
    np.save(tmp_path / "vectors.npy", vectors_of(3))
    whole = (tmp_path / "vectors.npy").read_bytes()
    for damaged in (objects, whole[:-1], whole + b"\0", whole[:20], b"", b"no npy"):
        (tmp_path / "vectors.npy").write_bytes(damaged)
        assert "vectors.npy is no whole .npy file" in fault(tmp_path)


def test_faults_of_options(tmp_path: Path) -> None:
    path = written(tmp_path / "g.txt", b"a 1\nb 2\n")
    assert "format" in fault(path, format="glove")
    assert "text, word2vec-binary, npy" in fault(path, format="glove")
    assert "missing" in fault(tmp_path / "absent.txt")
    assert "missing" in fault(tmp_path)
    assert "limit" in fault(path, limit=0)
    assert "vocabulary" in fault(path, vocabulary=path)
    np.save(tmp_path / "x.npy", vectors_of(2))
    assert "vocab.txt" in fault(tmp_path / "x.npy")


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_LONGEST_LINE", 1000)
    assert "line 2: the line is too long" in fault(written(tmp_path / "g.txt", b"a 1\n" + b"x" * 5000))
