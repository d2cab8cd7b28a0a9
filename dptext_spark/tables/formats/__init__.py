"""Formats of tables: how each is opened and written.

A format is a subclass of :class:`~dptext_spark.tables.formats.format.Format` with a ``name``, which
``--format`` and ``--output-format`` take. One whose files Spark lists, reads and writes is a few
lines.
"""

from importlib import import_module
from pkgutil import iter_modules

# What a module defines registers itself: a new one needs no other edit.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
