"""Makes embedding bundles: a public embedding in, a verified folder out, one block of rows in memory.

Identical input gives identical bytes.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dptext_spark import interrupts
from dptext_spark.embedding.bundle import (
    FORMAT_VERSION,
    MANIFEST,
    WORDS,
    Embedding,
    Manifest,
    file_names,
    fingerprint,
    manifest_entries,
    words_schema,
)
from dptext_spark.embedding.parts import FOLDER as PARTS
from dptext_spark.embedding.readers import Source, open_source
from dptext_spark.embedding.spaces import SPACES, VECTORS, GeometryName, Normalization, Space, write_header
from dptext_spark.embedding.word_lists import ALLOWED, Matches, WordList
from dptext_spark.errors import BundleError
from dptext_spark.sealing import file_sha256, sealed
from dptext_spark.text.joined_words import matchable

_ROW_ORDER = "releasable first, those last that no text can hold and that are not, then source order"
_BLOCK_BYTES: Final = 1 << 22

NEVER_OUTPUT: Final = "--never-output"
RELEASE_WORDS: Final = "--release-words"
ALL: Final = "all"
"""All words may be output, also those that no text can hold."""


def build_embedding(
    source: Path | str,
    output: Path | str,
    *,
    limit: int | None = None,
    normalize: Normalization = "none",
    release_words: str | int | Path | None = None,
    never_output: Path | str | None = None,
    geometry: GeometryName = "euclidean",
    format: str = "auto",
    vocabulary: Path | str | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Embedding:
    """Convert a public embedding to a bundle, with one block of rows in memory at a time.

    Args:
        source: The embedding; it, ``format``, ``vocabulary``, ``limit`` and ``progress`` are as
            :func:`open_source` has them.
        output: Folder to write; its parent must exist.
        normalize: ``none``, or ``unit`` to scale every vector to length 1 (in float64, then rounded).
        release_words: Words that may be output: for a path those of a file, one a line, in any capitals where
            none is written so; if left out all that a text can hold, see :func:`matchable`, and the first N
            of these for an integer; ``all`` without exception.
        never_output: File of words that may not be output, one a line, in any capitals, nor any joined word
            that has one of them as a part. They are still words of the bundle.
        geometry: ``euclidean``, or ``poincare`` for points inside the unit ball, kept as float64.
        overwrite: Replace an existing bundle, once the new one is complete.

    Raises:
        BundleError: An option or a row of the source is wrong, or no entry of a list matches a word; nothing
            is written then and an existing bundle stays as it is.
    """
    source, output = Path(source), Path(output)
    space = _space(geometry, normalize)
    check_output(output, overwrite)
    release = _Release.read(release_words, never_output)
    rows = open_source(
        source,
        format=format,
        vocabulary=None if vocabulary is None else Path(vocabulary),
        limit=limit,
        progress=progress,
        dtype=space.dtype,
    )
    with _complete_or_absent(output, overwrite) as folder:
        words, chosen, dimension = _write_rows(rows, folder, release, space, normalize)
        releasable = int(chosen.releasable.sum())
        columns = [pa.array(words, pa.string()), pa.array(np.arange(len(words)) < releasable)]
        table = pa.Table.from_arrays(columns, schema=words_schema())
        pq.write_table(table, folder / WORDS, compression="zstd")
        space.derive(folder)
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            words=len(words),
            releasable=releasable,
            unmatchable=int((~chosen.matchable).sum()),
            unmatchable_releasable=int((chosen.releasable & ~chosen.matchable).sum()),
            dimension=dimension,
            geometry=geometry,
            normalization=normalize,
            row_order=_ROW_ORDER,
            release_words_absent=0 if chosen.chosen is None else len(chosen.chosen.unmatched),
            never_output=0 if chosen.denied is None else int(chosen.denied.words.sum()),
            never_output_absent=0 if chosen.denied is None else len(chosen.denied.unmatched),
            source_name=source.resolve().name,
            source_sha256=rows.sha256,
            files={path.name: file_sha256(path) for path in sorted(folder.iterdir())},
            fingerprint="",
        )
        manifest = replace(manifest, fingerprint=fingerprint(manifest, table["word"].combine_chunks()))
        (folder / MANIFEST).write_bytes(sealed(asdict(manifest)))
    return Embedding.open(output, verify=False)


def list_matches(
    words: Sequence[str],
    *,
    release_words: str | int | Path | None = None,
    never_output: Path | str | None = None,
) -> list[Matches]:
    """Say how the lists of an embedding's options match its words; as for :func:`build_embedding`.

    Raises:
        BundleError: A list cannot be read or matches nothing, or too few words may be output.
    """
    release = _Release.read(release_words, never_output)
    if release.chosen is None and release.denied is None:
        return []
    chosen = release.choose(words)
    return [matches for matches in (chosen.chosen, chosen.denied) if matches is not None]


def _space(geometry: str, normalize: str) -> type[Space]:
    if geometry not in SPACES:
        raise BundleError("The geometry is unknown", allowed=", ".join(SPACES), got=geometry)
    known = get_args(Normalization)
    if normalize not in known:
        raise BundleError("The normalization is unknown", allowed=", ".join(known), got=normalize)
    space = SPACES[geometry]
    if normalize not in space.normalizations:
        raise BundleError(
            "Points of the Poincaré ball cannot be normalized",
            allowed=f"normalize {' or '.join(space.normalizations)} with geometry {geometry}",
            got=f"normalize {normalize}",
        )
    return space


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """Of each word, in the source's order, what it may be: bool (V,) each; and how the lists matched."""

    releasable: NDArray[np.bool_]
    matchable: NDArray[np.bool_]
    chosen: Matches | None
    denied: Matches | None

    @property
    def order(self) -> NDArray[np.int64]:
        """int64 (V,): the words in the bundle's order."""
        return np.argsort(np.where(self.releasable, 0, np.where(self.matchable, 1, 2)), kind="stable")


