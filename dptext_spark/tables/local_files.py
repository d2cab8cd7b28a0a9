"""Files of this machine, where there is no JVM to ask: before one starts, and after one has ended."""

from __future__ import annotations

import glob
import os
import re
import shutil

from dptext_spark.errors import ConfigError
from dptext_spark.tables.storage import NO_FILE, Places


def local_path(path: str) -> str | None:
    """Give the full path where Hadoop would look for a place of this machine; None for another place."""
    if scheme := re.match(r"[^/:]*:", path):  # as Hadoop finds it
        path = re.sub(r"^file:(//(?=/))?", "", path)
        if scheme[0] != "file:" or not path.startswith("/"):
            return None
    return None if path.startswith("//") else os.path.abspath(path)


class LocalFiles(Places):
    """Finds what a :class:`~dptext_spark.tables.storage.Storage` finds, but nothing off this machine."""

    def exists(self, path: str) -> bool:
        place = local_path(path)
        return place is not None and os.path.exists(place)

    def qualified(self, path: str) -> str:
        place = local_path(path)
        return path if place is None else f"file:{place}"

    def real(self, path: str) -> str:
        place = local_path(path)
        return path if place is None else f"file:{os.path.realpath(place)}"

    def matches(self, pattern: str) -> list[str]:
        """Give the paths that a path or pattern stands for; none for a pattern with braces or brackets."""
        place = local_path(pattern)
        if place is None or re.search(r"(?<!\\)[\[{]", place):
            return []
        literal = re.sub(r"\\(.)", lambda escaped: glob.escape(escaped[1]), place)
        return [f"file:{path}" for path in glob.glob(literal)]

    def read(self, path: str) -> str:
        try:
            with open(local_path(path) or path, encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError) as error:
            got = NO_FILE if isinstance(error, FileNotFoundError) else type(error).__name__
            raise ConfigError(f"The file {path} cannot be read", got=got) from None

    def rename(self, source: str, target: str) -> None:
        """Rename on this machine; the target must not exist."""
        os.rename(str(local_path(source)), str(local_path(target)))

    def delete(self, path: str) -> None:
        """Remove a folder of this machine with all that is in it."""
        shutil.rmtree(str(local_path(path)), ignore_errors=True)
