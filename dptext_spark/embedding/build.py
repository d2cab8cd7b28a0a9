"""Makes embedding bundles: a public embedding in, a verified folder out, one block of rows in memory.

Identical input gives identical bytes.
"""

from __future__ import annotations

import os
import secrets
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dptext_spark import interrupts
from dptext_spark.embedding.bundle import (
    FORMAT_VERSION,
    MANIFEST,
    PARTS,
    WORDS,
    WORDS_SCHEMA,
    Embedding,
    Manifest,
    file_names,
    fingerprint,
)
from dptext_spark.embedding.readers import LeftOut, reader_of
from dptext_spark.embedding.spaces import (
    SPACES,
    VECTORS,
    GeometryName,
    Normalization,
    unit,
    write_rows,
)
from dptext_spark.embedding.word_lists import ALLOWED, Matches, WordList
from dptext_spark.errors import BundleError
from dptext_spark.sealing import file_sha256, sealed
from dptext_spark.text.joined import matchable, unique_forms

_ROW_ORDER = (
    "releasable first, those last that no text can hold and that are not, then source order"
)
_UNORDERED: Final = "unordered.rows"

NEVER_OUTPUT: Final = "--never-output"
RELEASE_WORDS: Final = "--release-words"
ALL: Final = "all"
"""All words may be output, also those that no text can hold."""

Flags: TypeAlias = NDArray[np.bool_]


def build_embedding(
    source: Path | str,
    output: Path | str,
    *,
    limit: int | None = None,
    strict: bool = False,
    word_prefix: str | None = None,
    left_out: list[LeftOut] | None = None,
    matches: list[Matches] | None = None,
    normalize: Normalization = "none",
    release_words: str | int | Path | None = None,
    never_output: Path | str | None = None,
    geometry: GeometryName = "euclidean",
    format: str = "auto",
    vocabulary: Path | str | None = None,
    overwrite: bool = False,
) -> Embedding:
    """Convert a public embedding to a bundle, with one block of rows in memory at a time.

    Args:
        source: GloVe, word2vec or fastText text or word2vec binary, also in gzip, bzip2, xz or a zip of one
            file; an ``.npy`` matrix (V, n) of float16/32/64, or a folder with it and ``vocab.txt``.
        limit, strict, word_prefix, vocabulary, format: See :class:`readers.Source`, :func:`readers.formats`.
        output: Folder to write; its parent must exist.
        left_out: Takes what was left out of the source; a warning says it where there is no such list.
        matches: Takes how the two lists match the words.
        normalize: ``none``, or ``unit`` to scale every vector to length 1 (in float64, then rounded).
        release_words: Words that may be output: for a path those of a file, one a line, in any capitals where
            none is written so; if left out all that a text can hold, see :func:`matchable`, and the first N
            of these for an integer; ``all`` without exception.
        never_output: File of words that may not be output, one a line, in any capitals, nor any joined word
            that has one of them as a part. They are still words of the bundle.
        geometry: ``euclidean``, or ``poincare`` for points inside the unit ball, kept as float64.

    Raises:
        BundleError: An option or the source is wrong, or no entry of a list matches a word; nothing is
            written then and an existing bundle stays as it is.
    """
    source, output = Path(source), Path(output)
    space = SPACES.get(geometry)
    if space is None or normalize not in space.normalizations:
        allowed = "; ".join(
            f"{name}, {' or '.join(each.normalizations)}" for name, each in SPACES.items()
        )
        what, got = "There is no such geometry and normalization", f"{geometry}, {normalize}"
        raise BundleError(what, allowed=allowed, got=got)
    check_output(output, overwrite)
    release, denied = _read_lists(release_words, never_output)
    rows = reader_of(source, format)(
        path=source,
        vocabulary=None if vocabulary is None else Path(vocabulary),
        limit=limit,
        strict=strict,
        word_prefix=word_prefix,
        judge=partial(space.faults, normalize=normalize),
        dtype=space.arrays["vectors"][0],
    )
    with _complete_or_absent(output, overwrite) as folder:
        words: list[str] = []
        with (folder / _UNORDERED).open("wb") as file:
            for names, block in rows:
                vectors = unit(block) if normalize == "unit" else block
                file.write(np.ascontiguousarray(vectors).data)
                words += names
        forms = unique_forms(words)
        in_texts = matchable(forms)
        released, lists = choose(words, in_texts, release, denied)
        order = np.argsort(np.where(released, 0, np.where(in_texts, 1, 2)), kind="stable")
        unordered = np.memmap(
            folder / _UNORDERED, vectors.dtype, "r", shape=(len(words), vectors.shape[1])
        )
        write_rows(folder / VECTORS, np.asarray(unordered), order)
        (folder / _UNORDERED).unlink()
        count = int(released.sum())
        strings = [pa.array(words, pa.string()).take(order), forms.take(order)]
        columns = [*strings, pa.array(np.arange(len(words)) < count)]
        table = pa.Table.from_arrays(columns, schema=WORDS_SCHEMA)
        pq.write_table(table, folder / WORDS, compression="zstd")
        space.derive(folder)
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            words=len(words),
            releasable=count,
            unmatchable=int((~in_texts).sum()),
            unmatchable_releasable=int((released & ~in_texts).sum()),
            dimension=vectors.shape[1],
            geometry=geometry,
            normalization=normalize,
            row_order=_ROW_ORDER,
            release_words_absent=len(lists[RELEASE_WORDS].unmatched)
            if RELEASE_WORDS in lists
            else 0,
            never_output=int(lists[NEVER_OUTPUT].words.sum()) if NEVER_OUTPUT in lists else 0,
            never_output_absent=len(lists[NEVER_OUTPUT].unmatched) if NEVER_OUTPUT in lists else 0,
            source_name=source.resolve().name,
            source_sha256=rows.sha256,
            files={path.name: file_sha256(path) for path in sorted(folder.iterdir())},
            fingerprint="",
        )
        manifest = replace(manifest, fingerprint=fingerprint(manifest, *strings))
        (folder / MANIFEST).write_bytes(sealed(asdict(manifest)))
    if matches is not None:
        matches += lists.values()
    if left_out is not None:
        left_out += rows.left_out.values()
    elif rows.left_out:
        said = "; ".join(each.describe() for each in rows.left_out.values())
        warnings.warn(f"Left out of {source.name}: {said}", stacklevel=2)
    return Embedding.open(output, verify=False)


