"""Readers of public embedding files: text, word2vec binary and NumPy, a block of rows in memory at a time.

A fault is named by its line or row; a message never holds a word.
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
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

from dptext_spark.bars import progress_bar
from dptext_spark.errors import BundleError

READERS: Final[dict[str, type[Source]]] = {}
"""By the name of the format."""

Vectors: TypeAlias = NDArray[np.floating[Any]]

_BLOCK_ROWS = 4096
_BLOCK_FLOATS = 2**19
_BUFFER_BYTES = 2**15
_LONGEST_LINE = 2**24
_LONGEST_WORD = 2**16
_LARGEST_DIMENSION = 2**16

_HEADER = re.compile(rb"(\d{1,18}) (\d{1,18})")
_NUMBER = re.compile(
    rb"[+-]?(?:(?P<integer>\d+)|(?P<decimal>(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)|(?P<word>nan|inf|infinity))",
    re.IGNORECASE,
)
# C0 and C1 controls (line breaks and NUL among them) and the two Unicode separators that break lines.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def open_source(
    source: Path | str,
    *,
    format: str = "auto",
    vocabulary: Path | str | None = None,
    limit: int | None = None,
    progress: bool = False,
    dtype: DTypeLike = np.float32,
) -> Source:
    """Open an embedding source for one pass over its rows.

    Args:
        source: GloVe, word2vec or fastText text (``.gz`` too), word2vec binary (``.bin``, ``.bin.gz``), an
            ``.npy`` matrix (V, n) of float16/32/64, or a folder that holds ``vectors.npy`` and ``vocab.txt``.
        format: One of :func:`formats`; ``auto`` goes by the name.
        vocabulary: One word a line, only for ``npy``; ``vocab.txt`` next to the matrix if left out.
        limit: Read at most this many rows.
        progress: Show the progress bar even where stderr is no terminal.
        dtype: float32 or float64, the type of the vectors. Text is parsed as float64 first.

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
    words = None if vocabulary is None else Path(vocabulary)
    return reader(source, words, limit=limit, progress=progress, dtype=np.dtype(dtype))


def formats() -> list[str]:
    """Name the formats that can be asked for."""
    return ["auto", *READERS]


