"""Options of the commands, validated once, whether they come from a command line, a TOML file or Python."""

from dptext_spark.options.commands import (
    ALL,
    BUNDLE_WORLD,
    WORLDS,
    AccountOptions,
    AuditOptions,
    CalibrateOptions,
    EmbeddingOptions,
    EvaluateOptions,
    LedgerOptions,
    PoincareOptions,
    PrivatizeOptions,
    TableOptions,
    TryOptions,
    VectorsOptions,
)
from dptext_spark.options.configured import MechanismOptions
from dptext_spark.options.validation import COMMANDS, Options

__all__ = [
    "ALL",
    "BUNDLE_WORLD",
    "COMMANDS",
    "WORLDS",
    "AccountOptions",
    "AuditOptions",
    "CalibrateOptions",
    "EmbeddingOptions",
    "EvaluateOptions",
    "LedgerOptions",
    "MechanismOptions",
    "Options",
    "PoincareOptions",
    "PrivatizeOptions",
    "TableOptions",
    "TryOptions",
    "VectorsOptions",
]
