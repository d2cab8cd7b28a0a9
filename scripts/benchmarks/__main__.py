"""Runs all benchmarks on one machine and writes what was measured as JSON, Markdown and figures.

    python -m scripts.benchmarks --data DATA --output docs/benchmarks [--only NAME ...] [--small] [--render]

A section is a module of this folder, named in ``SECTIONS`` below. It runs in a process of its own, as
``python -m scripts.benchmarks.NAME --data DATA --bundles FOLDER [--small]`` (``section.py`` makes that command
of a function), and prints one JSON object on stdout; stderr is free. With ``--small`` it ends in seconds. The object::

    {"title": "Searches compared",
     "rows": [{"embedding": "33,860 x 300", "what": "faiss", "multiple of the exact search": 0.9}, ...],
     "plots": [{"title": "...", "x": "words", "y": ["rate"], "by": "what", "where": {"column": "value"}, "log": "xy"}],
     "notes": ["One thread, processor time; ..."]}

``rows`` become one table, its columns in the order in which they are first seen: ratios before rates. A value is
a string, a number (written with three significant digits, from 1,000 on whole) or null (a dash); a column
that a row lacks is empty. Strings and column names have no ``|``.
``plots`` is optional: a figure draws the columns ``y`` over ``x`` (lines where x is a number, bars where it is
a string), one line for each value of the column ``by``, of the rows in which columns have the values of ``where``;
``log`` names the logarithmic axes: "", "x", "y" or "xy". Only ``x`` and ``y`` are needed.
``notes`` are sentences in Markdown: how it was measured, what failed within the section.

A section that fails or takes too long stays in the page, with the reason. Results are kept as they come.
"""
