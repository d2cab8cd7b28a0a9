"""Readers of public embedding files: text, word2vec binary and NumPy, a block of rows in memory at a time.

A fault is named by its line or row; a message never holds a word. Rows that no bundle can hold are left out
and counted; a file that is doubtful as a whole is refused.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import io
import lzma
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias
from zipfile import BadZipFile, ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.bars import progress_bar
from dptext_spark.embedding.spaces import Faults
from dptext_spark.errors import BundleError

Vectors: TypeAlias = NDArray[np.floating[Any]]

_BLOCK_ROWS = 4096
_BLOCK_FLOATS = 2**19
_BUFFER_BYTES = 2**15
_LONGEST_LINE = 2**24
_LONGEST_WORD = 2**16
_LARGEST_DIMENSION = 2**16
_HEAD_BYTES = 2**14
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, BadZipFile, OSError)
_SHOWN = 5

_HEADER = re.compile(rb"(\d{1,18}) (\d{1,18})")
_NUMBER = re.compile(
    rb"[+-]?(?:(?P<integer>\d+)|(?P<decimal>(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)|(?P<word>nan|inf|infinity))",
    re.IGNORECASE,
)
_bar: Final = partial(progress_bar, unit="B", unit_scale=True, desc="embedding")
# In the order in which they are judged; bytes that are not UTF-8 are surrogates by then. Controls are C0, C1
# and the two Unicode separators that break lines.
_WORD_FAULTS: Final = {
    "the word is not valid UTF-8": re.compile("[\ud800-\udfff]"),
    "the word is empty or blank": re.compile(r"\A\Z"),
    "the word holds a control character": re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]"),
}
_OTHER_PREFIX: Final = "the word does not begin with the prefix"
_LANGUAGE = re.compile("/c/[a-z-]+/")

_SAVE = "save_word2vec_format('words.vec')"
_AS_TEXT = "Write it as text, a line for each word: the word and its numbers, one space apart"
_FOREIGN: Final = [
    (rb"\Z", "an empty file", "Fetch it again"),
    (rb"\xba\x16\x4f\x2f", "a fastText model",
     f"Take its .vec file, or export one: gensim.models.fasttext.load_facebook_vectors(PATH).{_SAVE}"),
    (rb"\x80[\x02-\x05]", "a pickle, as gensim's .kv and .model",
     f"In gensim: KeyedVectors.load(PATH).{_SAVE}; of a .model: Word2Vec.load(PATH).wv.{_SAVE}"),
    (rb"version https://git-lfs", "a Git LFS pointer, not the file itself", "Run: git lfs pull"),
    (rb"(?i)\s*<(!doctype|html|\?xml)[\s>]", "a web page", "Download the file itself, not a page about it"),
    (rb"\xff\xfe|\xfe\xff", "UTF-16 text", "Convert it: iconv -f UTF-16 -t UTF-8 FILE > words.txt"),
    (rb".{257}ustar", "a tar archive", "Unpack it and take one of its files"),
    (rb"\x28\xb5\x2f\xfd|7z\xbc\xaf|Rar!\x1a|\x1f\x9d", "zstd, 7-Zip, RAR or compress", "Decompress it"),
    (rb".{4}\0{4}\{\"", "safetensors", "Save the matrix with numpy.save, and its words in vocab.txt"),
    (rb"\x89HDF\r\n|PAR1\x15|ARROW1\0|FEA1\0|ORC[\0-\x1f]|SQLite format 3\0",
     "HDF5, Parquet, Arrow, ORC or SQLite", _AS_TEXT),
]  # fmt: skip
"""What is no source: how it begins, its name, and what to do."""


def reader_of(source: Path, format: str = "auto") -> type[Source]:
    """Choose the reader of a source; ``auto`` goes by the first bytes, then by the name."""
    if format not in formats():
        what = "The format of the embedding source is unknown"
        raise BundleError(what, allowed=", ".join(formats()), got=format)
    head = _head(source / "vectors.npy" if source.is_dir() else source)
    if format != "auto":
        return _READERS[format]
    if source.is_dir() or source.name.lower().endswith(".npy") or head.startswith(b"\x93NUMPY"):
        return _ArraySource
    start, _, rest = head.partition(b"\n")
    header = _HEADER.fullmatch(start.rstrip(b" \r"))
    fields = _fields((rest if header else start).partition(b"\n")[0])[1:]
    if 2 * sum(_kind(each) is not None for each in fields) > len(fields):
        return _TextSource  # its first row is one of text
    named = re.search(r"\.bin(\.\w+)?$", source.name, re.IGNORECASE)
    binary = named or (header and re.search(rb"[\x00-\x08\x0e-\x1f]", rest))
    return _BinarySource if binary else _TextSource


def formats() -> list[str]:
    """Name the formats that can be asked for."""
    return ["auto", *_READERS]


@dataclass(kw_only=True)
class LeftOut:
    """Rows that were left out for one reason; ``first`` numbers the first ones, in ``unit``: line or row."""

    reason: str
    unit: str
    rows: int = 0
    first: list[int] = field(default_factory=list)

    def describe(self) -> str:
        """Say how many rows, why, and where the first are."""
        end, more = "s" * (self.rows > 1), self.rows - len(self.first)
        numbers = ", ".join(map(str, self.first)) + f" and {more:,} more" * (more > 0)
        return f"{self.rows:,} row{end}, {self.reason} ({self.unit}{end} {numbers})"


@dataclass(kw_only=True)
class Source(ABC):
    """One pass over an embedding source; a subclass is a format."""

    unit: ClassVar[str] = "row"  # what rows are counted in

    path: Path  # also of a folder with ``vectors.npy`` and ``vocab.txt``
    judge: Callable[[Vectors], Faults]  # what else to leave out of a block, by its vectors (b, n)
    vocabulary: Path | None = (
        None  # one word a line, only for ``npy``; ``vocab.txt`` next to it by default
    )
    limit: int | None = None  # rows to read, at most
    strict: bool = False  # refuse the first row that would be left out
    word_prefix: str | None = None  # take only words that begin so, without it
    dtype: str = "<f4"  # or "<f8", of the vectors; text is parsed as float64 first
    left_out: dict[str, LeftOut] = field(init=False, default_factory=dict)  # so far, by reason
    # There at the end, of the decompressed bytes that define the result: up to the last row that was read
    # (text: ``head -n LINES``), and of an ``.npy`` those of the vocabulary too.
    sha256: str = field(init=False, default="")

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise BundleError(
                "The limit of rows is wrong", allowed="an integer >= 1", got=str(self.limit)
            )
        if self.vocabulary is not None and not isinstance(self, _ArraySource):
            what = "A vocabulary file was given for a source that holds its own words"
            raise BundleError(what, do="Leave the vocabulary out")
        _check_file(self.path)
        self._digest, self._seen = hashlib.sha256(), set[str]()
        # The number of the first row, and the row that is being read, from 0.
        self._first, self._at = 1, 0

    def __iter__(self) -> Iterator[tuple[list[str], Vectors]]:
        """Yield blocks of words (b,) and vectors (b, n) in source order, b <= 4096, without what is left out.

        A header's count, the limit and the numbers of rows count what is left out as well.
        """
        row = 0
        try:
            for words, vectors in self._blocks():
                yield self._kept(row, words, vectors)
                row += len(words)
        except _DAMAGED as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise self._cut(self._at) from None
        self.sha256 = self._digest.hexdigest()
        # Without the prefix, or with so much that is wrong, it is another source.
        wrong = [each for reason, each in self.left_out.items() if reason != _OTHER_PREFIX]
        judged = row - sum(each.rows for each in self.left_out.values() if each not in wrong)
        if not judged:
            got, do = (
                f"{self.word_prefix!r} and {row:,} rows",
                "Check the prefix, or read more rows",
            )
            raise BundleError("No word begins with the prefix", got=got, do=do)
        if sum(each.rows for each in wrong) > max(1, judged // 10):
            what = f"{self.path.name}: more than a tenth of its {judged:,} rows would be left out"
            got = "; ".join(each.describe() for each in wrong)
            raise BundleError(
                what, got=got, do="Check that this is the right file, whole and in UTF-8"
            )

    def _kept(self, row: int, encoded: list[bytes], vectors: Vectors) -> tuple[list[str], Vectors]:
        """Leave out what is wrong of a block's rows, the first of which is ``row``, and count it."""
        words = [word.decode("utf-8", "surrogateescape").strip() for word in encoded]
        kept, prefix = np.ones(len(words), np.bool_), self.word_prefix or ""
        with np.errstate(all="ignore"):
            vectors = vectors.astype(self.dtype)
            for faulty, reason in self._faults(words, vectors, kept):
                if not len(rows := row + np.flatnonzero(faulty & kept)):
                    continue
                if self.strict and reason != _OTHER_PREFIX:
                    raise self._fault(int(rows[0]), reason)
                left_out = self.left_out.setdefault(reason, LeftOut(reason=reason, unit=self.unit))
                left_out.rows += len(rows)
                left_out.first += (rows[: _SHOWN - len(left_out.first)] + self._first).tolist()
                kept &= ~faulty
        return [words[at].removeprefix(prefix) for at in np.flatnonzero(kept)], vectors[kept]

    def _faults(self, words: list[str], vectors: Vectors, kept: NDArray[np.bool_]) -> Faults:
        """Judge rows, those last that repeat a word of what is ``kept`` by then."""
        if prefix := self.word_prefix:
            yield (
                np.array([not word.startswith(prefix) or word == prefix for word in words]),
                _OTHER_PREFIX,
            )
        elif prefix is None and not self._seen and all(map(_LANGUAGE.match, words)):
            what = f"{self.path.name}: every word begins with a language, as in /c/en/, which no text has"
            raise BundleError(
                what, do="Take one language's words, without it: --word-prefix /c/en/"
            )
        for reason, pattern in _WORD_FAULTS.items():
            yield np.array([pattern.search(word) is not None for word in words]), reason
        infinite = np.asarray(~np.isfinite(vectors).all(axis=1))
        yield infinite, "the vector holds NaN, an infinity or a number too large"
        yield from self.judge(vectors)
        again = np.zeros(len(words), np.bool_)
        for at in np.flatnonzero(kept).tolist():
            again[at] = words[at] in self._seen
            self._seen.add(words[at])
        yield again, "the word is a duplicate"

    @abstractmethod
    def _blocks(self) -> Iterator[tuple[list[bytes], Vectors]]:
        """Yield the words, not yet decoded, and the vectors; feed ``_digest``."""

    def _fault(
        self, row: int, what: str, *, allowed: str = "", got: str = "", do: str = ""
    ) -> BundleError:
        """Make the error of a row, counted from 0, under its place: ``glove.txt, line 7``."""
        place = f"{self.path.name}, {self.unit} {row + self._first}"
        return BundleError(f"{place}: {what}", allowed=allowed, got=got, do=do)

    def _cut(self, row: int, do: str = "Fetch or decompress the file again") -> BundleError:
        return self._fault(row, "the file is cut short or damaged here", do=do)

    def _block_rows(self, dimension: int) -> int:
        return max(1, min(_BLOCK_ROWS, _BLOCK_FLOATS // dimension))

    def _header(self, line: bytes) -> tuple[int, int] | None:
        """Read ``N n``, the numbers of rows and dimensions; None where this is no such line."""
        header = _HEADER.fullmatch(line.rstrip(b" \r\n"))
        if header is None:
            return None
        rows, dimension = int(header[1]), int(header[2])
        if rows < 1 or not 1 <= dimension <= _LARGEST_DIMENSION:
            allowed = f"at least 1 row and 1 to {_LARGEST_DIMENSION} dimensions"
            got = f"{rows} rows of {dimension} dimensions"
            raise self._fault(0, "the header is wrong", allowed=allowed, got=got)
        return rows, dimension

    @contextmanager
    def _opened(self) -> Iterator[tuple[io.BufferedReader, Callable[[], object]]]:
        """Open the file, decompressed; the call moves a bar on to the place in it."""
        with (
            self.path.open("rb", buffering=0) as stored,
            _bar(total=self.path.stat().st_size) as bar,
        ):
            yield _decompressed(stored), lambda: bar.update(stored.tell() - bar.n)


class _TextSource(Source):
    """One line a word: the word, a space, n numbers; optionally a first line ``N n``."""

    unit = "line"

    def _blocks(self) -> Iterator[tuple[list[bytes], Vectors]]:
        with self._opened() as (stream, show):
            if stream.peek(3).startswith(codecs.BOM_UTF8):
                self._digest.update(stream.read(3))
            lines = self._lines(stream)
            first = next(lines, b"")
            if header := self._header(first):
                self._digest.update(first)
                self._first, self._at = 2, 0
            else:
                lines = chain([first], lines)
            # Numbers that end the first line, where there is no header.
            promised, n = header or (
                None,
                sum(1 for _ in takewhile(_kind, reversed(_fields(first)[1:]))),
            )
            if n == 0:
                raise self._not_numbers(0)
            row, rows = 0, islice(lines, self.limit)
            while block := list(islice(rows, self._block_rows(n))):
                self._digest.update(b"".join(block))
                parsed = self._parsed(block, n, row)
                # A container says itself where it ends.
                if isinstance(stream.raw, io.FileIO) and not block[-1].endswith(b"\n"):
                    self._check_end(block, n, row)
                yield parsed
                row += len(block)
                show()
        if promised is not None and row != min(promised, self.limit or promised):
            allowed = f"{promised} rows, as line 1 says"
            raise self._fault(row - 1, "the file ends here", allowed=allowed, got=f"{row} rows")

    def _lines(self, stream: io.BufferedReader) -> Iterator[bytes]:
        empty: list[bytes] = []  # at the file's end they are no rows
        while line := stream.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE:
                raise self._fault(
                    self._at, "the line is too long", allowed=f"{_LONGEST_LINE} bytes"
                )
            self._at += 1
            empty.append(line)
            if line not in (b"\n", b"\r\n"):
                yield from empty
                empty.clear()

    def _check_end(self, lines: list[bytes], n: int, row: int) -> None:
        """Refuse a last line without a line break, cut in its last number: all others have more decimals."""
        width = 1 if len(lines) > 10 else n  # of few lines, all numbers count
        numbers = (number for line in lines[-100:] for number in line.split()[-width:])
        *others, decimals = (len(number.partition(b".")[2]) for number in numbers)
        if decimals < min(others, default=0):
            do = "Fetch the file again; if it is whole, end its last line with a line break"
            raise self._cut(row + len(lines) - 1, do)

    def _parsed(self, lines: list[bytes], n: int, row: int) -> tuple[list[bytes], Vectors]:
        """Parse lines into words and float64 (b, n), each number rounded as Python's ``float`` does."""
        with suppress(ValueError):  # its text belongs to the data, and stays out of the chain
            bodies = pa.array([line.rstrip(b" \r\n") for line in lines], pa.binary())
            fields = pc.split_pattern(bodies, " ", max_splits=n, reverse=True)
            numbers = pc.list_slice(fields, 1, n + 1).flatten().cast(pa.string()).cast(pa.float64())
            vectors: Vectors = numbers.to_numpy().reshape(len(lines), n)
            words: list[bytes] = pc.list_element(fields, 0).to_pylist()
            for at in (at for at, word in enumerate(words) if b" " in word):
                self._row(lines[at], n, row + at)
            return words, vectors
        rows = [self._row(line, n, at) for at, line in enumerate(lines, row)]
        return [word for word, _ in rows], np.array([vector for _, vector in rows])

    def _row(self, line: bytes, n: int, row: int) -> tuple[bytes, list[float]]:
        """Parse one line by itself, and say what is wrong with it."""
        body = line.rstrip(b" \r\n")
        word, *vector = body.rsplit(b" ", n)
        # A word may hold spaces: "windows 10 0.25 0.5" has one; "windows 10 1 0.5" is taken for a row with
        # three numbers, as is every row with a decimal before the last n fields.
        kinds, before = (
            [*map(_kind, vector)],
            _kind(word.rpartition(b" ")[2]) if b" " in word else None,
        )
        more = before == "decimal" or (before == "integer" and "integer" in kinds)
        if len(vector) == n and None not in kinds and not more:
            return word, [*map(float, vector)]
        if not line.endswith(b"\n"):
            raise self._cut(row)
        if len(vector) == n and not more:
            raise self._not_numbers(row)
        raise self._fault(
            row,
            "the row's number of fields differs from the header or the first row",
            allowed=f"a word and {n} numbers, one space apart",
            got=f"{len(_fields(line)) if body else 0} fields",
        )

    def _not_numbers(self, row: int) -> BundleError:
        return self._fault(
            row, "a field is not a number", allowed="a word and its numbers, one space apart"
        )


def _fields(line: bytes) -> list[bytes]:
    return line.rstrip(b" \r\n").split(b" ")


def _kind(field: bytes) -> str | None:
    """How a number is written: ``integer``, ``decimal`` or ``word``; None where this is no number."""
    match = _NUMBER.fullmatch(field)
    return match and match.lastgroup


class _BinarySource(Source):
    """A line ``N n``, then for each word: it, a space, n little-endian float32, perhaps a line break."""

    def _blocks(self) -> Iterator[tuple[list[bytes], Vectors]]:
        with self._opened() as (stream, show):
            line = stream.readline(64)
            header = self._header(line) if line.endswith(b"\n") else None
            if header is None:
                what = "the file does not begin with the header of a word2vec binary"
                allowed, do = (
                    "a line 'N n': the number of rows and their dimension",
                    "Name the file's format",
                )
                raise self._fault(0, what, allowed=allowed, do=do)
            self._digest.update(line)
            promised, n = header
            wanted, size = min(promised, self.limit or promised), self._block_rows(n)
            for start in range(0, wanted, size):
                words, data = [], []
                for self._at in range(start, min(start + size, wanted)):
                    word = b""
                    while not word.endswith(b" "):
                        ahead = stream.peek(1)
                        if not ahead or len(word) > _LONGEST_WORD:
                            raise self._cut(self._at)
                        word += stream.read(ahead.find(b" ") + 1 or len(ahead))
                    vector = stream.read(4 * n)
                    if len(vector) < 4 * n:
                        raise self._cut(self._at)
                    self._digest.update(word + vector)
                    words.append(word)  # perhaps with the line break of the row before
                    data.append(vector)
                yield words, np.frombuffer(b"".join(data), "<f4").reshape(-1, n)
                show()
            if wanted == promised:
                self._at = promised
                rest = stream.read(2)
                if rest not in (b"", b"\n"):
                    what = "there are more rows than the header says"
                    raise self._fault(promised, what, allowed=f"{promised} rows")
                self._digest.update(rest)


class _ArraySource(Source):
    """A matrix (V, n) in an ``.npy`` file and a vocabulary with one word a line."""

    def __post_init__(self) -> None:
        if self.path.is_dir():
            self.path /= "vectors.npy"
        super().__post_init__()

    def _blocks(self) -> Iterator[tuple[list[bytes], Vectors]]:
        matrix, vocabulary = self._matrix(), self.vocabulary or self.path.with_name("vocab.txt")
        rows = len(matrix)
        _check_file(vocabulary)
        with vocabulary.open("rb") as file:
            lines = file.readlines()
        if len(lines) != rows:
            what = f"{vocabulary.name} and {self.path.name} differ in length"
            got = f"{len(lines)} lines; row {min(len(lines), rows) + 1} has no counterpart"
            raise BundleError(what, allowed=f"{rows} words, one a line, for {rows} rows", got=got)
        with self.path.open("rb") as file:
            self._digest.update(file.read(matrix.offset))
        wanted, step = min(rows, self.limit or rows), self._block_rows(matrix.shape[1])
        with _bar(total=matrix.nbytes) as bar:
            for start in range(0, wanted, step):
                block = np.ascontiguousarray(matrix[start : min(start + step, wanted)])
                self._digest.update(block.tobytes())
                words = [line.rstrip(b"\r\n") for line in lines[start : start + len(block)]]
                if start == 0:
                    words[0] = words[0].removeprefix(codecs.BOM_UTF8)
                yield words, block
                bar.update(block.nbytes)
        self._digest.update(b"".join(lines[:wanted]))

    def _matrix(self) -> np.memmap[Any, np.dtype[Any]]:
        matrix, size = None, self.path.stat().st_size
        with suppress(ValueError, EOFError, OSError):
            matrix = np.lib.format.open_memmap(self.path, mode="r")
        if matrix is None or matrix.offset + matrix.nbytes != size:
            what, do = f"{self.path.name} is no whole .npy file", "Unpack, write or fetch it again"
            raise BundleError(what, allowed="what numpy.save writes for a matrix of numbers", do=do)
        floats = matrix.dtype.kind == "f" and matrix.dtype.itemsize in (2, 4, 8)
        if (
            not floats
            or matrix.ndim != 2
            or 0 in matrix.shape
            or matrix.shape[1] > _LARGEST_DIMENSION
        ):
            allowed = "float16, float32 or float64 of shape (words, dimension), neither of them 0"
            got = f"{matrix.dtype} of shape {matrix.shape}"
            raise BundleError(f"{self.path.name} is no matrix of vectors", allowed=allowed, got=got)
        return matrix


_READERS: Final = {"text": _TextSource, "word2vec-binary": _BinarySource, "npy": _ArraySource}


def _check_file(path: Path) -> None:
    if not path.is_file():
        what = "A file of the embedding source is missing"
        raise BundleError(what, allowed="a file that exists", got=str(path), do="Check the path")


def _head(path: Path) -> bytes:
    """Read the first bytes of a file, decompressed; refuse one that is no source."""
    try:
        with path.open("rb", buffering=0) as stored, _decompressed(stored) as stream:
            head = stream.read(_HEAD_BYTES)
    except _DAMAGED:  # what is missing or damaged is said when it is read
        return b""
    for magic, name, do in _FOREIGN:
        if re.match(magic, head, re.DOTALL):
            allowed = "GloVe, word2vec or fastText text, word2vec binary, or .npy"
            raise BundleError(
                f"{path.name} is no embedding source", allowed=allowed, got=name, do=do
            )
    return head


def _decompressed(stored: io.FileIO) -> io.BufferedReader:
    """Open what a file holds, whatever its name: its own bytes, or those of its container."""
    start = stored.read(10)
    stored.seek(0)
    openers = [opener for magic, opener in _CONTAINERS.items() if re.match(magic, start)]
    raw: Any = openers[0](stored) if openers else stored
    return io.BufferedReader(raw, _BUFFER_BYTES)


def _member(stored: io.FileIO) -> Any:
    """Open the one file that a zip holds."""
    archive = ZipFile(stored)
    files = [each for each in archive.namelist() if not re.search("^__MACOSX/|/$", each)]
    with suppress(RuntimeError):  # a password, or a compression that Python lacks
        if len(files) == 1:
            return archive.open(files[0])
    what = f"{Path(str(stored.name)).name} is a zip that cannot be read as it is"
    got = ", ".join(files[:_SHOWN]) + ", ..." * (len(files) > _SHOWN)
    allowed, do = "a zip of one file, without a password", "Unpack it and take one of its files"
    raise BundleError(what, allowed=allowed, got=got, do=do)


_CONTAINERS: Final[dict[bytes, Callable[[io.FileIO], Any]]] = {
    rb"\x1f\x8b\x08": lambda stored: gzip.GzipFile(fileobj=stored),
    rb"BZh\d1AY&SY": bz2.BZ2File,
    rb"\xfd7zXZ\0": lzma.LZMAFile,
    rb"PK\x03\x04": _member,
}
"""What opens a container, by how it begins."""
