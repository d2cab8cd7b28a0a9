"""What of a column is released raw under a text policy, and whether another policy releases it too.

Marks and masked spans never go out raw. Other tokens go out raw where ``--protect`` leaves them
out, or where the vocabulary lacks them and ``--oov`` keeps them. The layout lets signs and capitals
pass. So each :class:`Raw` is named by the policy that lets it out, and more marks mean that less
goes out. A policy lets words out unless it is in ``_NOTHING_RAW``; a class from elsewhere always
does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from dptext_spark.text.actions import Action
from dptext_spark.text.named_policy import NamedPolicy
from dptext_spark.text.patterns.names import NUMBER
from dptext_spark.text.policies import TextPolicy

Cover: TypeAlias = Literal["no", "same spans", "likely", "yes"]
"""Whether all that one release shows raw of a row was shown by another one.

``same spans``: only where both have the same slots or masked spans. ``likely``: except in odd
texts, where marks of one policy cross those of the other, or spans.
"""

COVERS: Final[tuple[Cover, ...]] = ("no", "same spans", "likely", "yes")
"""From the weakest to the strongest."""

# Policies under which nothing of a column is released raw, and what is raw under others.
_NOTHING_RAW: Final = {
    "oov": {"mask", "drop", "random", "fail"},
    "protect": {"all"},
    "layout": {"words"},
}
_RAW: Final = {
    "keep-unprotected": "words outside the vocabulary",
    "content": "stop words",
    "slots": "words outside the slots",
    "keep": "punctuation, spacing and capitals",
}
# Actions that release nothing of an identifier but its type, or leave it to other policies.
_NOTHING_SHOWN: Final = {name for name, kind in Action.policies.items() if not kind.reveals}

_DROPPED: Final = "dropped words"
_PACKAGE: Final = "dptext_spark."
_FOREIGN: Final = "class "


@dataclass(frozen=True, kw_only=True)
class Raw:
    """Something of a column that a release lets out.

    Attributes:
        what: What it is, in words before the column's name; empty for all of the column.
        option: Whose policy lets it out.
        decided_by: What else decides which tokens these are.
        hidden: What would be among them and is not, as it becomes a mark or is left out.
        spans: How a column of spans takes part in that, if it does.
    """

    what: str
    option: str = ""
    decided_by: tuple[str, ...] = ()
    hidden: frozenset[str] = frozenset()
    spans: Literal["", "slots", "masked"] = ""

    def covers(self, other: Raw) -> Cover:
        """Compare with what another release lets out of the same row: does this have all of it?"""
        if self == WHOLE:
            return "yes"
        identity = (self.what, self.option, self.decided_by)
        other_identity = (other.what, other.option, other.decided_by)
        if identity != other_identity or not self.hidden <= other.hidden:
            return "no"
        if other.spans == "slots" and self.spans != "slots":  # they decide where words are cut
            return "no"
        if self.spans == "masked" and other.spans != "masked":
            return "no"
        if self.spans and self.spans == other.spans:
            return "same spans"
        is_mark_moved = bool(self.hidden) and self.hidden != other.hidden
        is_mark_cut = other.spans == "masked" and bool(other.hidden)
        is_word_cut = self.spans == "slots"
        return "likely" if is_mark_moved or is_mark_cut or is_word_cut else "yes"

    def of_column(self, column: str) -> str:
        """Return its name in words, for a column."""
        return f"{self.what} column {column}".strip()


WHOLE: Final = Raw(what="")
"""All of a column."""


def widest(covers: Iterable[Cover]) -> Cover:
    """Return the strongest of some answers; of none, no."""
    return max(covers, key=COVERS.index, default="no")


def recorded_policy(policy: TextPolicy) -> dict[str, str]:
    """Return all of a text policy that decides which tokens go out raw, for the ledger."""
    identifiers = policy.identifiers
    tokenizer = policy.tokenizer
    actions = policy.actions
    marks = [name for name in policy.mark_names if name in policy.types]
    revealing = []
    for name in marks:
        action = actions[name]
        if action.name not in _NOTHING_SHOWN:
            revealing.append(f"{name}={_identity(action, str(action))}")
    detected: dict[str, str] = {}
    if policy.spans_by is not None:
        kind = "slots"
        if policy.masks_spans:
            kind = "mask-spans"
        detected[kind] = f"by {_identity(policy.spans_by, policy.spans_by.identity)}"
    return {
        "oov": _identity(policy.oov, str(policy.oov)),
        "protect": _identity(policy.protect, policy.protect.identity),
        "layout": _identity(policy.layout, policy.layout.identity),
        "tokenizer": _identity(tokenizer, tokenizer.identity or str(tokenizer)),
        "identifiers": _identity(identifiers, str(identifiers)),
        "reveals": ",".join(revealing),
        "numbers": policy.numbers,
        "marks": ",".join(marks),
        "patterns": policy.patterns_identity,
        "slots": policy.protect.slots_column or "",
        "mask-spans": policy.mask_spans or "",
        **detected,
    }


def is_known(policy: Mapping[str, str]) -> bool:
    """Return whether all recorded policies are of this package, whose raw tokens are known."""
    return not any(f"={_FOREIGN}" in f"={identity}" for identity in policy.values())


def _identity(policy: NamedPolicy, identity: str) -> str:
    kind = type(policy)
    if kind.__module__.startswith(_PACKAGE):
        return identity
    return f"{_FOREIGN}{kind.__module__}.{kind.__qualname__}: {identity}"


def _name(identity: str) -> str:
    return re.split("[:, ]", identity, maxsplit=1)[0]


def raw_of(policy: Mapping[str, str], *, key: str, in_elements: bool) -> Iterator[Raw]:
    """Yield what a recorded policy releases raw, of texts or of the elements of token lists.

    ``key`` is a hash of the user's key, from which surrogates follow.
    """
    unit = "elements" if in_elements else policy["tokenizer"]
    spans: Literal["", "slots", "masked"] = ""
    if policy["slots"]:
        spans = "slots"
    elif policy["mask-spans"]:
        spans = "masked"
    marks = [*filter(None, policy["marks"].split(","))]
    hidden = {f"{name} of patterns {policy['patterns']}" for name in marks}
    if policy["identifiers"].startswith(_FOREIGN):  # nobody knows what it hides
        numbers = {name for name in hidden if name.startswith(f"{NUMBER} ")}
        hidden = {policy["identifiers"], *numbers}
        yield Raw(
            what="what stands for identifiers of",
            option="identifiers",
            decided_by=(policy["identifiers"], policy["patterns"], unit),
            spans=spans,
        )
    for revealing in filter(None, policy["reveals"].split(",")):
        name, _, action = revealing.partition("=")
        kind = Action.policies.get(_name(action))
        yield Raw(
            what=f"what stands for {name} in" if kind is None else kind.reveals,
            option="identifiers",
            decided_by=(key, action, name, policy["patterns"], unit),
            spans=spans,
        )
    for option, safe in _NOTHING_RAW.items():
        name = _name(policy[option])
        if name in safe or (option == "layout" and in_elements):
            continue
        option_hidden = set(hidden)
        if option == "layout" and policy["oov"] == "drop":
            option_hidden.add(_DROPPED)
        # It matters where the slots are, and not which column has them.
        identity = name if name == "slots" else policy[option]
        yield Raw(
            what=f"{_RAW.get(name, 'what passes')} of",
            option=option,
            decided_by=(identity, unit),
            hidden=frozenset(option_hidden),
            spans=spans,
        )
