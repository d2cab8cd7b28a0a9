"""Measures identifiers as a release: how many come out with no part of them raw, by type.

The set is its own: values of Faker's locales and of templates below, each type in its common
spellings, in texts of ten kinds. ``make`` needs an environment of its own; what patterns were tuned
on has other locales, templates and seeds than what is reported:

    python3 -m venv /tmp/faker
    /tmp/faker/bin/pip install Faker==40.63.0 babel==2.19.0 phonenumbers==9.0.43 python-stdnum==2.2
    /tmp/faker/bin/python scripts/measure_identifiers.py make /tmp/identifiers.json
    .venv/bin/python scripts/measure_identifiers.py measure /tmp/identifiers.json BUNDLE
    .venv/bin/python scripts/measure_identifiers.py prose TEXTS.parquet COLUMN

``make FILE tune`` makes the other set. BUNDLE is any bundle with a large vocabulary, such as all of
GloVe's. Where Presidio is installed, its patterns are measured on the same set, with words that
stay; and where a model is, how many names of people a detector finds, by language, and how fast:

    .venv/bin/python scripts/measure_identifiers.py presidio /tmp/identifiers.json
    /tmp/faker/bin/python scripts/measure_identifiers.py people /tmp/people.json
    .venv/bin/python scripts/measure_identifiers.py names /tmp/people.json spacy:en_core_web_sm
"""

from __future__ import annotations

import json
import logging
import random
import re
import string
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

LOCALES: Final = {
    "tune": [
        "de_DE",
        "fr_FR",
        "en_GB",
        "es_ES",
        "pl_PL",
        "ru_RU",
        "sv_SE",
        "tr_TR",
        "it_IT",
        "hu_HU",
        "nl_NL",
    ],
    "report": [
        "en_US",
        "de_AT",
        "fr_CH",
        "es_MX",
        "pt_BR",
        "cs_CZ",
        "fi_FI",
        "da_DK",
        "el_GR",
        "ro_RO",
        "uk_UA",
    ],
}
REGIONS: Final = {
    "tune": [
        "DE",
        "FR",
        "GB",
        "ES",
        "PL",
        "RU",
        "SE",
        "TR",
        "IT",
        "HU",
        "NL",
        "BE",
        "IE",
        "IN",
        "JP",
        "ZA",
        "MY",
        "AR",
        "CA",
        "UA",
    ],
    "report": [
        "US",
        "AT",
        "CH",
        "MX",
        "BR",
        "CZ",
        "FI",
        "DK",
        "GR",
        "RO",
        "PT",
        "NO",
        "AU",
        "NZ",
        "KR",
        "SG",
        "CL",
        "CO",
        "EG",
        "IL",
    ],
}
TEXTS: Final = {
    "tune": [
        "please call back on {} before lunch",
        "Ticket closed. Contact: {}, priority low.",
        "hi, it's {} thanks!",
        "2 new entries ({}) were added",
        "INFO worker saw {} retrying",
        '{{"value": "{}", "ok": true}}',
        "name;{};active;",
        "* {} *",
        "Dear team,\nplease note {}.\nBest regards",
        "My details are as follows: {} and the rest is on file",
    ],
    "report": [
        "can you send it to {} tonight",
        "Customer says: {} - please check the account.",
        "lol {} see you",
        "Record changed from {} to something else",
        "WARN request from user failed: {} (timeout)",
        '<field name="x">{}</field>',
        "left,{},right",
        "# comment about {}",
        "To whom it may concern,\n\n{}\n\nKind regards",
        "We have been told that {} is the one to use",
    ],
}
PEOPLE: Final = {
    "en": ("en_US", ["please call {} back tomorrow", "{} says that the parcel is late"]),
    "de": ("de_DE", ["bitte rufen Sie {} morgen an", "{} sagt, das Paket kommt zu spät"]),
    "fr": ("fr_FR", ["merci de rappeler {} demain", "{} dit que le colis est en retard"]),
    "es": ("es_ES", ["por favor llame a {} mañana", "{} dice que el paquete llega tarde"]),
    "it": ("it_IT", ["per favore chiami {} domani", "{} dice che il pacco è in ritardo"]),
    "pl": ("pl_PL", ["proszę zadzwonić: {}, jutro", "{} mówi, że paczka się spóźnia"]),
    "ru": ("ru_RU", ["завтра позвоните: {}", "{} говорит, что посылка опаздывает"]),
    "zh": ("zh_CN", ["请明天给{}打电话", "{}说包裹晚到了"]),
    "ja": ("ja_JP", ["明日{}さんに電話してください", "{}さんは荷物が遅いと言いました"]),
    "ko": ("ko_KR", ["내일 {} 씨에게 전화해 주세요", "{} 씨가 소포가 늦는다고 했습니다"]),
}
"""By language, where names come from and what they stand in."""
NAMES: Final = 30
"""Names of each language, each in all its texts."""
SAMPLE: Final = 4_000
"""Identifiers that ``measure`` releases, drawn from all."""

