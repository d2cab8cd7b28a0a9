"""Nearest words of noisy points."""

from importlib import import_module
from pkgutil import iter_modules

# What a module defines registers itself: a new one needs no other edit.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
