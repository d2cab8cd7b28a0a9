"""A user's own attackers, by the names of module and class."""

from __future__ import annotations

import inspect
from importlib import import_module
from types import ModuleType

from dptext_spark.errors import ConfigError, DptextError, nearest
from dptext_spark.evaluation.attackers import ATTACKERS, Attacker


def load_attacker(spec: str) -> type[Attacker]:
    """Import ``MODULE:CLASS``, a subclass of Attacker, which alone of its module is tried now on.

    Raises:
        ConfigError: There is no such module, no such class, or it is no attacker that can be tried.
    """
    module_name, _, class_name = spec.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), class_name]):
        raise ConfigError(
            "Option --attacker has a wrong value",
            allowed="MODULE:CLASS, such as my_attackers:Neighbours",
            got=repr(spec),
        )
    module = _imported(module_name)
    attacker = getattr(module, class_name, None)
    if not isinstance(attacker, type):
        names = [name for name, value in vars(module).items() if _is_attacker(value)]
        raise ConfigError(
            f"Module {module_name} of --attacker has no class {class_name}",
            allowed=", ".join(names) or "a class of the module",
            got=class_name,
            do=nearest([class_name], names),
        )
    if not issubclass(attacker, Attacker):
        raise ConfigError(
            f"Class {class_name} of --attacker is not an attacker",
            allowed=f"a subclass of {Attacker.__module__}.{Attacker.__name__}",
            got=spec,
        )
    if inspect.isabstract(attacker):
        raise ConfigError(
            f"Class {class_name} of --attacker lacks methods",
            allowed="learn and guess",
            got=f"without {', '.join(sorted(attacker.__abstractmethods__))}",
        )
    if "name" not in vars(attacker):
        raise ConfigError(
            f"Class {class_name} of --attacker has no name of its own",
            do='Give it name = "..." and knows = "...", what it guesses from',
        )
    ATTACKERS[attacker.name] = attacker
    return attacker


def _imported(name: str) -> ModuleType:
    """Import a module; none of its classes is tried yet."""
    before = dict(ATTACKERS)
    try:
        return import_module(name)
    except DptextError:
        raise
    except Exception as error:
        raise ConfigError(
            f"Module {name} of --attacker cannot be imported",
            got=f"{type(error).__name__}: {error}",
            do="Put its folder on PYTHONPATH, and install what it imports",
        ) from error
    finally:
        ATTACKERS.clear()
        ATTACKERS.update(before)


def _is_attacker(value: object) -> bool:
    """Return whether a value is a class that can be tried."""
    if not isinstance(value, type) or not issubclass(value, Attacker):
        return False
    return not inspect.isabstract(value)