class Source(ABC):
    """One pass over an embedding source; a subclass is a format, without another edit.

    Attributes:
        unit: What the rows are counted in, ``line`` or ``row``.
        sha256: Hash, in hex, of the decompressed bytes that define the result; there once all blocks were
            taken. With a limit they end with the last row that was read (text: ``head -n LINES``). For an
            ``.npy`` the bytes of the vocabulary follow.
    """

    format: ClassVar[str]
    unit: ClassVar[str] = "row"
    sha256: str

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        READERS[cls.format] = cls

    @classmethod
    def takes(cls, source: Path) -> bool:
        """Say whether the name of a file or folder is one of this format."""
        return False

    def __init__(
        self, path: Path, vocabulary: Path | None, *, limit: int | None, progress: bool, dtype: np.dtype[Any]
    ) -> None:
        if vocabulary is not None:
            raise BundleError(
                "A vocabulary file was given for a source that holds its own words",
                allowed="a vocabulary only with an .npy source",
                got=f"format {self.format}",
                do="Leave the vocabulary out",
            )
        self._path, self._limit, self._progress, self._dtype = _existing(path), limit, progress, dtype
        self._digest = hashlib.sha256()
        self._seen: dict[str, int] = {}
        # The number of the first row, and the row that is being read, from 0.
        self._first, self._at = 1, 0

    def __iter__(self) -> Iterator[tuple[list[str], Vectors]]:
        """Yield blocks of words (b,) and vectors (b, n) in source order, b <= 4096; refuse a wrong row."""
        row = 0
        try:
            for raw, vectors in self._blocks():
                words = [self._word(word, at) for at, word in enumerate(raw, row)]
                with np.errstate(over="ignore"):
                    vectors = vectors.astype(self._dtype)
                self.refuse(
                    row,
                    np.asarray(~np.isfinite(vectors).all(axis=1)),
                    "the vector holds NaN, an infinity or a number too large",
                    allowed=f"finite {self._dtype.name} numbers",
                )
                row += len(words)
                yield words, vectors
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise self._cut(self._at) from None
        self.sha256 = self._digest.hexdigest()

    def refuse(
        self,
        first: int,
        faulty: NDArray[np.bool_],
        what: str,
        *,
        allowed: str,
        got: str = "",
        do: str = "Remove this row",
    ) -> None:
        """Refuse the first faulty one, bool (b,), of the rows from ``first`` on, if there is any."""
        if faulty.any():
            raise self._fault(first + int(faulty.argmax()), what, allowed=allowed, got=got, do=do)

    @abstractmethod
    def _blocks(self) -> Iterator[tuple[list[bytes], Vectors]]:
        """Yield the words, not yet decoded, and the vectors; feed ``_digest``."""

    def _fault(self, row: int, what: str, *, allowed: str = "", got: str = "", do: str = "") -> BundleError:
        """Make the error of a row, counted from 0, under its place: ``glove.txt, line 7``."""
        place = f"{self._path.name}, {self.unit} {row + self._first}"
        return BundleError(f"{place}: {what}", allowed=allowed, got=got, do=do)

    def _cut(self, row: int) -> BundleError:
        what = "the file is cut short or damaged here"
        return self._fault(row, what, do="Fetch or decompress the file again")

    def _word(self, raw: bytes, row: int) -> str:
        """Read a word, and refuse one that cannot be a word of a bundle."""
        try:
            word = raw.decode("utf-8")
        except UnicodeDecodeError:
            # "from None": the original exception would carry the word into a log.
            raise self._fault(row, "the word is not valid UTF-8", do="Convert the file to UTF-8") from None
        if not word.strip(" "):
            raise self._fault(row, "the word is empty", do="Remove this row")
        if _CONTROL.search(word):
            allowed = "words without NUL, tabs, line breaks and other control characters"
            what = "the word holds a control character"
            raise self._fault(row, what, allowed=allowed, do="Remove this row")
        if (before := self._seen.setdefault(word, row)) != row:
            got, do = f"the word of {self.unit} {before + self._first} again", "Remove one of the two rows"
            raise self._fault(row, "the word is a duplicate", allowed="each word once", got=got, do=do)
        return word

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

    def _blocks(self) -> Iterator[tuple[list[bytes], Vectors]]:
        with self._opened() as (stream, show):
            lines = self._lines(stream)
            first = next(lines, b"")
            if not first:
                raise self._fault(0, "the file is empty", allowed="at least one row")
            start = first.removeprefix(codecs.BOM_UTF8)
            header = self._header(start)
            if header:
                self._first, self._at = 2, 0
            else:
                lines = chain([start], lines)
            self._digest.update(first if header else first[: len(first) - len(start)])
            promised, n = header or (None, self._measured(start))
            row, lines = 0, islice(lines, self._limit)
            rows = islice(lines, promised)
            while block := list(islice(rows, self._block_rows(n))):
                self._digest.update(b"".join(block))
                yield self._parsed(block, n, row)
                row += len(block)
                show()
            if next(lines, b""):
                what = "there are more rows than the header says"
                raise self._fault(row, what, allowed=f"{promised} rows")
        if promised is not None and row < min(promised, self._limit or promised):
            what, allowed = "the file ends here", f"{promised} rows, as line 1 says"
            raise self._fault(row - 1, what, allowed=allowed, got=f"{row} rows")

    def _lines(self, stream: io.BufferedReader) -> Iterator[bytes]:
        while line := stream.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                raise self._fault(self._at, "the line is too long", allowed=f"{_LONGEST_LINE} bytes")
            self._at += 1
            yield line

    def _measured(self, line: bytes) -> int:
        """Count the numbers that end the first line; a number before them betrays a field that is none."""
        _, *fields = line.rstrip(b" \r\n").split(b" ")
        n = 0
        while n < len(fields) and _kind(fields[-1 - n]):
            n += 1
        if n == 0 or "decimal" in map(_kind, fields[: len(fields) - n]):
            raise self._fault(0, "a field is not a number", allowed="a word and its numbers, one space apart")
        return n

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
        body, cut = line.rstrip(b" \r\n"), not line.endswith(b"\n")
        word, *vector = body.rsplit(b" ", n)
        # A word may hold spaces: "windows 10 0.25 0.5" has one; "windows 10 1 0.5" is taken for a row with
        # three numbers, as is every row with a decimal before the last n fields.
        kinds, before = [*map(_kind, vector)], _kind(word.rpartition(b" ")[2]) if b" " in word else None
        more = before == "decimal" or (before == "integer" and "integer" in kinds)
        if cut and (len(vector) < n or (None in kinds and not more)):
            raise self._cut(row)
        if len(vector) < n or more:
            raise self._fault(
                row,
                "the row's number of fields differs from the header or the first row",
                allowed=f"a word and {n} numbers, one space apart",
                got=f"{body.count(b' ') + 1 if body else 0} fields",
            )
        if None in kinds:
            raise self._fault(row, "a field is not a number", allowed=f"a word and {n} numbers")
        return word, [*map(float, vector)]


