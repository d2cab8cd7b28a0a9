"""Patterns of numbers: accounts, cards, phones, national numbers, coordinates, and all others."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import Final

from dptext_spark.text.patterns.pattern import GAP, Pattern, Span, W, even, is_even
from dptext_spark.text.patterns.tables import IBANS, PHONES

_GROUPS: Final = re.compile("[0-9]+")
_EXTENSION: Final = r"(?: ?(?i:x|ext\.?|extn\.?|durchwahl|poste) ?[0-9]{1,6})?"
_NOT_FIGURES: Final = re.compile("[^0-9]+")
_NOT_LETTERS: Final = re.compile("[^0-9A-Za-z]+")


def figures(text: str) -> str:
    """Return the figures of a text."""
    return _NOT_FIGURES.sub("", text)


def _boundaries(match: re.Match[str], start: int, end: int) -> list[tuple[int, int]]:
    """Return where each group of figures ends, and how many figures there are up to it."""
    groups = [*_GROUPS.finditer(match.string, start, end)]
    counts = accumulate(group.end() - group.start() for group in groups)
    return [(group.end(), count) for group, count in zip(groups, counts, strict=True)]


# Accounts and cards


def is_luhn(text: str) -> bool:
    """Return whether the last figure is the check digit (Luhn)."""
    digits = [int(digit) for digit in figures(text)[::-1]]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _iban(match: re.Match[str]) -> Span:
    """Return an account number: as long as its country's are, with the right check digits."""
    places = [place for place, letter in enumerate(match["all"]) if letter.isalnum()]
    country = match["all"][0] + match["all"][places[1]]
    length = IBANS.get(country.upper())
    if length is None or len(places) < length:
        return None
    end = places[length - 1] + 1
    code = _NOT_LETTERS.sub("", match["all"][:end])
    number = "".join(str(int(letter, 36)) for letter in code[4:] + code[:4])
    if int(number) % 97 != 1 or match["all"][end : end + 1].isalnum():
        return None
    return match.start("all"), match.start("all") + end


def _card(match: re.Match[str]) -> Span:
    return match.span("all") if is_luhn(match["all"]) and is_even(match["all"]) else None


# Phone numbers


@cache
def _plan(code: str) -> re.Pattern[str]:
    return re.compile(PHONES[code])


def _is_phone(number: str) -> bool:
    """Return whether a number without its plus is one by the plan of its country."""
    for length in (1, 2, 3):
        code = number[:length]
        if code in PHONES:
            rest = number[length:]
            plan = _plan(code)
            return plan.fullmatch(rest) is not None or (
                plan.fullmatch(rest[1:]) is not None and rest[0] == "0"
            )
    return False


def _international(match: re.Match[str]) -> Span:
    """Return a phone number with a country code: the longest that its country's plan has."""
    start, end = match.span("all")
    digits = figures(match["all"])
    prefix = len(digits) - len(digits.removeprefix("00")) if "+" not in match["all"] else 0
    boundaries = _boundaries(match, start, end)
    for stop, count in reversed(boundaries):
        if _is_phone(digits[prefix:count]):
            return start, _with_extension(match, stop)
    for stop, count in reversed(boundaries):
        if 7 <= count - prefix <= 15:
            return start, _with_extension(match, stop)
    return None


def _with_extension(match: re.Match[str], stop: int) -> int:
    """Return where a number ends with the extension that the match may have."""
    extension = _EXTENSIONS.match(match.string, stop)
    return stop if extension is None else extension.end()


_EXTENSIONS: Final = re.compile(rf"{_EXTENSION}(?!{W})")


def _national(match: re.Match[str]) -> Span:
    """Return a phone number that begins as one: up to 11 figures, or more behind a country's."""
    start, end = match.span("all")
    has_trunk = match["all"][0] == "0"
    least = 9 if has_trunk else 7
    most = 15 if "(0)" in match["all"] else 11 + has_trunk
    for stop, count in reversed(_boundaries(match, start, end)):
        if least <= count <= most:
            return start, _with_extension(match, stop)
    return None


def _grouped(match: re.Match[str]) -> Span:
    """Return a phone number that only its groups show: not a decimal, years or thousands."""
    start, end = match.span("all")
    *_, (stop, count) = _boundaries(match, start, match.end("groups"))
    if 7 <= count <= 11 and not _is_amount(match["groups"]):
        return start, end
    return stop, stop


_AMOUNT: Final = re.compile(
    r"[0-9]+[.,][0-9]+|[0-9]{1,3}([ .,'])[0-9]{3}(?:\1[0-9]{3}){0,5}"
    r"|[12][0-9]{3} ?[-/\u2014] ?[12][0-9]{3}"
)


def _is_amount(text: str) -> bool:
    return _AMOUNT.fullmatch(text) is not None and not re.fullmatch(
        r"[0-9]{3} [0-9]{3} [0-9]{3}", text
    )


# National numbers


