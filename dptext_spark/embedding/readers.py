"""Readers of public embedding files: text, word2vec binary and NumPy, block by block.

A fault is named by its line or row; a message never holds a word. Rows that no bundle can hold are
left out and counted; a file that is doubtful as a whole is refused.
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
from errno import EINVAL
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
from dptext_spark.embedding.spaces import NO_ARRAY, Faults
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
    rb"[+-]?(?:(?P<integer>\d+)|(?P<decimal>(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)"
    rb"|(?P<word>nan|inf|infinity))",
    re.IGNORECASE,
)
_bar: Final = partial(progress_bar, unit="B", unit_scale=True, desc="embedding")
# In the order in which they are checked; bytes that are not UTF-8 are surrogates by then. Controls
# are C0, C1 and the two Unicode separators that break lines.
_WORD_FAULTS: Final = {
    "the word is not valid UTF-8": re.compile("[\ud800-\udfff]"),
    "the word is empty or blank": re.compile(r"\A\Z"),
    "the word holds a control character": re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]"),
}
_OTHER_PREFIX: Final = "the word does not begin with the prefix"
_LANGUAGE = re.compile("/c/[a-z-]+/")

_SAVE = "save_word2vec_format('words.vec')"
_LOAD_FASTTEXT = "gensim.models.fasttext.load_facebook_vectors(PATH)"
_AS_TEXT = "Write it as text, a line for each word: the word and its numbers, one space apart"
_FOREIGN: Final = [
    (rb"\Z", "an empty file", "Fetch it again"),
    (
        rb"\xba\x16\x4f\x2f",
        "a fastText model",
        f"Take its .vec file, or export one: {_LOAD_FASTTEXT}.{_SAVE}",
    ),
    (
        rb"\x80[\x02-\x05]",
        "a pickle, as gensim's .kv and .model",
        f"In gensim: KeyedVectors.load(PATH).{_SAVE}; of a .model: Word2Vec.load(PATH).wv.{_SAVE}",
    ),
    (rb"version https://git-lfs", "a Git LFS pointer, not the file itself", "Run: git lfs pull"),
    (
        rb"(?i)\s*<(!doctype|html|\?xml)[\s>]",
        "a web page",
        "Download the file itself, not a page about it",
    ),
    (
        rb"\xff\xfe|\xfe\xff",
        "UTF-16 text",
        "Convert it: iconv -f UTF-16 -t UTF-8 FILE > words.txt",
    ),
    (rb".{257}ustar", "a tar archive", "Unpack it and take one of its files"),
    (
        rb"\x28\xb5\x2f\xfd|7z\xbc\xaf|Rar!\x1a|\x1f\x9d",
        "zstd, 7-Zip, RAR or compress",
        "Decompress it",
    ),
    (
        rb".{4}\0{4}\{\"",
        "safetensors",
        "Save the matrix with numpy.save, and its words in vocab.txt",
    ),
    (
        rb"\x89HDF\r\n|PAR1\x15|ARROW1\0|FEA1\0|ORC[\0-\x1f]|SQLite format 3\0",
        "HDF5, Parquet, Arrow, ORC or SQLite",
        _AS_TEXT,
    ),
]
"""Files that are no embeddings: a pattern of their first bytes, their name, and what to do."""


def reader_of(source: Path, format: str = "auto") -> type[Source]:
    """Return the reader of a source; ``auto`` goes by the first bytes, then by the name."""
    if format not in formats():
        raise BundleError(
            "The format of the embedding source is unknown",
            allowed=", ".join(formats()),
            got=format,
        )
    head = _head(source / "vectors.npy" if source.is_dir() else source)
    if format != "auto":
        return _READERS[format]
    if source.is_dir() or source.name.lower().endswith(".npy") or head.startswith(b"\x93NUMPY"):
        return _ArraySource
    first_line, _, rest = head.partition(b"\n")
    header = _HEADER.fullmatch(first_line.rstrip(b" \r"))
    first_row = first_line
    if header:
        first_row, _, _ = rest.partition(b"\n")
    fields = _fields(first_row)[1:]
    if 2 * sum(_kind(field) is not None for field in fields) > len(fields):
        return _TextSource  # its first row is one of text
    if re.search(r"\.bin(\.\w+)?$", source.name, re.IGNORECASE):
        return _BinarySource
    if header and re.search(rb"[\x00-\x08\x0e-\x1f]", rest):
        return _BinarySource
    return _TextSource


def formats() -> list[str]:
    """Return the names of all formats."""
    return ["auto", *_READERS]


@dataclass(kw_only=True)
class LeftOut:
    """Rows that were left out for one reason.

    ``first`` are the numbers of the first ones, counted in ``unit``: line or row.
    """

    reason: str
    unit: str
    rows: int = 0
    first: list[int] = field(default_factory=list)

    def describe(self) -> str:
        """Describe how many rows, why, and where the first are."""
        numbers = ", ".join(map(str, self.first))
        further_rows = self.rows - len(self.first)
        if further_rows:
            numbers += f" and {further_rows:,} more"
        plural = "s" if self.rows > 1 else ""
        return f"{self.rows:,} row{plural}, {self.reason} ({self.unit}{plural} {numbers})"


@dataclass(kw_only=True)
class Source(ABC):
    """One pass over an embedding source; a subclass is a format."""

    unit: ClassVar[str] = "row"  # the name of a row in messages

    path: Path  # also of a folder with ``vectors.npy`` and ``vocab.txt``
    judge: Callable[[Vectors], Faults]  # finds further faults of a block's vectors (b, n)
    # One word a line, only for ``npy``; by default ``vocab.txt`` next to it.
    vocabulary: Path | None = None
    limit: int | None = None  # rows to read, at most
    strict: bool = False  # refuse the first row that would be left out
    word_prefix: str | None = None  # take only words with this prefix, and strip it
    dtype: str = "<f4"  # or "<f8", of the vectors; text is parsed as float64 first
    left_out: dict[str, LeftOut] = field(init=False, default_factory=dict)  # so far, by reason
    # Set at the end, of the decompressed bytes that define the result: up to the last row that was
    # read (text: ``head -n LINES``), and of an ``.npy`` those of the vocabulary too.
    sha256: str = field(init=False, default="")

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise BundleError(f"limit must be at least 1; got {self.limit}")
        if self.vocabulary is not None and not isinstance(self, _ArraySource):
            raise BundleError(
                "A vocabulary file is only for .npy sources; this source has its own words",
                do="Leave the vocabulary out",
            )
        _check_file(self.path)
        self._digest = hashlib.sha256()
        self._accepted_words: set[str] = set()
        self._first_number = 1  # of the first row, in messages
        self._current_row = 0  # which is being read, from 0

    def __iter__(self) -> Iterator[tuple[list[str], Vectors]]:
        """Yield blocks of words (b,) and vectors (b, n) in source order, b <= 4096.

        Rows that are left out are not in them; a header's count, the limit and the numbers of rows
        count these as well.
        """
        row = 0
        try:
            for words, vectors in self._blocks():
                yield self._accepted(row, words, vectors)
                row += len(words)
        except _DAMAGED as error:
            # A container whose places lie leads to EINVAL; other numbers are of the system.
            if isinstance(error, OSError) and error.errno not in (None, EINVAL):
                raise BundleError(
                    "A file of the embedding source cannot be read",
                    got=f"{self.path}: {error.strerror}",
                ) from None
            raise self._cut(self._current_row) from None
        self.sha256 = self._digest.hexdigest()
        self._check_left_out(row)

    def _check_left_out(self, row_count: int) -> None:
        """Refuse a source without the prefix, or with too many faults."""
        other_prefix = self.left_out.get(_OTHER_PREFIX)
        faults = [rows for reason, rows in self.left_out.items() if reason != _OTHER_PREFIX]
        rows_with_prefix = row_count
        if other_prefix is not None:
            rows_with_prefix -= other_prefix.rows
        if not rows_with_prefix:
            raise BundleError(
                "No word begins with the prefix",
                got=f"{self.word_prefix!r} and {row_count:,} rows",
                do="Check the prefix, or read more rows",
            )
        if sum(fault.rows for fault in faults) > max(1, rows_with_prefix // 10):
            share = f"more than a tenth of its {rows_with_prefix:,} rows would be left out"
            raise BundleError(
                f"{self.path.name}: {share}",
                got="; ".join(fault.describe() for fault in faults),
                do="Check that this is the right file, whole and in UTF-8",
            )

    def _accepted(
        self, row: int, encoded: list[bytes], vectors: Vectors
    ) -> tuple[list[str], Vectors]:
        """Return a block's rows without those that are left out, and count these.

        ``row`` is the first of the block's rows.
        """
        words = [word.decode("utf-8", "surrogateescape").strip() for word in encoded]
        accepted = np.ones(len(words), np.bool_)
        with np.errstate(all="ignore"):
            vectors = vectors.astype(self.dtype)
            for faulty, reason in self._faults(words, vectors, accepted):
                rows = row + np.flatnonzero(faulty & accepted)
                if not len(rows):
                    continue
                if self.strict and reason != _OTHER_PREFIX:
                    raise self._fault(int(rows[0]), reason)
                left_out = self.left_out.setdefault(reason, LeftOut(reason=reason, unit=self.unit))
                left_out.rows += len(rows)
                first_rows = rows[: _SHOWN - len(left_out.first)]
                left_out.first += (first_rows + self._first_number).tolist()
                accepted &= ~faulty
        prefix = self.word_prefix or ""
        names = [words[place].removeprefix(prefix) for place in np.flatnonzero(accepted)]
        return names, vectors[accepted]

    def _faults(self, words: list[str], vectors: Vectors, accepted: NDArray[np.bool_]) -> Faults:
        """Yield the faults of rows; duplicates last, among the rows ``accepted`` by then."""
        prefix = self.word_prefix
        if prefix:
            is_other = [not word.startswith(prefix) or word == prefix for word in words]
            yield np.array(is_other), _OTHER_PREFIX
        elif prefix is None and not self._accepted_words and all(map(_LANGUAGE.match, words)):
            fault = "every word begins with a language, as in /c/en/, which no text has"
            raise BundleError(
                f"{self.path.name}: {fault}",
                do="Take one language's words, without it: --word-prefix /c/en/",
            )
        for reason, pattern in _WORD_FAULTS.items():
            yield np.array([pattern.search(word) is not None for word in words]), reason
        infinite = np.asarray(~np.isfinite(vectors).all(axis=1))
        yield infinite, "the vector holds NaN, an infinity or a number too large"
        yield from self.judge(vectors)
        duplicate = np.zeros(len(words), np.bool_)
        for place in np.flatnonzero(accepted).tolist():
            duplicate[place] = words[place] in self._accepted_words
            self._accepted_words.add(words[place])
        yield duplicate, "the word is a duplicate"

    @abstractmethod
    def _blocks(self) -> Iterator[tuple[list[bytes], Vectors]]:
        """Yield the words, not yet decoded, and the vectors; feed ``_digest``."""

    def _fault(
        self, row: int, what: str, *, allowed: str = "", got: str = "", do: str = ""
    ) -> BundleError:
        """Return the error of a row, counted from 0, with its place: ``glove.txt, line 7``."""
        place = f"{self.path.name}, {self.unit} {row + self._first_number}"
        return BundleError(f"{place}: {what}", allowed=allowed, got=got, do=do)

    def _cut(self, row: int, do: str = "Fetch or decompress the file again") -> BundleError:
        return self._fault(row, "the file is cut short or damaged here", do=do)

    def _block_rows(self, dimension: int) -> int:
        return max(1, min(_BLOCK_ROWS, _BLOCK_FLOATS // dimension))

    def _header(self, line: bytes) -> tuple[int, int] | None:
        """Read ``N n``, the numbers of rows and dimensions; None for another line."""
        header = _HEADER.fullmatch(line.rstrip(b" \r\n"))
        if header is None:
            return None
        rows = int(header[1])
        dimension = int(header[2])
        if rows < 1 or not 1 <= dimension <= _LARGEST_DIMENSION:
            allowed = f"at least 1 row and 1 to {_LARGEST_DIMENSION} dimensions"
            got = f"{rows} rows of {dimension} dimensions"
            raise self._fault(0, "the header is wrong", allowed=allowed, got=got)
        return rows, dimension

    @contextmanager
    def _opened(self) -> Iterator[tuple[io.BufferedReader, Callable[[], object]]]:
        """Open the file, decompressed, and yield a function that updates its progress bar."""
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
            header = self._header(first)
            header_rows = None
            if header is not None:
                header_rows, n = header
                self._digest.update(first)
                self._first_number = 2
                self._current_row = 0
            else:
                lines = chain([first], lines)
                # The numbers at the end of the first line.
                n = sum(1 for _ in takewhile(_kind, reversed(_fields(first)[1:])))
            if n == 0:
                raise self._not_numbers(0)
            row = 0
            rows = islice(lines, self.limit)
            while block := list(islice(rows, self._block_rows(n))):
                self._digest.update(b"".join(block))
                parsed = self._parsed(block, n, row)
                # Containers mark their end themselves.
                if isinstance(stream.raw, io.FileIO) and not block[-1].endswith(b"\n"):
                    self._check_end(block, n, row)
                yield parsed
                row += len(block)
                show()
        if header_rows is not None and row != min(header_rows, self.limit or header_rows):
            allowed = f"{header_rows} rows, as line 1 says"
            raise self._fault(row - 1, "the file ends here", allowed=allowed, got=f"{row} rows")

    def _lines(self, stream: io.BufferedReader) -> Iterator[bytes]:
        """Yield lines, without the empty ones at the file's end, which are no rows."""
        pending: list[bytes] = []
        while line := stream.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE:
                allowed = f"{_LONGEST_LINE} bytes"
                raise self._fault(self._current_row, "the line is too long", allowed=allowed)
            self._current_row += 1
            pending.append(line)
            if line not in (b"\n", b"\r\n"):
                yield from pending
                pending.clear()

    def _check_end(self, lines: list[bytes], n: int, row: int) -> None:
        """Refuse a last line without a line break that was cut in its last number.

        This number then has fewer decimals than all others.
        """
        width = 1 if len(lines) > 10 else n  # of few lines, all numbers count
        decimals = []
        for line in lines[-100:]:
            decimals += [len(number.partition(b".")[2]) for number in line.split()[-width:]]
        if decimals[-1] < min(decimals[:-1], default=0):
            do = "Fetch the file again; if it is whole, end its last line with a line break"
            raise self._cut(row + len(lines) - 1, do)

    def _parsed(self, lines: list[bytes], n: int, row: int) -> tuple[list[bytes], Vectors]:
        """Parse lines into words and float64 (b, n), rounded as Python's ``float`` does."""
        with suppress(ValueError):  # its text belongs to the data, and stays out of the chain
            bodies = pa.array([line.rstrip(b" \r\n") for line in lines], pa.binary())
            fields = pc.split_pattern(bodies, " ", max_splits=n, reverse=True)
            numbers = pc.list_slice(fields, 1, n + 1).flatten().cast(pa.string()).cast(pa.float64())
            vectors: Vectors = numbers.to_numpy().reshape(len(lines), n)
            words: list[bytes] = pc.list_element(fields, 0).to_pylist()
            for place, word in enumerate(words):
                if b" " in word:
                    self._row(lines[place], n, row + place)
            return words, vectors
        line_words = []
        line_vectors = []
        for number, line in enumerate(lines, row):
            word, vector = self._row(line, n, number)
            line_words.append(word)
            line_vectors.append(vector)
        return line_words, np.array(line_vectors)

    def _row(self, line: bytes, n: int, row: int) -> tuple[bytes, list[float]]:
        """Parse one line by itself, or refuse it and name its fault."""
        body = line.rstrip(b" \r\n")
        word, *vector = body.rsplit(b" ", n)
        kinds = [*map(_kind, vector)]
        # A word may have spaces: "windows 10 0.25 0.5" has one; "windows 10 1 0.5" is read as a row
        # with three numbers, as is every row with a decimal before the last n fields.
        last_kind = None
        if b" " in word:
            last_kind = _kind(word.rpartition(b" ")[2])
        is_longer = last_kind == "decimal" or (last_kind == "integer" and "integer" in kinds)
        if len(vector) == n and None not in kinds and not is_longer:
            return word, [*map(float, vector)]
        if not line.endswith(b"\n"):
            raise self._cut(row)
        if len(vector) == n and not is_longer:
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
    """Return how a number is written: ``integer``, ``decimal`` or ``word``; None for no number."""
    match = _NUMBER.fullmatch(field)
    if match is None:
        return None
    return match.lastgroup


