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
# Folders below which others are called after people, customers or hosts.
_ROOTS: Final = (
    "home|Users|users|export|media|Documents and Settings|var|opt|srv|mnt|tmp|data|scratch|nfs"
    "|run/user|root|private|Volumes|dbfs|cygdrive|[a-z]/Users"
)

# What stands behind @ in code and is no one's name: decorators, annotations, tags, rules.
_CODE: Final = (
    "abc|abstractmethod|app|asyncio|attr|attrs|cache|cached_property|classmethod|click"
    "|contextlib|contextmanager|dataclass|dataclasses|deprecated|final|fixture|functools"
    "|hypothesis|jax|jit|lru_cache|mock|njit|nonmember|numba|overload|override|parameterized"
    "|patch|properties|property|pytest|pytestmark|router|singledispatch|skip|skipIf"
    "|skipUnless|staticmethod|support|tf|torch|total|total_ordering|typing|unique|unittest"
    "|validator|wraps|After|AfterEach|Autowired|Bean|Before|BeforeEach|Column|Component"
    "|Configuration|Controller|Data|Deprecated|Entity|GetMapping|Id|Inject|Nonnull|NotNull"
    "|Nullable|Override|Param|PathVariable|PostMapping|Query|Repository|RequestBody"
    "|RequestMapping|RequestParam|RestController|Service|SuppressWarnings|Table|Test"
    "|Transactional|Valid|Value|author|code|constructor|default|example|exception|inheritDoc"
    "|link|module|param|private|protected|public|return|returns|see|since|template|throws"
    "|todo|type|typedef|version|apply|charset|font|import|include|keyframes|layer|media|mixin"
    "|page|supports|use"
)


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
    if " " in address and domain not in _ALONE_DOMAINS:
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
    rf"(?i:[a-z][a-z0-9+.-]{{1,30}}(?:\[s\])?://|www\.|mailto:(?=[^@\s]{{0,64}}@)"
    rf"|(?:jdbc|odbc|sips?|xmpp):|(?<![.:-])[a-z][a-z0-9-]{{1,62}}:[0-9]{{4,5}}/){_TAIL}"
    rf"|{_LOCAL}@{_LABEL}(?:\.{_LABEL}){{0,8}}:(?=[\w~.-]{{0,300}}/){_TAIL}",
    first=r"^\W_",
    needs=(":", "www.", "WWW."),
    open_end=True,
)
EMAIL: Final = Pattern.of(
    "email",
    rf"{_LOCAL}(?:(?:@| @ ?|@ ){_LABEL}(?:[.{SPOKEN_DOT}]{_LABEL}){{1,8}}"
    rf"|(?i: at ){_LABEL}(?:{SPOKEN_DOT}{_LABEL}){{1,8}})",
    _mail,
    first=r"^\W_",
    needs=f"@{SPOKEN_DOT}",
)
QUOTED: Final = Pattern.of(
    "email",
    rf"\"[^\"\s@]{{1,64}}\"@{_LABEL}(?:\.{_LABEL}){{1,8}}",
    first='"',
    needs=('"@',),
)
HOST: Final = Pattern.of(
    "url",
    rf"(?:{_LABEL}\.){{1,6}}(?P<domain>[^\W\d_]{{2,24}}|xn--[\w-]{{1,59}}){_PORT}"
    rf"(?P<tail>[/?#](?:{_TAIL})?)?",
    _host,
    first=r"^\W_",
    needs=".",
)
# Two signs at least behind a drive, and a folder behind a server: \\n and \\\\d are in code.
_DRIVE: Final = (
    r"(?:(?:[A-Za-z]:|%[A-Z]{3,20}%)[\\/]{1,2}(?=[\w.$~-]{2})"
    r"|\\\\{1,2}(?=(?:\?|[\w.$-]{2,64})\\))"
)
_FOLDERS: Final = rf"(?:{_PART}(?: {_PART}){{0,4}}[\\/]{{1,2}}){{0,32}}(?:{_PART})?"
PATH: Final = Pattern.of(
    "path",
    rf"{_DRIVE}{_FOLDERS}(?<![.,;!)'\]}}])",
    first=r"A-Za-z\\/%",
    needs=("\\", ":/"),
    open_end=True,
)
_REST: Final = rf"[^\s\"'<>|:;,)\]{BLANK}]"
FOLDER: Final = Pattern.of(
    "path",
    rf"(?:~?/(?:{_ROOTS})/{_REST}{{1,1000}}|~[a-z_][\w-]{{0,31}}/{_REST}{{0,1000}})(?<![.!?])",
    first="/~",
    needs="/",
    open_end=True,
)
HANDLE: Final = Pattern.of(
    "handle",
    rf"(?<![\w@/+-])@(?!(?:{_CODE}|\w{{1,63}}\.(?:setter|getter|deleter))(?!\w))"
    r"(?=[\w.]{0,30}[^\W\d_])(?>\w(?:[\w.]{0,62}\w)?)(?!\()",
    first="@",
    needs="@",
)
LOGIN: Final = Pattern.of("handle", rf"{_LOCAL}@[^\W\d_][\w-]{{1,62}}", first=r"^\W_", needs="@")
MEMBER: Final = Pattern.of(
    "handle",
    r"(?<![\w./-])/?u/[A-Za-z0-9][\w-]{2,19}(?![\w/-])",
    first="u/",
    needs=("u/",),
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
LINKS: Final = (LINK, QUOTED, EMAIL, HOST, PATH, FOLDER, LOGIN, HANDLE, MEMBER)
NETWORKS: Final = (IPV6, IPV4)
