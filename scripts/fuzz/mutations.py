"""Changes to valid inputs: of bytes, of lines and tokens, and of trees of JSON."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Final, Protocol


class Rng(Protocol):
    """What makes choices: a generator of NumPy's, or what stands for one."""

    def integers(self, low: int, high: int, size: int | None = None, /) -> Any:
        """Return an integer from ``low`` to below ``high``, or ``size`` of them."""

    def random(self) -> float:
        """Return a number from 0 to below 1."""

    def bytes(self, length: int, /) -> bytes:
        """Return so many bytes."""


HOSTILE_BYTES: Final = (
    *b"-1 1e400 nan -inf 999999999999999 ../ %s {} [] = # \" '".split(),
    *(b"", b"\0", b"\n", b"\r\n", b" ", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf"),
    *(b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x1b[2J", b"[" * 3000, b"a" * 70_000),
)
HOSTILE_NUMBERS: Final = (0, -1, 1, 1 << 31, 1 << 63, 10**30, 1e308, float("nan"), float("inf"))
HOSTILE_TEXTS: Final = ("", " ", "../../x", "/etc/passwd", "\ud800", "\x1b[2J", "1E+999999", "nan")
HOSTILE_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, [], {}, [[]], {"": None}, [None], ["a", "a"], {"sha256": 1}),
    *HOSTILE_NUMBERS,
    *HOSTILE_TEXTS,
)


def changed_bytes(rng: Rng, content: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Return bytes with one to four changes; ``others`` lend parts of theirs."""
    for _ in range(int(rng.integers(1, 5))):
        content = _one_change(rng, content, others)
    return content


def _one_change(rng: Rng, content: bytes, others: Sequence[bytes]) -> bytes:
    start, end = sorted(int(place) for place in rng.integers(0, len(content) + 1, 2))
    before = content[:start]
    short_end = min(end, start + 8)
    donor = _chosen(rng, others) if others else content
    place = int(rng.integers(0, len(donor) + 1))
    hostile = _chosen(rng, HOSTILE_BYTES)
    noise = rng.bytes(short_end - start)
    doubled = content[start:end] + content[start:]
    ends = [b"", content[end:], hostile + content[start:], hostile + content[short_end:]]
    ends += [doubled, donor[place:], noise + content[short_end:]]
    ends.append(bytes(len(noise)) + content[short_end:])
    changes = [before + end_of_file for end_of_file in ends]
    changes.append(_with_flipped_bit(rng, content))
    return _chosen(rng, changes)


def _with_flipped_bit(rng: Rng, content: bytes) -> bytes:
    if not content:
        return rng.bytes(3)
    place = int(rng.integers(0, len(content)))
    flipped = content[place] ^ (1 << int(rng.integers(0, 8)))
    return content[:place] + bytes([flipped]) + content[place + 1 :]


def changed_tree(rng: Rng, tree: Any) -> Any:
    """Return a tree of lists and dicts with one to three changed nodes."""
    tree = copy.deepcopy(tree)
    for _ in range(int(rng.integers(1, 4))):
        nodes = list(_nodes(tree))
        if not nodes:
            break
        holder, key = _chosen(rng, nodes)
        _change_node(rng, holder, key, nodes)
    return tree


def _change_node(rng: Rng, holder: Any, key: Any, nodes: Sequence[tuple[Any, Any]]) -> None:
    kind = int(rng.integers(0, 6))
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[_chosen(rng, ("", "x", "../x", "\ud800", "name"))] = holder.pop(key)
    elif kind == 2:
        donor, place = _chosen(rng, nodes)
        holder[key] = copy.deepcopy(donor[place])
    elif kind == 3 and isinstance(holder[key], int | float):
        holder[key] = holder[key] * _chosen(rng, (-1, 2, 10**6, 0.5)) + _chosen(rng, (0, 1, -1))
    elif kind == 4:
        holder[key] = [holder[key]]
    else:
        holder[key] = copy.deepcopy(_chosen(rng, HOSTILE_VALUES))


def _nodes(tree: Any) -> list[tuple[Any, Any]]:
    """Return all places of a tree: what holds them, and their key or index."""
    nodes: list[tuple[Any, Any]] = []
    pending = [tree]
    while pending:
        holder = pending.pop()
        if isinstance(holder, dict):
            keys: list[Any] = list(holder)
        elif isinstance(holder, list):
            keys = list(range(len(holder)))
        else:
            continue
        for key in keys:
            nodes.append((holder, key))
            pending.append(holder[key])
    return nodes


def changed_lines(rng: Rng, text: str, tokens: Sequence[str]) -> str:
    """Return a text with lines that are moved, doubled, dropped, or have a token put in."""
    lines = text.splitlines(keepends=True) or [""]
    for _ in range(int(rng.integers(1, 5))):
        place = int(rng.integers(0, len(lines)))
        kind = int(rng.integers(0, 5))
        if kind == 0 and len(lines) > 1:
            del lines[place]
        elif kind == 1:
            lines.insert(place, lines[place])
        elif kind == 2:
            last = lines.pop()
            lines.insert(place, last)
        else:
            line = lines[place]
            start, end = sorted(int(p) for p in rng.integers(0, len(line) + 1, 2))
            if kind == 3:
                end = start
            lines[place] = line[:start] + _chosen(rng, tokens) + line[end:]
    return "".join(lines)


def _chosen(rng: Rng, values: Sequence[Any]) -> Any:
    return values[int(rng.integers(0, len(values)))]
