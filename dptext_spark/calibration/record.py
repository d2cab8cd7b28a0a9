"""How a mechanism is named by its options."""

from __future__ import annotations

from dptext_spark.mechanisms import Mechanism


def setting(mechanism: Mechanism) -> str:
    """Name a mechanism's parameters other than epsilon that are not their defaults, as ``lambda=0.5``."""
    fields = type(mechanism).model_fields
    values = mechanism.model_dump(exclude={"epsilon"})
    chosen = {fields[name].alias or name: v for name, v in values.items() if v != fields[name].default}
    return ", ".join(f"{n}={v:.15g}" if isinstance(v, float) else f"{n}={v}" for n, v in chosen.items())


def option_line(mechanism: Mechanism) -> str:
    """Write the options of a mechanism for the command line, each number so that reading gives it back."""
    epsilon = repr(mechanism.epsilon).removesuffix(".0")
    return f"--mechanism {mechanism.spec} --epsilon {epsilon}"