GAPS: Final = {
    "no-break": "\u00a0",
    "narrow": "\u202f",
    "thin": "\u2009",
    "tab": "\t",
    "two spaces": "  ",
    "line": "\n",
    "hyphen": "\u2011",
    "dash": "\u2013",
    "dot": "\u00b7",
    "underscore": "_",
}

INTRODUCTION: Final = "\0"
"""Stands behind what introduces an identifier: text around it, and no part of it."""

Spelling = tuple[str, str, str]  # type, spelling, text


def digits(source: random.Random, pattern: str) -> str:
    """Return a pattern with a figure for each ``#``, a capital for each ``A``."""
    letters = {
        "#": string.digits,
        "A": string.ascii_uppercase,
        "x": "0123456789abcdef",
    }
    return "".join(source.choice(letters[sign]) if sign in letters else sign for sign in pattern)


def typed(kind: str, spellings: dict[str, str]) -> Iterator[Spelling]:
    """Yield the spellings of a type by their names."""
    for name, text in spellings.items():
        yield kind, name, text


def grouped(text: str, *sizes: int) -> str:
    """Return a text in groups of these sizes."""
    groups: list[str] = []
    start = 0
    for size in sizes:
        groups.append(text[start : start + size])
        start += size
    return " ".join(groups)


def gapped(kind: str, text: str, of: str = " ") -> Iterator[Spelling]:
    """Yield a text with other signs in the place of its gaps."""
    for name, gap in GAPS.items():
        yield kind, name, text.replace(of, gap)


def mail(faker: Any) -> Iterator[Spelling]:
    address = f"{faker.user_name()}@{faker.domain_name()}"
    user, _, host = address.partition("@")
    spoken = host.replace(".", " dot ")
    spellings = {
        "plain": address,
        "capitals": address.upper(),
        "tag": f"{user}+news@{host}",
        "at": f"{user} [at] {host.replace('.', ' [dot] ')}",
        "round": f"{user}(at){host.replace('.', '(dot)')}",
        "at alone": f"{user} [at] {host}",
        "spoken": f"{user} at {spoken}",
        "wide": f"{user}\uff20{host}",
        "percent": f"{user}%40{host}",
        "entity": f"{user}&#64;{host}",
        "quoted": f"{user}=40{host}",
        "link": f"mailto:{address}",
        "brackets": f"<{address}>",
    }
    yield from typed("email", spellings)


def links(source: random.Random, faker: Any) -> Iterator[Spelling]:
    host = faker.domain_name()
    user = faker.user_name()
    path = f"{faker.slug()}/{user}"
    spellings = {
        "plain": f"https://{host}/{path}",
        "capitals": f"HTTPS://{host.upper()}/x",
        "www": f"www.{host}",
        "WWW": f"WWW.{host.upper()}",
        "path": f"{host}/{path}",
        "other domain": f"{source.choice(['t.me', 'x.ai', 'bit.ly', 'linktr.ee', 'youtu.be'])}/{user}",
        "query": f"http://{host}/?q={{{user}}}|{user}",
        "git": f"git@github.com:{user}/{faker.word()}.git",
        "postgres": f"postgres://{user}:pw@db5:5432/x",
        "jdbc": f"jdbc:mysql://db5/x;user={user};password=secret",
        "s3": f"s3://{faker.word()}-bucket/{user}/x.csv",
        "file": f"file:///home/{user}/notes.txt",
        "ftp": f"ftp://{user}@{host}/x",
        "defanged": f"hxxps://{host.replace('.', '[.]')}/{user}",
    }
    yield from typed("url", spellings)


