"""Progress bars: on stderr, where somebody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, Thread
from typing import Any, Final

from tqdm import tqdm

_SECONDS: Final = 0.5


progress_bar: Final = partial(tqdm, disable=None)  # None: only on a terminal


@contextmanager
def stage(doing: str, look: Callable[[tqdm[Any]], None] | None = None) -> Iterator[None]:
    """Say on stderr what is being done: on a terminal by a clock or a bar of tasks, elsewhere in a line.

    ``look``, called twice a second, gives the bar its numbers, until it fails or the block has ended.
    """
    if not sys.stderr.isatty():
        print(f"{doing} ...", file=sys.stderr, flush=True)
        yield
    else:
        ended = Event()
        shape: dict[str, Any] = {"unit": " tasks"} if look else {"bar_format": "{desc}: {elapsed}"}
        with tqdm(desc=doing, leave=False, **shape) as bar:

            def tick() -> None:
                with suppress(Exception):
                    while not ended.wait(_SECONDS):
                        if look is not None:
                            look(bar)
                        bar.refresh()

            thread = Thread(target=tick, daemon=True)
            thread.start()
            try:
                yield
            finally:
                ended.set()
                thread.join(timeout=2 * _SECONDS)  # a JVM that has died or hangs answers no question
