"""Look for what must not be there: private words, texts and keys, in every form in which they could show."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow.parquet as pq


def text_forms(text: str) -> tuple[bytes, ...]:
    """A text in lower case, as Python and logs write it and as Java keeps it."""
    return tuple(text.lower().encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be"))


def key_forms(secret: bytes) -> tuple[bytes, ...]:
    """A key as bytes, hexadecimal, Base64, a Python literal and a list of numbers, in lower case."""
    forms = [
        secret,
        secret.hex().encode(),
        base64.b64encode(secret),
        base64.urlsafe_b64encode(secret),
        repr(secret)[2:-1].encode(),
        repr(list(secret))[1:-1].encode(),
        ",".join(map(str, secret)).encode(),
    ]
    return tuple(form.lower() for form in forms)


def found(files: Iterable[Path], secrets: Mapping[str, tuple[bytes, ...]]) -> Iterator[tuple[Path, str]]:
    """Look into files; Parquet is read, everything else is taken as it is.

    Args:
        files: Files, and folders with all that is in them.
        secrets: Names and forms of what is looked for.

    Yields:
        A file and the name of what it holds.
    """
    for place in files:
        for file in [place] if place.is_file() else sorted(p for p in place.rglob("*") if p.is_file()):
            content = _content(file)
            for name, forms in secrets.items():
                if any(form in content for form in forms):
                    yield file, name


def _content(file: Path) -> bytes:
    content = file.read_bytes()
    if content[:4] == b"PAR1" and content[-4:] == b"PAR1":
        content += "\n".join(map(repr, pq.ParquetFile(file).read().to_pylist())).encode()
    # Names tell as well.
    return (str(file).encode() + b"\n" + content).lower()