def networks(source: random.Random, faker: Any) -> Iterator[Spelling]:
    four = faker.ipv4()
    six = faker.ipv6()
    spellings = {
        "plain": four,
        "port": f"{four}:{source.randint(1, 9999)}",
        "prefix": f"{four}/24",
        "v6": six,
        "short v6": re.sub(r":.*:", "::", six),
        "mapped": f"::ffff:{four}",
        "zone": "fe80::1%eth0",
        "v6 port": f"[{six}]:443",
        "v6 prefix": f"{six}/64",
    }
    yield from typed("ip", spellings)
    mac = faker.mac_address()
    bare = mac.replace(":", "")
    spellings = {
        "plain": mac,
        "capitals": mac.upper(),
        "hyphens": mac.replace(":", "-"),
        "dots": f"{bare[:4]}.{bare[4:8]}.{bare[8:]}",
    }
    yield from typed("mac", spellings)


def files(faker: Any) -> Iterator[Spelling]:
    user = faker.user_name()
    word = faker.word()
    spellings = {
        "plain": f"/home/{user}/{word}.txt",
        "mac": f"/Users/{user}/Documents/{word}.pdf",
        "windows": f"C:\\Users\\{user}\\Documents\\{word}.docx",
        "share": f"\\\\server\\{user}\\{word}",
        "spaces": f"C:\\Users\\{user}\\My Documents\\{word}.docx",
        "slashes": f"C:/Users/{user}/{word}",
        "escaped": f"C:\\\\Users\\\\{user}\\\\{word}",
        "tilde": f"~{user}/{word}",
    }
    yield from typed("path", spellings)
    yield "handle", "plain", f"@{user}"
    yield "handle", "capitals", f"@{user.title()}"
    yield "handle", "underscore", f"@{user}_{word}"
    yield "handle", "fediverse", f"@{user}@mastodon.social"


def card_number(source: random.Random, prefix: str = "4", length: int = 16) -> str:
    """Return a card number with its check digit."""
    number = prefix + digits(source, "#" * (length - len(prefix) - 1))
    return number + str(import_module("stdnum.luhn").calc_check_digit(number))


def iban_number(source: random.Random) -> str:
    """Return an account number with its check digits."""
    forms = {"DE": "#" * 18, "FR": "#" * 23, "GB": "AAAA" + "#" * 14, "NL": "AAAA" + "#" * 10}
    country = source.choice(sorted(forms))
    account = digits(source, forms[country])
    code = "".join(str(int(sign, 36)) for sign in f"{account}{country}00")
    return f"{country}{98 - int(code) % 97:02}{account}"


def accounts(source: random.Random) -> Iterator[Spelling]:
    iban = iban_number(source)
    grouped = " ".join(re.findall(".{1,4}", iban))
    yield "iban", "plain", grouped
    yield "iban", "bare", iban
    yield "iban", "small", iban.lower()
    yield "iban", "small groups", grouped.lower()
    yield "iban", "hyphens", grouped.replace(" ", "-")
    yield from gapped("iban", grouped)
    card = card_number(source)
    grouped = " ".join(re.findall(".{1,4}", card))
    yield "card", "plain", grouped
    yield "card", "bare", card
    yield "card", "hyphens", grouped.replace(" ", "-")
    yield "card", "dots", grouped.replace(" ", ".")
    yield "card", "amex", re.sub(r"(.{4})(.{6})", r"\1 \2 ", card_number(source, "37", 15))
    yield from gapped("card", grouped)