class _BinarySource(Source):
    """A line ``N n``, then for each word: it, a space, n little-endian float32, maybe a newline."""

    def _blocks(self) -> Iterator[tuple[list[bytes], Vectors]]:
        with self._opened() as (stream, show):
            line = stream.readline(64)
            header = None
            if line.endswith(b"\n"):
                header = self._header(line)
            if header is None:
                raise self._fault(
                    0,
                    "the file does not begin with the header of a word2vec binary",
                    allowed="a line 'N n': the number of rows and their dimension",
                    do="Name the file's format",
                )
            self._digest.update(line)
            header_rows, n = header
            stop = min(header_rows, self.limit or header_rows)
            size = self._block_rows(n)
            for start in range(0, stop, size):
                words = []
                data = []
                for self._current_row in range(start, min(start + size, stop)):
                    word = self._word(stream)
                    vector = stream.read(4 * n)
                    if len(vector) < 4 * n:
                        raise self._cut(self._current_row)
                    self._digest.update(word + vector)
                    words.append(word)  # maybe with the line break of the row before
                    data.append(vector)
                yield words, np.frombuffer(b"".join(data), "<f4").reshape(-1, n)
                show()
            if stop == header_rows:
                self._current_row = header_rows
                rest = stream.read(2)
                if rest not in (b"", b"\n"):
                    what = "there are more rows than the header says"
                    raise self._fault(header_rows, what, allowed=f"{header_rows} rows")
                self._digest.update(rest)

    def _word(self, stream: io.BufferedReader) -> bytes:
        """Read a word to the space behind it."""
        word = b""
        while not word.endswith(b" "):
            ahead = stream.peek(1)
            if not ahead or len(word) > _LONGEST_WORD:
                raise self._cut(self._current_row)
            word += stream.read(ahead.find(b" ") + 1 or len(ahead))
        return word