def _read_lists(
    release_words: str | int | Path | None, never_output: str | Path | None
) -> tuple[str | int | WordList | None, WordList | None]:
    denied = None if never_output is None else WordList.read(never_output, NEVER_OUTPUT)
    if isinstance(release_words, str) and release_words.isdecimal():
        release_words = int(release_words)
    if isinstance(release_words, int) and release_words < 2:
        raise BundleError(
            "Too few words may be output", allowed="at least 2", got=str(release_words)
        )
    if release_words is None or release_words == ALL or isinstance(release_words, int):
        return release_words, denied
    allowed = f"a number of words, {ALL}, or {ALLOWED}"
    return WordList.read(release_words, RELEASE_WORDS, allowed), denied


def choose(
    words: Sequence[str],
    in_texts: Flags,
    release: str | int | WordList | None,
    denied: WordList | None,
) -> tuple[Flags, Mapping[str, Matches]]:
    """Choose which words may be output, bool (V,), of those ``in_texts`` by default, and match the lists."""
    lists = {}
    released = np.ones_like(in_texts) if release == ALL else in_texts
    if isinstance(release, WordList):
        lists[RELEASE_WORDS] = release.chosen(words)
        released = lists[RELEASE_WORDS].words
    if denied is not None:
        lists[NEVER_OUTPUT] = denied.denied(words)
        released = released & ~lists[NEVER_OUTPUT].words
    count = int(released.sum())
    if isinstance(release, int) and count < release:
        what = f"{RELEASE_WORDS} asks for more words than may be output"
        raise BundleError(what, allowed=f"at most {count}", got=str(release))
    if count < 2:
        refused = f", and {lists[NEVER_OUTPUT].words.sum()} denied ones" if denied else ""
        raise BundleError(
            "Too few words may be output", allowed="at least 2", got=f"{count}{refused}"
        )
    if isinstance(release, int):
        released = released & (np.cumsum(released) <= release)
    return released, lists


def check_output(output: Path, overwrite: bool) -> None:
    """Refuse a place where no bundle can be written: only a bundle is replaced, and only if allowed."""
    if not output.absolute().parent.is_dir():
        what = "The bundle's parent folder does not exist"
        raise BundleError(what, got=str(output), do="Create it")
    if not os.path.lexists(output):
        return
    if not overwrite:
        do = "Choose another folder, or replace the bundle with --overwrite"
        raise BundleError("The output exists", got=str(output), do=do)
    known = {MANIFEST, PARTS}.union(*map(file_names, SPACES))
    is_folder = output.is_dir() and not output.is_symlink() and {*os.listdir(output)} <= known
    manifest = output / MANIFEST
    content = manifest.read_bytes() if is_folder and manifest.is_file() else b""
    if b'"format_version"' not in content or b'"fingerprint"' not in content:
        what = "The output is no embedding bundle, so it will not be replaced"
        allowed, do = "a new folder or an existing bundle", "Choose another folder"
        raise BundleError(what, allowed=allowed, got=str(output), do=do)


@contextmanager
def _complete_or_absent(output: Path, overwrite: bool) -> Iterator[Path]:
    """Lend a folder that becomes the output when the block ends well and is removed when it does not."""
    output = output.absolute()
    folder, old = (
        output.with_name(f".{output.name}.{secrets.token_hex(8)}.{end}") for end in ("tmp", "old")
    )
    folder.mkdir()
    try:
        yield folder
        check_output(output, overwrite)  # again: what was free may be taken by now
        interrupts.hold_to_the_end()  # of two renames, one alone would leave nothing under the name
        if not output.exists():
            folder.rename(output)
        else:
            output.rename(old)
            try:
                folder.rename(output)
            except OSError:
                old.rename(output)
                raise
            shutil.rmtree(old)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