def phones(source: random.Random, regions: list[str]) -> Iterator[Spelling]:
    library: Any = import_module("phonenumbers")
    region = source.choice(regions)
    kind = source.choice([library.PhoneNumberType.MOBILE, library.PhoneNumberType.FIXED_LINE])
    number = library.example_number_for_type(region, kind) or library.example_number(region)
    for _ in range(50):  # other figures at the end, of a number that exists
        text = str(number.national_number)
        example = library.PhoneNumber(
            country_code=number.country_code,
            national_number=int(text[:-4] + digits(source, "####")),
            italian_leading_zero=number.italian_leading_zero,
        )
        if library.is_valid_number(example):
            number = example
            break
    form = library.PhoneNumberFormat
    national = library.format_number(number, form.NATIONAL)
    abroad = library.format_number(number, form.INTERNATIONAL)
    yield "phone", "plain national", national
    yield "phone", "plain international", abroad
    yield "phone", "bare international", library.format_number(number, form.E164)
    yield "phone", "00", abroad.replace("+", "00")
    yield "phone", "brackets", re.sub(r"\+(\d+)", r"(+\1)", abroad)
    yield "phone", "(0)", re.sub(r"(\+\d+) ", r"\1 (0)", abroad)
    yield "phone", "extension", f"{abroad} ext. 12"
    yield "phone", "slash", national.replace(" ", "/", 1)
    yield "phone", "dots", national.replace(" ", ".").replace("-", ".")
    yield from gapped("phone", abroad)
    if " " in national:
        yield from gapped("phone", national)


def dates(source: random.Random, faker: Any, locale: str) -> Iterator[Spelling]:
    babel: Any = import_module("babel.dates")
    day = faker.date_of_birth(minimum_age=1, maximum_age=89)
    two = f"{day:%d.%m.%Y}"
    spellings = {
        "plain": f"{day:%d/%m/%Y}",
        "plain US": f"{day:%m/%d/%Y}",
        "plain ISO": f"{day:%Y-%m-%d}",
        "plain dots": two,
        "dots and spaces": two.replace(".", ". "),
        "spaces": two.replace(".", " "),
        "ISO time": f"{day:%Y-%m-%d}T02:00:52.78Z",
        "time": f"{day:%Y-%m-%d} 12:30:01",
        "short": f"{day:%d/%m/%y}",
        "slashed": f"{day:%Y/%m/%d}",
        "hyphens": f"{day:%d-%b-%Y}",
        "log": f"{day:%d/%b/%Y}:13:55:36 +0000",
        "mail": f"{day:%a, %d %b %Y} 13:55:36 +0000",
        "English": f"{day:%d %B %Y}",
        "US": f"{day:%B %d, %Y}",
        "day and month": f"{day:%d %B}",
        "capitals": f"{day:%d %B %Y}".upper(),
    }
    for width in ("medium", "long", "full"):
        spellings[f"{width} local"] = babel.format_date(day, width, locale=locale)
    spellings["capitals local"] = spellings["long local"].upper()
    spellings["no-break local"] = spellings["long local"].replace(" ", "\u00a0")
    yield from typed("date", spellings)
    yield from gapped("date", f"{day:%d-%m-%Y}", "-")
    hour = source.randint(0, 23)
    minute = source.randint(0, 59)
    spellings = {
        "plain": f"{hour:02}:{minute:02}",
        "seconds": f"{hour:02}:{minute:02}:07",
        "half": f"{hour % 12 + 1}:{minute:02} pm",
        "h": f"{hour:02}h{minute:02}",
        "Uhr": f"{hour:02}.{minute:02} Uhr",
        "zone": f"{hour:02}:{minute:02}Z",
    }
    yield from typed("time", spellings)


def places(source: random.Random, faker: Any) -> Iterator[Spelling]:
    lat = float(faker.latitude())
    lon = float(faker.longitude())
    north = digits(source, f"{abs(lat):.0f}\u00b0 1#' 2#\" N")
    east = digits(source, f"{abs(lon):.0f}\u00b0 3#' 4#\" E")
    dms = f"{north}, {east}"
    spellings = {
        "plain": f"{lat:.4f}, {lon:.4f}",
        "comma": f"{lat:.6f},{lon:.6f}",
        "degrees": dms,
        "primes": dms.replace("'", "\u2032").replace('"', "\u2033"),
        "tight": dms.replace(" ", ""),
        "letters": f"{abs(lat):.4f}\u00b0 N, {abs(lon):.4f}\u00b0 E",
        "link": f"geo:{lat:.4f},{lon:.4f}",
    }
    yield from typed("coordinates", spellings)
    age = source.randint(90, 104)
    for name, text in {
        "plain": "{} years old",
        "aged": "aged {}",
        "hyphens": "{}-year-old",
        "ans": "{} ans",
        "jahre": "{} Jahre alt",
    }.items():
        yield "age", name, text.format(age)


