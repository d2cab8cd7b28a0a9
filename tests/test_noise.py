"""Keyed noise: a pure function of every field of its context, pinned to an independent derivation."""

import hashlib
import os
import pickle
import struct
import traceback
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import example, given
from hypothesis import strategies as st

from dptext_spark.errors import ConfigError
from dptext_spark.noise import (
    SEED_UNIFORMS,
    ColumnNoise,
    NoiseKey,
    ReleaseNoise,
    further_uniforms,
    is_text,
    to_uniform,
)

SECRET = bytes(range(32))
CONTEXT = {
    "secret": SECRET,
    "salt": "march",
    "law": "elliptical-laplace",
    "epsilon": 5.0,
    "mixing": 0.25,
    "fingerprint": "0f" * 32,
    "column": "text",
    "purpose": "word",
    "row_id": b"42",
    "content": (b"\x05\0\0\0\0\0\0\0", b"hello"),
    "position": 0,
}


def uint64s_of(tokens=500, width=3, **changes):
    """The noise (tokens, width) of a context, through the real derivation."""
    at = CONTEXT | changes
    parameters = {"law": at["law"], "epsilon": at["epsilon"], "mixing": at["mixing"]}
    release = ReleaseNoise.of(
        NoiseKey(at["secret"]),
        salt=at["salt"],
        noise_parameters=parameters,
        fingerprint=at["fingerprint"],
    )
    column = release.column(at["column"], purpose=at["purpose"], uint64s_per_token=width)
    out = np.zeros((tokens, width), dtype=np.uint64)
    column.fill(out, column.row_key(at["row_id"], at["content"]), at["position"])
    return out


def reference_uint64s(tokens=500, width=3, **changes):
    """The same by the specification alone: BLAKE2b over prefixed fields, then AES-256 of a counter."""
    at = CONTEXT | changes

    def keyed(key, *fields):
        message = b"".join(struct.pack("<Q", len(field)) + field for field in fields)
        return hashlib.blake2b(message, key=key, digest_size=32, person=b"dptext-noise").digest()

    context = (
        f'{{"fingerprint": "{at["fingerprint"]}", '
        f'"law": {{"epsilon": {at["epsilon"]!r}, "law": "{at["law"]}", "mixing": {at["mixing"]!r}}}, '
        f'"salt": "{at["salt"]}", "version": 1}}'
    )
    fields = at["column"].encode(), at["purpose"].encode(), struct.pack("<Q", width)
    column = keyed(keyed(at["secret"], b"release", context.encode()), b"column", *fields)
    first = at["position"] * width
    last = first + tokens * width
    counters = b"".join(block.to_bytes(16, "big") for block in range(first // 2, last // 2 + 1))
    cipher = Cipher(algorithms.AES256(keyed(column, at["row_id"], *at["content"])), modes.ECB())
    stream = np.frombuffer(cipher.encryptor().update(counters), "<u8")
    return stream[first % 2 :][: tokens * width].reshape(tokens, width)


NAMES = st.text("abc")
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("salt", "law", "fingerprint", "column", "purpose"), NAMES),
        **dict.fromkeys(("epsilon", "mixing"), st.floats(0.0, 1e3)),
        "secret": st.binary(min_size=32, max_size=32),
        "row_id": st.binary(max_size=3),
        "content": st.lists(st.binary(max_size=3)).map(tuple),
    },
)


@given(
    width=st.integers(1, 7) | st.just(301),
    position=st.integers(0, 9) | st.integers(0, 2**40),
    at=CHANGES,
)
@example(width=3, position=5, at={})
def test_the_derivation_is_the_documented_one(width, position, at):
    """Rejects a forgotten field, above all epsilon (the linear-combination attack), and a lost border."""
    # And another cipher, mode, byte order, offset or version.
    tokens = (
        22_000 if (width, position) == (3, 5) else 40
    )  # a keystream that starts again after a buffer
    expected = reference_uint64s(tokens, width, position=position, **at)
    np.testing.assert_array_equal(uint64s_of(tokens, width, position=position, **at), expected)


def test_a_name_cannot_pass_for_other_fields():
    assert np.intersect1d(uint64s_of(salt='x", "version": 1'), uint64s_of(salt="x")).size == 0


def test_further_uniforms_are_one_stream_of_each_token():
    """Rejects rounds that repeat earlier ones, and uniforms that follow from the batch or from few seeds."""
    seeds = np.random.default_rng(2).random((5, SEED_UNIFORMS))
    whole = further_uniforms(seeds, 0, 70)
    for row, found in zip(seeds, whole, strict=True):
        key = hashlib.blake2b(row.tobytes(), digest_size=32, person=b"dptext-further").digest()
        stream = (
            Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(70 * 8))
        )
        np.testing.assert_array_equal(to_uniform(np.frombuffer(stream, dtype="<u8")), found)
    parts = [further_uniforms(seeds, first, count) for first, count in ((0, 1), (1, 6), (7, 63))]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


