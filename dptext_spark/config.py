"""Validated options: one object for the command line, a TOML file, Python and the report."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, ValidationError

from dptext_spark.embedding import Embedding
from dptext_spark.errors import ConfigError, DptextError
from dptext_spark.mechanisms import MECHANISMS, Mechanism, mechanism
from dptext_spark.noise import NoiseKey, ReleaseNoise
from dptext_spark.privatizer import check_release_words
from dptext_spark.text import Oov, TextPolicy


def option_name(field: str) -> str:
    """Give a field's name as an option has it: ``release_words`` -> ``release-words``."""
    return field.replace("_", "-")


class Options(BaseModel):
    """Options of a job; field names are the option names with underscores."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=option_name,
        validate_by_name=True,
        validate_by_alias=True,
    )


class EmbeddingOptions(Options):
    """Options of ``dptext embedding``."""

    source: Path = Field(description="GloVe or word2vec text, word2vec binary, fastText .vec, or .npy")
    output: Path = Field(description="folder of the bundle to make")
    format: str = Field("auto", description="auto, text, word2vec-binary or npy")
    vocabulary: Path | None = Field(
        None, description="words of an .npy source, one a line; default: vocab.txt beside it"
    )
    limit: int | None = Field(None, ge=2, description="read the first N words only")
    normalize: str = Field("none", description="none or unit: scale every vector to length 1")
    release_words: str | None = Field(
        None, description="words that may be output: a file, one a line, or N for the first N; default: all"
    )
    geometry: str = Field("euclidean", description="euclidean or poincare")
    overwrite: bool = Field(False, description="replace a bundle that exists")


class PoincareOptions(Options):
    """Options of ``dptext poincare``."""

    pairs: str = Field(
        min_length=1,
        description="is-a pairs: Parquet with columns hyponym, hypernym[, count], or such a TSV (.gz too)",
    )
    output: Path = Field(description="folder of the bundle to make; OUTPUT.vec and OUTPUT.png lie beside it")
    vocabulary: Path | None = Field(
        None, description="keep pairs of these words only: a bundle, or a file with one word a line"
    )
    min_count: int = Field(
        10, ge=0, description="keep pairs seen this often; nothing where pairs have no count"
    )
    min_links: int = Field(2, ge=0, description="remove words with this many links or fewer")
    exclude: Path | None = Field(None, description="words to remove: a file with one word a line")
    transitive_closure: bool = Field(False, description="add the pairs that follow from others")
    dimension: int = Field(10, ge=2, le=1000, description="dimension of the Poincaré ball")
    epochs: int = Field(200, ge=1, description="passes over the pairs, at most")
    negatives: int = Field(128, ge=1, description="words that the pairs of a batch are told apart from")
    learning_rate: float = Field(
        0.3, gt=0, le=10, allow_inf_nan=False, description="hyperbolic step for a gradient of length 1"
    )
    batch_size: int = Field(128, ge=1, description="pairs of one update")
    patience: int = Field(50, ge=1, description="epochs without a better mean rank before training ends")
    seed: int = Field(0, ge=0, lt=2**63, description="the same seed gives the same vectors")
    checkpoint: Path | None = Field(
        None, description="folder for the state of the training; a run that was cut off goes on from it"
    )
    report: Path | None = Field(None, description="where the report goes; default: OUTPUT.report.json")
    overwrite: bool = Field(False, description="replace a bundle and a report that exist")

    @property
    def report_path(self) -> Path:
        """Where the report goes."""
        return self.report or self.beside("report.json")

    def beside(self, suffix: str) -> Path:
        """Give the path beside the bundle with this suffix."""
        return self.output.with_name(f"{self.output.name}.{suffix}")


class PrivatizeOptions(Options):
    """Options of ``dptext privatize``."""

    input: str = Field(min_length=1, description="Parquet file or folder; any path that Spark can read")
    output: str = Field(min_length=1, description="Parquet folder to write; must not exist")
    embedding: Path = Field(description="embedding bundle, made by dptext embedding")
    mechanism: InstanceOf[Mechanism] = Field(description="how words are perturbed")
    text: tuple[str, ...] = Field((), description="string column to sanitize; repeatable")
    tokens: tuple[str, ...] = Field((), description="array<string> column to sanitize; repeatable")
    id: str | None = Field(
        None,
        description="column that names each row, unique and without nulls; default: file and row position",
    )
    keep: tuple[str, ...] = Field((), description="column to pass through AS IT IS; repeatable")
    oov: Oov = Field(Oov.MASK, description="words outside the vocabulary")
    protect: str = Field(
        "all", description="all, content (stop words pass) or slots:COLUMN (all else passes)"
    )
    release_words: int | None = Field(None, description="output only the first N releasable words")
    key_file: Path | None = Field(
        None, description="32-byte key, mode 0600, for a repeatable release; default: a fresh key, never kept"
    )
    salt: str = Field("", description="keeps tables apart that share a key and ids")
    trust_id: bool = Field(False, description="skip the check that ids are unique and not null")
    report: str | None = Field(None, description="where the report goes; default: OUTPUT.report.json")
    overwrite: bool = Field(False, description="replace an output table that exists")
    dry_run: bool = Field(False, description="check everything, print the guarantee, write nothing")

    @property
    def policy(self) -> TextPolicy:
        """The text policy.

        Raises:
            ConfigError: ``protect`` is none of the policies.
        """
        return TextPolicy(oov=self.oov, protect=self.protect)

    @property
    def report_path(self) -> str:
        """Where the report goes."""
        return self.report or f"{self.output.rstrip('/')}.report.json"

    def to_json(self) -> dict[str, Any]:
        """Give the options as JSON-ready values; the key file's place is left out."""
        values = self.model_dump(mode="json", by_alias=True, exclude={"mechanism", "key_file"})
        parameters = self.mechanism.model_dump(mode="json", by_alias=True)
        key = "file" if self.key_file else "fresh, not kept"
        return {**values, "mechanism": self.mechanism.name, **parameters, "key": key}


