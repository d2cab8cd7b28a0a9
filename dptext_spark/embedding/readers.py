"""Streaming readers of public embedding files: text, word2vec binary and NumPy, with bounded memory.

Every reader yields blocks of rows in source order, checks each row, and names the line or row of a fault; a
message never holds a word.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

from dptext_spark.bars import progress_bar
from dptext_spark.errors import BundleError

READERS: Final[dict[str, type[Source]]] = {}
"""By the name of the format."""

Block: TypeAlias = tuple[list[str], NDArray[np.floating[Any]]]

_BLOCK_ROWS = 4096
_BLOCK_FLOATS = 2**19
_BUFFER_BYTES = 2**15
_LONGEST_LINE = 2**24
_LONGEST_WORD = 2**16
_LARGEST_DIMENSION = 2**16

_HEADER = re.compile(rb"(\d{1,18}) (\d{1,18})")
_NUMBER = re.compile(rb"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf|infinity)", re.IGNORECASE)
_INTEGER = re.compile(rb"[+-]?\d+")
_DECIMAL = re.compile(rb"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=e))(?:e[+-]?\d+)?", re.IGNORECASE)
# C0 and C1 controls (line breaks and NUL among them) and the two Unicode separators that break lines.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def open_source(
    source: Path,
    *,
    format: str = "auto",
    vocabulary: Path | None = None,
    limit: int | None = None,
    progress: bool = False,
    dtype: DTypeLike = np.float32,
) -> Source:
    """Open an embedding source for one pass over its rows.

    Args:
        source: GloVe, word2vec or fastText text (``.gz`` too), word2vec binary (``.bin``, ``.bin.gz``), an
            ``.npy`` matrix (V, n) of float16/32/64, or a folder that holds ``vectors.npy`` and ``vocab.txt``.
        format: One of :func:`formats`; ``auto`` goes by the name.
        vocabulary: One word a line, only for ``npy``; ``vocab.txt`` beside the matrix if left out.
        limit: Read at most this many rows.
        progress: Show the progress bar even where stderr is no terminal.
        dtype: float32 or float64, the type of the vectors that are yielded. Text is parsed as float64 first.

    Returns:
        A ``Source``; iterate over it once for blocks of words (b,) and vectors (b, n), b <= 4096.

    Raises:
        BundleError: An option is wrong or a file is missing; faults of rows are raised while iterating.
    """
    if format not in formats():
        raise BundleError(
            "The format of the embedding source is unknown", allowed=", ".join(formats()), got=format
        )
    if limit is not None and limit < 1:
        raise BundleError("The limit of rows is wrong", allowed="an integer >= 1", got=str(limit))
    source = Path(source)
    fitting = [name for name, reader in READERS.items() if reader.takes(source)] or [_TextSource.format]
    reader = READERS[fitting[0] if format == "auto" else format]
    return reader.of(source, vocabulary, limit, progress, np.dtype(dtype))


def formats() -> list[str]:
    """Name the formats that can be asked for."""
    return ["auto", *READERS]


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise BundleError(
            "A file of the embedding source is missing",
            allowed="a file that exists",
            got=str(path),
            do="Check the path",
        )
    return path


class Source(ABC):
    """One pass over an embedding source: iterate for blocks, then ask for ``sha256``.

    A subclass is a format, without another edit.

    Attributes:
        format: Its name.
        unit: What the rows are counted in, ``line`` or ``row``.
    """

    format: ClassVar[str]
    unit = "row"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        READERS[cls.format] = cls

    @classmethod
    def takes(cls, source: Path) -> bool:
        """Say whether the name of a file or folder is one of this format."""
        return False

    @classmethod
    def of(
        cls,
        source: Path,
        vocabulary: Path | None,
        limit: int | None,
        progress: bool,
        dtype: np.dtype[Any],
    ) -> Self:
        """Open a source; see :func:`open_source`."""
        if vocabulary is not None:
            raise BundleError(
                "A vocabulary file was given for a source that holds its own words",
                allowed="a vocabulary only with an .npy source",
                got=f"format {cls.format}",
                do="Leave the vocabulary out",
            )
        return cls(_existing(source), limit, progress, dtype)

    def __init__(self, path: Path, limit: int | None, progress: bool, dtype: np.dtype[Any]) -> None:
        self._path = path
        self._limit = limit
        self._progress = progress
        self._dtype = dtype
        self._first = 1
        self._digest = hashlib.sha256()
        self._seen: dict[str, int] = {}
        self._state = "new"

    @property
    def sha256(self) -> str:
        """SHA-256, in hex, of the bytes that define the result, once every block was taken.

        These are the decompressed bytes from the first to the last that was read: without a limit the whole
        content (what ``sha256sum`` prints for a file that is not compressed), with a limit the header and the
        rows up to the limit (text: ``head -n LINES``). For an ``.npy`` the bytes of the vocabulary follow.

        Raises:
            BundleError: The source was not read to its end.
        """
        if self._state != "read":
            raise BundleError(
                "The hash of an embedding source was asked for too early", do="Iterate over the source first"
            )
        return self._digest.hexdigest()

    def place(self, row: int) -> str:
        """Name the place of a row, counted from 0, as a person looks it up: ``glove.txt, line 7``."""
        return f"{self._path.name}, {self._count(row)}"

    def _count(self, row: int) -> str:
        return f"{self.unit} {row + self._first}"

    def __iter__(self) -> Iterator[Block]:
        """Yield blocks of words (b,) and vectors (b, n) in source order.

        Raises:
            BundleError: A row is wrong, or the source is cut short or was iterated over before.
        """
        if self._state != "new":
            raise BundleError(
                "An embedding source was read twice", allowed="one pass", do="Open the source again"
            )
        self._state = "open"
        row = 0
        for raw, vectors in self._blocks():
            words = self._decoded(raw, row)
            with np.errstate(over="ignore"):
                vectors = vectors.astype(self._dtype)
            if len(faulty := np.flatnonzero(~np.isfinite(vectors).all(axis=1))):
                raise self._wrong(
                    row + int(faulty[0]),
                    "the vector holds NaN, an infinity or a number too large",
                    allowed=f"finite {self._dtype.name} numbers",
                    do="Remove this row",
                )
            row += len(words)
            yield words, vectors
        self._state = "read"

    @abstractmethod
    def _blocks(self) -> Iterator[tuple[list[bytes], NDArray[np.floating[Any]]]]:
        """Yield the words, not yet decoded, and the vectors; feed ``_digest``."""

    def _wrong(self, row: int, what: str, *, allowed: str = "", got: str = "", do: str = "") -> BundleError:
        return BundleError(f"{self.place(row)}: {what}", allowed=allowed, got=got, do=do)

    def _cut(self, row: int) -> BundleError:
        return self._wrong(
            row, "the file is cut short or damaged here", do="Fetch or decompress the file again"
        )

    def _decoded(self, raw: list[bytes], start: int) -> list[str]:
        words: list[str] = []
        for row, encoded in enumerate(raw, start):
            try:
                word = encoded.decode("utf-8")
            except UnicodeDecodeError:
                # "from None": the original exception would carry the word into a log.
                raise self._wrong(
                    row, "the word is not valid UTF-8", do="Convert the file to UTF-8"
                ) from None
            if not word.strip(" "):
                raise self._wrong(row, "the word is empty", do="Remove this row")
            if _CONTROL.search(word):
                raise self._wrong(
                    row,
                    "the word holds a control character",
                    allowed="words without NUL, tabs, line breaks and other control characters",
                    do="Remove this row",
                )
            if (before := self._seen.setdefault(word, row)) != row:
                raise self._wrong(
                    row,
                    "the word is a duplicate",
                    allowed="each word once",
                    got=f"the word of {self._count(before)} again",
                    do="Remove one of the two rows",
                )
            words.append(word)
        return words

    def _block_rows(self, dimension: int) -> int:
        return max(1, min(_BLOCK_ROWS, _BLOCK_FLOATS // dimension))

    def _check_header(self, rows: int, dimension: int) -> None:
        if rows < 1 or not 1 <= dimension <= _LARGEST_DIMENSION:
            raise BundleError(
                f"{self._path.name}, {self.unit} 1: the header is wrong",
                allowed=f"at least 1 row and 1 to {_LARGEST_DIMENSION} dimensions",
                got=f"{rows} rows of {dimension} dimensions",
            )

    def _bar(self, size: int) -> Any:
        return progress_bar(anywhere=self._progress, total=size, unit="B", unit_scale=True, desc="embedding")

    @contextmanager
    def _opened(self) -> Iterator[tuple[io.BufferedReader, Callable[[], object]]]:
        """Open the file, decompressed if its name says so; the call moves a bar on to the place in it."""
        with self._path.open("rb", buffering=0) as stored, self._bar(self._path.stat().st_size) as bar:
            packed = self._path.name.lower().endswith(".gz")
            raw: Any = gzip.GzipFile(fileobj=stored, mode="rb") if packed else stored
            yield io.BufferedReader(raw, _BUFFER_BYTES), lambda: bar.update(stored.tell() - bar.n)


class _TextSource(Source):
    """One line a word: the word, a space, n numbers; optionally a first line ``N n``."""

    format = "text"
    unit = "line"
    _dimension: int
    _promised: int | None = None

    def _blocks(self) -> Iterator[tuple[list[bytes], NDArray[np.floating[Any]]]]:
        with self._opened() as (stream, show):
            lines = self._rows(self._lines(stream))
            row = 0
            while block := list(islice(lines, self._block_rows(self._dimension))):
                self._digest.update(b"".join(block))
                yield self._parsed(block, row)
                row += len(block)
                show()
        if self._promised is not None and row < min(self._promised, self._limit or self._promised):
            raise self._wrong(
                row - 1,
                "the file ends here",
                allowed=f"{self._promised} rows, as line 1 says",
                got=f"{row} rows",
            )

    def _lines(self, stream: io.BufferedReader) -> Iterator[bytes]:
        for number in range(1, 2**63):
            try:
                line = stream.readline(_LONGEST_LINE)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                raise self._cut(number - self._first) from None
            if not line:
                return
            if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                raise self._wrong(
                    number - self._first, "the line is too long", allowed=f"{_LONGEST_LINE} bytes"
                )
            yield line

    def _rows(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        """Settle header and dimension from the first line and return the lines that hold rows."""
        first = next(lines, b"")
        start = first.removeprefix(codecs.BOM_UTF8)
        body = start.rstrip(b" \r\n")
        if not first:
            raise self._wrong(0, "the file is empty", allowed="at least one row")
        if header := _HEADER.fullmatch(body):
            self._promised, self._dimension = int(header[1]), int(header[2])
            self._check_header(self._promised, self._dimension)
            self._digest.update(first)
            self._first = 2
        else:
            self._dimension = self._measured(body)
            self._digest.update(first[: len(first) - len(start)])
            lines = chain([start], lines)
        return islice(lines, self._limit)

    def _measured(self, body: bytes) -> int:
        """Count the numbers that end the first line; a number before them betrays a field that is none."""
        _, *fields = body.split(b" ")
        n = 0
        while n < len(fields) and _NUMBER.fullmatch(fields[-1 - n]):
            n += 1
        if n == 0 or any(_DECIMAL.fullmatch(field) for field in fields[: len(fields) - n]):
            raise self._wrong(0, "a field is not a number", allowed="a word and its numbers, one space apart")
        return n

    def _parsed(self, lines: list[bytes], start: int) -> tuple[list[bytes], NDArray[np.float64]]:
        words: list[bytes] = []
        numbers: list[bytes] = []
        for row, line in enumerate(lines, start):
            if row == self._promised:
                raise self._wrong(
                    row, "the row is one too many", allowed=f"{self._promised} rows, as line 1 says"
                )
            body = line.rstrip(b" \r\n")
            if body.count(b" ") == self._dimension:
                word, _, text = body.partition(b" ")
            else:
                word, text = self._split(body, row, cut=not line.endswith(b"\n"))
            words.append(word)
            numbers.append(text)
        return words, self._floats(numbers, start, cut=not lines[-1].endswith(b"\n"))

    def _split(self, body: bytes, row: int, *, cut: bool) -> tuple[bytes, bytes]:
        """Split a line whose word holds spaces: the last n fields are its vector."""
        n = self._dimension
        fields = body.count(b" ")
        if cut and fields < n:
            raise self._cut(row)
        word, *vector = body.rsplit(b" ", n)
        if fields < n or _belongs_to_vector(word.rsplit(b" ", 1)[-1], vector):
            raise self._wrong(
                row,
                "the row has another length than the rows before it or the header",
                allowed=f"a word and {n} numbers, one space apart",
                got=f"{fields + 1 if body else 0} fields",
            )
        return word, b" ".join(vector)

    def _floats(self, numbers: list[bytes], start: int, *, cut: bool) -> NDArray[np.float64]:
        """Parse the numbers of a block, each rounded as Python's ``float`` does: (b, n) float64."""
        with suppress(pa.ArrowInvalid):  # its text belongs to the data, and stays out of the chain
            # Arrow's split and cast do about 100 MB/s where np.fromstring does 35.
            fields = pc.split_pattern(pa.array(numbers, pa.binary()).cast(pa.string()), " ").flatten()
            parsed: NDArray[np.float64] = fields.cast(pa.float64()).to_numpy()
            return parsed.reshape(len(numbers), self._dimension)
        *whole, last = numbers
        if whole:  # one of the rows is at fault
            for row, text in enumerate(whole, start):
                self._floats([text], row, cut=False)
            self._floats([last], start + len(whole), cut=cut)
        if cut:
            raise self._cut(start)
        raise self._wrong(start, "a field is not a number", allowed=f"a word and {self._dimension} numbers")


