"""Progress bars: on stderr, where somebody looks, unless they are not wanted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from threading import Event, Thread
from typing import Any, Final

from tqdm import tqdm

_HIDDEN: Final = ContextVar("hidden", default=False)


@contextmanager
def hidden_progress(hidden: bool = True) -> Iterator[None]:
    """Show no bar meanwhile, if ``hidden``."""
    token = _HIDDEN.set(hidden)
    try:
        yield
    finally:
        _HIDDEN.reset(token)


def progress_bar(iterable: Iterable[Any] | None = None, *, anywhere: bool = False, **shape: Any) -> tqdm[Any]:
    """Make a bar of tqdm, of this ``shape``; without a terminal it shows nothing, unless ``anywhere``."""
    # tqdm takes None for "only on a terminal".
    hidden = True if _HIDDEN.get() else False if anywhere else None
    return tqdm(iterable, disable=hidden, **shape)


@contextmanager
def stage(doing: str, bar: Callable[[str], AbstractContextManager[None]] | None = None) -> Iterator[None]:
    """Say on stderr what is being done: on a terminal by a ``bar`` or a clock, elsewhere in a line."""
    if _HIDDEN.get():
        yield
    elif not sys.stderr.isatty():
        print(f"{doing} ...", file=sys.stderr, flush=True)
        yield
    elif bar is not None:
        with bar(doing):
            yield
    else:
        ended = Event()
        with tqdm(desc=doing, bar_format="{desc}: {elapsed}", leave=False) as clock:

            def tick() -> None:
                while not ended.wait(0.5):
                    clock.refresh()

            thread = Thread(target=tick, daemon=True)
            thread.start()
            try:
                yield
            finally:
                ended.set()
                thread.join()
