"""Options checked, all errors at once, before any data is read: of a command line, TOML file or Python."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from pydantic import ValidationError

from dptext_spark.calibration.target import Target
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, DptextError
from dptext_spark.mechanisms import MECHANISMS, Mechanism, mechanism
from dptext_spark.noise import NoiseKey
from dptext_spark.options import (
    BUNDLE_WORLD,
    WORLDS,
    AuditOptions,
    CalibrateOptions,
    EmbeddingOptions,
    Options,
    PoincareOptions,
    PrivatizeOptions,
    VectorsOptions,
)
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import Search
from dptext_spark.text.policies import TextPolicy


class Release:
    """What a run needs, opened and checked against each other on the driver.

    Raises:
        ConfigError: Anything does not fit; all faults at once.
    """

    def __init__(self, options: PrivatizeOptions) -> None:
        key, embedding, policy = all_of(
            options.noise_key,
            lambda: Embedding.open(options.embedding),
            lambda: options.policy,
        )
        self.key: NoiseKey = key
        self.embedding: Embedding = embedding
        self.policy: TextPolicy = policy
        self.mechanism: Mechanism = options.mechanism
        self.search: Search
        self.search, _ = all_of(
            lambda: ExactSearch.over(embedding, options.release_words),
            lambda: self.mechanism.prepare(embedding),
        )
        self.guarantee = self.mechanism.guarantee(embedding)
        self.noise = self.mechanism.release_noise(
            key, salt=options.salt, embedding=embedding, search=self.search
        )


def all_of(*steps: Callable[[], Any]) -> list[Any]:
    """Run independent checks and report all that fail, not only the first.

    Raises:
        DptextError: The one failure, or a ConfigError that lists them all.
    """
    results, failures = [], []
    for step in steps:
        try:
            results.append(step())
        except DptextError as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        listed = "\n  ".join(map(str, failures)).rstrip(".")
        raise ConfigError(f"{len(failures)} things are wrong:\n  {listed}")
    return results


MECHANISM_OPTIONS: Final[dict[str, Any]] = {
    field.alias or name: field for cls in MECHANISMS.values() for name, field in cls.model_fields.items()
}


def privatize_options(values: Mapping[str, Any]) -> PrivatizeOptions:
    """Validate the options of ``dptext privatize``, given by option name; None means not given.

    Raises:
        ConfigError: Lists every option that is wrong.
    """
    return _with_mechanism(
        "privatize",
        PrivatizeOptions,
        values,
        lambda given: _check_columns(given, "text", "tokens"),
        _check_incremental,
    )


def audit_options(values: Mapping[str, Any]) -> AuditOptions:
    """Validate the options of ``dptext audit``, given by option name; None means not given.

    Raises:
        ConfigError: Lists every option that is wrong.
    """
    return _with_mechanism("audit", AuditOptions, values, _check_worlds)


def calibrate_options(values: Mapping[str, Any]) -> CalibrateOptions:
    """Validate the options of ``dptext calibrate``, given by option name; None means not given.

    Raises:
        ConfigError: Lists every option that is wrong.
    """
    given = _given(values)
    for name in ("epsilon", "lambda"):
        if name in given:
            given[name] = tuple(sorted({*_several(given[name])}))
    shared = {n: given.pop(n) for n in MECHANISM_OPTIONS if n in given and n not in ("epsilon", "lambda")}
    name = given.pop("mechanism", None)
    built, *_ = _collect(
        "calibrate",
        lambda: _grid(name, given, shared),
        lambda: Target.parse(given["target"]) if "target" in given else None,
        lambda: _check_words(given.get("words", 2)),
        lambda: CalibrateOptions(**{**given, "mechanism": (_STAND_IN,)}),
    )
    return CalibrateOptions(**{**given, "mechanism": built})


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _grid(name: str | None, given: Mapping[str, Any], shared: Mapping[str, Any]) -> tuple[Mechanism, ...]:
    """Configure the mechanism at each lambda, and there at each epsilon."""
    lambdas = [{"lambda": value} for value in given.get("lambda", ())] or [{}]
    return tuple(
        _mechanism(name, {**shared, **weight, "epsilon": epsilon})
        for weight in lambdas
        for epsilon in given.get("epsilon") or (1.0,)
    )


def _check_words(words: Any) -> None:
    if words != "all" and (not str(words).isdigit() or int(words) < 2):
        raise ConfigError(
            "Option --words has a wrong value", allowed="a number, 2 or more, or all", got=repr(words)
        )


OptionsT = TypeVar("OptionsT", bound=Options)


def _with_mechanism(
    command: str,
    kind: type[OptionsT],
    values: Mapping[str, Any],
    *checks: Callable[[Mapping[str, Any]], None],
) -> OptionsT:
    """Validate options of which those of the mechanism are a part."""
    given = _given(values)
    parameters = {name: given.pop(name) for name in MECHANISM_OPTIONS if name in given}
    name = given.pop("mechanism", None)
    built, *_ = _collect(
        command,
        lambda: _mechanism(name, parameters),
        *(partial(check, given) for check in checks),
        # The options are checked even when the mechanism is wrong; this stand-in is never used.
        lambda: kind(**{**given, "mechanism": _STAND_IN}),
    )
    return kind(**{**given, "mechanism": built})


def _without_mechanism(
    command: str,
    kind: type[OptionsT],
    values: Mapping[str, Any],
    *checks: Callable[[Mapping[str, Any]], None],
) -> OptionsT:
    given = _given(values)
    *_, options = _collect(command, *(partial(check, given) for check in checks), lambda: kind(**given))
    return cast(OptionsT, options)


def _check_incremental(given: Mapping[str, Any]) -> None:
    if "incremental" not in given:
        if "batch-files" in given:
            raise ConfigError("Option --batch-files is for --incremental runs")
        return
    if "key-file" not in given:
        raise ConfigError(
            "Option --incremental needs --key-file",
            do="Make one with: (umask 077; openssl rand -hex 32 > KEYFILE); a batch that is tried again then "
            "gets the same noise",
        )
    if given.get("overwrite"):
        raise ConfigError("Options --incremental and --overwrite do not go together")
    if "id" in given and not given.get("trust-id"):
        raise ConfigError(
            "Option --incremental cannot check that --id names every row of all runs once",
            do="Leave it out to name rows by file and position, or vouch for it with --trust-id",
        )


def _check_worlds(given: Mapping[str, Any]) -> None:
    worlds = given.get("world") or WORLDS
    if unknown := [world for world in worlds if world not in WORLDS]:
        raise ConfigError("The --world is unknown", allowed=", ".join(WORLDS), got=", ".join(unknown))
    if BUNDLE_WORLD in worlds and "embedding" not in given:
        raise ConfigError("Option --embedding is missing", do="Or name small worlds only, with --world")


def vectors_options(values: Mapping[str, Any]) -> VectorsOptions:
    """Validate the options of ``dptext vectors``, given by option name; None means not given.

    Raises:
        ConfigError: Lists every option that is wrong.
    """
    return _without_mechanism(
        "vectors",
        VectorsOptions,
        values,
        lambda given: _check_columns(given, "vector", "text"),
        _check_embedding,
    )


def _check_embedding(given: Mapping[str, Any]) -> None:
    if bool(given.get("text")) != ("embedding" in given):
        raise ConfigError(
            "Options --text and --embedding go together",
            do="Give a text column the bundle of its words' vectors; --vector columns need none",
        )


def _check_columns(given: Mapping[str, Any], *kinds: str) -> None:
    sanitized = [name for kind in kinds for name in given.get(kind, ())]
    options = [f"--{kind}" for kind in kinds]
    if not sanitized:
        raise ConfigError("No column is to be sanitized", do=f"Name at least one with {' or '.join(options)}")
    if repeated := sorted({name for name in sanitized if sanitized.count(name) > 1}):
        raise ConfigError(f"Columns are named twice in {' and '.join(options)}", got=", ".join(repeated))
    if raw := sorted({*sanitized} & {*given.get("keep", ())}):
        raise ConfigError("Columns are both sanitized and passed raw with --keep", got=", ".join(raw))
    if given.get("id") in sanitized:
        raise ConfigError("The --id column cannot be sanitized itself", got=str(given["id"]))


def embedding_options(values: Mapping[str, Any]) -> EmbeddingOptions:
    """Validate the options of ``dptext embedding``, given by option name; None means not given.

    Raises:
        ConfigError: Lists every option that is wrong.
    """
    return _without_mechanism("embedding", EmbeddingOptions, values)


def poincare_options(values: Mapping[str, Any]) -> PoincareOptions:
    """Validate the options of ``dptext poincare``, given by option name; None means not given.

    Raises:
        ConfigError: Lists every option that is wrong.
    """
    return _without_mechanism("poincare", PoincareOptions, values)


_STAND_IN: Final = MECHANISMS["laplace"](epsilon=1.0)


def _mechanism(name: str | None, parameters: Mapping[str, Any]) -> Mechanism:
    if name is None:
        raise ConfigError("Option --mechanism is missing", allowed=", ".join(sorted(MECHANISMS)))
    return mechanism(name, **parameters)


def _collect(command: str, *steps: Callable[[], Any]) -> list[Any]:
    results: list[Any] = []
    problems: list[str] = []
    for step in steps:
        try:
            results.append(step())
        except ConfigError as error:
            problems.append(str(error))
        except ValidationError as error:
            problems += map(_problem, error.errors())
    if problems:
        listed = "\n  ".join(problems).rstrip(".")
        raise ConfigError(f"Options of {command} are wrong:\n  {listed}")
    return results


def _problem(error: Mapping[str, Any]) -> str:
    """Write one of pydantic's findings in this package's form."""
    if not error["loc"]:  # found by a check of several options together
        return str(error["msg"]).removeprefix("Value error, ") + "."
    option = f"Option --{error['loc'][0]}"
    if error["type"] == "missing":
        return f"{option} is missing."
    if error["type"] == "extra_forbidden":
        return f"{option} is not an option of this command or mechanism."
    bounds = error.get("ctx", {})
    allowed = {
        "greater_than": f"a number above {bounds.get('gt', 0):g}",
        "greater_than_equal": f"a number, {bounds.get('ge', 0):g} or more",
        "less_than": f"a number below {bounds.get('lt', 0):g}",
        "less_than_equal": f"a number, {bounds.get('le', 0):g} or less",
        "finite_number": "a finite number",
        "enum": str(bounds.get("expected", "")).replace("'", ""),
    }.get(error["type"], error["msg"].removeprefix("Input should be "))
    return str(ConfigError(f"{option} has a wrong value", allowed=allowed, got=repr(error["input"])))


def read_config(path: Path, allowed: Mapping[str, str]) -> dict[str, Any]:
    """Read a TOML file of options.

    Args:
        path: The file; its keys are option names.
        allowed: Option names of the command, to the names that the result has them under.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or has an unknown key.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"The configuration file {path} cannot be read", got=str(error.strerror)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The configuration file {path} is not TOML", got=str(error)) from None
    if unknown := [key for key in values if key not in allowed]:
        hints = [
            f"{key} -> {near[0]}" for key in unknown if (near := difflib.get_close_matches(key, allowed))
        ]
        raise ConfigError(
            f"The configuration file {path} has unknown options",
            allowed=", ".join(sorted(allowed)),
            got=", ".join(unknown),
            do=f"Perhaps you meant {', '.join(hints)}" if hints else "Remove them",
        )
    return {allowed[key]: value for key, value in values.items()}