def national(source: random.Random) -> Iterator[Spelling]:
    def checked(module: str, pattern: str) -> str:
        check = import_module(f"stdnum.{module}")
        while True:
            number = digits(source, pattern)
            if check.is_valid(number):
                return number

    ssn = checked("us.ssn", "###-##-####")
    yield "ssn", "plain", ssn
    yield from gapped("ssn", ssn, "-")
    letters = f"{source.choice('ABCEGHJKLM')}{source.choice('ABCEGHJKLM')}"
    nino = f"{letters} {digits(source, '## ## ##')} {source.choice('ABCD')}"
    yield "nino", "plain", nino
    yield "nino", "bare", nino.replace(" ", "")
    yield "nino", "small", nino.lower()
    yield from gapped("nino", nino)
    number = digits(source, "########")
    letter = "TRWAGMYFPDXBNJZSQVHLCKE"[int(number) % 23]
    yield "dni", "plain", number + letter
    yield "dni", "hyphen", f"{number}-{letter}"
    yield "dni", "dots", f"{number[:2]}.{number[2:5]}.{number[5:]}-{letter}"
    code = (
        digits(source, "AAAAAA##")
        + source.choice("ABCDEHLMPRST")
        + f"{source.randint(1, 31):02}"
        + digits(source, "A###A")
    )
    yield "fiscale", "plain", code
    yield "fiscale", "groups", f"{code[:3]} {code[3:6]} {code[6:11]} {code[11:]}"
    yield "fiscale", "small", code.lower()
    cpf = checked("br.cpf", "###########")
    yield "cpf", "plain", f"{cpf[:3]}.{cpf[3:6]}.{cpf[6:9]}-{cpf[9:]}"
    yield "cpf", "bare", cpf
    plain_numbers = {
        "pesel": checked("pl.pesel", "#####0#####"),
        "bsn": checked("nl.bsn", "#########"),
        "steuerid": checked("de.idnr", "###########"),
        "nhs": checked("gb.nhs", "##########"),
    }
    for name, number in plain_numbers.items():
        yield "other national", name, number
    tax = plain_numbers["steuerid"]
    nhs = plain_numbers["nhs"]
    yield "other national", "steuerid groups", f"{tax[:2]} {tax[2:5]} {tax[5:8]} {tax[8:]}"
    yield "other national", "nhs groups", f"{nhs[:3]} {nhs[3:6]} {nhs[6:]}"
    nir = digits(source, "1850578######")
    nir += f"{97 - int(nir) % 97:02}"
    yield "nir", "bare", nir
    nir = grouped(nir, 1, 2, 2, 2, 3, 3, 2)
    yield "nir", "plain", nir
    yield from gapped("nir", nir)
    yield "other national", "personnummer", digits(source, "850728-####")
    yield "other national", "hetu", digits(source, "131052-###A")
    yield "other national", "aadhaar", digits(source, "#### #### ####")
    yield "other national", "pan", digits(source, "AAAAA####A")
    yield "other national", "rodne cislo", digits(source, "850728/####")


def codes(source: random.Random) -> Iterator[Spelling]:
    forms = {
        "plate": "A-AA ####",
        "plate FR": "AA-###-AA",
        "plate GB": "AA## AAA",
        "passport": "A########",
        "postcode": "AA# #AA",
        "booking": "AA#A#A",
        "invoice": "INV-2023-00##",
        "parcel": "AA ### ### ### AA",
        "serial": "AA##-A#A#-##AA",
        "flight": "AA ####",
    }
    for name, form in forms.items():
        yield "code", name, re.sub("[A#](?![NV])", lambda sign: digits(source, sign[0]), form)
    numbers = {
        "order": "##-##-##",
        "spaces": "## ## ## ##",
        "slashes": "##/##/##/##",
        "dots": "##.##.##",
        "long": "#########",
        "stars": "##*##*##",
        "underscores": "##_##_##",
        "lines": "##\n##\n##",
        "uuid": "xxxxxxxx-xxxx-4xxx-8xxx-xxxxxxxxxxxx",
    }
    for name, form in numbers.items():
        yield "number", name, digits(source, form)


