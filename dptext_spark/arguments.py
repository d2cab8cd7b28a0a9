"""Arguments of calls in Python: their errors name them and say how to get what is taken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from dptext_spark.errors import ConfigError, DptextError

# A command, which is left alone, or an option with a value that cannot be a word of the sentence.
_OPTION: Final = re.compile(
    r"(?P<command>(?:dptext [a-z]+|spark-submit) [^,.;]*)"
    r"|(?:[Oo]ptions? )?(?<![\w-])--(?P<name>[a-z][a-z-]*)"
    r"(?: (?P<value>'[^']*'|[\w./-]+[:=][\w:=./-]*|all\b|append|content|drop|exact|icu|mask"
    r"|overwrite|table|warn))?"
)
_ARGUMENTS: Final = {
    "except": "except_",
    "key-file": "key",
    "read-option": "read_options",
    "write-option": "write_options",
}
"""Arguments in Python that are not called as the option is."""

ON_COMMAND_LINE: Final = ContextVar("dptext command", default=False)
"""Whether a command runs: its errors name options, those of calls in Python name arguments."""

_TO_SPARK: Final = {
    "pandas.": "spark.createDataFrame(df)",
    "polars.": "spark.createDataFrame(df.to_pandas())",
    "pyarrow.": "spark.createDataFrame(table.to_pandas())",
    "pyspark.": "df.to_spark(), if it is a frame of pandas on Spark",
    "str": "spark.read.parquet(path)",
    "pathlib.": "spark.read.parquet(str(path))",
}
"""How to make a Spark frame of another value, by the beginning of its type's name."""


def type_name(value: object) -> str:
    """Return what a value is, such as ``pandas.DataFrame``, ``str`` or ``the class Laplace``."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    if library in ("builtins", "dptext_spark"):
        return kind.__name__
    return f"{library}.{kind.__name__}"


def must_be(name: str, allowed: str, value: object, do: str = "") -> ConfigError:
    """Return the error of an argument of a wrong kind; it has the kind, not the value."""
    return ConfigError(f"{name} must be {allowed}; got {type_name(value)}", do=do)


def as_path(value: object, name: str, do: str = "") -> Path:
    """Return an argument that must be a path."""
    if not isinstance(value, str | Path):
        raise must_be(name, "a path", value, do)
    return Path(value)


def check_frame(df: object, name: str = "df") -> None:
    """Check that an argument is a frame of Spark, of a session with a JVM or of Spark Connect."""
    for kind in type(df).__mro__:
        if kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql"):
            return
    do = "Make one with spark.createDataFrame(...), or read one with spark.read"
    kind_name = type_name(df)
    for prefix, way in _TO_SPARK.items():
        if kind_name.startswith(prefix):
            do = f"Write {way}"
    raise must_be(name, "a Spark DataFrame", df, do)


@contextmanager
def naming_arguments() -> Iterator[None]:
    """Let errors name arguments in place of options, except while a command runs.

    It is a decorator, too, for what users call in Python.
    """
    try:
        yield
    except DptextError as error:
        if not ON_COMMAND_LINE.get():
            error.what = _with_arguments(error.what)
            error.allowed = _with_arguments(error.allowed)
            error.got = _with_arguments(error.got)
            error.do = _with_arguments(error.do)
            error.faults = [*map(_with_arguments, error.faults)]
        raise


def _with_arguments(sentence: str) -> str:
    """Return a sentence with arguments for options, ``release_words`` for ``--release-words``."""

    def argument(match: re.Match[str]) -> str:
        if match["command"]:
            return match[0]
        name = _ARGUMENTS.get(match["name"], match["name"].replace("-", "_"))
        if not match["value"]:
            return name
        value = match["value"].strip("'")
        return f"{name}={value!r}"

    return _OPTION.sub(argument, sentence)
