"""What a report will lack, said on a terminal before the work begins."""

from __future__ import annotations

from importlib.util import find_spec

from dptext_spark.bars import tell


def missing_library() -> str:
    """Name a library of the extra ``[report]`` that is not installed; empty for none."""
    for library in ("jinja2", "matplotlib"):
        if find_spec(library) is None:
            return library
    return ""


def announce_missing(what: str) -> None:
    """Write on stderr, before the work begins, what will be missing at its end."""
    library = missing_library()
    if library:
        reason = f"as {library} is not installed. Run: pip install 'dptext-spark[report]'"
        tell(f"Warning: {what} will not be drawn, {reason}")