def _weighed(weights: Sequence[int], modulus: int) -> Callable[[str], bool]:
    """Return a check of figures whose weighted sum the modulus divides."""

    def check(digits: str) -> bool:
        total = sum(weight * int(digit) for weight, digit in zip(weights, digits, strict=True))
        return total % modulus == 0

    return check


def _is_cpf(digits: str) -> bool:
    for length in (9, 10):
        weights = range(length + 1, 1, -1)
        total = sum(weight * int(digit) for weight, digit in zip(weights, digits, strict=False))
        if total * 10 % 11 % 10 != int(digits[length]):
            return False
    return True


def _is_tax_number(digits: str) -> bool:
    """Return whether the last figure is the check digit (ISO 7064, mod 11, 10)."""
    check = 10
    for digit in digits[:-1]:
        check = (int(digit) + check) % 10 or 10
        check = 2 * check % 11
    return (11 - check) % 10 == int(digits[-1])


def _is_dni(text: str) -> bool:
    number = text[:-1].translate(str.maketrans("XYZxyz", "012012"))
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(figures(number)) % 23] == text[-1].upper()


def _is_nir(digits: str) -> bool:
    return int(digits[-2:]) == 97 - int(digits[:-2]) % 97


_is_pesel = _weighed((1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1), 10)
_is_bsn = _weighed((9, 8, 7, 6, 5, 4, 3, 2, -1), 11)
_is_nhs = _weighed((10, 9, 8, 7, 6, 5, 4, 3, 2, 1), 11)


def _checked(check: Callable[[str], bool]) -> Callable[[re.Match[str]], Span]:
    def span(match: re.Match[str]) -> Span:
        return match.span("all") if check(figures(match["all"])) else None

    return span


_G: Final = r"[ ._\u00b7-]?"
SSN: Final = Pattern.of(
    "ssn", r"(?!000|666|9)[0-9]{3}[ ._\u00b7-](?!00)[0-9]{2}[ ._\u00b7-](?!0000)[0-9]{4}", even
)
NINO: Final = Pattern.of(
    "nino",
    rf"(?i:[a-ceghj-prstw-z][a-ceghj-nprstw-z]){_G}[0-9]{{2}}{_G}[0-9]{{2}}"
    rf"{_G}[0-9]{{2}}{_G}(?i:[a-d])",
    first="A-Za-z",
)
DNI: Final = Pattern.of(
    "dni",
    r"(?:(?i:[xyz])[ -]?[0-9]{7}|[0-9]{2}[. ]?[0-9]{3}[. ]?[0-9]{3})[ -]?(?i:[a-hj-np-tv-z])",
    lambda match: match.span("all") if _is_dni(match["all"]) else None,
    first="0-9XYZxyz",
)
FISCALE: Final = Pattern.of(
    "fiscale",
    r"(?i:[a-z]{3} ?[a-z]{3} ?[0-9]{2} ?[a-ehlmprst] ?[0-9]{2} ?[a-z][0-9]{3} ?[a-z])",
    first="A-Za-z",
)
NIR: Final = Pattern.of(
    "nir",
    rf"[12]{_G}[0-9]{{2}}{_G}[0-9]{{2}}{_G}[0-9]{{2}}"
    rf"{_G}[0-9]{{3}}{_G}[0-9]{{3}}{_G}[0-9]{{2}}",
    _checked(_is_nir),
)
CPF: Final = Pattern.of("cpf", r"[0-9]{3}[. ][0-9]{3}[. ][0-9]{3}[ /-][0-9]{2}", _checked(_is_cpf))
PESEL: Final = Pattern.of("pesel", "[0-9]{2}[0-39][0-9][0-3][0-9]{6}", _checked(_is_pesel))
STEUERID: Final = Pattern.of(
    "steuerid", r"[1-9][0-9] ?[0-9]{3} ?[0-9]{3} ?[0-9]{3}", _checked(_is_tax_number)
)
BSN: Final = Pattern.of("bsn", r"[0-9]{4}[ .]?[0-9]{2}[ .]?[0-9]{3}", _checked(_is_bsn))
NHS: Final = Pattern.of("nhs", r"[0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{4}", _checked(_is_nhs))
NATIONAL: Final = (SSN, NINO, DNI, FISCALE, NIR, CPF, PESEL, STEUERID, BSN, NHS)

# Coordinates


_MINUTES: Final = r"[0-9]{1,2}(?:[.,][0-9]{1,6})?"
_SECONDS: Final = rf"(?:{_MINUTES} ?(?:\"|'') ?)?"
_DEGREES: Final = rf"[0-9]{{1,3}} ?\u00b0 ?(?:{_MINUTES} ?' ?{_SECONDS})?"
_DECIMAL: Final = r"[+-]?[0-9]{1,3}\.[0-9]{3,12}(?![0-9])(?: ?\u00b0)?"


def _pair(match: re.Match[str]) -> Span:
    """Return a pair of a latitude and a longitude."""
    first, second = (abs(float(number)) for number in re.findall(r"[0-9]+\.[0-9]+", match["all"]))
    return (
        match.span("all") if first <= 180 and second <= 180 and min(first, second) <= 90 else None
    )