class _ArraySource(Source):
    """A matrix (V, n) in an ``.npy`` file and a vocabulary with one word a line."""

    def __post_init__(self) -> None:
        if self.path.is_dir():
            self.path /= "vectors.npy"
        super().__post_init__()

    def _blocks(self) -> Iterator[tuple[list[bytes], Vectors]]:
        matrix = self._matrix()
        vocabulary = self.vocabulary or self.path.with_name("vocab.txt")
        rows = len(matrix)
        _check_file(vocabulary)
        with vocabulary.open("rb") as file:
            lines = file.readlines()
        if len(lines) != rows:
            first_alone = min(len(lines), rows) + 1
            raise BundleError(
                f"{vocabulary.name} and {self.path.name} differ in length",
                allowed=f"{rows} words, one a line, for {rows} rows",
                got=f"{len(lines)} lines; row {first_alone} has no counterpart",
            )
        with self.path.open("rb") as file:
            self._digest.update(file.read(matrix.offset))
        stop = min(rows, self.limit or rows)
        size = self._block_rows(matrix.shape[1])
        with _bar(total=matrix.nbytes) as bar:
            for start in range(0, stop, size):
                block = np.ascontiguousarray(matrix[start : min(start + size, stop)])
                self._digest.update(block.tobytes())
                words = [line.rstrip(b"\r\n") for line in lines[start : start + len(block)]]
                if start == 0:
                    words[0] = words[0].removeprefix(codecs.BOM_UTF8)
                yield words, block
                bar.update(block.nbytes)
        self._digest.update(b"".join(lines[:stop]))

    def _matrix(self) -> np.memmap[Any, np.dtype[Any]]:
        size = self.path.stat().st_size
        matrix = None
        with suppress(*NO_ARRAY):
            matrix = np.lib.format.open_memmap(self.path, mode="r")
        if matrix is None or matrix.offset + matrix.nbytes != size:
            raise BundleError(
                f"{self.path.name} is not a complete .npy file",
                allowed="what numpy.save writes for a matrix of numbers",
                do="Unpack, write or fetch it again",
            )
        is_floating = matrix.dtype.kind == "f" and matrix.dtype.itemsize in (2, 4, 8)
        is_matrix = matrix.ndim == 2 and 0 not in matrix.shape
        if not is_floating or not is_matrix or matrix.shape[1] > _LARGEST_DIMENSION:
            allowed = "float16, float32 or float64 of shape (words, dimension), neither of them 0"
            raise BundleError(
                f"{self.path.name} is not a matrix of vectors",
                allowed=allowed,
                got=f"{matrix.dtype} of shape {matrix.shape}",
            )
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
    except _DAMAGED:  # reading the rows names what is missing or damaged
        return b""
    for magic, name, do in _FOREIGN:
        if re.match(magic, head, re.DOTALL):
            allowed = "GloVe, word2vec or fastText text, word2vec binary, or .npy"
            raise BundleError(
                f"{path.name} is not an embedding source", allowed=allowed, got=name, do=do
            )
    return head