class Release:
    """What a run needs, opened and checked against each other on the driver.

    Raises:
        ConfigError: Anything does not fit; all faults at once.
    """

    def __init__(self, options: PrivatizeOptions) -> None:
        key, embedding, policy = all_of(
            lambda: NoiseKey.read(options.key_file) if options.key_file else NoiseKey.generate(),
            lambda: Embedding.open(options.embedding),
            lambda: options.policy,
        )
        self.embedding: Embedding = embedding
        self.policy: TextPolicy = policy
        self.release_words, _ = all_of(
            lambda: check_release_words(embedding, options.release_words),
            lambda: options.mechanism.check(embedding),
        )
        self.guarantee = options.mechanism.guarantee(embedding)
        self.noise = ReleaseNoise.of(
            key, salt=options.salt, law=options.mechanism.law(), fingerprint=embedding.fingerprint
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
    given = {name: value for name, value in values.items() if value is not None}
    parameters = {name: given.pop(name) for name in MECHANISM_OPTIONS if name in given}
    name = given.pop("mechanism", None)
    built, *_ = _collect(
        "privatize",
        lambda: _mechanism(name, parameters),
        lambda: _check_columns(given),
        # The options are checked even when the mechanism is wrong; this stand-in is never used.
        lambda: PrivatizeOptions(**given, mechanism=_STAND_IN),
    )
    return PrivatizeOptions(**given, mechanism=built)


def _check_columns(given: Mapping[str, Any]) -> None:
    sanitized = [*given.get("text", ()), *given.get("tokens", ())]
    if not sanitized:
        raise ConfigError("No column is to be sanitized", do="Name at least one with --text or --tokens")
    if repeated := sorted({name for name in sanitized if sanitized.count(name) > 1}):
        raise ConfigError("Columns are named twice in --text and --tokens", got=", ".join(repeated))
    if raw := sorted({*sanitized} & {*given.get("keep", ())}):
        raise ConfigError("Columns are both sanitized and passed raw with --keep", got=", ".join(raw))
    if given.get("id") in sanitized:
        raise ConfigError("The --id column cannot be sanitized itself", got=str(given["id"]))


def embedding_options(values: Mapping[str, Any]) -> EmbeddingOptions:
    """Validate the options of ``dptext embedding``, given by option name; None means not given.

    Raises:
        ConfigError: Lists every option that is wrong.
    """
    given = {name: value for name, value in values.items() if value is not None}
    options: EmbeddingOptions
    (options,) = _collect("embedding", lambda: EmbeddingOptions(**given))
    return options


def poincare_options(values: Mapping[str, Any]) -> PoincareOptions:
    """Validate the options of ``dptext poincare``, given by option name; None means not given.

    Raises:
        ConfigError: Lists every option that is wrong.
    """
    given = {name: value for name, value in values.items() if value is not None}
    options: PoincareOptions
    (options,) = _collect("poincare", lambda: PoincareOptions(**given))
    return options


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
