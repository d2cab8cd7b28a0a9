"""Makes the list of signs that ``--layout keep`` lets pass, and prints the hash that is expected.

What signs are comes from libraries with Unicode's data, not from this Python; in an environment of
their own: unicodedata2 17.0.1 (categories and NFKC of Unicode 17.0), emoji 2.16.0 (Unicode's list
of emoji, of which those up to version 17.0 are taken) and regex 2026.11.19 (scripts).

    python3 -m venv /tmp/unicode
    /tmp/unicode/bin/pip install unicodedata2==17.0.1 emoji==2.16.0 regex==2026.11.19
    /tmp/unicode/bin/python scripts/make_signs.py
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

import emoji
import regex
import unicodedata2

UNICODE: Final = "17.0"
OUTPUT: Final = Path(__file__).parents[1] / "dptext_spark" / "text" / "signs.json"

# Signs that stand for letters, digits or words, or are parts of them, without a letter that Unicode
# names.
DISGUISED: Final = [
    (0x2100, 0x218F),  # letterlike symbols, turned digits
    (0x2373, 0x237A),  # Greek letters of APL
    (0x2400, 0x24FF),  # pictures of control codes, letters and digits in circles
    (0x2FF0, 0x2FFF),  # how ideographs are put together
    (0x3190, 0x319F),  # annotations of Chinese
    (0x31C0, 0x31EF),  # strokes of ideographs
    (0x3200, 0x33FF),  # letters, ideographs and words in circles and squares
    (0x10100, 0x1013F),  # Aegean numbers and measures
    (0x101D0, 0x101FF),  # the Phaistos disc
    (0x1EC70, 0x1ED4F),  # Siyaq numbers
    (0x1F100, 0x1F2FF),  # letters and ideographs in circles and squares, regional indicators
    (0x1F51F, 0x1F51F),  # keycap ten
]
SKIN_TONES: Final = range(0x1F3FB, 0x1F400)
INSIDE: Final = {"\ufe0f", "\u200d"}


def passes(sign: str) -> bool:
    """Return whether a character passes by itself."""
    category = unicodedata2.category(sign)
    compatible = unicodedata2.normalize("NFKC", sign)
    for character in (sign, *compatible.replace(" ", "")):
        if unicodedata2.category(character)[0] not in "PS":
            return False
    if regex.match(r"\p{Alphabetic}", sign):
        return False
    if any(first <= ord(sign) <= last for first, last in DISGUISED):
        return False
    if category == "Sk":  # the rest of them are accents, tones and dots of letters
        return compatible in ("^", "`") or ord(sign) in SKIN_TONES
    # Other symbols of one script are radicals, words in one sign, pictures of SignWriting, Braille.
    return category[0] == "P" or category == "Sc" or bool(regex.match(r"\p{Script=Common}", sign))


def main() -> None:
    """Write the list."""
    if unicodedata2.unidata_version != f"{UNICODE}.0":
        raise SystemExit(f"unicodedata2 has Unicode {unicodedata2.unidata_version}, not {UNICODE}")
    signs = [code for code in range(0x110000) if passes(chr(code))]
    runs: list[list[int]] = []  # first and last of signs that follow one another
    for code in signs:
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    sequences = []
    for sequence, facts in emoji.EMOJI_DATA.items():
        if facts["status"] != emoji.STATUS["fully_qualified"] or facts["E"] > float(UNICODE):
            continue
        # Without keycaps, flags and tags, and letters and digits as pictures.
        parts = {*map(ord, {*sequence} - INSIDE)}
        if not INSIDE.isdisjoint(sequence) and parts <= {*signs}:
            sequences.append(sequence)
    sequences.sort()
    content = json.dumps(
        {"unicode": UNICODE, "signs": runs, "sequences": sequences},
        ensure_ascii=False,
        separators=(",", ":"),
    )
    OUTPUT.write_text(content.replace('],"', '],\n"') + "\n", encoding="utf-8")
    print(f"{len(signs):,} signs in {len(runs):,} runs, {len(sequences):,} sequences")
    print(hashlib.sha256(OUTPUT.read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
