"""The commands' options: one object for the command line, a TOML file and the report.

A new command is a class here, a module of its name in ``dptext_spark.jobs``, and a file in
``conf``.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from inspect import get_annotations
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    Strict,
    ValidationError,
    ValidationInfo,
)
from pydantic.fields import FieldInfo

from dptext_spark.accounting.row_budget import RowBudget
from dptext_spark.calibration.recall import RECALL, chosen_search
from dptext_spark.calibration.statistics import CONFIDENCE, ETA, GAMMA
from dptext_spark.calibration.target import Target
from dptext_spark.channel.posteriors import LIMIT
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.lists import check_faiss, index_lists
from dptext_spark.embedding.readers import formats
from dptext_spark.embedding.spaces import GeometryName, Normalization, Precision
from dptext_spark.errors import ConfigError, all_of, faults, parsed, printable
from dptext_spark.evaluation.attackers import CANDIDATES, TOP
from dptext_spark.evaluation.measures import MEASURES
from dptext_spark.evaluation.own_attackers import load_attacker
from dptext_spark.evaluation.target import Target as EvaluationTarget
from dptext_spark.guarantee import DELTAS, ROWS
from dptext_spark.mechanisms import LEAST_EPSILON, MECHANISMS, Mechanism, mechanism
from dptext_spark.mechanisms.vectors import ProjectedVectors, VectorSetting, projected_vectors
from dptext_spark.noise import NoiseKey, check_release_name
from dptext_spark.search.nearest import SEARCHES, Search
from dptext_spark.text.actions import Surrogate
from dptext_spark.text.identifiers import Identifiers
from dptext_spark.text.patterns.user import UserPatterns
from dptext_spark.text.policies import (
    IDENTIFIERS,
    NUMBER_POLICY,
    OWN_PATTERNS,
    TOKENIZER,
    WORDS_ALONE,
    NumberPolicy,
    PolicyParameters,
    TextPolicy,
)
from dptext_spark.text.tokens import Segmentation

COMMANDS: Final[dict[str, type[Options]]] = {}

ALL: Final = "*"
"""Among the columns that are kept: all others."""

FILLED_IN: Final = "<as for evaluate>"
"""What a printed command has in place of what may be private."""

LEAST_DELTA: Final = 1e-12
"""Below this the Fourier transforms that add losses up are no longer exact enough."""


def option(description: str, default: Any = ..., **field: Any) -> Any:
    """Declare an option with its line of help, by default one that must be given.

    Of the arguments of pydantic's ``Field`` the title is the heading of the help that it stands
    under, and ``repr=False`` keeps its value out of messages.
    """
    return Field(default, description=description, **field)


TABLE: Final = partial(option, title="Table")
WORDS: Final = partial(option, title="Words")
NOISE: Final = partial(option, title="Noise and key")
OUTPUT: Final = partial(option, title="Output")
ROWS_OF: Final = partial(option, title="Rows and persons")
LEDGER: Final = partial(option, title="Ledger")
MEASURE: Final = partial(option, title="Measuring")
BUNDLE: Final = partial(option, title="Bundle")
PAIRS: Final = partial(option, title="Pairs")
TRAINING: Final = partial(option, title="Training")


# Values; the help shows text, and what a function names.


def read_by(read: Callable[[Any], object]) -> AfterValidator:
    """Validate a value by reading it, so that an error of this package is one of several faults.

    Text that comes out is the value in its one form.
    """

    def check(value: Any) -> Any:
        try:
            result = read(value)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if isinstance(result, str):
            return result
        return value

    return AfterValidator(check)


def check_row_budget(spec: str) -> str:
    """Return a row budget in its one form, by which a checkpoint compares it."""
    RowBudget.of(spec)
    loss, parameters = parsed(spec)
    pairs = [f"{name}={_shortest(value)}" for name, value in sorted(parameters.items())]
    return ":".join(filter(None, [_shortest(loss), ",".join(pairs)]))


def _shortest(number: float | str) -> str:
    """Return the shortest text that reads as a number."""
    return repr(float(number)).removesuffix(".0")


def check_pairs(pairs: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    """Check that each name of ``NAME=VALUE`` comes once; Spark takes names in any capitals."""
    names = Counter(pair.partition("=")[0].lower() for pair in pairs)
    repeated = [name for name, count in names.items() if count > 1]
    if repeated:
        option = str(info.field_name).replace("_", "-")
        error = ConfigError(
            f"Option --{option} has a name more than once",
            allowed="NAME=VALUE, each NAME once, in whatever capitals",
            got=", ".join(repeated),
            do="Remove all but one of them",
        )
        raise ValueError(str(error))
    return pairs


def _expanded(path: Path) -> Path:
    """Expand ~ in a path of a TOML file, as a shell does."""
    return Path(os.path.expanduser(path))


def _pair_names(pairs: Iterable[str]) -> list[str]:
    """Return the names of ``NAME=VALUE``: reports have these alone."""
    return sorted({pair.partition("=")[0] for pair in pairs})


def _pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Return the values of ``NAME=VALUE``, by their names."""
    return dict(pair.split("=", 1) for pair in pairs)


def _number_as_text(value: Any) -> Any:
    """Return a number as text: TOML has numbers, and one by itself has no parameters."""
    if type(value) in (int, float):
        return str(value)
    return value


LocalPath: TypeAlias = Annotated[Path, Strict(False), AfterValidator(_expanded)]
TablePath: TypeAlias = Annotated[
    str, Field(min_length=1), AfterValidator(os.path.expanduser), "PATH"
]
# In Python a key itself will do, which no dump of options may have.
KeyFile: TypeAlias = Annotated[
    LocalPath | InstanceOf[NoiseKey], PlainSerializer(lambda _: "not shown")
]
Column: TypeAlias = Annotated[str, "COLUMN"]
Columns: TypeAlias = tuple[Column, ...]
Pair: TypeAlias = Annotated[str, Field(pattern="^[^=]+="), "NAME=VALUE"]
Pairs: TypeAlias = Annotated[
    tuple[Pair, ...], AfterValidator(check_pairs), PlainSerializer(_pair_names)
]
Seed: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
Share: TypeAlias = Annotated[float, Field(gt=0.0, lt=1.0)]
Confidence: TypeAlias = Annotated[float, Field(gt=0.5, lt=1.0)]
Above0: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count: TypeAlias = Annotated[int, Field(ge=1)]
SomeOrAll: TypeAlias = Annotated[int, Field(ge=2)] | Literal["all"]
MechanismSpec: TypeAlias = Annotated[
    str, read_by(lambda spec: mechanism(spec, epsilon=1.0).spec), "NAME"
]
VectorSpec: TypeAlias = Annotated[
    str, read_by(lambda spec: projected_vectors(spec, epsilon=1.0)), "NAME"
]
DISTINCT: Final = AfterValidator(lambda values: tuple(dict.fromkeys(values)))
Epsilon: TypeAlias = Annotated[float, Field(ge=LEAST_EPSILON, allow_inf_nan=False)]
SORTED: Final = AfterValidator(lambda numbers: tuple(sorted({*numbers})))
WRITTEN: Final = BeforeValidator(_number_as_text)
EMBEDDING: Final = "bundle that dptext embedding made"
TABLE_FORMATS: Final = "parquet, orc, csv, json, delta, iceberg or table"
MECHANISM: Final = f"{', '.join(sorted(MECHANISMS))}; with parameters, e.g. mahalanobis:lambda=0.5"
RELEASE_WORDS: Final = "allow only the first N releasable words in the output"
NEVER_OUTPUT: Final = "file of words that must never be output, one per line"
PUBLIC_SEED: Final = "public seed of the simulated noise"


