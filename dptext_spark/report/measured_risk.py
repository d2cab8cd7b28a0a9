"""What an evaluation measured of a release's setting, quoted for those who get the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dptext_spark.errors import ConfigError
from dptext_spark.parsing import json_value
from dptext_spark.release import Release
from dptext_spark.text.policies import PolicyParameters

Facts = dict[str, Any]

_REMEDY: Final = "Run dptext evaluate with the options of this release, or leave --evaluation out"


def measured_risk(text: str, release: Release, options: Mapping[str, Any]) -> Facts:
    """Read an evaluation's facts, JSON text, and return what may be quoted of a release's setting.

    Args:
        options: The release's own, by name; ``where`` is whether it has a filter, not which.

    Raises:
        ConfigError: The evaluation is of another embedding, column, policy or setting.
    """
    try:
        return _quoted(json_value(text), release, options)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        # Of vectors, of another version, or damaged; what is wrong may quote it.
        raise ConfigError("The --evaluation cannot be read", do=_REMEDY) from None


def _quoted(evaluation: Facts, release: Release, options: Mapping[str, Any]) -> Facts:
    theirs = evaluation["options"]
    fingerprint = evaluation["embedding"]["fingerprint"]
    if fingerprint != release.embedding.fingerprint:
        raise _other("embedding", release.embedding.fingerprint[:16], str(fingerprint)[:16])
    column = theirs["text"] or theirs["tokens"]
    columns = [*options["text"], *options["tokens"]]
    if column not in columns:
        raise _other("column", " or ".join(columns), str(column))
    for field in PolicyParameters.model_fields:
        name = field.replace("_", "-")
        if theirs[name] != options[name]:
            raise _other(f"--{name}", str(options[name]), str(theirs[name]))
    setting = _setting(evaluation["settings"], release)
    facts = {name: setting[name] for name in ("options", "attacker", "recovered", "recovered_high")}
    for name in ("recovered_floor", "linked", "linked_high", "linked_floor"):
        facts[name] = setting.get(name)
    facts["started"] = evaluation["started"]
    facts["attackers"] = [row["name"] for row in evaluation["attackers"]]
    facts["confidence"] = evaluation["confidence"]
    facts["attacked"] = evaluation["sample"]["attacked"]
    facts["versions"] = evaluation["concern"]["versions"]
    facts["guesses"] = evaluation["concern"]["guesses"]
    facts["rows"] = _of_which_rows(theirs, options)
    facts["said"] = _sentences(facts, str(column))
    return facts


def _other(what: str, allowed: str, got: str) -> ConfigError:
    return ConfigError(
        f"The --evaluation is of another {what}", allowed=allowed, got=got, do=_REMEDY
    )


def _setting(settings: list[Facts], release: Release) -> Facts:
    """Return the row of the release's mechanism, epsilon and search."""
    search = release.search
    for row in settings:
        is_same = row["search"] == search.label and row["release_words"] == search.release_words
        if is_same and row["options"] == release.mechanism.options:
            return row
    measured = [f"{row['options']} ({row['release_words']:,} words)" for row in settings]
    released = f"{release.mechanism.options} ({search.release_words:,} words)"
    raise _other("setting", released, "; ".join(measured))


def _of_which_rows(theirs: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Return whether the risk was measured on rows that are released, as far as options say it."""
    if theirs["input"] != options["input"]:
        return "It was measured on another table than the one that is released."
    if not theirs["where"]:
        if options["where"]:
            return "It was measured on the whole table, with the rows that are released among them."
        return "It was measured on rows that are released: epsilon may have been chosen by them."
    if not options["where"]:
        return "It was measured on some rows of the table, which are released, too."
    return (
        "It was measured on rows of the same table by a filter; the release has a filter, too. "
        "Only those who ran both know whether they share rows."
    )


def _sentences(facts: Facts, column: str) -> list[str]:
    """Return what was measured, a sentence each: the upper limits first."""
    share = f"at most {facts['recovered_high']:.1%} of the words of column {column}"
    confidence = f"{100 * facts['confidence']:g}% confidence"
    noun = "guess" if facts["guesses"] == 1 else "guesses"
    sentences = [
        f"Attackers recovered {share} (measured {facts['recovered']:.1%}, upper limit at "
        f"{confidence}); without any output {facts['recovered_floor']:.1%}."
    ]
    attackers = ", ".join(facts["attackers"])
    sentences.append(
        f"The strongest of {attackers} was {facts['attacker']}, with "
        f"{facts['guesses']} {noun} for each word; releases of each row: {facts['versions']}."
    )
    if facts["linked"] is not None:
        sentences.append(
            "An observer with the originals of all attacked rows assigned "
            f"at most {facts['linked_high']:.1%} of the rows to their own (measured "
            f"{facts['linked']:.1%}); by length alone {facts['linked_floor']:.1%}."
        )
    sentences += [
        f"Measured on {facts['attacked']:,} rows, {facts['started'].partition('T')[0]}. "
        f"{facts['rows']}",
        "This is the success of these attackers, not a bound: a stronger attacker gets more.",
    ]
    return sentences
