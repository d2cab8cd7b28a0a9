"""Look for what must not be there: private words, texts and keys, in every form in which they could show."""

from __future__ import annotations

import base64
import gzip
import io
import itertools
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake
from pyarrow import orc
from pyiceberg.catalog.sql import SqlCatalog


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


def planted(folder: Path, word: str) -> dict[str, Path]:
    """Write tables and files that hold a word of at most 16 letters, each in one place alone.

    Returns:
        The folder of each, by what the word stands in.
    """
    places: dict[str, Path] = {}

    def place(name: str) -> Path:
        places[name] = folder / name.replace(" ", "-")
        places[name].mkdir(parents=True)
        return places[name]

    plain, long = pa.table({"x": ["nothing"] * 100}), f"{'nothing' * 20}{word}"
    nested = pa.table({"x": [[{"y": f"{long}{number}"} for number in range(100)]]})
    _in_parquet(place, plain, nested, word, long)
    for codec in ("zlib", "zstd", "snappy", "uncompressed"):
        orc.write_table(nested, place(f"ORC values {codec}") / "x.orc", compression=codec)
        named = plain.rename_columns([long])
        orc.write_table(named, place(f"ORC schema {codec}") / "x.orc", compression=codec)
    _in_accounts(place, plain, word)
    (place("gzip") / "x.gz").write_bytes(gzip.compress(long.encode()))
    (place("UTF-16") / "x").write_text(long.upper(), "utf-16-be")
    (place("a file's name") / f"x-{word}").touch()
    return places


def _in_parquet(
    place: Callable[[str], Path], plain: pa.Table, nested: pa.Table, word: str, long: str
) -> None:
    described = plain.schema.field(0).with_metadata({"comment": word})
    unused = pa.DictionaryArray.from_arrays(pa.array([0] * 100), pa.array(["nothing", long]))
    files: dict[str, tuple[pa.Table, dict[str, Any]]] = {
        "footer": (plain.replace_schema_metadata({"note": word}), {}),
        "Arrow schema": (plain.cast(pa.schema([described])), {}),
        "dictionary": (pa.table({"x": unused}), {"compression": "zstd"}),
        "values": (nested, {"compression": "gzip", "write_statistics": False}),
    }
    for part, (table, options) in files.items():
        pq.write_table(table, place(f"Parquet {part}") / "x.parquet", **options)
    whole = io.BytesIO()
    pq.write_table(pa.table({"x": [word] * 100}), whole)
    data = whole.getvalue()
    footer = 8 + int.from_bytes(data[-8:-4], "little")
    (place("Parquet statistics") / "footer").write_bytes(data[-footer:])


def _in_accounts(place: Callable[[str], Path], plain: pa.Table, word: str) -> None:
    """Tables whose files are gone: their accounts have the schema, and the statistics of columns."""
    rows = pa.table({"x": [word] * 100})
    write_deltalake(place("Delta schema"), plain.rename_columns([word]).slice(0, 0))
    (log := place("Delta statistics")).rmdir()
    write_deltalake(log, rows)
    documented = pa.schema([plain.schema.field(0).with_metadata({"doc": word})])
    for name, schema, data in (("schema", documented, plain), ("statistics", plain.schema, rows)):
        root = place(f"Iceberg {name}")
        with tempfile.TemporaryDirectory() as catalog:
            own = SqlCatalog("own", uri=f"sqlite:///{catalog}/catalog.db", warehouse=f"file://{root}")
            own.create_namespace("db")
            own.create_table("db.x", schema).append(data)
            own.close()
    for file in [*log.parent.glob("Delta-*/*.parquet"), *log.parent.glob("Iceberg-*/**/*.parquet")]:
        file.unlink()