@dataclass(frozen=True, kw_only=True)
class _Release:
    """Which words may be output: all, those that a text can hold, the first so many of them, or a chosen set.

    Attributes:
        denied: Words that may not.
    """

    every: bool = False
    first: int | None = None
    chosen: WordList | None = None
    denied: WordList | None = None

    @classmethod
    def read(cls, release_words: str | int | Path | None, never_output: str | Path | None) -> _Release:
        denied = None if never_output is None else WordList.read(never_output, NEVER_OUTPUT)
        if release_words is None:
            return cls(denied=denied)
        if release_words == ALL:
            return cls(every=True, denied=denied)
        if isinstance(release_words, str) and release_words.isdecimal():
            release_words = int(release_words)
        if isinstance(release_words, int):
            if (got := release_words) < 2:
                raise BundleError("Too few words may be released", allowed="at least 2 words", got=str(got))
            return cls(first=release_words, denied=denied)
        allowed = f"a number of words, {ALL}, or {ALLOWED}"
        return cls(chosen=WordList.read(release_words, RELEASE_WORDS, allowed), denied=denied)

    def choose(self, words: Sequence[str]) -> _Chosen:
        """Say of all words of the source which may be output.

        Raises:
            BundleError: They are fewer than were asked for, or too few to hide among; a list matches nothing.
        """
        texts = matchable(pa.array(words, pa.string()))
        chosen = None if self.chosen is None else self.chosen.chosen(words)
        denied = None if self.denied is None else self.denied.denied(words)
        released = np.ones_like(texts) if self.every else texts if chosen is None else chosen.words
        if denied is not None:
            released = released & ~denied.words
        count = int(released.sum())
        if self.first is not None and count < self.first:
            what = "More words shall be released than the source has"
            raise BundleError(what, allowed=f"at most {count}", got=str(self.first))
        if count < 2:
            refused = 0 if denied is None else int(denied.words.sum())
            raise BundleError(
                "The embedding has too few words",
                allowed="at least 2 that may be released",
                got=f"{count}, and {refused} that may not be output" if refused else str(count),
            )
        if self.first is not None:
            released = released & (np.cumsum(released) <= self.first)
        return _Chosen(releasable=released, matchable=texts, chosen=chosen, denied=denied)