def rare(source: random.Random, faker: Any) -> Iterator[Spelling]:
    """Yield spellings that only the reported set has."""
    host = faker.domain_name()
    user = faker.user_name()
    word = faker.word()
    number = digits(source, "170 ### ## ##")
    day = faker.date_of_birth(minimum_age=1, maximum_age=89)
    iban = iban_number(source)
    four = faker.ipv4()
    card = card_number(source)
    spellings = {
        "email": [
            f"{user} @ {host}",
            f"{user}(@){host}",
            f'"{user}"@{host}',
            f"{user}\\u0040{host}",
            f"{user}&commat;{host}",
            f"{user} AT {host.replace('.', ' DOT ')}",
        ],
        "url": [
            f"[x]({INTRODUCTION}https://{host}/{user}",
            f"{host}:8080/{user}",
            f"http[s]://{host}/{user}",
            f"https%3A%2F%2F{host}%2F{user}",
            f"{host}",
            f"mongodb+srv://{user}:p%40ss@{host}/?w=1",
            f"//{host}/{user}",
        ],
        "ip": [
            four.replace(".", "[.]"),
            f"{four}-{four}",
            f"http://{four}/",
            f"{four}/255.255.255.0",
        ],
        "path": [
            f"%USERPROFILE%\\{user}\\{word}",
            f"/var/lib/{user}/{word}.db",
            f"/home/{user}",
            f"\\\\?\\C:\\Users\\{user}",
        ],
        "handle": [f"(@{user})", f"@{user}:", f"u/{user}", f".@{user}"],
        "iban": [
            f"IBAN:{INTRODUCTION}{iban}",
            f"{iban[:4]} {iban[4:8]} {iban[8:]}",
            iban.replace("", " ").strip(),
        ],
        "card": [
            f"{card[:4]} - {card[4:8]} - {card[8:12]} - {card[12:]}",
            f"{card[:4]}/{card[4:8]}/{card[8:12]}/{card[12:]}",
            f"{card[:8]} {card[8:]}",
        ],
        "phone": [
            f"+49 (0) {number}",
            f"+49.{number.replace(' ', '.')}",
            f"0{number.replace(' ', '/', 1)}",
            f"tel:{INTRODUCTION}+49-{number.replace(' ', '-')}",
            f"0049-{number}",
            f"(+49){number}",
            f"0{number} Durchwahl 12",
            f"+49 {number.replace(' ', ' - ')}",
        ],
        "date": [
            f"{day:%d/%b/%y}",
            f"the {INTRODUCTION}{day.day}th of {day:%B}, {day:%Y}",
            f"{day:%b}. {day.day}, '{day:%y}",
            f"{day:%Y}.{day:%m}.{day:%d}.",
            f"{day:%Y}\u5e74{day.month}\u6708{day.day}\u65e5",
            f"{day:%A}, {day:%B} {day.day}",
            f"{day:%d}|{day:%m}|{day:%Y}",
            f"{day:%m/%Y}",
        ],
        "time": ["14 h 35", "2.30pm", "14:35:07,123", "T14:35Z"],
        "coordinates": [
            "52.5200N 13.4050E",
            "N 52\u00b0 31.2' E 13\u00b0 24.3'",
            "lat=52.52001, lon=13.40502",
            "52\u00b031'12.5\"N 13\u00b024'18.1\"E",
        ],
        "ssn": [
            digits(source, "### - 12 - ####"),
            digits(source, "12345####"),
            digits(source, "123/45/####"),
        ],
        "age": ["94 y/o", "94yo", "94 yrs old", "age: 97"],
    }
    for kind, texts in spellings.items():
        for place, text in enumerate(texts, 1):
            yield kind, f"rare {place}", text


def make(path: Path, name: str = "report") -> None:
    """Write texts with one identifier each: its type, spelling, text, and where it stands."""
    library: Any = import_module("faker")
    source = random.Random({"tune": 1, "report": 2}[name])
    rows = []
    for locale in LOCALES[name]:
        faker = library.Faker(locale)
        faker.seed_instance(source.random())
        latin = library.Faker("en_US")
        latin.seed_instance(source.random())
        for _ in range(8):
            spellings = [*mail(latin), *links(source, latin), *networks(source, faker)]
            spellings += [*files(latin), *phones(source, REGIONS[name]), *places(source, faker)]
            spellings += [*dates(source, faker, locale), *national(source), *codes(source)]
            spellings += accounts(source)
            if name == "report":
                spellings += rare(source, latin)
            for kind, spelling, text in spellings:
                before, after = (
                    source.choice(TEXTS[name]).replace("{{", "{").replace("}}", "}").split("{}")
                )
                introduction, _, text = text.rpartition(INTRODUCTION)
                rows.append(
                    {
                        "type": kind,
                        "spelling": spelling,
                        "text": text,
                        "before": before + introduction,
                        "after": after,
                    }
                )
    path.write_text(json.dumps(rows), encoding="utf-8")
    print(
        f"{len(rows):,} identifiers of {len({row['type'] for row in rows})} types in "
        f"{len({(row['type'], row['spelling']) for row in rows})} spellings"
    )


