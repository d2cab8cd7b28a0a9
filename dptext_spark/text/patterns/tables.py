"""Tables that patterns read: names of months and days, phone plans, lengths of IBANs, domains.

They are frozen (scripts/make_identifiers.py), so that all workers and all releases mark the same.
"""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from typing import Any, Final

from dptext_spark.errors import ConfigError

SHA256: Final = "d15796b319cdcbf0ef60441df7a637538add975770da57de380f1fe354feb197"


def _tables() -> dict[str, Any]:
    file = files("dptext_spark.text.patterns").joinpath("tables.json")  # the package may be a zip
    content = file.read_bytes() if file.is_file() else b"{}"
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256:
        raise ConfigError(
            "The tables of identifiers are damaged",
            allowed=f"SHA-256 {SHA256[:12]}",
            got=f"{digest[:12]} for {file.name}",
            do="Install dptext-spark again",
        )
    tables: dict[str, Any] = json.loads(content)
    return tables


_TABLES: Final = _tables()
MONTHS: Final = frozenset(_TABLES["months"].split())
SHORT_MONTHS: Final = frozenset(_TABLES["short_months"].split())
DAYS: Final = frozenset(_TABLES["days"].split())
DOMAINS: Final = frozenset(_TABLES["domains"].split())
PHONES: Final[dict[str, str]] = _TABLES["phones"]
"""What follows each country code, as a pattern."""
IBANS: Final[dict[str, int]] = _TABLES["ibans"]
"""How many characters the IBANs of each country have."""