COORDINATES: Final = (
    Pattern.of(
        "coordinates",
        rf"(?:geo:)?{_DECIMAL} ?[NS]?(?: ?[,;/] ?| ){_DECIMAL}(?: ?[EWO](?!{W}))?",
        _pair,
        first="0-9g+-",
        needs=".",
        open_end=True,
    ),
    Pattern.of(
        "coordinates",
        rf"[NS] ?{_DEGREES}[,;/]? ?[EW] ?{_DEGREES}(?<=[0-9'\"\u00b0])"
        rf"|(?:[NS] ?)?(?:{_DEGREES}|{_DECIMAL}\u00b0 ?)[NSEWO]"
        rf"(?:[,;/]? ?(?:[EW] ?)?(?:{_DEGREES}|{_DECIMAL} ?)[EWO])?",
        first="0-9NS",
        needs="\u00b0",
    ),
    Pattern.of(
        "coordinates",
        r"(?i:lat|lon|lng|long|latitude|longitude)[\"']? ?[=:] ?[+-]?[0-9]{1,3}\.[0-9]{1,15}",
        first="Ll",
    ),
)

_START: Final = r"(?<![0-9][.,/'-])"
_PLUS: Final = "(?:\\+|00) ?(?=[1-9])"
_REST: Final = rf"(?:{GAP}[0-9]++){{0,7}}+"

ACCOUNTS: Final = (
    Pattern.of(
        "iban",
        r"[A-Za-z] ?[A-Za-z] ?[0-9] ?[0-9](?:[ ._\u00b7-]?[A-Za-z0-9]){11,30}",
        _iban,
        first="A-Za-z",
    ),
)
CARDS: Final = (
    Pattern.of(
        "card",
        rf"[2-6][0-9]{{3}}(?:(?:{GAP}[0-9]{{4}}){{2}}{GAP}[0-9]{{1,4}}(?:{GAP}[0-9]{{3}})?"
        rf"|{GAP}[0-9]{{6}}{GAP}[0-9]{{4,5}})|[1-6][0-9]{{12,18}}|[056][0-9]{{11}}",
        _card,
    ),
)
INTERNATIONAL: Final = Pattern.of(
    "phone",
    rf"{_START}(?:{_PLUS}[0-9]{{1,5}}|\({_PLUS}[0-9]{{1,5}}\))"
    rf"(?:(?:{GAP})?\((?:[0-9]{{1,5}})\))?(?:(?:{GAP})?[0-9]++)?+{_REST}{_EXTENSION}",
    _international,
    first="+0(",
)
PHONE_NUMBERS: Final = (
    Pattern.of(
        "phone",
        rf"{_START}(?:[0-9]{{1,3}} ?(?=\(0\))|[18](?:{GAP})?(?=\())?"
        rf"\([0-9][0-9 ./-]{{0,7}}\)(?:{GAP})?[0-9]++{_REST}{_EXTENSION}"
        rf"|{_START}0[0-9]*+{_REST}{_EXTENSION}"
        rf"|{_START}(?:1[ .-])?[2-9][0-9]{{2}}[ .-][0-9]{{3}}[ .-][0-9]{{4}}{_EXTENSION}",
        _national,
        first="0-9(",
    ),
    Pattern.of("phone", rf"{_START}(?P<groups>[0-9]++(?:{GAP}[0-9]++)++){_EXTENSION}", _grouped),
)


def _long(match: re.Match[str]) -> Span:
    """Return a number with three figures in a row, or of three parts with full stops."""
    start, end = match.span("all")
    if _THREE.search(match.string, start, end) or match["all"].count(".") > 1:
        return start, end
    return end, end


def _chain(match: re.Match[str]) -> Span:
    """Return six figures and more, however they are separated."""
    start, end = match.span("all")
    if len(figures(match["all"])) >= 6:
        return start, end
    return end, end


_THREE: Final = re.compile("[0-9]{3}")
_HEX: Final = "[0-9A-Fa-f]"


def _code(match: re.Match[str]) -> Span:
    """Return a code of capitals and figures."""
    code = match["all"]
    has_both = any(map(str.isdecimal, code)) and any(map(str.isupper, code))
    return match.span("all") if has_both and len(_NOT_LETTERS.sub("", code)) >= 4 else None


CODES: Final = (
    Pattern.of(
        "code",
        r"[A-Z0-9]{1,20}(?:(?:[-./_#]| (?=[A-Z]{0,3}[0-9]|[A-Z]{1,3}(?![^\W_])))"
        r"[A-Z0-9]{1,20}){0,7}",
        _code,
        first="A-Z0-9",
    ),
)
UUID: Final = Pattern.of(
    "number", rf"{_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}", first="0-9A-Fa-f", needs="-"
)
NUMBERS: Final = (
    Pattern.of("number", r"[0-9]++(?:(?: ?[-\u2014./_\u00b7:|~*+] ?| |[,;'])[0-9]++)*", _chain),
    Pattern.of("number", r"[0-9]++(?:[-\u2014.,/:'_\u00b7][0-9]++)*", _long),
)
