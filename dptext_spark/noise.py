"""Keyed noise: the only source of randomness in the package.

Noise is a value, not a stream: a pure function of a key and a context, so that a recomputed,
retried or repartitioned row releases the same noise again, and so that no two contexts share any.
The function is BLAKE2b in keyed mode (key derivation) followed by AES-256 in counter mode
(expansion):

    release key = BLAKE2b(key,         format version, salt, noise parameters with epsilon, bundle)
    column key  = BLAKE2b(release key, column, purpose, uint64s_per_token)
    row key     = BLAKE2b(column key,  row id[, place in the row's arrays], content)
    uint64s     = AES-256-CTR(row key), number j of token i at offset i * uint64s_per_token + j

A token that may take any number of uniforms sets some of them apart, and they are the key of the
others:

    further key = BLAKE2b(those uniforms)
    uint64s     = AES-256-CTR(further key)

Every field is length-prefixed, so that no two contexts serialize to the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from dptext_spark.arguments import as_path, must_be
from dptext_spark.errors import ConfigError

FORMAT_VERSION: Final = 1
KEY_BYTES: Final = 32
UNIFORM_BITS: Final = 52
SEED_UNIFORMS: Final = 5
"""Their bits are more than a key has."""

_MAKE_KEY: Final = "Make one with: (umask 077; openssl rand -hex 32 > KEYFILE)"
_LONGEST_FILE: Final = 4096
_UINT64_BYTES: Final = 8
_ONE: Final = np.float64(1.0).view(np.uint64)
_AES_BLOCK_UINT64S: Final = 2
_FILL_UINT64S: Final = 1 << 16
_ZEROS: Final = memoryview(bytes(_FILL_UINT64S * _UINT64_BYTES))


@dataclass(frozen=True, repr=False)
class NoiseKey:
    """A 32-byte secret from which all noise follows; its value never shows in ``repr``."""

    secret: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.secret, bytes):
            raise must_be(
                "secret", f"{KEY_BYTES} bytes", self.secret, "Read a file with NoiseKey.read(path)"
            )
        if len(self.secret) != KEY_BYTES:
            raise ConfigError(
                "The noise key has the wrong length",
                allowed=f"{KEY_BYTES} bytes",
                got=f"{len(self.secret)} bytes",
                do=_MAKE_KEY,
            )

    def __repr__(self) -> str:
        return "NoiseKey(<secret>)"

    @classmethod
    def generate(cls) -> NoiseKey:
        """Draw a fresh key from the operating system."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def of(cls, key: NoiseKey | Path | str | None) -> NoiseKey | None:
        """Return a key, read if this is the path of a key file; None stays None."""
        if key is None or isinstance(key, NoiseKey):
            return key
        if isinstance(key, str | Path):
            return cls.read(key)
        raise must_be("key", "a NoiseKey, or the path of a key file", key, _MAKE_KEY)

    @classmethod
    def read(cls, path: Path | str) -> NoiseKey:
        """Read a key file: 32 random bytes or 64 hexadecimal digits, open to its owner alone."""
        path = as_path(path, "path")
        try:
            _check_private(path, path.stat())  # to open a pipe of somebody else may take for ever
            with path.open("rb") as file:
                _check_private(path, os.fstat(file.fileno()))
                content = file.read(_LONGEST_FILE)
        except OSError as error:
            if re.fullmatch(f"[0-9a-fA-F]{{{2 * KEY_BYTES}}}", path.name):
                raise ConfigError(
                    "The key file cannot be read: what was given in its place looks like a key "
                    "itself",
                    allowed="the path of a file that holds the key",
                    do=f"Take another key, for others may have seen this one. {_MAKE_KEY}",
                ) from None
            reason = error.strerror or type(error).__name__
            raise ConfigError(
                f"The key file {path} cannot be read", got=reason, do=_MAKE_KEY
            ) from None
        secret = content
        if len(content) != KEY_BYTES:
            try:
                secret = bytes.fromhex(content.decode("ascii").strip())
            except ValueError:  # UnicodeDecodeError is one as well
                secret = b""
        if len(secret) != KEY_BYTES or is_text(secret):
            holding = "no key"
            if len(secret) == KEY_BYTES:
                holding = "text, which can be guessed"
            raise ConfigError(
                f"The key file {path} holds {holding}",
                allowed=f"{KEY_BYTES} random bytes or {2 * KEY_BYTES} hexadecimal digits",
                got=f"{len(content)} bytes",
                do=_MAKE_KEY,
            )
        return cls(secret)

    def derive(self, *fields: bytes | memoryview) -> NoiseKey:
        """Derive the key of a context; ``fields`` are length-prefixed, so their borders matter."""
        digest = hashlib.blake2b(key=self.secret, digest_size=KEY_BYTES, person=b"dptext-noise")
        for field in fields:
            digest.update(len(field).to_bytes(8, "little"))
            digest.update(field)
        return NoiseKey(digest.digest())

    def seal(self, text: str) -> str:
        """Return a keyed hash that is equal for equal texts; it reveals nothing without the key."""
        return self.derive(b"seal", text.encode()).secret.hex()


