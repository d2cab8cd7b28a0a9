"""Changes to valid inputs: of bytes, of lines and tokens, and of trees of JSON."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

Rng = np.random.Generator

HOSTILE_BYTES: Final = (
    *(b"", b"\0", b"\n", b"\r\n", b" ", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"-1"),
    *(b"1e400", b"nan", b"-inf", b"9" * 20, b"9" * 5000, b"../", b"%s", b"\x1b[2J", b"{}", b"[]"),
    *(b"[" * 3000, b"a" * 70_000, b"\xff" * 8, b"\x7f\xff\xff\xff", b'"', b"'", b"= ", b"#"),
)
HOSTILE_VALUES: Final = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 1e308, -1e-320, float("nan")),
    *("", " ", "../../x", "/etc/passwd", "\ud800", "\x1b[2J", "x" * 10_000, "9" * 5000, "1e400"),
    *([], {}, [[]], {"": None}, [None], ["a", "a"], {"sha256": 1}, [0] * 100, "1E+999999", "nan"),
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
    other = _chosen(rng, others) if others else content
    place = int(rng.integers(0, len(other) + 1))
    changes = (
        before,
        before + content[end:],
        content[:end] + content[start:end] + content[end:],
        before + _chosen(rng, HOSTILE_BYTES) + content[start:],
        before + _chosen(rng, HOSTILE_BYTES) + content[short_end:],
        before + other[place:],
        before + rng.bytes(short_end - start) + content[short_end:],
        before + bytes(short_end - start) + content[short_end:],
        _with_flipped_bit(rng, content),
    )
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
        other, place = _chosen(rng, nodes)
        holder[key] = copy.deepcopy(other[place])
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
            other = int(rng.integers(0, len(lines)))
            lines[place], lines[other] = lines[other], lines[place]
        else:
            line = lines[place]
            start, end = sorted(int(p) for p in rng.integers(0, len(line) + 1, 2))
            if kind == 3:
                end = start
            lines[place] = line[:start] + _chosen(rng, tokens) + line[end:]
    return "".join(lines)


def _chosen(rng: Rng, values: Sequence[Any]) -> Any:
    return values[int(rng.integers(0, len(values)))]