def parts(text: str) -> Counter[str]:
    """Count the tokens of a text in small letters."""
    from dptext_spark.text.tokens import tokenize

    return Counter(tokenize(text.casefold()))


_LETTER: Final = re.compile(r"[^\W\d_]")
_MARK: Final = re.compile(r"\[[A-Z]+\]")


def is_leak(row: dict[str, str], output: str) -> bool:
    """Return whether a released text has a part of the identifier that stands not elsewhere."""
    around = parts(row["before"]) + parts(row["after"])
    raw = parts(_MARK.sub(" ", output)) - around
    return not raw.keys().isdisjoint(parts(row["text"]))


def groups(row: dict[str, str]) -> list[str]:
    """Return the lines of the table that count an identifier."""
    names = [row["type"], "all"]
    kind = row["spelling"].partition(" ")[0]
    if kind in ("plain", "rare"):
        names.append(f"{kind} spellings")
    return names


def measure(path: Path, bundle: Path, identifiers: str = "mask") -> None:
    """Print the shares of identifiers without a leak, by type, at two epsilons and two layouts."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    rows = random.Random(0).sample(rows, min(SAMPLE, len(rows)))
    counts = Counter[str]()
    for row in rows:
        counts.update(groups(row))
    columns = []
    for epsilon in (1000.0, 10.0):
        for layout in ("words", "keep"):
            free = Counter[str]()
            spellings = Counter[str]()
            outputs = released(rows, bundle, epsilon, layout, identifiers)
            for row, text in zip(rows, outputs, strict=True):
                if is_leak(row, text):
                    spellings[f"{row['type']}: {row['spelling']}"] += 1
                else:
                    free.update(groups(row))
            columns.append(free)
            print(f"\nLeaks at {epsilon:g}, {layout}: {dict(spellings.most_common())}")
    print("\n| type | identifiers | 1000, words | 1000, keep | 10, words | 10, keep |")
    print("|---|---|---|---|---|---|")
    for name, count in counts.items():
        cells = [f"{free[name] / count:.1%}" for free in columns]
        print(f"| {name} | {count:,} | {' | '.join(cells)} |")


def presidio(path: Path) -> None:
    """Print the shares that Presidio's patterns leave no part of, in texts whose words stay."""
    logging.getLogger("tldextract").setLevel(logging.CRITICAL)  # it looks for a newer list
    analyzer: Any = import_module("presidio_analyzer")
    models = [{"lang_code": "en", "model_name": "none"}]
    engine = import_module("presidio_analyzer.nlp_engine").NoOpNlpEngine(models=models)
    patterns = analyzer.AnalyzerEngine(nlp_engine=engine, supported_languages=["en"])
    rows = json.loads(path.read_text(encoding="utf-8"))
    rows = random.Random(0).sample(rows, min(SAMPLE, len(rows)))
    counts = Counter[str]()
    free = Counter[str]()
    words = 0
    start = time.process_time()
    for row in rows:
        text = row["before"] + row["text"] + row["after"]
        words += len(text.split())
        output = text
        results = patterns.analyze(text, language="en")
        for result in sorted(results, key=lambda result: -result.start):
            output = f"{output[: result.start]} [MARK] {output[result.end :]}"
        counts.update(groups(row))
        if not is_leak(row, output):
            free.update(groups(row))
    seconds = time.process_time() - start
    print(f"{words / seconds:,.0f} words a second")
    print("| type | identifiers | Presidio's patterns |")
    print("|---|---|---|")
    for name, count in counts.items():
        print(f"| {name} | {count:,} | {free[name] / count:.1%} |")