def _belongs_to_vector(field: bytes, vector: list[bytes]) -> bool:
    """Whether a field before the last n is written like the numbers after it, so that the row is too long.

    A whole number counts only where the vector holds whole numbers too: ``windows 10 0.25 0.5`` has a token
    with a space, ``windows 10 1 0.5`` is taken for a row with three numbers.
    """
    if _INTEGER.fullmatch(field):
        return any(_INTEGER.fullmatch(number) for number in vector)
    return bool(_DECIMAL.fullmatch(field))


class _BinarySource(Source):
    """A line ``N n``, then for each word: it, a space, n little-endian float32, perhaps a line break."""

    format = "word2vec-binary"

    @classmethod
    def takes(cls, source: Path) -> bool:
        return source.name.lower().removesuffix(".gz").endswith(".bin")

    def _blocks(self) -> Iterator[tuple[list[bytes], NDArray[np.floating[Any]]]]:
        row = 0
        with self._opened() as (stream, show):
            promised, n = self._header(stream)
            wanted = min(promised, self._limit or promised)
            while row < wanted:
                count = min(self._block_rows(n), wanted - row)
                pairs = [self._pair(stream, 4 * n, row + i) for i in range(count)]
                data = b"".join(vector for _, vector in pairs)
                yield [word for word, _ in pairs], np.frombuffer(data, "<f4").reshape(count, n)
                row += count
                show()
            if wanted == promised:
                rest = self._take(stream.read, 2, promised)
                if rest not in (b"", b"\n"):
                    raise self._wrong(
                        promised, "the row is one too many", allowed=f"{promised} rows, as the header says"
                    )
                self._digest.update(rest)

    def _header(self, stream: io.BufferedReader) -> tuple[int, int]:
        line = self._take(stream.readline, 64, 0)
        if not line:
            raise self._wrong(0, "the file is empty", allowed="a line 'N n' and N rows")
        self._digest.update(line)
        header = _HEADER.fullmatch(line.rstrip(b" \r\n"))
        if header is None or not line.endswith(b"\n"):
            raise self._wrong(
                0,
                "the file does not begin with the header of a word2vec binary",
                allowed="a line 'N n': the number of rows and their dimension",
                do="Name the format of the file",
            )
        self._check_header(int(header[1]), int(header[2]))
        return int(header[1]), int(header[2])

    def _pair(self, stream: io.BufferedReader, size: int, row: int) -> tuple[bytes, bytes]:
        word = self._word(stream, row)
        vector = self._take(stream.read, size, row)
        if len(vector) < size:
            raise self._cut(row)
        self._digest.update(word + vector)
        # The line break belongs to the row before; the writers differ in whether they put one.
        return word.removeprefix(b"\n").removesuffix(b" "), vector

    def _word(self, stream: io.BufferedReader, row: int) -> bytes:
        """Read up to and including the next space."""
        word = b""
        while len(word) <= _LONGEST_WORD:
            ahead: bytes = self._take(stream.peek, 1, row)
            if not ahead:
                raise self._cut(row)
            word += stream.read(ahead.find(b" ") + 1 or len(ahead))
            if word.endswith(b" "):
                return word
        raise self._wrong(row, "the word does not end", allowed=f"words of at most {_LONGEST_WORD} bytes")

    def _take(self, read: Any, size: int, row: int) -> bytes:
        try:
            taken: bytes = read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise self._cut(row) from None
        return taken