def _write_rows(
    rows: Source, folder: Path, release: _Release, space: type[Space], normalize: Normalization
) -> tuple[list[str], _Chosen, int]:
    """Write ``vectors.npy`` in the bundle's order; return the words in it, what they may be, and n."""
    words: list[str] = []
    unordered = folder / "unordered.rows"
    with unordered.open("wb") as file:
        for names, block in rows:
            start = len(words)
            vectors = space.prepared(block, normalize, lambda row, start=start: rows.place(start + row))  # type: ignore[misc]
            file.write(np.ascontiguousarray(vectors).data)
            words += names
            dimension, dtype = vectors.shape[1], vectors.dtype
    chosen = release.choose(words)
    order = chosen.order
    with (folder / VECTORS).open("wb") as file:
        write_header(file, dtype, (len(words), dimension))
        for group in np.split(order, np.flatnonzero(np.diff(order) < 0) + 1):
            _copy_rows(unordered, file, group, np.dtype((dtype, (dimension,))))
    unordered.unlink()
    return [words[row] for row in order.tolist()], chosen, dimension


def _copy_rows(path: Path, file: BinaryIO, rows: NDArray[np.int64], row: np.dtype[Any]) -> None:
    """Copy rows, in ascending order, out of a file of rows."""
    step = max(1, _BLOCK_BYTES // row.itemsize)
    with path.open("rb") as source:
        for start in range(0, int(rows[-1]) + 1, step):
            block = np.fromfile(source, row, step)
            first, last = np.searchsorted(rows, [start, start + step])
            file.write(block[rows[first:last] - start].data)


def check_output(output: Path, overwrite: bool) -> None:
    """Refuse a place where no bundle can be written.

    Raises:
        BundleError: The output exists and may not be replaced, or its parent does not exist.
    """
    if not output.absolute().parent.is_dir():
        raise BundleError(
            "The folder that shall hold the bundle does not exist", got=str(output), do="Create it"
        )
    if not os.path.lexists(output):
        return
    if not overwrite:
        raise BundleError(
            "The output exists", got=str(output), do="Choose another folder or allow to overwrite the bundle"
        )
    if not _is_bundle(output):
        raise BundleError(
            "The output is no embedding bundle, so it will not be replaced",
            allowed="a new folder or an existing bundle",
            got=str(output),
            do="Choose another folder",
        )


def _is_bundle(path: Path) -> bool:
    known = {MANIFEST, PARTS}.union(*map(file_names, SPACES))
    if path.is_symlink() or not path.is_dir() or not {entry.name for entry in path.iterdir()} <= known:
        return False
    entries = manifest_entries(path)
    return entries is not None and {"format_version", "fingerprint"} <= set(entries)


@contextmanager
def _complete_or_absent(output: Path, overwrite: bool) -> Iterator[Path]:
    """Lend a folder that becomes the output when the block ends well and is removed when it does not."""
    output = output.absolute()
    folder = _sibling(output, "tmp")
    folder.mkdir()
    try:
        yield folder
        for file in folder.iterdir():
            _flush(file)
        _flush(folder)
        check_output(output, overwrite)
        interrupts.hold_to_the_end()  # of two renames, one alone would leave nothing under the name
        if output.exists():
            old = _sibling(output, "old")
            output.rename(old)
            try:
                folder.rename(output)
            except OSError:
                old.rename(output)
                raise
            shutil.rmtree(old)
        else:
            folder.rename(output)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _flush(output.parent)


def _sibling(output: Path, suffix: str) -> Path:
    return output.with_name(f".{output.name}.{secrets.token_hex(8)}.{suffix}")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