@given(st.integers(0, 2**64 - 1))
@example(2**64 - 1)
@example(0)
def test_the_uniform_grid_is_symmetric_and_exact(uint64):
    uniform, mirrored = to_uniform(np.array([uint64, 2**64 - 1 - uint64], dtype=np.uint64)).tolist()
    assert uniform == ((uint64 >> 12) + 0.5) / 2**52
    assert 0.0 < uniform < 1.0  # at the ends noise is infinite: rejects w / 2^64, which rounds to 1
    assert uniform + mirrored == 1.0
    assert uniform != 0.5  # its normal quantile, 0, has no direction in one dimension


HEX = SECRET.hex().encode()
TEXT = b"correct horse battery staple-yes"
OPEN, WRONG, READABLE = (
    "readable by other users.*mode {:04o}",
    "holds no key",
    "holds text, which can",
)
FILES = [
    *(
        (content, mode, "")
        for content in (SECRET, HEX, HEX.upper() + b"\n")
        for mode in (0o600, 0o400)
    ),
    *((SECRET, mode, OPEN.format(mode)) for mode in (0o640, 0o604, 0o620, 0o601, 0o644, 0o777)),
    *(
        (content, 0o600, WRONG)
        for content in (b"", SECRET[:31], SECRET + b"\n", HEX[:62], HEX + b"00")
    ),
    *((HEX[:cut] + end, 0o600, WRONG) for cut, end in ((63, b""), (63, b"g"), (62, b"\xc3\xa9"))),
    *((text, 0o600, READABLE) for text in (TEXT, TEXT[:31] + b"\n", TEXT.hex().encode() + b"\n")),
    (HEX[:32], 0o600, READABLE),  # half of what openssl wrote
    (b"0123456789\r\n0123456789\t012345678", 0o600, READABLE),
    ("Schlüssel für März, Straße 7".encode(), 0o600, READABLE),  # 32 bytes of UTF-8
]


def shown(error):
    return "".join(traceback.format_exception(error)) + repr(error) + str(error.args)


@pytest.mark.parametrize(
    ("content", "mode", "fault"), FILES, ids=lambda _: ""
)  # names are in paths
def test_key_files(tmp_path, content, mode, fault):
    """Rejects any 32 bytes taken for a key: people choose texts among far fewer than 2^256."""
    # And files that others may read, and messages that quote one.
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(mode)
    if not fault:
        assert NoiseKey.read(path) == NoiseKey(SECRET)
        return
    with pytest.raises(ConfigError, match=fault) as caught:
        NoiseKey.read(path)
    for hidden in (HEX[:16].decode(), repr(SECRET[1:12])[2:-1], repr(content[:8])[2:-1]):
        assert not hidden or hidden not in shown(caught.value)
    assert fault != READABLE or "openssl rand" in str(caught.value)


@pytest.mark.parametrize("given", ["missing", ".", HEX.decode(), HEX.decode().upper()])
def test_key_files_that_cannot_be_read(tmp_path, given):
    """They are named, but for a key in place of its file: it is not quoted."""
    named = len(given) < len(HEX)
    path = tmp_path / given if named else Path(given)
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        NoiseKey.read(path)
    said = shown(caught.value).replace(__file__, "")
    assert ("looks like a key itself" in said, f"key file {path} cannot" in said) == (
        not named,
        named,
    )
    assert named or given[:16] not in said


def test_secrets_are_random_of_one_length_and_show_nowhere():
    """Rejects the representation that a dataclass has by itself, in whatever holds a key."""
    for length in (0, 31, 33, 64):
        with pytest.raises(ConfigError, match=f"wrong length.*{length} bytes"):
            NoiseKey(b"\x07" * length)
    random = np.random.default_rng(3)
    assert not any(is_text(random.bytes(32)) for _ in range(2_000))  # fewer than one in 2^30 is
    release = ReleaseNoise(key=NoiseKey(b"s3cr3t!!" * 4))
    column = ColumnNoise(key=release.key, uint64s_per_token=2)
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)) as caught:
        pickle.dumps((release, lambda: column))
    texts = [
        f"{held!r} {held!s} {held}"
        for held in (release.key, release, column, [column], {1: release})
    ]
    for text in (*texts, shown(caught.value)):
        assert "s3cr3t" not in text and b"s3cr3t".hex() not in text
    assert pickle.loads(pickle.dumps(column)) == column


def test_a_key_file_of_another_user_is_refused(tmp_path, monkeypatch):
    """Rejects a key that its owner knows; a pipe of theirs would never end."""
    path = tmp_path / "key"
    os.mkfifo(path, 0o600)
    mine = os.stat(path).st_uid
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    if mine == 0:
        os.chown(path, 54321, -1)
    with pytest.raises(ConfigError, match=r"belongs to another user.*Got: user id"):
        NoiseKey.read(path)


def test_a_long_key_file_is_not_read_whole(tmp_path):
    """Rejects memory for whatever lies there."""
    path = tmp_path / "key"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="holds no key"):
        NoiseKey.read(path)
