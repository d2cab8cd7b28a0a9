"""One spelling for all spellings of an identifier."""

from __future__ import annotations

from typing import Final

from dptext_spark.text.patterns.numbers import figures
from dptext_spark.text.patterns.view import SPOKEN_DOT, View

_WITH_SIGNS: Final = ("email", "url", "ip", "date", "path", "handle", "time", "coordinates", "age")


def canonical(name: str, span: str) -> str:
    """Return one spelling for all spellings of a span of a type."""
    view = View(span).text.casefold().replace(SPOKEN_DOT, ".").replace(" at ", "@")
    if name in _WITH_SIGNS:
        return view
    if name == "phone":
        return _phone_form(view)
    return "".join(letter for letter in view if letter.isalnum())


def _phone_form(number: str) -> str:
    """Return a phone number's figures and extension, with one plus before a country's code."""
    letters = "".join(letter for letter in number if letter.isalnum())
    if "+" in number or letters.startswith("00"):
        return f"+{figures(number.replace('(0)', '')).removeprefix('00')}"
    return letters
