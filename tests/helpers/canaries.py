"""Look for what must not be there: private words, texts and keys, in every form in which they could show.

Runs that are searched compress nothing; of Iceberg's lists of files, which are always compressed, the content
is searched too.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

IDENTIFIERS: Final = {
    "email": "Qz.Canary@example.com",
    "url": "https://example.com/qzcanary?x=1",
    "iban": "DE89370400440532013000",
    "card": "4111111111111111",
    "ip": "203.0.113.77",
    "date": "12/05/1984",
    "phone": "+49 170 7654321",
    "number": "86420975",
}
"""One of each type, which no run has in its places and reports."""


def text_forms(text: str) -> tuple[bytes, ...]:
    """A text in lower case, as Python and logs write it and as Java keeps it."""
    return tuple(text.lower().encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be"))


def key_forms(secret: bytes) -> tuple[bytes, ...]:
    """A key as bytes, hexadecimal, Base64, a Python literal and a list of numbers, in lower case."""
    encoded = (secret, base64.b64encode(secret), base64.urlsafe_b64encode(secret))
    numbers = ", ".join(map(str, secret))
    written = (secret.hex(), repr(secret)[2:-1], numbers, numbers.replace(" ", ""))
    return tuple(form.lower() for form in (*encoded, *(each.encode() for each in written)))


def found(
    places: Iterable[Path], secrets: Mapping[str, tuple[bytes, ...]]
) -> Iterator[tuple[Path, str]]:
    """Look into files, and folders with all that is in them, for the forms of secrets, by their names.

    Gives each file with the name of what its own name or its bytes hold.
    """
    for place in places:
        for file in (
            [place] if place.is_file() else sorted(p for p in place.rglob("*") if p.is_file())
        ):
            try:
                data = file.read_bytes()
            except FileNotFoundError:  # of a process that ends
                continue
            avro = _blocks(data) if data[:4] == b"Obj\x01" and b"deflate" in data[:4096] else ()
            content = b"\n".join([str(file).encode(), data, *avro]).lower()
            for name, forms in secrets.items():
                if any(form in content for form in forms):
                    yield file, name


def _blocks(data: bytes) -> Iterator[bytes]:
    """Avro's blocks between sync markers; two numbers, seven bits a byte, stand before each."""
    for block in data.split(data[-16:])[1:-1]:
        ends = [at for at, byte in enumerate(block[:20]) if byte < 0x80]
        yield zlib.decompress(block[ends[1] + 1 :], -15)
