"""What all reports say of the table, the embedding and the versions, and how they are written."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Collection, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from dptext_spark.coverage import Coverage
from dptext_spark.embedding.bundle import Embedding

FORMAT_VERSION: Final = 1
_LIBRARIES: Final = ("dptext-spark", "pyspark", "numpy", "scipy", "pyarrow", "cryptography")


COUNTS: Final = "The counts are exact facts about the private table: they are for those who run the job."


def has_arrays(columns: Collection[str]) -> bool:
    """Say whether any of these paths of columns leads into an array."""
    return any("[]" in name for name in columns)


def table_scope(kept: Collection[str], sanitized: Collection[str], *, keeps_order: bool = True) -> list[str]:
    """Say what a table's guarantee leaves out, a sentence each.

    Args:
        kept: Columns that pass as they are.
        sanitized: Columns that do not.
        keeps_order: Whether rows come in the order of their input file.
    """
    raw = [f"Columns released as they are, without protection: {', '.join(kept)}."] if kept else []
    *others, last = [
        *([f"the {len(sanitized)} sanitized columns of a row"] if len(sanitized) > 1 else []),
        *(["the elements of its arrays"] if has_arrays(sanitized) else []),
        "all rows that repeat one another or tell of one person",
    ]
    adding = " and ".join(filter(None, [", ".join(others), last]))
    return [
        *raw,
        f"What is lost adds up over {adding}.",
        "Rows of one input file keep their order, which may itself reveal something; files may follow one "
        "another in any order."
        if keeps_order
        else "The order of the input's rows is lost: they were ordered by chance, for equal tasks.",
    ]


def choice_scope(options: Mapping[str, Any]) -> list[str]:
    """Say whether epsilon, which the report states, was chosen from the rows, by a run's options."""
    if options.get("epsilon-from-private-rows") or options.get("evaluation"):
        return [
            "Epsilon was chosen by what was measured on private rows. The bound does not cover what the "
            "choice reveals of them."
        ]
    return ["Assumed: neither epsilon nor any other option was chosen by a look at these rows."]


def key_scope(*, kept: bool, what: str, arrays: bool, by_position: bool, grows: bool = False) -> list[str]:
    """Say what another release of the same rows tells and costs, a sentence each.

    Args:
        kept: Whether the key may be used again.
        what: The content that is released, in words.
        arrays: Whether any of it stands in arrays.
        by_position: Whether rows are named by their files and their places there.
        grows: Whether later runs add what is new.
    """
    if not kept:
        return [
            "The key is fresh and not kept: another release of these rows has noise of its own, and all of "
            "them spend epsilon again."
        ]
    said = [
        f"Released again under this key and label, a {what} comes out equal where it and its row's id are "
        "equal byte for byte: whoever has both releases sees which rows changed.",
        f"A {what} that changed in any byte has fresh noise: all of it, not the changed part alone, spends "
        "epsilon again.",
    ]
    if arrays:
        said.append("Elements of arrays are named by their places: those that shift count as changed.")
    if by_position:
        said.append("Rows that move to another file, or to another place in it, count as changed.")
    if grows and by_position:
        said.append("A file that comes again under another name adds its rows again, as changed ones.")
    return said


def embedding_json(embedding: Embedding) -> dict[str, Any]:
    """Give what a report says of the embedding."""
    manifest = embedding.manifest
    return {
        "fingerprint": manifest.fingerprint,
        "source": manifest.source_name,
        "words": manifest.words,
        "dimension": manifest.dimension,
        "geometry": manifest.geometry,
        "normalization": manifest.normalization,
    }


def coverage_json(coverage: Mapping[str, Coverage]) -> dict[str, Any]:
    """Give what a report says of the vocabulary's coverage, by column."""
    return {name: found.to_json() for name, found in coverage.items()}


def describe_coverage(coverage: Mapping[str, Coverage]) -> list[str]:
    """Say the vocabulary's coverage of each column, under a title."""
    title = "Coverage, a fact about the private table for those who run the job"
    return [title, *(f"{name}: {found.describe()}" for name, found in coverage.items())]


def written(value: Mapping[str, Any]) -> str:
    """Write a report as JSON, one line for each value, with its format and the versions."""
    whole = {"format_version": FORMAT_VERSION, **value, "versions": versions()}
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def versions() -> dict[str, str]:
    """Give the versions of Python and of the libraries that outputs may depend on, by name."""
    return {"python": platform.python_version()} | {name: _version(name) for name in _LIBRARIES}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        # A cluster's own pyspark is on the path without its metadata.
        return str(getattr(sys.modules.get(name), "__version__", "not installed"))
