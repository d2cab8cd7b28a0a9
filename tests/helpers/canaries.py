"""Look for what must not be there: private words, texts and keys, in every form in which they could show."""

from __future__ import annotations

import base64
import gzip
import io
import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
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


def found(places: Iterable[Path], secrets: Mapping[str, tuple[bytes, ...]]) -> Iterator[tuple[Path, str]]:
    """Look into files: their names, their bytes, and what compression and encodings hide in these.

    Args:
        places: Files, and folders with all that is in them.
        secrets: Names and forms of what is looked for.

    Yields:
        A file and the name of what it holds.
    """
    for place in places:
        for file in [place] if place.is_file() else sorted(p for p in place.rglob("*") if p.is_file()):
            data = file.read_bytes()
            content = b"\n".join([str(file).encode(), data, *_hidden(data)]).lower()
            for name, forms in secrets.items():
                if any(form in content for form in forms):
                    yield file, name


def _hidden(data: bytes) -> Iterator[bytes]:
    """Give what searching a file's bytes does not show."""
    if data[:4] == b"PAR1" == data[-4:]:
        yield _parquet(data)
    elif data[:3] == b"ORC":
        yield _orc(data)
    elif data[:4] == b"Obj\x01" and b"deflate" in data[:4096]:
        yield from _avro(data)
    elif data[:2] == b"\x1f\x8b":
        yield gzip.decompress(data)


def _parquet(data: bytes) -> bytes:
    """Values, whole dictionaries, and Arrow's schema. Statistics and Spark's schema need no opening."""
    schema = pq.ParquetFile(io.BytesIO(data)).schema
    columns = map(schema.column, range(len(schema)))
    strings = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    table = pq.ParquetFile(io.BytesIO(data), read_dictionary=strings).read()
    plain = io.BytesIO()
    with pa.ipc.new_stream(plain, table.schema) as stream:
        stream.write_table(table)
    return plain.getvalue()


def _orc(data: bytes) -> bytes:
    """Values, dictionaries, statistics and the schema: from its first bytes on a file is a row of chunks.

    Each begins with three bytes: its length, and whether it is compressed. The postscript names the codec.
    """
    end = len(data) - 1 - data[-1]
    postscript = data[end:-1]
    # A tag, the footer's length in seven bits a byte, a tag, the codec.
    length_ends = next(at for at in range(1, len(postscript)) if postscript[at] < 0x80)
    codec = postscript[length_ends + 2]
    if codec == 0:
        return data
    open_chunk = {1: _deflate, 2: _snappy, 5: _zstd}[codec]
    parts, at = [], 3
    while at < end:
        header = int.from_bytes(data[at : at + 3], "little")
        chunk = data[at + 3 : at + 3 + (header >> 1)]
        parts.append(chunk if header & 1 else open_chunk(chunk))
        at += 3 + (header >> 1)
    return b"".join(parts)


def _deflate(chunk: bytes) -> bytes:
    return zlib.decompress(chunk, -15)


def _zstd(chunk: bytes) -> bytes:
    return bytes(pa.input_stream(io.BytesIO(chunk), compression="zstd").read())


def _snappy(chunk: bytes) -> bytes:
    """A block begins with its length, seven bits a byte."""
    bits = list(itertools.takewhile(lambda byte: byte >= 0x80, chunk))
    bits.append(chunk[len(bits)])
    size = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(bits))
    return bytes(pa.Codec("snappy").decompress(chunk, size))


def _avro(data: bytes) -> Iterator[bytes]:
    """The blocks between sync markers; two numbers, seven bits a byte, stand before each."""
    for block in data.split(data[-16:])[1:-1]:
        ends = [at for at, byte in enumerate(block[:20]) if byte < 0x80]
        yield _deflate(block[ends[1] + 1 :])
