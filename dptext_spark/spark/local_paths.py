"""Paths of this machine, told from those of other places as Hadoop and Spark tell them."""

from __future__ import annotations

import os
import re
from typing import Final

_FILE: Final = 1 << 16


def local_path(path: str) -> str | None:
    """Give the full path where Hadoop would look for a place of this machine; None for another place."""
    if scheme := re.match(r"[^/:]*:", path):  # as Hadoop finds it
        if scheme[0] != "file:":
            return None
        path = re.sub(r"^file:(//(?=/))?", "", path)
        if not path.startswith("/"):
            return None
    return None if path.startswith("//") else os.path.abspath(path)


def is_pattern(path: str) -> bool:
    """Say whether Spark's reader takes a path for a pattern."""
    return any(letter in path for letter in "{}[]*?\\")


def is_little(path: str, size: int) -> bool:
    """Say whether a file of this machine, or all those in a folder, have so many bytes at most.

    Each counts 64 KB more, for it has to be found and opened; so a folder of thousands is not looked through.
    """
    place = local_path(path)
    if place is None or not os.path.exists(place):
        return False
    inside = (os.path.join(folder, name) for folder, _, names in os.walk(place) for name in names)
    try:
        for file in [place] if os.path.isfile(place) else inside:
            size -= os.stat(file).st_size + _FILE
            if size < 0:
                return False
    except OSError:  # somebody removes what is looked at
        return False
    return True