class _ArraySource(Source):
    """A matrix (V, n) in an ``.npy`` file and a vocabulary with one word a line."""

    format = "npy"

    @classmethod
    def takes(cls, source: Path) -> bool:
        return source.is_dir() or source.name.lower().endswith(".npy")

    @classmethod
    def of(
        cls,
        source: Path,
        vocabulary: Path | None,
        limit: int | None,
        progress: bool,
        dtype: np.dtype[Any],
    ) -> Self:
        matrix = source / "vectors.npy" if source.is_dir() else source
        words = vocabulary or matrix.with_name("vocab.txt")
        return cls(_existing(matrix), _existing(words), limit, progress, dtype)

    def __init__(
        self, path: Path, vocabulary: Path, limit: int | None, progress: bool, dtype: np.dtype[Any]
    ) -> None:
        super().__init__(path, limit, progress, dtype)
        self._vocabulary = vocabulary

    def _blocks(self) -> Iterator[tuple[list[bytes], NDArray[np.floating[Any]]]]:
        matrix = self._matrix()
        lines = self._lines(len(matrix))
        with self._path.open("rb") as file:
            self._digest.update(file.read(matrix.offset))
        wanted = min(len(matrix), self._limit or len(matrix))
        step = self._block_rows(matrix.shape[1])
        with self._bar(matrix.nbytes) as bar:
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
        matrix, size = None, self._path.stat().st_size
        with suppress(ValueError, EOFError, OSError):
            matrix = np.load(self._path, mmap_mode="r", allow_pickle=False)
        if not isinstance(matrix, np.memmap) or matrix.offset + matrix.nbytes != size:
            raise BundleError(
                f"{self._path.name} is no whole .npy file",
                allowed="what numpy.save writes for a matrix of numbers",
                got=f"{size} bytes",
                do="Write or fetch the file again",
            )
        floats = matrix.dtype.kind == "f" and matrix.dtype.itemsize in (2, 4, 8)
        if not floats or matrix.ndim != 2 or 0 in matrix.shape or matrix.shape[1] > _LARGEST_DIMENSION:
            raise BundleError(
                f"{self._path.name} is no matrix of vectors",
                allowed="float16, float32 or float64 of shape (words, dimension), neither of them 0",
                got=f"{matrix.dtype} of shape {matrix.shape}",
            )
        return matrix

    def _lines(self, rows: int) -> list[bytes]:
        with self._vocabulary.open("rb") as file:
            lines = file.readlines()
        if len(lines) != rows:
            raise BundleError(
                f"{self._vocabulary.name} and {self._path.name} differ in length",
                allowed=f"{rows} words, one a line, for {rows} rows",
                got=f"{len(lines)} lines; row {min(len(lines), rows) + 1} has no counterpart",
            )
        return lines
