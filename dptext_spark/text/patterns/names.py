"""The names of types of identifiers."""

from typing import Final

TYPES: Final = (
    *("email", "url", "iban", "card", "ip", "date", "phone", "mac", "path", "handle", "time"),
    *("coordinates", "age", "ssn", "nino", "dni", "fiscale", "nir", "cpf"),
)
"""What is marked by default."""

OPTIONAL: Final = ("pesel", "steuerid", "bsn", "nhs", "code")
"""What only a check digit, or less, distinguishes from other numbers: marked where it is named."""

NUMBER: Final = "number"

SPAN: Final = "mask"
"""What a column of spans marks, in place of a pattern."""

USER: Final = "user"
"""Counts marks of all types of a user's own."""

MARKS: Final = (*TYPES, *OPTIONAL, NUMBER, SPAN, USER)
"""All marks, without types of a user's own, which have other names."""


def marked_as(name: str) -> str:
    """Return in words how tokens of a count are marked."""
    if name == USER:
        return "marked by types of your own"
    return f"marked [{name.upper()}]"
