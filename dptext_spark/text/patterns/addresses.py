"""Patterns of addresses: mail, web, networks, files, handles."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from dptext_spark.text.patterns.pattern import Pattern, Span, W, even
from dptext_spark.text.patterns.tables import DOMAINS
from dptext_spark.text.patterns.view import BLANK, SPOKEN_DOT

_LABEL: Final = rf"{W}[\w-]{{0,62}}"
_LOCAL: Final = rf"{W}[\w.%+'-]{{0,63}}+"
_TAIL: Final = rf"[^\s<>\"{BLANK}]{{1,2000}}(?<![-.,;:!?)'\]}}|])"
_PORT: Final = r"(?::[0-9]{1,5})?"

# Where a host stands alone: in small or in capital letters, but no word that begins a sentence
# after a full stop ("end.Info"), and no ending of files ("main.py").
_ALONE: Final = [
    "com",
    "net",
    "org",
    "edu",
    "gov",
    "info",
    "io",
    "biz",
    "de",
    "fr",
    "uk",
    "nl",
    "ch",
    "ru",
    "jp",
    "cn",
    "br",
    "se",
    "dk",
    "fi",
    "cz",
    "eu",
    "ca",
    "au",
    "kr",
    "tw",
    "hk",
    "ie",
    "nz",
]
_ALONE_DOMAINS: Final = frozenset([*_ALONE, *map(str.upper, _ALONE)])

_HEX: Final = "[0-9A-Fa-f]"
_VERSION: Final = re.compile(r"[0-9](?:\.[0-9]){3}")
_PART: Final = r"[^\s\\/:*?\"<>|]{1,255}"
_HOMES: Final = "home|Users|users|export/home|var/mail|var/spool/mail|media|Documents and Settings"


def _mail(match: re.Match[str]) -> Span:
    """Return a mail address without spoken dots that lead to no domain."""
    start = match.start("all")
    address = match["all"]
    while SPOKEN_DOT in address:
        name, _, domain = address.rpartition(SPOKEN_DOT)
        if domain.lower() in DOMAINS:
            return start, start + len(address)
        address = name
    domain = address.rpartition(".")[2]
    if "@" in domain or " " in domain or not domain[:1].isalpha():
        return None
    return start, start + len(address)


def _host(match: re.Match[str]) -> Span:
    """Return a host that stands alone, or one of any domain with a path."""
    domain = match["domain"]
    if match["tail"]:
        return match.span("all") if domain.lower() in DOMAINS else None
    return match.span("all") if domain in _ALONE_DOMAINS else None


def _network(match: re.Match[str]) -> Span:
    """Return a network address; one of single figures is a version."""
    address = match["ip"]
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return None
    if _VERSION.fullmatch(address) or not any(map(str.isdecimal, address)):
        return None
    return match.span("all")


LINK: Final = Pattern.of(
    "url",
    rf"(?i:[a-z][a-z0-9+.-]{{1,30}}://|www\.|mailto:(?=[^@\s]{{0,64}}@)"
    rf"|(?:jdbc|odbc|sips?|xmpp):){_TAIL}"
    rf"|{_LOCAL}@{_LABEL}(?:\.{_LABEL}){{0,8}}:(?=[\w~.-]{{0,300}}/){_TAIL}",
    first=r"^\W_",
    needs=(":", "www.", "WWW."),
    open_end=True,
)
EMAIL: Final = Pattern.of(
    "email",
    rf"{_LOCAL}(?:@{_LABEL}(?:[.{SPOKEN_DOT}]{_LABEL}){{1,8}}"
    rf"|(?i: at ){_LABEL}(?:{SPOKEN_DOT}{_LABEL}){{1,8}})",
    _mail,
    first=r"^\W_",
    needs=f"@{SPOKEN_DOT}",
)
HOST: Final = Pattern.of(
    "url",
    rf"(?:{_LABEL}\.){{1,6}}(?P<domain>[^\W\d_]{{2,24}}|xn--[\w-]{{1,59}}){_PORT}"
    rf"(?P<tail>[/?#](?:{_TAIL})?)?",
    _host,
    first=r"^\W_",
    needs=".",
)
_DRIVE: Final = r"(?:(?:[A-Za-z]:|%[A-Z]{3,20}%)[\\/]{1,2}|\\\\{1,2}(?=[\w.$-]))"
_FOLDERS: Final = rf"(?:{_PART}(?: {_PART}){{0,4}}[\\/]{{1,2}}){{0,32}}(?:{_PART})?"
_BELOW_HOME: Final = rf"~?/(?:{_HOMES})/[^\s\"'<>|:;,)\]{BLANK}]{{1,1000}}(?<![.!?])"
_TILDE: Final = rf"~[a-z_][\w-]{{0,31}}/[^\s\"'<>|:;,){BLANK}]{{0,1000}}(?<![.!?])"
PATH: Final = Pattern.of(
    "path",
    rf"{_DRIVE}{_FOLDERS}(?<![.,;!)'\]}}])|{_BELOW_HOME}|{_TILDE}",
    first=r"A-Za-z\\/~%",
    needs=("\\", ":/", "~", *(f"/{home}/" for home in _HOMES.split("|"))),
    open_end=True,
)
HANDLE: Final = Pattern.of(
    "handle",
    r"(?<![\w.@/+-])@(?=[\w.]{0,30}[^\W\d_])\w(?:[\w.]{0,62}\w)?",
    first="@",
    needs="@",
)
_FOUR: Final = r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}"
MAC: Final = Pattern.of(
    "mac",
    rf"(?:{_HEX}{{2}}[:. -]){{5}}(?:(?:{_HEX}{{2}}[:. -]){{2}})?{_HEX}{{2}}(?![:.-]{_HEX})"
    rf"|(?<!{_HEX}\.)(?:{_HEX}{{4}}\.){{2}}{_HEX}{{4}}(?!\.{_HEX})",
    even,
    first="0-9A-Fa-f",
)
IPV6: Final = Pattern.of(
    "ip",
    rf"(?<![:.])\[?(?P<ip>(?:{_HEX}{{0,4}}:){{2,7}}"
    rf"(?:{_FOUR}|{_HEX}{{0,4}}))"
    r"(?:%[\w-]{1,15})?(?:\](?::[0-9]{1,5})?)?(?:/[0-9]{1,3})?(?![:\w])",
    _network,
    first=r"0-9A-Fa-f:\[",
    needs=":",
)
IPV4: Final = Pattern.of(
    "ip",
    rf"(?<![0-9]\.)(?P<ip>{_FOUR})(?!\.[0-9]){_PORT}(?:/[0-9]{{1,2}})?",
    _network,
    needs=".",
)
LINKS: Final = (LINK, EMAIL, HOST, PATH, HANDLE)
NETWORKS: Final = (IPV6, IPV4)
