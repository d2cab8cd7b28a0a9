"""Builds embedding bundles from public embeddings, with a block of rows in memory at a time.

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
from dptext_spark.arguments import as_path
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
    Precision,
    Space,
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
_SINGLE: Final = "<f4"
_UNORDERED: Final = "unordered.rows"

NEVER_OUTPUT: Final = "--never-output"
RELEASE_WORDS: Final = "--release-words"
ALL: Final = "all"
"""All words may be output, also those that no text can have."""

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
    precision: Precision | None = None,
    release_words: str | int | Path | None = None,
    never_output: Path | str | None = None,
    geometry: GeometryName = "euclidean",
    format: str = "auto",
    vocabulary: Path | str | None = None,
    overwrite: bool = False,
) -> Embedding:
    """Convert a public embedding to a bundle, with one block of rows in memory at a time.

    Args:
        source: GloVe, word2vec or fastText text or word2vec binary, also in gzip, bzip2, xz or a
            zip of one file; an ``.npy`` matrix (V, n) of float16/32/64, or a folder with it and
            ``vocab.txt``.
        limit, strict, word_prefix: See :class:`readers.Source`.
        vocabulary, format: See :class:`readers.Source` and :func:`readers.formats`.
        output: Folder to write; its parent must exist.
        left_out: A list that receives what was left out of the source; without it, a warning
            describes that.
        matches: A list that receives how the two lists of words match.
        normalize: ``none``, or ``unit`` to scale every vector to length 1 (in float64, then
            rounded).
        precision: ``single`` or ``half``: what vectors are rounded to, before norms, covariance,
            distances and the fingerprint are computed; in the Poincaré ball ``double``.
        release_words: Words that may be output. A path is a file with one word per line, which
            match in any capitals if no word is written like that. By default all words that can
            occur in a text, see :func:`matchable`; an integer N means the first N of these; ``all``
            has no exception.
        never_output: File of words that must not be output, one per line, in any capitals; joined
            words that contain one are not output either. They are still words of the bundle.
        geometry: ``euclidean``, or ``poincare`` for points inside the unit ball, stored as float64.

    Raises:
        BundleError: An option or the source is wrong, or no entry of a list matches a word. Then
            nothing is written, and an existing bundle is unchanged.
    """
    source = as_path(source, "source")
    output = as_path(output, "output")
    space = _space(geometry, normalize)
    precision = _precision(space, precision)
    dtype = space.precisions[precision]
    check_output(output, overwrite)
    release, denied = _read_lists(release_words, never_output)
    rows = reader_of(source, format)(
        path=source,
        vocabulary=None if vocabulary is None else Path(vocabulary),
        limit=limit,
        strict=strict,
        word_prefix=word_prefix,
        judge=partial(space.faults, normalize=normalize),
        dtype=dtype if normalize == "none" else _SINGLE,  # rounded once, after it was scaled
    )
    with _complete_or_absent(output, overwrite) as folder:
        words: list[str] = []
        with (folder / _UNORDERED).open("wb") as file:
            for names, block in rows:
                vectors = unit(block, dtype) if normalize == "unit" else block
                file.write(np.ascontiguousarray(vectors).data)
                words += names
        forms = unique_forms(words)
        in_texts = matchable(forms)
        released, lists = choose(words, in_texts, release, denied)
        order = np.argsort(np.where(released, 0, np.where(in_texts, 1, 2)), kind="stable")
        shape = (len(words), vectors.shape[1])
        unordered = np.memmap(folder / _UNORDERED, vectors.dtype, "r", shape=shape)
        write_rows(folder / VECTORS, np.asarray(unordered), order)
        (folder / _UNORDERED).unlink()
        count = int(released.sum())
        ordered_words = pa.array(words, pa.string()).take(order)
        ordered_forms = forms.take(order)
        flags = pa.array(np.arange(len(words)) < count)
        columns = [ordered_words, ordered_forms, flags]
        table = pa.Table.from_arrays(columns, schema=WORDS_SCHEMA)
        pq.write_table(table, folder / WORDS, compression="zstd")
        space.derive(folder)
        release_list = lists.get(RELEASE_WORDS)
        deny_list = lists.get(NEVER_OUTPUT)
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            words=len(words),
            releasable=count,
            unmatchable=int((~in_texts).sum()),
            unmatchable_releasable=int((released & ~in_texts).sum()),
            dimension=vectors.shape[1],
            geometry=geometry,
            normalization=normalize,
            precision=precision,
            row_order=_ROW_ORDER,
            release_words_absent=len(release_list.unmatched) if release_list else 0,
            never_output=int(deny_list.words.sum()) if deny_list else 0,
            never_output_absent=len(deny_list.unmatched) if deny_list else 0,
            source_name=source.resolve().name,
            source_sha256=rows.sha256,
            files={path.name: file_sha256(path) for path in sorted(folder.iterdir())},
            fingerprint="",
        )
        digest = fingerprint(manifest, ordered_words, ordered_forms)
        manifest = replace(manifest, fingerprint=digest)
        (folder / MANIFEST).write_bytes(sealed(asdict(manifest)))
    if matches is not None:
        matches += lists.values()
    if left_out is not None:
        left_out += rows.left_out.values()
    elif rows.left_out:
        reasons = "; ".join(reason.describe() for reason in rows.left_out.values())
        warnings.warn(f"Left out of {source.name}: {reasons}", stacklevel=2)
    return Embedding.open(output, verify=False)


def _space(geometry: str, normalize: Normalization) -> type[Space]:
    """Return the space of a geometry; refuse one that lacks this normalization."""
    space = SPACES.get(geometry)
    if space is not None and normalize in space.normalizations:
        return space
    choices = [f"{name}, {' or '.join(kind.normalizations)}" for name, kind in SPACES.items()]
    raise BundleError(
        f"Geometry {geometry} and normalization {normalize} cannot be combined",
        allowed="; ".join(choices),
    )


def _precision(space: type[Space], precision: Precision | None) -> Precision:
    """Return the precision of a space's vectors; refuse one that is not among its own."""
    if precision is None:
        return next(iter(space.precisions))
    if precision not in space.precisions:
        raise BundleError(
            f"Vectors of geometry {space.geometry} cannot have precision {precision}",
            allowed=" or ".join(space.precisions),
        )
    return precision