def people(path: Path) -> None:
    """Write texts with a person's name each: its language, the text, and where the name stands."""
    library: Any = import_module("faker")
    rows = []
    for language, (locale, texts) in PEOPLE.items():
        faker = library.Faker(locale)
        faker.seed_instance(3)
        for _ in range(NAMES):
            name = f"{faker.first_name()} {faker.last_name()}"
            if language in ("zh", "ja", "ko"):
                name = f"{faker.last_name()}{faker.first_name()}"
            for template in texts:
                start = template.index("{}")
                rows.append(
                    {
                        "language": language,
                        "text": template.format(name),
                        "start": start,
                        "end": start + len(name),
                    }
                )
    path.write_text(json.dumps(rows), encoding="utf-8")
    print(f"{len(rows):,} texts in {len(PEOPLE)} languages")


def names(path: Path, detector: str) -> None:
    """Print how many names a detector finds whole, by language, and how fast it reads."""
    from dptext_spark.text.detectors import Detector

    rows = json.loads(path.read_text(encoding="utf-8"))
    opened = Detector.of(detector)
    opened.spans(["Ann Lee met Bo."])  # the model is loaded
    print(opened.identity)
    print("| language | names | found whole | words a second of processor time |")
    print("|---|---|---|---|")
    rows.sort(key=itemgetter("language"))
    for language, group in groupby(rows, key=itemgetter("language")):
        of_language = list(group)
        texts = list(map(itemgetter("text"), of_language))
        start = time.process_time()
        spans = opened.spans(texts)
        seconds = time.process_time() - start
        complete = 0
        for row, row_spans in zip(of_language, spans, strict=True):
            for first, end in row_spans:
                if first <= row["start"] and row["end"] <= end:
                    complete += 1
                    break
        words = sum(len(text.split()) for text in texts)
        share = complete / len(texts)
        print(f"| {language} | {len(texts)} | {share:.0%} | {words / seconds:,.0f} |")


def released(
    rows: list[dict[str, str]], bundle: Path, epsilon: float, layout: str, identifiers: str
) -> list[str]:
    """Return the texts of rows as a release has them."""
    import pyarrow as pa

    from dptext_spark import Laplace, Release, Sanitizer, TextPolicy
    from dptext_spark.noise import NoiseKey

    texts = pa.array([row["before"] + row["text"] + row["after"] for row in rows])
    policy = TextPolicy(layout=layout, identifiers=identifiers)
    release = Release.open(embedding=bundle, mechanism=Laplace(epsilon=epsilon), policy=policy)
    sanitizer = Sanitizer.open(release, NoiseKey(bytes(32)))
    values: list[str] = sanitizer.sanitize(texts, range(len(rows)), column="t").values.to_pylist()
    return values


def prose(path: Path, column: str) -> None:
    """Print how many words of texts marks hide, of which types, and how fast they are found."""
    import pyarrow.parquet as pq

    from dptext_spark.text.patterns.find import find
    from dptext_spark.text.patterns.names import NUMBER, TYPES
    from dptext_spark.text.tokens import tokenize

    texts = [text for text in pq.read_table(path, columns=[column]).column(0).to_pylist() if text]
    types = frozenset([*TYPES, NUMBER])
    start = time.process_time()
    spans = [find(text, types) for text in texts]
    seconds = time.process_time() - start
    words = sum(len(text.split()) for text in texts)
    marks = Counter[str]()
    hidden = Counter[str]()
    touched = 0  # words between spaces
    for text, text_spans in zip(texts, spans, strict=True):
        for first, end, name in text_spans:
            marks[name] += 1
            span = text[first:end]
            touched += len([*filter(_LETTER.search, span.split())])
            hidden[name] += len([*filter(_LETTER.search, tokenize(span))])
    print(
        f"{words:,} words, {words / seconds:,.0f} a second; words with letters in marks: "
        f"{sum(hidden.values()) / words:.4%}, of words between spaces {touched / words:.4%}; "
        f"marks {dict(marks)}, words in them {dict(hidden)}"
    )


COMMANDS: Final[dict[str, Callable[..., None]]] = {
    "make": make,
    "measure": measure,
    "prose": prose,
    "presidio": presidio,
    "people": people,
    "names": names,
}

if __name__ == "__main__":
    command, file, *arguments = sys.argv[1:]
    COMMANDS[command](Path(file), *arguments)
