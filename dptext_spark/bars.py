"""Progress bars: on stderr, where somebody looks, unless they are not wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