def _read_lists(
    release_words: str | int | Path | None, never_output: str | Path | None
) -> tuple[str | int | WordList | None, WordList | None]:
    denied = None
    if never_output is not None:
        denied = WordList.read(never_output, NEVER_OUTPUT)
    if isinstance(release_words, str) and release_words.isdecimal():
        release_words = int(release_words)
    if isinstance(release_words, int) and release_words < 2:
        raise BundleError(f"At least 2 words must be releasable; got {release_words}")
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
    """Choose which words may be output, bool (V,), and match the lists.

    By default these are the words that texts can have, ``in_texts``, bool (V,).
    """
    lists = {}
    released = in_texts
    if release == ALL:
        released = np.ones_like(in_texts)
    if isinstance(release, WordList):
        lists[RELEASE_WORDS] = release.chosen(words)
        released = lists[RELEASE_WORDS].words
    if denied is not None:
        lists[NEVER_OUTPUT] = denied.denied(words)
        released = released & ~lists[NEVER_OUTPUT].words
    count = int(released.sum())
    if isinstance(release, int) and count < release:
        raise BundleError(f"{RELEASE_WORDS} must be at most {count}; got {release}")
    if count < 2:
        got = f"{count}"
        if denied is not None:
            got += f", and {lists[NEVER_OUTPUT].words.sum()} denied ones"
        raise BundleError(f"At least 2 words must be releasable; got {got}")
    if isinstance(release, int):
        released = released & (np.cumsum(released) <= release)
    return released, lists


def check_output(output: Path, overwrite: bool) -> None:
    """Refuse a path where no bundle can be written: only a bundle is replaced, and if allowed."""
    if not output.absolute().parent.is_dir():
        raise BundleError(
            "The bundle's parent folder does not exist", got=str(output), do="Create it"
        )
    if not os.path.lexists(output):
        return
    if not overwrite:
        raise BundleError(
            "The output exists",
            got=str(output),
            do="Choose another folder, or replace the bundle with --overwrite",
        )
    if not _is_bundle(output):
        raise BundleError(
            "The output is not an embedding bundle and will not be replaced",
            allowed="a new folder or an existing bundle",
            got=str(output),
            do="Choose another folder",
        )


def _is_bundle(path: Path) -> bool:
    """Return whether a path is a folder with a manifest and no files but those of bundles."""
    if not path.is_dir() or path.is_symlink():
        return False
    bundle_files = {MANIFEST, PARTS}.union(*map(file_names, SPACES))
    manifest = path / MANIFEST
    if not {*os.listdir(path)} <= bundle_files or not manifest.is_file():
        return False
    content = manifest.read_bytes()
    return b'"format_version"' in content and b'"fingerprint"' in content


@contextmanager
def _complete_or_absent(output: Path, overwrite: bool) -> Iterator[Path]:
    """Yield a folder that becomes the output if the block succeeds, and is removed if it fails."""
    output = output.absolute()
    folder = output.with_name(f".{output.name}.{secrets.token_hex(8)}.tmp")
    old = output.with_name(f".{output.name}.{secrets.token_hex(8)}.old")
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