def _kind(field: bytes) -> str | None:
    """How a number is written: ``integer``, ``decimal`` or ``word``; None where this is no number."""
    match = _NUMBER.fullmatch(field)
    return match and match.lastgroup


class _BinarySource(Source):
    """A line ``N n``, then for each word: it, a space, n little-endian float32, perhaps a line break."""

    format = "word2vec-binary"

    @classmethod
    def takes(cls, source: Path) -> bool:
        return source.name.lower().removesuffix(".gz").endswith(".bin")

    def _blocks(self) -> Iterator[tuple[list[bytes], Vectors]]:
        with self._opened() as (stream, show):
            line = stream.readline(64)
            header = self._header(line) if line.endswith(b"\n") else None
            if header is None:
                what = "the file does not begin with the header of a word2vec binary"
                raise self._fault(
                    0,
                    what if line else "the file is empty",
                    allowed="a line 'N n': the number of rows and their dimension",
                    do="Name the format of the file",
                )
            self._digest.update(line)
            promised, n = header
            wanted, size = min(promised, self._limit or promised), self._block_rows(n)
            for start in range(0, wanted, size):
                words, data = [], []
                for self._at in range(start, min(start + size, wanted)):
                    word = b""
                    while not word.endswith(b" "):
                        ahead = stream.peek(1)
                        if not ahead:
                            raise self._cut(self._at)
                        word += stream.read(ahead.find(b" ") + 1 or len(ahead))
                        if len(word.strip(b"\n ")) > _LONGEST_WORD:
                            allowed = f"words of at most {_LONGEST_WORD} bytes"
                            raise self._fault(self._at, "the word does not end", allowed=allowed)
                    vector = stream.read(4 * n)
                    if len(vector) < 4 * n:
                        raise self._cut(self._at)
                    self._digest.update(word + vector)
                    # The line break belongs to the row before; the writers differ in whether they put one.
                    words.append(word.removeprefix(b"\n").removesuffix(b" "))
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

    format = "npy"

    @classmethod
    def takes(cls, source: Path) -> bool:
        return source.is_dir() or source.name.lower().endswith(".npy")

    def __init__(self, path: Path, vocabulary: Path | None, **options: Any) -> None:
        super().__init__(path / "vectors.npy" if path.is_dir() else path, None, **options)
        self._vocabulary = _existing(vocabulary or self._path.with_name("vocab.txt"))

    def _blocks(self) -> Iterator[tuple[list[bytes], Vectors]]:
        matrix = self._matrix()
        rows = len(matrix)
        with self._vocabulary.open("rb") as file:
            lines = file.readlines()
        if len(lines) != rows:
            raise BundleError(
                f"{self._vocabulary.name} and {self._path.name} differ in length",
                allowed=f"{rows} words, one a line, for {rows} rows",
                got=f"{len(lines)} lines; row {min(len(lines), rows) + 1} has no counterpart",
            )
        with self._path.open("rb") as file:
            self._digest.update(file.read(matrix.offset))
        wanted, step = min(rows, self._limit or rows), self._block_rows(matrix.shape[1])
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


def _existing(path: Path) -> Path:
    if not path.is_file():
        what = "A file of the embedding source is missing"
        raise BundleError(what, allowed="a file that exists", got=str(path), do="Check the path")
    return path
