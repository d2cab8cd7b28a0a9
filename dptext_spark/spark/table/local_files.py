"""Files of this machine, where there is no JVM to ask: before one starts, and after one has ended.

They are found where :class:`~dptext_spark.spark.table.storage.Storage` finds them.
"""

from __future__ import annotations

import glob
import os
import re
import shutil

from dptext_spark.errors import ConfigError
from dptext_spark.spark.local_paths import local_path
from dptext_spark.spark.table.storage import NO_FILE


class LocalFiles:
    """What a :class:`Storage` is asked of places, without a JVM; there is nothing but on this machine."""

    def exists(self, path: str) -> bool:
        """Say whether anything is at ``path``."""
        place = local_path(path)
        return place is not None and os.path.exists(place)

    def qualified(self, path: str) -> str:
        """Give the full path with scheme."""
        place = local_path(path)
        return path if place is None else f"file:{place}"

    def real(self, path: str) -> str:
        """Give the full path, symbolic links followed."""
        place = local_path(path)
        return path if place is None else f"file:{os.path.realpath(place)}"

    def matches(self, pattern: str) -> list[str]:
        """Give the paths that a path or pattern stands for; none for a pattern with braces or brackets."""
        place = local_path(pattern)
        if place is None or re.search(r"(?<!\\)[\[{]", place):
            return []
        literal = re.sub(r"\\(.)", lambda found: glob.escape(found[1]), place)
        return [f"file:{path}" for path in glob.glob(literal)]

    def read(self, path: str) -> str:
        """Read a text file.

        Raises:
            ConfigError: There is none, or it is no text.
        """
        try:
            with open(local_path(path) or path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            raise ConfigError(f"The file {path} cannot be read", got=NO_FILE) from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"The file {path} cannot be read", got=type(error).__name__) from None

    def rename(self, source: str, target: str) -> None:
        """Rename; the target must not exist."""
        os.rename(_place(source), _place(target))

    def delete(self, path: str) -> None:
        """Remove a folder with all that is in it."""
        shutil.rmtree(_place(path), ignore_errors=True)


def _place(path: str) -> str:
    if (place := local_path(path)) is None:
        raise ConfigError(f"The path {path} is none of this machine")
    return place
