"""What all reports say of the table, the embedding and the versions, and how they are written."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from dptext_spark.coverage import Coverage
from dptext_spark.embedding.bundle import Embedding

FORMAT_VERSION: Final = 1
_LIBRARIES: Final = ("dptext-spark", "pyspark", "numpy", "scipy", "pyarrow", "cryptography")


def table_scope(kept: tuple[str, ...]) -> list[str]:
    """Say what a table's guarantee leaves out, a sentence each."""
    raw = [f"Columns released as they are, without protection: {', '.join(kept)}."] if kept else []
    return [*raw, "The counts are exact facts about the private table: they are for those who run the job."]


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