def _decompressed(stored: io.FileIO) -> io.BufferedReader:
    """Open a file's own bytes, or those in its container; its name does not matter."""
    start = stored.read(10)
    stored.seek(0)
    raw: Any = stored
    for magic, opener in _CONTAINERS.items():
        if re.match(magic, start):
            raw = opener(stored)
            break
    return io.BufferedReader(raw, _BUFFER_BYTES)


def _member(stored: io.FileIO) -> Any:
    """Open the only file in a zip."""
    files: list[str] = []
    with suppress(RuntimeError):  # a password, or what Python's zip lacks
        archive = ZipFile(stored)
        files = [name for name in archive.namelist() if not re.search("^__MACOSX/|/$", name)]
        if len(files) == 1:
            return archive.open(files[0])
    names = ", ".join(files[:_SHOWN])
    if len(files) > _SHOWN:
        names += ", ..."
    raise BundleError(
        f"{Path(str(stored.name)).name} is a zip that cannot be read directly",
        allowed="a zip of one file, without a password",
        got=names,
        do="Unpack it and take one of its files",
    )


_CONTAINERS: Final[dict[bytes, Callable[[io.FileIO], Any]]] = {
    rb"\x1f\x8b\x08": lambda stored: gzip.GzipFile(fileobj=stored),
    rb"BZh\d1AY&SY": bz2.BZ2File,
    rb"\xfd7zXZ\0": lzma.LZMAFile,
    rb"PK\x03\x04": _member,
}
"""Functions that open a container, by a pattern of its first bytes."""
