"""Signs that a layout lets pass between words: a list of one Unicode version, which ships with the package.

``scripts/make_signs.py`` makes the list. This machine's own Unicode tables have no say: versions differ.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from dptext_spark.errors import ConfigError

FILE: Final = files("dptext_spark.text").joinpath("signs.json")  # of a package that may be a zip
SHA256: Final = "35c2eefc6306f2c15d2bc95c3c4219f48ec4156fec494a3bfaf947070d2c3b8e"
UNICODE: Final = "17.0"
IDENTITY: Final = f"Unicode {UNICODE}, list {SHA256[:12]}"

# White space, which becomes a line feed or a space.
_LINE_ENDS: Final = [0x0A, 0x0B, 0x0C, 0x0D, 0x85, 0x2028, 0x2029]
_SPACES: Final = [0x09, 0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000]

_INSIDE: Final = {"\ufe0f", "\u200d"}  # what passes inside of listed emoji alone


class _Replacements(dict[int, int]):
    """By code point, what it becomes; all others are left out."""

    def __missing__(self, code: int) -> None:
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class Signs:
    """The list.

    Attributes:
        replacements: What becomes of single characters.
        sequences: Finds the longest listed emoji that have a character which passes nowhere else.
    """

    replacements: _Replacements
    sequences: re.Pattern[str]

    def passing(self, text: str) -> str:
        """Give what passes of a text: listed signs and emoji, spaces and line feeds."""
        text = text.replace("\r\n", "\n")
        if _INSIDE.isdisjoint(text):
            return text.translate(self.replacements)
        parts = self.sequences.split(text)  # by turns what lies between listed emoji, and these
        parts[::2] = [part.translate(self.replacements) for part in parts[::2]]
        return "".join(parts)


@cache
def listed_signs() -> Signs:
    """Read the list.

    Raises:
        ConfigError: The file is missing, or is not the one that belongs to this version.
    """
    try:
        content = FILE.read_bytes()
    except OSError:
        content = b""
    if (digest := hashlib.sha256(content).hexdigest()) != SHA256:
        raise ConfigError(
            "The list of signs that may stand between words (--layout keep) is damaged",
            allowed=f"SHA-256 {SHA256[:12]}",
            got=f"{digest[:12]} for {FILE.name}",
            do="Install dptext-spark again",
        )
    entries = json.loads(content)
    replacements = _Replacements({**dict.fromkeys(_LINE_ENDS, 0x0A), **dict.fromkeys(_SPACES, 0x20)})
    for first, last in entries["signs"]:
        replacements.update((code, code) for code in range(first, last + 1))
    return Signs(replacements=replacements, sequences=re.compile(f"({_longest_of(entries['sequences'])})"))


def _longest_of(strings: list[str]) -> str:
    """Give a pattern for the longest of some strings, with their common beginnings once: it is fast."""
    rests: dict[str, list[str]] = {}
    for string in strings:
        rests.setdefault(string[:1], []).append(string[1:])
    may_end = "" in rests and bool(rests.pop(""))
    options = "|".join(re.escape(first) + _longest_of(rest) for first, rest in rests.items())
    return f"(?:{options}){'?' * may_end}" if options else ""