def several(field: FieldInfo) -> bool:
    """Return whether an option may be given several times."""
    return get_origin(field.annotation) is tuple


class Options(BaseModel):
    """Options of a job; field names are the option names with underscores.

    A subclass with a ``command`` is that command, its docstring the help, and the module of that
    name in ``dptext_spark.jobs`` runs it, unless ``runner`` names another. None and empty lists
    count as not given, one value will do for a repeatable option.

    Attributes:
        usage: An example of what may follow the command's name, for its help.
        first: Options that the short help has besides what must be given.
        runner: The module whose ``run(options)`` does the work.
        on_spark: Whether the work may need a Spark session.
        on_connect: Whether that may be one of Spark Connect.
        once: What to do in place of giving an option again, by its name.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=lambda field: field.replace("_", "-"),
    )

    command: ClassVar[str]
    positional: ClassVar[tuple[str, ...]] = ()
    usage: ClassVar[str]
    first: ClassVar[str] = ""
    runner: ClassVar[str] = "dptext_spark.jobs.{command}"
    on_spark: ClassVar[bool] = True
    on_connect: ClassVar[bool] = False
    once: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "command" in cls.__dict__:
            COMMANDS[cls.command] = cls

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Validate options given by option name.

        Raises:
            ConfigError: Lists every option that is wrong. It quotes no field with ``repr=False``,
                whose value may be private.
        """
        fields = cls.fields()
        arguments = cls.named(values)
        for name, value in arguments.items():
            if name not in fields or not several(fields[name]):
                continue
            if not isinstance(value, list | tuple):
                value = (value,)
            arguments[name] = tuple(value)
        problems = []
        try:
            options = cls.model_validate(arguments)
        except ValidationError as error:
            secret = {name for name, field in fields.items() if not field.repr}
            problems = faults(
                error,
                lambda e: f"Option --{e['loc'][0]}",
                unknown="is not an option of this command",
                known=fields,
                hidden=lambda e: e["loc"][0] in secret,
            )
            options = cls.model_construct(**arguments)
        try:
            for conflict in options.conflicts():
                problems.append(str(conflict))
        except (AttributeError, TypeError, ValueError):
            if not problems:
                raise
            # Of values of a wrong type, or missing, which are named already.
        if problems:
            raise ConfigError(
                f"Options of {cls.command} are wrong", faults=[*dict.fromkeys(problems)]
            )
        return options

    @classmethod
    def named(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is given, by option name; ``_`` may stand for ``-``.

        Raises:
            ConfigError: Two names mean one option, and both are given.
        """
        aliases = {name: str(field.alias) for name, field in cls.model_fields.items()}
        named: dict[str, Any] = {}
        spelling: dict[str, str] = {}
        for name, value in values.items():
            if value is None or value in ((), []):
                continue
            option = aliases.get(name, name)
            if option in named:
                raise ConfigError(
                    f"Option --{option} must be given once",
                    got=f"{spelling[option]} and {name}",
                    do="Remove one of them",
                )
            named[option] = value
            spelling[option] = name
        return named

    @classmethod
    def fields(cls) -> dict[str, FieldInfo]:
        """Return the fields by option name, a class's own before those of its bases."""
        fields: dict[str, FieldInfo] = {}
        for kind in cls.__mro__:
            for name in get_annotations(kind):
                field = cls.model_fields.get(name)
                if field is not None:
                    fields.setdefault(str(field.alias), field)
        return fields

    def conflicts(self) -> Iterator[ConfigError]:
        """Yield an error for options that do not go together.

        Any of them may be of a wrong type here, or missing.
        """
        return iter(())

    @property
    def unfinished(self) -> str:
        """What a run leaves that is interrupted."""
        return "No output was written."

    @property
    def results(self) -> tuple[tuple[str, str], ...]:
        """What a run leaves when it has ended well, also if its report cannot be printed.

        Each is a name and a path; there are none where all of the result is what is printed.
        """
        return ()

    def finish(self, report: Any) -> str:
        """End a run whose report was shown; return where its results lie."""
        return ""

    def to_json(self) -> dict[str, Any]:
        """Return the options by name, for reports and results: what a file names is not quoted."""
        values = self.model_dump(mode="json", by_alias=True)
        patterns = getattr(self, "identifier_patterns", None)
        if patterns is not None:  # it may hold names of persons
            values["identifier-patterns"] = patterns.identity
        return values


# Groups


class SearchOptions(Options):
    """How released words are found, in the commands that run a mechanism."""

    search: Annotated[str, read_by(Search.named), lambda: sorted(SEARCHES)] = WORDS(
        f"how the nearest word is searched for: exact, ivf, ivf:recall={RECALL:g}", "exact"
    )

    @property
    def policy(self) -> TextPolicy:
        """The policy that decides which words may be output: all, in commands without one."""
        return WORDS_ALONE

    def search_over(self, embedding: Embedding, release_words: int | None = None) -> Search:
        """Return the search among the words of a bundle that may be output.

        It suits the mechanisms, which are checked and prepared.
        """
        mechanisms: Any = getattr(self, "mechanism", ())
        if not isinstance(mechanisms, tuple):
            mechanisms = (mechanisms,)
        search: Search
        search, *_ = all_of(
            lambda: chosen_search(
                self.search,
                embedding,
                mechanisms,
                policy=self.policy,
                release_words=release_words,
            ),
            *(partial(configured.prepare, embedding) for configured in mechanisms),
        )
        return search


class MechanismOptions(SearchOptions):
    """One mechanism."""

    spec: MechanismSpec = NOISE(f"mechanism: {MECHANISM}", alias="mechanism")
    epsilon: Epsilon = NOISE("privacy parameter, in nats per unit of distance; smaller: more noise")

    @property
    def mechanism(self) -> Mechanism:
        return mechanism(self.spec, epsilon=self.epsilon)


class GridOptions(SearchOptions):
    """Every mechanism at every epsilon."""

    specs: Annotated[tuple[MechanismSpec, ...], DISTINCT] = NOISE(
        f"mechanism, repeatable: {MECHANISM}", alias="mechanism"
    )
    epsilon: Annotated[tuple[Epsilon, ...], SORTED] = NOISE(
        "privacy parameters, e.g. 5 10 20; smaller: more noise"
    )

    @property
    def mechanism(self) -> tuple[Mechanism, ...]:
        """Each mechanism, in the order given, and of each the epsilons, ascending."""
        mechanisms: list[Mechanism] = []
        for spec in self.specs:
            mechanisms += [mechanism(spec, epsilon=epsilon) for epsilon in self.epsilon]
        return tuple(mechanisms)


class PolicyOptions(PolicyParameters, Options):
    """What happens to words, besides the mechanism, in the commands that sanitize texts."""

    @cached_property
    def policy(self) -> TextPolicy:
        """The text policy, without the rest of the options; built once."""
        return TextPolicy(**{name: getattr(self, name) for name in PolicyParameters.model_fields})


class InputOptions(Options):
    """The private table of a job, and what names its rows."""

    input: TablePath = TABLE("table to read: a file, a folder, or a name (--format table, iceberg)")
    format: str = TABLE(f"format of the input: {TABLE_FORMATS}", "parquet", min_length=1)
    read_option: Pairs = TABLE(
        "option of Spark's reader, e.g. header=true; repeatable", (), repr=False
    )
    id: Column | None = TABLE(
        "unique column that identifies rows; default: file and position", None
    )
    where: (
        Annotated[str, Field(min_length=1), PlainSerializer(lambda _: "given, not kept"), "SQL"]
        | None
    ) = TABLE("SQL condition: use only rows that meet it; Spark's logs show it", None, repr=False)
    trust_id: bool = TABLE(
        "skip the check that ids are unique; equal ids reveal equal texts", False
    )

    @property
    def read_options(self) -> dict[str, str]:
        return _pairs(self.read_option)


class TableOptions(InputOptions):
    """What the jobs share that turn a private table into one for release."""

    published: ClassVar[frozenset[str]] = frozenset(
        {"epsilon", "epsilon-from-private-rows", "id", "key", "text", "tokenizer", "trust-id"}
    )
    """Options that may be shared: no place, filter, name, nor dropped column except the id."""

    output: TablePath = OUTPUT("folder or table to write")
    output_format: str | None = OUTPUT(
        f"format of the output: {TABLE_FORMATS}; default: the input's", None, min_length=1
    )
    write_option: Pairs = OUTPUT(
        "option of Spark's writer, e.g. compression=zstd; repeatable", (), repr=False
    )
    keep: Columns = TABLE("column to release UNCHANGED; repeatable; '*': all other columns", ())
    except_: Columns = TABLE(
        "column to drop although --keep '*' is given; repeatable", (), alias="except"
    )
    key_file: KeyFile | None = NOISE(
        "file with a 32-byte key, mode 0600; repeats a release; default: fresh key",
        None,
        repr=False,
    )
    name: Annotated[str, "NAME"] = NOISE(
        "name of this release, e.g. 'queries 2026-03-01'; needs --key-file", ""
    )
    reports: TablePath | None = OUTPUT(
        "folder for both reports; default: next to the output; required for a partition NAME=VALUE",
        None,
    )
    epsilon_from_private_rows: bool = OUTPUT(
        "state in the report that epsilon was chosen from these rows", False
    )
    mode: Literal["error", "overwrite", "append"] = OUTPUT(
        "what to do if the output exists", "error"
    )
    dry_run: bool = OUTPUT("check everything and print the guarantee, but write nothing", False)

    @property
    def write_options(self) -> dict[str, str]:
        return _pairs(self.write_option)

    def beside(self, name: str) -> str:
        """Return the path of a file in the folder of reports, or next to the output."""
        if self.reports is None:
            return f"{self.output.rstrip('/')}.{name}"
        return f"{self.reports.rstrip('/')}/{name}"

    @property
    def report_path(self) -> str:
        """Where the report goes that may not be shared, in a folder of its own."""
        return self.beside("private/report.json")

    @property
    def public_report_path(self) -> str:
        """Where the report goes that may be shared with the table."""
        return self.beside("release.json")

    @property
    def page_path(self) -> str:
        """Where the page goes that can be signed."""
        return self.beside("release.html")

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        """What the job writes besides its output: a name and its path."""
        return (
            ("Public report", self.public_report_path),
            ("Report", self.report_path),
            ("Page to sign", self.page_path),
        )

    @property
    def places(self) -> tuple[tuple[str, str, str], ...]:
        """All that must lie apart: a name, the option that moves it, and its path."""
        files = ((what, "--reports", path) for what, path in self.files)
        return (("Input", "--input", self.input), ("Output", "--output", self.output), *files)

    @property
    def results(self) -> tuple[tuple[str, str], ...]:
        if self.dry_run:
            return ()
        return (("Output", self.output), *self.files)

    def finish(self, report: Any) -> str:
        if self.dry_run:
            written = "."
            if self.reports:
                written = f" except the page {self.page_path} and the report: {self.report_path}"
            return f"Dry run: all options are right, nothing was written{written}"
        return "\n".join(printable(f"{what}: {path}") for what, path in self.results)

    def noise_key(self) -> NoiseKey:
        """Read the key, or make a fresh one; a ConfigError where the key file cannot be used."""
        return NoiseKey.of(self.key_file) or NoiseKey.generate()

    def column_conflicts(self, **kinds: tuple[str, ...]) -> Iterator[ConfigError]:
        """Yield what is wrong with the columns to sanitize, by the options that name them."""
        sanitized = [*chain.from_iterable(kinds.values())]
        if not sanitized:
            options = " or ".join(f"--{kind}" for kind in kinds)
            yield ConfigError(
                "No column to sanitize was given", do=f"Name at least one with {options}"
            )
        if self.except_ and ALL not in self.keep:
            yield ConfigError("Option --except needs --keep '*'", got=_listed(self.except_))
        if self.id in sanitized:
            yield ConfigError("The --id column cannot be sanitized", got=str(self.id))
        for name in ("layout", "tokenizer"):
            if not kinds["text"] and str(getattr(self, name, "words")) != "words":
                yield ConfigError(
                    f"Option --{name} is for texts", do="Name them with --text, or leave it out"
                )
        # Without a key that is kept a ledger still lists releases by their names.
        named_in_ledger = self.key_file is None and getattr(self, "ledger", None) is not None
        if not named_in_ledger:
            try:
                check_release_name(self.key_file, self.name)
            except ConfigError as error:
                yield error

    def to_json(self) -> dict[str, Any]:
        values = super().to_json()
        values.pop("search", None)
        values.pop("key-file")
        values["key"] = "fresh, not kept"
        if self.key_file is not None:
            values["key"] = "given" if isinstance(self.key_file, NoiseKey) else "file"
        return values


def _listed(names: Iterable[object]) -> str:
    return ", ".join(sorted({str(name) for name in names}))


# Commands, in the order in which a user needs them


class EmbeddingOptions(Options):
    """Build a bundle from word vectors.

    The other commands read the bundle.
    """

    command = "embedding"
    positional = ("source",)
    usage = "glove.6B.300d.txt --output glove-300d"
    first = "limit normalize release-words never-output geometry index"
    on_spark = False

    source: LocalPath = BUNDLE(
        "word vectors: GloVe or word2vec text, word2vec binary, fastText .vec, or .npy"
    )
    output: LocalPath = BUNDLE("folder of the bundle to write")
    format: Annotated[str, "NAME"] = BUNDLE(f"format of SOURCE: {', '.join(formats())}", "auto")
    vocabulary: LocalPath | None = BUNDLE(
        "file with the words of an .npy source; default: vocab.txt next to it", None
    )
    word_prefix: str | None = BUNDLE(
        "use only words with this prefix and strip it, e.g. /c/en/ for Numberbatch", None
    )
    limit: int | None = BUNDLE("read the first N rows only", None, ge=2)
    strict: bool = BUNDLE("fail on rows that cannot be used; by default they are skipped", False)
    normalize: Normalization = BUNDLE("how vectors are scaled: none, or unit (length 1)", "none")
    precision: Precision | None = BUNDLE(
        "precision of vectors: half takes half the space; default: single (poincare: double)", None
    )
    release_words: Annotated[str, "WORDS"] | int | None = BUNDLE(
        "words that may be output: a file, the first N, or all", None
    )
    never_output: LocalPath | None = BUNDLE(NEVER_OUTPUT, None)
    geometry: GeometryName = BUNDLE("geometry of the vectors: euclidean or poincare", "euclidean")
    index: (
        Annotated[str, read_by(index_lists), read_by(lambda _: check_faiss()), "INDEX"] | None
    ) = BUNDLE("index to build for --search ivf: ivf or ivf:LISTS; needs faiss", None)
    overwrite: bool = BUNDLE("replace an existing bundle", False)

    @property
    def results(self) -> tuple[tuple[str, str], ...]:
        return (("Bundle", str(self.output)),)


class TryOptions(PolicyOptions, GridOptions):
    """Sanitize a sentence, without Spark.

    Each mechanism and epsilon sanitizes it several times.
    """

    command = "try"
    positional = ("sentence",)
    usage = (
        '"play some jazz in boston" --embedding glove-50d \\\n'
        "      --mechanism laplace --mechanism exponential --epsilon 5 10 20"
    )
    first = "draws oov protect"
    runner = "dptext_spark.preview"
    on_spark = False

    sentence: str | None = WORDS(
        "text to sanitize; - or no text: read standard input", None, repr=False
    )
    embedding: LocalPath = WORDS(EMBEDDING)
    release_words: int | None = WORDS(RELEASE_WORDS, None)
    draws: int = NOISE("number of times that each setting sanitizes the sentence", 3, ge=1, le=1000)


class DoctorOptions(Options):
    """Check Java, Spark, memory, bundle and key.

    Everything is tried in one go. The exit code is 1 where something fails.
    """

    command = "doctor"
    usage = "--embedding glove-50d --key-file release.key --output sanitized"
    first = "embedding key-file output"
    on_connect = True

    embedding: LocalPath | None = BUNDLE(f"{EMBEDDING}, to be checked", None)
    key_file: LocalPath | None = NOISE("key file to be checked", None, repr=False)
    output: TablePath | None = OUTPUT("output that a release will have, to be checked", None)

    def finish(self, report: Any) -> str:
        """Fail where a check failed."""
        report.finish(None)
        return ""


class SuggestOptions(Options):
    """Look at a table, and propose a release.

    It says which columns look like texts, ids, people and times, by counts alone.
    """

    command = "suggest"
    usage = "--input queries.parquet --embedding glove-50d"
    first = "embedding where"

    input: TablePath = TABLE("file, folder, or table name (--format table, iceberg)")
    format: str = TABLE(f"format of the input: {TABLE_FORMATS}", "parquet", min_length=1)
    read_option: Pairs = TABLE(
        "option of Spark's reader, e.g. header=true; repeatable", (), repr=False
    )
    where: Annotated[str, Field(min_length=1), "SQL"] | None = TABLE(
        "condition on rows to look at", None, repr=False
    )
    embedding: LocalPath | None = WORDS(f"{EMBEDDING}, to see how many words it knows", None)

    @property
    def read_options(self) -> dict[str, str]:
        return _pairs(self.read_option)


class CalibrateOptions(GridOptions):
    """Measure how often words change.

    It measures mechanisms at several epsilons and reads no private text.
    """

    command = "calibrate"
    usage = (
        "--embedding glove-50d --output calibration --mechanism laplace \\\n"
        "      --epsilon 5 10 20 --target 'p95(n_w) <= 0.5'"
    )
    first = "words runs target overwrite"

    embedding: LocalPath = MEASURE(EMBEDDING)
    output: TablePath = OUTPUT("folder for tables and page; a killed run starts again")
    words: SomeOrAll = MEASURE("number of words to measure, spread over the vocabulary", 10_000)
    runs: Count = MEASURE("number of runs of each word at each epsilon", 1000)
    release_words: int | None = MEASURE(RELEASE_WORDS, None)
    identifiers: Annotated[Identifiers, "POLICY"] = IDENTIFIERS()
    identifier_patterns: Annotated[UserPatterns, "FILE"] | None = OWN_PATTERNS()
    numbers: NumberPolicy = NUMBER_POLICY()
    eta: Share = MEASURE("probability mass excluded from s_eta", ETA)
    gamma: Annotated[float, Field(gt=1, allow_inf_nan=False)] = MEASURE(
        "factor up to which k_gamma treats probabilities as equal", GAMMA
    )
    confidence: Confidence = MEASURE(
        "confidence level of each interval and of the target", CONFIDENCE
    )
    target: Annotated[str, read_by(Target.parse), "TARGET"] | None = MEASURE(
        "find the largest epsilon that meets this, e.g. 'p95(n_w) <= 0.5'", None
    )
    noise_seed: Seed = NOISE(PUBLIC_SEED, 0)
    overwrite: bool = OUTPUT("replace an existing calibration", False)

    @property
    def results(self) -> tuple[tuple[str, str], ...]:
        return (("Output", self.output),)

    @cached_property
    def policy(self) -> TextPolicy:
        """The policy of the releases that are calibrated, as far as it decides on outputs."""
        return TextPolicy(
            identifiers=self.identifiers,
            identifier_patterns=self.identifier_patterns,
            numbers=self.numbers,
        )

    @property
    def release_options(self) -> dict[str, object]:
        """The options of a release that has the words of this calibration."""
        options: dict[str, object] = {}
        for name in ("release-words", "identifiers", "identifier-patterns", "numbers"):
            value = getattr(self, name.replace("-", "_"))
            if value != type(self).model_fields[name.replace("-", "_")].default:
                options[name] = value
        return options

    def to_json(self) -> dict[str, Any]:
        values = super().to_json()
        values.pop("search")
        values["mechanism"] = ", ".join(self.specs)
        return values


MOST_VECTORS: Final = 20_000
"""Rows whose vectors can be evaluated: one task of Spark holds them."""

_OF_VECTORS: Final = ("recovered_words", "linked", "membership", "distances", "products")
_OF_WORDS: Final = (
    *("versions", "candidates", "channel_limit", "attacker", "release_words", "public_corpus"),
    *("search", "topics"),
)
"""Options of ``evaluate`` that do nothing for vectors, besides those of policies."""

_LEARNT_FROM_WORDS: Final = ("accuracy_on_original", "accuracy_from_features")
"""Measures of labels that released vectors have not."""


class EvaluateOptions(PolicyOptions, GridOptions, InputOptions):
    """Measure risk and use on your own rows.

    It attacks simulated releases and measures what they keep; nothing is released.
    """

    command = "evaluate"
    usage = (
        "--input queries.parquet --text text --id id --embedding glove-50d --output evaluation \\\n"
        "      --mechanism laplace --mechanism exponential --epsilon 5 10 20 "
        "--target 'recovery(top1) <= 0.2'"
    )
    first = "text tokens id vectors sample target oov"
    once = {
        "text": "Evaluate each column separately, and release all at the smallest epsilon: the "
        "losses of a row's columns add up."
    }

    specs: Annotated[tuple[MechanismSpec, ...], DISTINCT] = NOISE(
        f"mechanism, repeatable: {MECHANISM}", (), alias="mechanism"
    )
    vectors: Annotated[tuple[VectorSpec, ...], DISTINCT] = NOISE(
        "evaluate dptext vectors instead, repeatable: main-axes, random, bags; with parameters, "
        "e.g. main-axes:dimension=12 or bags:kgrams=2",
        (),
    )
    embedding: LocalPath = MEASURE(EMBEDDING)
    output: TablePath = OUTPUT("folder for private findings; a killed run starts again")
    text: Column | None = TABLE("string column to evaluate; give this or --tokens", None)
    tokens: Column | None = TABLE("array<string> column to evaluate; give this or --text", None)
    label: Column | None = MEASURE(
        "column of classes: measure how well models learn them (use)", None
    )
    author: Column | None = MEASURE(
        "column of authors: measure how well attackers learn them (risk)", None
    )
    topics: LocalPath | None = MEASURE(
        "file of topics as for dptext estimate: measure how exact their shares are (use)", None
    )
    sample: SomeOrAll = MEASURE("number of rows to evaluate; the same rows in every run", 5000)
    public_corpus: TablePath | None = MEASURE(
        "public texts that attackers learn from; default: sampled rows", None
    )
    versions: int = MEASURE(
        "number of releases of each row that attackers combine", 1, ge=1, le=100
    )
    candidates: int = MEASURE(
        "number of words that attackers consider at each position", CANDIDATES, ge=max(TOP)
    )
    channel_limit: Share = MEASURE(
        "simulate noise until half of it costs attackers less than this share of words", LIMIT
    )
    attacker: tuple[Annotated[str, read_by(load_attacker), "MODULE:CLASS"], ...] = MEASURE(
        "own attacker, a class on PYTHONPATH; repeatable", ()
    )
    confidence: Confidence = MEASURE(
        "confidence level of each interval and of the choice", CONFIDENCE
    )
    release_words: int | None = WORDS(RELEASE_WORDS, None)
    # After the attackers that it may name.
    target: Annotated[str, read_by(EvaluationTarget.parse), "TARGET"] | None = MEASURE(
        "find the best setting that meets this, e.g. 'recovery(top1) <= 0.2'", None
    )
    noise_seed: Seed = NOISE(PUBLIC_SEED, 0)
    overwrite: bool = OUTPUT("replace an existing evaluation", False)

    @property
    def results(self) -> tuple[tuple[str, str], ...]:
        return (("Output", self.output),)

    def conflicts(self) -> Iterator[ConfigError]:
        column = str(self.text or self.tokens or "")
        if (self.text is None) == (self.tokens is None):
            yield ConfigError("Give either --text or --tokens")
        elif "[]" in column:
            yield ConfigError(
                "Fields inside arrays cannot be evaluated",
                got=column,
                do="Make a table of their elements with explode() first",
            )
        if self.topics is not None and str(self.protect) != "all":
            yield ConfigError(
                "--topics are evaluated where all words are perturbed",
                allowed="--protect all",
                got=str(self.protect),
            )
        if bool(self.specs) == bool(self.vectors):
            yield ConfigError(
                "Words or vectors are released", allowed="--mechanism or --vectors, one of them"
            )
        if self.vectors:
            yield from self._vector_conflicts()
        yield from self._class_conflicts(column)
        yield from self._target_conflicts()

    def _vector_conflicts(self) -> Iterator[ConfigError]:
        """Yield the options that do nothing for vectors."""
        fields = type(self).model_fields
        names = {*_OF_WORDS, *PolicyParameters.model_fields} - {"tokenizer"}
        idle = [name for name in sorted(names) if getattr(self, name) != fields[name].default]
        if idle:
            options = ", ".join(f"--{fields[name].alias}" for name in idle)
            yield ConfigError("Options do nothing for --vectors", got=options, do="Leave them out")
        kgrams = [projected_vectors(spec, epsilon=1.0).kgrams for spec in self.vectors]
        if self.tokens is not None and any(kgrams):
            yield ConfigError(
                "Bags of K-grams are of --text", do="Leave --vectors bags out, or --tokens"
            )
        if self.sample == "all" or self.sample > MOST_VECTORS:
            yield ConfigError(
                "Too many rows for --vectors: one task of Spark holds them",
                allowed=f"--sample {MOST_VECTORS} or less",
                got=str(self.sample),
            )

    @property
    def vector_settings(self) -> tuple[ProjectedVectors, ...]:
        """Each projection, in the order given, and of each the epsilons, ascending."""
        settings: list[ProjectedVectors] = []
        for spec in self.vectors:
            settings += [projected_vectors(spec, epsilon=value) for value in self.epsilon]
        return tuple(settings)

    def _class_conflicts(self, column: str) -> Iterator[ConfigError]:
        """Yield what is wrong with the columns of classes, besides the evaluated column."""
        classes = [str(name) for name in (self.label, self.author) if name]
        names = [column, *classes]
        repeated = [name for name in classes if names.count(name) > 1]
        if repeated:
            yield ConfigError(
                "The evaluated column, --label and --author must be different columns",
                got=_listed(repeated),
            )
        inside = [name for name in classes if "." in name or "[]" in name]
        if inside:
            yield ConfigError(
                "Options --label and --author need columns, not fields inside them",
                got=", ".join(inside),
            )

    def _target_conflicts(self) -> Iterator[ConfigError]:
        """Yield what the target counts that is not measured."""
        try:
            target = EvaluationTarget.parse(self.target or "")
        except (ConfigError, TypeError):  # none, or a wrong one
            return
        needs = MEASURES[target.measure].needs
        if needs == "vectors" and not self.vectors:
            yield ConfigError(f"The --target {target} is of --vectors")
        elif needs and not getattr(self, needs):
            yield ConfigError(f"The --target {target} needs --{needs}")
        elif self.vectors and (not needs or target.measure in _LEARNT_FROM_WORDS):
            if target.measure != "linked" or self.tokens:
                yield ConfigError(
                    f"The --target {target} is of released words",
                    allowed=f"{', '.join(_OF_VECTORS)}, or of --label and --author",
                )
        elif target.measure == "membership" and self.tokens:
            yield ConfigError(f"The --target {target} is of --text", do="Take another measure")
        if target.risk.versions not in (1, self.versions):
            yield ConfigError(
                f"The --target must count 1 version, or {self.versions} as --versions; got "
                f"{target.risk.versions}"
            )

    def release_command(
        self, mechanism: Mechanism | VectorSetting, search: Search | None = None
    ) -> str:
        """Return the command that makes a release with a setting, and says where epsilon is from.

        A filter and the values of read options may be private: they have to be filled in, and
        without them the command fails.
        """
        fields = type(self).model_fields
        names = ("embedding", "text", "tokens", "id", "format", *PolicyParameters.model_fields)
        options: dict[str, object] = {"input": self.input, "output": "sanitized"}
        for name in names:
            value = getattr(self, name)
            if value != fields[name].default:
                options[str(fields[name].alias)] = value
        if isinstance(mechanism, VectorSetting) and mechanism.noise.parameters.kgrams is not None:
            del options["embedding"]
        if search is not None:
            options |= search.options
            if self.release_words:
                options["release-words"] = search.release_words
        words = ["dptext", "vectors" if self.vectors else "privatize"]
        for name, value in options.items():
            words += [f"--{name}", str(value)]
        if self.trust_id:
            words.append("--trust-id")
        if self.where:
            words += ["--where", FILLED_IN]
        words.append("--epsilon-from-private-rows")
        for name in sorted(self.read_options):
            words += ["--read-option", f"{name}={FILLED_IN}"]
        return f"{shlex.join(words)} {mechanism.options}"


class AccountOptions(GridOptions):
    """Compute privacy loss, without Spark.

    It prints the worst case, and the loss with a small failure probability.
    """

    command = "account"
    usage = "--embedding glove-50d --mechanism laplace --epsilon 5 10 --words 1 10 100"
    first = "words distance deltas"
    runner = "dptext_spark.account"
    on_spark = False

    embedding: LocalPath = MEASURE(EMBEDDING)
    words: tuple[Annotated[int, Field(ge=1, le=10_000)], ...] = MEASURE(
        "number of words that differ together; several may follow", (1, *ROWS)
    )
    distance: tuple[Above0, ...] = MEASURE(
        "distance that each word moves; several may follow; default: typical ones", ()
    )
    deltas: tuple[Annotated[float, Field(ge=LEAST_DELTA, lt=1)], ...] = MEASURE(
        "failure probabilities; several may follow", DELTAS
    )


WorldName: TypeAlias = Literal["line", "star", "clusters", "bundle"]
WORLDS: Final = get_args(WorldName)
BUNDLE_WORLD: Final = "bundle"


class AuditOptions(MechanismOptions):
    """Test the code against its stated guarantee.

    The exit code is 1 if the code breaks it.
    """

    command = "audit"
    usage = "--embedding glove-50d --mechanism laplace --epsilon 10"
    first = "embedding world runs confidence noise-seed"
    on_spark = False

    embedding: LocalPath | None = MEASURE("bundle to audit; needed for --world bundle", None)
    world: tuple[WorldName, ...] = MEASURE(
        f"world to test, repeatable: {', '.join(WORLDS)}; default: all", ()
    )
    runs: int | None = MEASURE(
        "number of outputs of each word; default: 40000, in world bundle 4000", None, ge=100
    )
    confidence: Share = MEASURE("probability that a correct mechanism passes", 0.999)
    noise_seed: Annotated[int, Field(ge=0)] = NOISE(PUBLIC_SEED, 0)

    @property
    def worlds(self) -> tuple[WorldName, ...]:
        return tuple(dict.fromkeys(self.world)) or WORLDS

    def conflicts(self) -> Iterator[ConfigError]:
        if BUNDLE_WORLD in (self.world or WORLDS) and self.embedding is None:
            yield ConfigError(
                "World bundle needs --embedding", do="Give it, or other worlds with --world"
            )

    def finish(self, report: Any) -> str:
        """Fail where there is a violation."""
        report.finish(None)
        return ""


class PrivatizeOptions(PolicyOptions, MechanismOptions, TableOptions):
    """Sanitize texts of a table into a new table."""

    command = "privatize"
    usage = (
        "--input queries.parquet --output sanitized --embedding glove-50d \\\n"
        "      --mechanism laplace --epsilon 10 --text text --id id --keep intent "
        "--key-file release.key \\\n"
        "      --name 'queries 2026-03-01'"
    )
    first = "text id keep oov key-file name dry-run"
    on_connect = True
    published = TableOptions.published | {
        *(
            "identifiers",
            "layout",
            "mechanism",
            "numbers",
            "oov",
            "protect",
            "release-words",
            "row-budget",
        ),
        "tokens",
    }

    embedding: LocalPath = WORDS(EMBEDDING)
    text: Columns = TABLE("string column to sanitize; repeatable", ())
    tokens: Columns = TABLE("array<string> column to sanitize; repeatable", ())
    release_words: int | None = WORDS(RELEASE_WORDS, None)
    row_budget: Annotated[str, WRITTEN, read_by(check_row_budget), "NATS"] | None = ROWS_OF(
        "largest privacy loss of a row, e.g. 50 or 50:within=3,delta=1e-6", None
    )
    evaluation: TablePath | None = OUTPUT(
        "folder of dptext evaluate: quote its measured risk in the public report", None
    )
    person: Column | None = ROWS_OF(
        "column of persons: report the total privacy loss of their rows; shift:LABEL moves their "
        "dates together",
        None,
    )
    count_unique: bool = ROWS_OF("count rows that show a rare word; needs one more pass", False)
    incremental: TablePath | None = ROWS_OF(
        "checkpoint folder: release only files that are new since the last run", None
    )
    changed_files: Literal["refuse", "warn"] = ROWS_OF(
        "what to do if files of earlier runs have changed or are gone", "refuse"
    )
    ledger: TablePath | None = LEDGER(
        "ledger folder: record this release and check the total", None
    )
    budget: Above0 | None = LEDGER(
        "largest total epsilon of a row; a release above it is refused; needs --ledger", None
    )
    new_text: Columns = LEDGER(
        "column that is new, not an earlier one renamed; repeatable; needs --ledger", ()
    )

    @property
    def unfinished(self) -> str:
        if self.incremental:
            return "The output has the batches before; the same command goes on."
        return super().unfinished

    @property
    def places(self) -> tuple[tuple[str, str, str], ...]:
        places = [*super().places]
        if self.incremental:
            places.append(("Checkpoint", "--incremental", self.incremental))
        if self.ledger:
            places.append(("Ledger", "--ledger", self.ledger))
        return tuple(places)

    def conflicts(self) -> Iterator[ConfigError]:
        yield from self.column_conflicts(text=self.text, tokens=self.tokens)
        if self.key_file is None and f"{Surrogate.name}:" in str(self.identifiers):
            yield ConfigError(
                f"Option --identifiers {self.identifiers} needs --key-file",
                do="Give one, or use --identifiers mask: tags under a fresh key occur in no other "
                "table",
            )
        yield from self._ledger_conflicts()
        yield from self._incremental_conflicts()

    def _ledger_conflicts(self) -> Iterator[ConfigError]:
        if self.budget is not None and self.ledger is None:
            yield ConfigError("Option --budget needs --ledger")
        if self.new_text and self.ledger is None:
            yield ConfigError("Option --new-text needs --ledger")
        not_sanitized = {*self.new_text} - {*self.text, *self.tokens}
        if not_sanitized:
            yield ConfigError(
                "Columns of --new-text are not sanitized",
                got=_listed(not_sanitized),
                do="Name them with --text or --tokens, too",
            )

    def _incremental_conflicts(self) -> Iterator[ConfigError]:
        if self.incremental is None:
            if self.changed_files != "refuse":
                yield ConfigError("Option --changed-files needs --incremental")
            return
        if self.person is not None:
            yield ConfigError(
                "Options --person and --incremental cannot be combined: the rows of a person come "
                "in several runs",
                do="Count them in a --dry-run of the whole table",
            )
        if self.count_unique:
            yield ConfigError(
                "Options --count-unique and --incremental cannot be combined: later rows may have "
                "the same words",
                do="Leave --count-unique out",
            )
        if self.key_file is None:
            yield ConfigError(
                "Option --incremental needs --key-file",
                do="Make one with: (umask 077; openssl rand -hex 32 > KEYFILE); a retried batch "
                "needs it",
            )
        if self.mode != "error":
            yield ConfigError(f"Options --incremental and --mode {self.mode} cannot be combined")
        if self.id is not None and not self.trust_id:
            yield ConfigError(
                "Option --incremental cannot check that ids are unique over all runs",
                do="Leave --id out to identify rows by file and position, or confirm that they are "
                "unique with --trust-id",
            )


class VectorsOptions(ProjectedVectors, TableOptions):
    """Release projected vectors with noise.

    A text is released as the average of its words' vectors, as one vector for each word, or as a
    hashed bag of K-grams.
    """

    command = "vectors"
    usage = "--input vectors.parquet --output released --vector vector --id id --epsilon 10"
    first = "vector text tokens embedding projection id keep key-file name dry-run"
    published = TableOptions.published | {"vector", "tokens", *ProjectedVectors.model_fields}

    vector: Columns = TABLE("array<float> or array<double> column; repeatable", ())
    text: Columns = TABLE(
        "string column: the mean of its words, or bags of --kgrams; repeatable", ()
    )
    tokens: Columns = TABLE(
        "string or array<string> column to release as one vector for each word; repeatable", ()
    )
    embedding: LocalPath | None = WORDS(f"{EMBEDDING}, for --text, --tokens and main-axes", None)
    tokenizer: Annotated[Segmentation, Segmentation.forms] = TOKENIZER()

    def conflicts(self) -> Iterator[ConfigError]:
        yield from self.column_conflicts(vector=self.vector, text=self.text, tokens=self.tokens)
        if self.kgrams is not None:
            yield from self._bag_conflicts()
            return
        needs_embedding = bool(self.text or self.tokens) or self.projection == "main-axes"
        if needs_embedding != (self.embedding is not None):
            yield ConfigError(
                "Options --text, --tokens and --projection main-axes need --embedding",
                do="Give words the bundle of their vectors, and --projection main-axes that of "
                "public vectors of the same kind; random projections of --vector columns need none",
            )

    def _bag_conflicts(self) -> Iterator[ConfigError]:
        """Yield what does not go with bags of K-grams."""
        names = ("vector", "tokens", "embedding")
        others = [f"--{name}" for name in names if getattr(self, name)]
        if others or not self.text:
            yield ConfigError(
                "Option --kgrams is for --text alone, without an --embedding",
                got=", ".join(others) or "no --text",
                do="Release other columns by a command of their own",
            )
        try:
            self.check_bags()
        except ConfigError as error:
            yield error

    @property
    def mechanism(self) -> ProjectedVectors:
        """How vectors are projected and noised, without the rest of the options."""
        return ProjectedVectors(
            **{name: getattr(self, name) for name in ProjectedVectors.model_fields}
        )

    @property
    def projection_path(self) -> str:
        """Where the projections go, which belong to the release."""
        return self.beside("projection.json")

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        return ("Projection", self.projection_path), *super().files


class EstimateOptions(Options):
    """Estimate statistics from a released table.

    It needs the table, its public report and the embedding's bundle, nothing private.
    """

    command = "estimate"
    usage = (
        "--input sanitized --release sanitized.release.json --embedding glove-50d \\\n"
        "      --text text --topics topics.txt --by intent --output estimates"
    )
    first = "topics words by time frequencies features overwrite"

    input: TablePath = TABLE("released table: a file, a folder, or a name")
    format: str = TABLE(f"format of the input: {TABLE_FORMATS}", "parquet", min_length=1)
    read_option: Pairs = TABLE("option of Spark's reader, e.g. header=true; repeatable", ())
    release: TablePath = TABLE("public report of the release, OUTPUT.release.json")
    text: Column = TABLE("sanitized column: texts or lists of words")
    where: Annotated[str, Field(min_length=1), "SQL"] | None = TABLE(
        "SQL condition: use only rows that meet it", None
    )
    embedding: LocalPath = MEASURE(EMBEDDING)
    output: TablePath = OUTPUT("folder for tables and page")
    topics: LocalPath | None = MEASURE(
        "file of topics, lines NAME: WORD WORD or TOML: estimate their shares", None
    )
    words: Annotated[str, WRITTEN, "FILE|N"] | None = MEASURE(
        "words to estimate one by one: a file, one per line, or the N most frequent", None
    )
    by: Columns = MEASURE("column to group by; repeatable", ())
    time: (
        Annotated[str, Field(pattern=r"^.+:(day|week|month)$"), "COLUMN:day|week|month"] | None
    ) = MEASURE("column of times to group by, with day, week or month", None)
    person: Column | None = MEASURE(
        "column of persons: treat rows of one person as dependent in intervals", None
    )
    frequencies: Count | None = MEASURE("list the N most frequent words", None)
    features: TablePath | None = OUTPUT(
        "table to write with a vector and the likely words of each row", None
    )
    in_context: bool = MEASURE(
        "features from all outputs of a row, by the language of --public-corpus; takes longer",
        False,
    )
    public_corpus: TablePath | None = MEASURE(
        "public texts for the prior, in a column of the same name; default: by rank", None
    )
    identifier_patterns: Annotated[UserPatterns, "FILE"] | None = MEASURE(
        "file of --identifier-patterns that the release had", None
    )
    channel_words: Annotated[int, Field(ge=2)] = MEASURE(
        "number of words that the text may have, the likeliest ones of the bundle", 20_000
    )
    cache: LocalPath | None = MEASURE(
        "folder that caches channels for later runs; default: BUNDLE.channels", None
    )
    confidence: Confidence = MEASURE("confidence level of each interval", CONFIDENCE)
    noise_seed: Seed = NOISE(PUBLIC_SEED, 0)
    overwrite: bool = OUTPUT("replace existing estimates", False)

    @property
    def read_options(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for pair in self.read_option)

    @property
    def time_unit(self) -> tuple[str, str] | None:
        """The column of times and what they are rounded to."""
        if self.time is None:
            return None
        column, _, unit = self.time.rpartition(":")
        return column, unit

    @property
    def results(self) -> tuple[tuple[str, str], ...]:
        features = () if self.features is None else (("Features", self.features),)
        return (("Output", self.output), *features)

    def conflicts(self) -> Iterator[ConfigError]:
        wishes = (self.topics, self.words, self.frequencies, self.features)
        if wishes.count(None) == len(wishes):
            yield ConfigError(
                "There is nothing to estimate",
                do="Give --topics, --words, --frequencies or --features",
            )
        if self.in_context and (self.features is None or self.public_corpus is None):
            yield ConfigError(
                "Features in context lack an option", do="Give --features and --public-corpus"
            )
        if self.text in (*self.by, self.person):
            yield ConfigError("The --text column cannot be used for groups", got=str(self.text))


class LedgerOptions(Options):
    """Show a ledger's releases and their total."""

    command = "ledger"
    positional = ("action", "path")
    usage = "show ledger"

    action: Literal["show"] = LEDGER("what to do: show the releases and their totals")
    path: TablePath = LEDGER("ledger folder, written by dptext privatize --ledger")


class PoincareOptions(Options):
    """Train a Poincaré embedding from is-a pairs.

    The output is a bundle, like that of dptext embedding.
    """

    command = "poincare"
    usage = "--pairs mammals.tsv.gz --dimension 10 --output mammals-10d"
    first = "vocabulary min-links transitive-closure dimension epochs max-radius seed never-output"

    pairs: TablePath = PAIRS("is-a pairs: Parquet or TSV with columns hyponym, hypernym[, count]")
    output: LocalPath = OUTPUT(
        "folder of the bundle; OUTPUT.report.json, .vec and .png are written next to it"
    )
    vocabulary: LocalPath | None = PAIRS(
        "words whose pairs are used: a bundle, or a file with one word per line", None
    )
    min_count: int = PAIRS(
        "use only pairs with at least this count, if pairs have counts", 10, ge=0
    )
    min_links: int = PAIRS("remove words with this many links or fewer", 2, ge=0)
    transitive_closure: bool = PAIRS("add the pairs that follow from other pairs", False)
    dimension: int = TRAINING("dimension of the Poincaré ball", 10, ge=2, le=1000)
    epochs: Count = TRAINING("largest number of passes over the pairs", 200)
    negatives: Count = TRAINING("number of random words that each batch is compared with", 128)
    learning_rate: Above0 = TRAINING("hyperbolic step for a gradient of length 1", 0.3, le=10)
    batch_size: Count = TRAINING("number of pairs per update", 128)
    patience: Count = TRAINING(
        "number of epochs without a better mean rank after which training ends", 50
    )
    max_radius: Annotated[Above0, Field(le=12)] | None = TRAINING(
        "hyperbolic radius of the ball; default: 12 / sqrt(dimension - 1)", None
    )
    seed: Seed = TRAINING("seed of the training; the same seed gives the same vectors", 0)
    never_output: LocalPath | None = OUTPUT(NEVER_OUTPUT, None)
    overwrite: bool = OUTPUT("replace an existing bundle and report", False)

    @property
    def results(self) -> tuple[tuple[str, str], ...]:
        return ("Bundle", str(self.output)), ("Report", str(self.beside("report.json")))

    def finish(self, report: Any) -> str:
        return "\n".join(f"{what}: {path}" for what, path in self.results)

    def beside(self, suffix: str) -> Path:
        """Return the path next to the bundle with this suffix."""
        return self.output.with_name(f"{self.output.name}.{suffix}")