def _check_private(path: Path, state: os.stat_result) -> None:
    """Check that a key file is readable by the user who runs the job alone."""
    owners = (0, os.geteuid())
    if state.st_uid not in owners:  # root alone can read it
        raise ConfigError(
            f"The key file {path} belongs to another user, who can read the key",
            allowed="a file of the user who runs the job, or of root",
            got=f"user id {state.st_uid}",
            do="Make a key of your own, or give the file to the user who runs the job by chown",
        )
    if state.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"The key file {path} is readable by other users",
            allowed="mode 0600 or 0400",
            got=f"mode {stat.S_IMODE(state.st_mode):04o}",
            do=f"Run chmod 600 {path}, and replace the key if others may have read it",
        )


def is_text(secret: bytes) -> bool:
    """Return whether bytes read as text; of 2^30 random keys fewer than one does."""
    try:
        text = secret.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return all(letter.isprintable() or letter in "\t\r\n" for letter in text)


def check_release_name(key: object, name: object) -> None:
    """Check that a key that may be used again, and only such a key, comes with a release's name.

    A fresh key, None, is never used again.
    """
    if key is not None and not name:
        raise ConfigError(
            "A key that can be used again needs the name of this release (--name)",
            allowed="one name for each table and version, such as 'queries 2026-03-01'",
            got="none",
            do="Under one key and name two tables would show which of their texts are equal",
        )
    if key is None and name and isinstance(name, str):  # one of another type is refused as such
        raise ConfigError(
            "The name of a release (--name) does nothing without a key that is kept (--key-file)",
            do="Give both, or leave the name out: under a fresh key each run has noise of its own",
        )


@dataclass(frozen=True, kw_only=True)
class ColumnNoise:
    """The noise of one column of one release."""

    key: NoiseKey
    uint64s_per_token: int  # that each token position owns

    def row_key(self, row_id: bytes, content: tuple[bytes | memoryview, ...]) -> bytes:
        """Derive a row's AES key from its id and its content (each part length-prefixed)."""
        return self.key.derive(row_id, *content).secret

    def fill(self, out: NDArray[np.uint64], row_key: bytes, first_token: int) -> None:
        """Fill ``out`` (tokens, uint64s_per_token) with a row's integers, from a token on."""
        _expand(out.reshape(-1), row_key, first_token * self.uint64s_per_token)


def _expand(out: NDArray[np.uint64], key: bytes, first: int) -> None:
    """Write the random integers of a key, from number ``first`` on, into ``out``, contiguous."""
    block, skip = divmod(first, _AES_BLOCK_UINT64S)
    encryptor = Cipher(algorithms.AES256(key), modes.CTR(block.to_bytes(16, "big"))).encryptor()
    if skip:  # they start inside an AES block, whose first numbers belong to what was before
        encryptor.update(bytes(skip * _UINT64_BYTES))
    for start in range(0, out.size, _FILL_UINT64S):
        part = out[start : start + _FILL_UINT64S]
        encryptor.update_into(_ZEROS[: part.nbytes], part.view(np.uint8).data)


@dataclass(frozen=True, kw_only=True)
class ReleaseNoise:
    """The noise of one release; holds a derived key, so the user's key stays on the driver."""

    key: NoiseKey

    @classmethod
    def of(
        cls,
        key: NoiseKey,
        *,
        salt: str,
        noise_parameters: Mapping[str, str | float | int],
        fingerprint: str,
    ) -> ReleaseNoise:
        """Derive a release's noise from the user's key.

        ``salt`` is its name, ``noise_parameters`` are the name and every parameter of the noise's
        distribution. If epsilon were left out, a linear combination of releases at two epsilons
        would give the input back exactly.
        """
        context = {
            "version": FORMAT_VERSION,
            "salt": salt,
            "law": dict(noise_parameters),
            "fingerprint": fingerprint,
        }
        # JSON with sorted keys is injective here: str, int and float (by shortest repr) only.
        encoded = json.dumps(context, sort_keys=True, ensure_ascii=True, allow_nan=False).encode()
        return cls(key=key.derive(b"release", encoded))

    def column(self, name: str, *, purpose: str, uint64s_per_token: int) -> ColumnNoise:
        """Derive the noise of a column; ``purpose`` keeps uses of randomness apart within it."""
        # A stream read at two widths would give one token's numbers to another one.
        width = uint64s_per_token.to_bytes(8, "little")
        key = self.key.derive(b"column", name.encode(), purpose.encode(), width)
        return ColumnNoise(key=key, uint64s_per_token=uint64s_per_token)


def to_uniform(uint64s: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Map random integers to uniforms (k + 1/2) / 2^52: symmetric about 1/2, never 0 or 1, exact.

    What the grid changes in the law of an output is bounded in
    :mod:`dptext_spark.accounting.resolution`.
    """
    bits = uint64s >> np.uint64(64 - UNIFORM_BITS)
    # As a float64, 1 + k / 2^52: an addition of bits, several times as fast as a conversion.
    bits |= _ONE
    uniforms = bits.view(np.float64)
    uniforms -= 1.0 - 2.0 ** -(UNIFORM_BITS + 1)  # exact
    return uniforms


def further_uniforms(seeds: NDArray[np.float64], first: int, count: int) -> NDArray[np.float64]:
    """Return more uniforms of tokens, float64 (t, count), from number ``first`` on.

    They are a pure function of the token's ``seeds`` (t, SEED_UNIFORMS), which serve for nothing
    else.
    """
    out = np.empty((len(seeds), count), dtype=np.uint64)
    for row, seed in zip(out, np.ascontiguousarray(seeds), strict=True):
        key = hashlib.blake2b(
            seed.tobytes(), digest_size=KEY_BYTES, person=b"dptext-further"
        ).digest()
        _expand(row, key, first)
    return to_uniform(out)
