"""What somebody sees who sees several releases: pairs of inputs, what they may lose, and how that goes wrong.

In each scenario two inputs that differ in one word are released in the same ways. What they lose together
follows from the contexts of their noise, by :func:`~dptext_spark.accounting.joint.joint_loss`. Beside each
stands a fault: releases as a wrong program makes them, or a claim as a wrong account has it. The share of
draws in which that is found is the power of the scenario.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from dptext_spark.mechanisms import Mechanism
from dptext_spark.mechanisms.noisy import NoiseMechanism


@dataclass(frozen=True, kw_only=True)
class Release:
    """One release of a row, by the audited mechanism but for what is said here.

    Attributes:
        row: The row's tokens.
        row_id: What names it.
        label: Keeps the noise of tables apart.
        halved: Whether epsilon is half of the audited one.
        misled: Whether noise is that of the whole epsilon all the same, a fault.
        t: Of Vickrey selection; None selects as the mechanism does.
        release_words: How many words may come out; None for all.
        oov: The policy for unknown words.
        protect: The policy for protected ones.
        slots: Places of the tokens inside slots, for the policy that asks for them.
        seen: Place of the output that is looked at; None for all.
    """

    row: tuple[str, ...]
    row_id: str = "r"
    label: str = "audit"
    halved: bool = False
    misled: bool = False
    t: float | None = None
    release_words: int | None = None
    oov: str = "mask"
    protect: str = "all"
    slots: tuple[int, ...] = ()
    seen: int | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The releases of two inputs; the i-th ones are made in the same way."""

    one: tuple[Release, ...]
    other: tuple[Release, ...]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Releases that lose more than is claimed for them.

    Attributes:
        what: What is wrong, in words.
        released: What is released.
        claimed: The releases whose loss is claimed; None for those of the scenario.
    """

    what: str
    released: Comparison
    claimed: Comparison | None = None


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Releases that are compared, and the fault by which the comparison's power is told.

    Attributes:
        name: In words.
        suits: Tells whether a mechanism can make these releases.
    """

    name: str
    released: Comparison
    fault: Fault
    suits: Callable[[Mechanism], bool]


# Words of a line of eight: 2 nats between the pair that is told apart.
_PAIR: Final = ("w3", "w5")
_FIRST, _LAST = "w0", "w7"
_UNKNOWN: Final = ("unheardof", "unheardofx")
_STOP_WORD: Final = "the"
_FEWER: Final = 6
_HIDDEN: Final = "?"


def _telling(*releases: Release, apart: tuple[str, str] = _PAIR) -> Comparison:
    """Compare two words in the place of ``_HIDDEN``."""
    one, other = (
        tuple(replace(r, row=tuple(word if t == _HIDDEN else t for t in r.row)) for r in releases)
        for word in apart
    )
    return Comparison(one=one, other=other)


def _any(_: Mechanism) -> bool:
    return True


def _words(mechanism: Mechanism) -> bool:
    return mechanism.releases == "words"


def _choice(mechanism: Mechanism) -> bool:
    return isinstance(mechanism, NoiseMechanism)


_WORD: Final = Release(row=(_HIDDEN,))
_ONCE: Final = _telling(_WORD)
_ANEW: Final = replace(_WORD, label="other")
_TWICE_ANEW: Final = _telling(_WORD, _ANEW)
_UNCHANGED: Final = _telling(Release(row=_PAIR[:1]), _WORD)


def _unknown(oov: str) -> Scenario:
    released, kept = (
        _telling(replace(_WORD, oov=policy), apart=_UNKNOWN) for policy in (oov, "keep-unprotected")
    )
    return Scenario(
        name=f"--oov {oov}",
        released=released,
        fault=Fault(what="unknown words kept", released=kept),
        suits=_words,
    )


def _versions() -> Scenario:
    released = _telling(*(Release(row=(_HIDDEN, word), seen=0) for word in (_FIRST, _LAST)))
    return Scenario(
        name="an edited row",
        released=released,
        fault=Fault(what="counted once", released=released, claimed=_ONCE),
        suits=_words,
    )


def _slots() -> Scenario:
    """A word inside a slot, and outside of it one of the two that it may be."""
    hidden = Release(row=(_HIDDEN, _PAIR[0]), protect="slots:slots", slots=(0,))
    released = _telling(hidden)
    (one,) = released.one
    return Scenario(
        name="--protect slots",
        released=released,
        fault=Fault(
            what="slots found by their words",
            released=replace(released, one=(replace(one, slots=(0, 1)),)),
        ),
        suits=_words,
    )


SCENARIOS: Final = (
    Scenario(
        name="a row twice",
        released=_telling(_WORD, _WORD),
        fault=Fault(what="noise drawn anew", released=_TWICE_ANEW),
        suits=_any,
    ),
    Scenario(
        name="two epsilons",
        released=_telling(_WORD, replace(_WORD, halved=True)),
        fault=Fault(
            what="noise without epsilon", released=_telling(_WORD, replace(_WORD, halved=True, misled=True))
        ),
        suits=_any,
    ),
    _versions(),
    Scenario(
        name="an edited word",
        released=_telling(Release(row=(_FIRST,)), _WORD),
        fault=Fault(what="versions equal for one input alone", released=_UNCHANGED),
        suits=_any,
    ),
    Scenario(
        name="two tables",
        released=_telling(Release(row=_PAIR[:1]), _ANEW),
        fault=Fault(what="one label for both", released=_UNCHANGED),
        suits=_any,
    ),
    Scenario(
        name="two rows",
        released=_telling(Release(row=_PAIR[:1]), replace(_WORD, row_id="s")),
        fault=Fault(what="one id for both", released=_UNCHANGED),
        suits=_any,
    ),
    Scenario(
        name="two release vocabularies",
        released=_telling(_WORD, replace(_WORD, release_words=_FEWER)),
        fault=Fault(
            what="noise drawn anew",
            released=_telling(_WORD, replace(_ANEW, release_words=_FEWER)),
            claimed=_ONCE,
        ),
        suits=_words,
    ),
    Scenario(
        name="another selection",
        released=_telling(_WORD, replace(_WORD, t=0.25)),
        fault=Fault(what="noise drawn anew", released=_telling(_WORD, replace(_ANEW, t=0.25))),
        suits=_choice,
    ),
    _unknown("mask"),
    _unknown("drop"),
    Scenario(
        name="--protect content",
        released=_telling(Release(row=(_HIDDEN, _STOP_WORD), protect="content")),
        fault=Fault(
            what="a word passes",
            released=_telling(Release(row=(_HIDDEN,), protect="content"), apart=(_STOP_WORD, _PAIR[1])),
        ),
        suits=_words,
    ),
    _slots(),
)
"""All of them. ``--oov fail`` releases nothing, and ``keep-unprotected`` claims nothing."""
