"""The commands' options: one object for the command line, a TOML file and the report.

A new command is a class here, a module of its name in ``dptext_spark.jobs``, and a file in ``conf``.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from inspect import get_annotations
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from dptext_spark.accounting.ledger import Permission
from dptext_spark.accounting.row_budget import LEAST_ROW_DELTA, RowBudget
from dptext_spark.calibration.estimators import EstimatorName
from dptext_spark.calibration.recall import RECALL, chosen_search
from dptext_spark.calibration.record import option_line, setting
from dptext_spark.calibration.statistics import CONFIDENCE, ETA
from dptext_spark.calibration.target import Target
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.lists import check_faiss, index_lists
from dptext_spark.embedding.readers import formats
from dptext_spark.embedding.spaces import GeometryName, Normalization
from dptext_spark.errors import ConfigError, JobError
from dptext_spark.evaluation.comparison import ATTRIBUTION
from dptext_spark.evaluation.goal import LABELLED, Goal
from dptext_spark.evaluation.recovery import CANDIDATES, TOP
from dptext_spark.faults import faults
from dptext_spark.guarantee import DELTAS, ROWS
from dptext_spark.mechanisms import LEAST_EPSILON, MECHANISMS, Mechanism, mechanism
from dptext_spark.noise import NoiseKey, check_label
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import SEARCHES, Search
from dptext_spark.text.layout import Layout
from dptext_spark.text.named_policy import NamedPolicy
from dptext_spark.text.policies import OovPolicy, Protection, TextPolicy
from dptext_spark.text.segmentation import Segmentation
from dptext_spark.vectors.projected_vectors import ProjectedVectors, VectorParameters

COMMANDS: Final[dict[str, type[Options]]] = {}

ALL: Final = "*"
"""Among the columns that are kept: all others."""

FILLED_IN: Final = "<as for evaluate>"
"""What a printed command has in place of what may be private."""

LEAST_DELTA: Final = 1e-12
"""Below this the Fourier transforms that add losses up are no longer exact enough."""

MOST_WORDS: Final = 10_000


def option(
    description: str,
    default: Any = ...,
    *,
    under: str,
    takes: str | Callable[[], Iterable[str]] = "",
    first: bool = False,
    **field: Any,
) -> Any:
    """Declare an option.

    Args:
        description: One line of help.
        default: None or nothing where there is none; ``...`` for an option that must be given.
        under: The heading of the help that it stands under.
        takes: What the help shows as its values: a word in capitals, or a function that gives the names.
        first: Whether ``--help`` has it, which otherwise has only what must be given.
        field: Further arguments of pydantic's ``Field``; ``repr=False`` keeps a value out of messages.
    """
    extra: Any = {"under": under, "takes": takes, "first": first}
    return Field(default, description=description, json_schema_extra=extra, **field)


TABLE: Final = partial(option, under="Table")
WORDS: Final = partial(option, under="Words")
NOISE: Final = partial(option, under="Noise and key")
OUTPUT: Final = partial(option, under="Output")
BUDGET: Final = partial(option, under="Rows and persons")
LEDGER: Final = partial(option, under="Ledger")
MEASURE: Final = partial(option, under="Measuring")

LocalPath: TypeAlias = Annotated[Path, Strict(False)]
BUNDLE: Final = "bundle that dptext embedding made"


def read_by(read: Callable[[str], object]) -> AfterValidator:
    """Validate a text by reading it, so that an error of this package is one of several faults."""

    def check(value: Any) -> Any:
        try:
            read(value)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return value

    return AfterValidator(check)


def policy_of(kind: type[NamedPolicy]) -> AfterValidator:
    """Validate the name of a policy."""
    return read_by(kind.of)


def several(field: FieldInfo) -> bool:
    """Say whether an option may be given several times."""
    return get_origin(field.annotation) is tuple


class Options(BaseModel):
    """Options of a job; field names are the option names with underscores.

    A subclass with a ``command`` is that command, its docstring the help, and the module of that name in
    ``dptext_spark.jobs`` runs it, unless ``runner`` names another. None and empty lists count as not given,
    one value will do for a repeatable option.

    Raises:
        ConfigError: Lists every option that is wrong. It quotes no field with ``repr=False``, whose value may
            be private.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=lambda field: field.replace("_", "-"),
        validate_by_name=True,
        validate_by_alias=True,
    )

    command: ClassVar[str]
    positional: ClassVar[tuple[str, ...]] = ()
    usage: ClassVar[str]
    """An example of what may follow the command's name, for its help."""

    runner: ClassVar[str] = "dptext_spark.jobs.{command}"
    """The module whose ``run(options)`` does the work."""

    on_spark: ClassVar[bool] = True
    """Whether the work may need a Spark session."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "command" in cls.__dict__:
            COMMANDS[cls.command] = cls

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Validate options given by option name.

        Raises:
            ConfigError: Lists every option that is wrong.
        """
        return cls.model_validate(values)

    @classmethod
    def fields(cls) -> dict[str, FieldInfo]:
        """Give the fields by option name, a class's own before those of its bases."""
        own = {name: cls.model_fields.get(name) for kind in cls.__mro__ for name in get_annotations(kind)}
        return {str(field.alias): field for field in own.values() if field is not None}

    def conflicts(self) -> Iterator[ConfigError]:
        """Find options that do not go together; any of them may be of a wrong type here, or missing."""
        return iter(())

    @property
    def unfinished(self) -> str:
        """Say what a run leaves that is interrupted."""
        return "No output was written."

    def finish(self, report: Any) -> str:
        """Do what is left to do when the report of a run was shown, and say where its results lie."""
        return ""

    @model_validator(mode="wrap")
    @classmethod
    def _validate(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        fields, names = cls.fields(), {name: field.alias for name, field in cls.model_fields.items()}
        given = {names.get(n) or n: v for n, v in values.items() if v is not None and v not in ((), [])}
        for name in given.keys() & {name for name, field in fields.items() if several(field)}:
            given[name] = tuple(given[name]) if isinstance(given[name], list | tuple) else (given[name],)
        problems = []
        try:
            options = handler(given)
        except ValidationError as error:
            problems = faults(
                error,
                lambda e: f"Option --{(e['loc'] or ('',))[0]}",
                unknown="is not an option of this command",
                known=fields,
                hidden=lambda e: any(n == (e["loc"] or ("",))[0] and not f.repr for n, f in fields.items()),
            )
            options = cls.model_construct(**given)
        problems += map(str, options.conflicts())
        if problems:
            listed = "\n  ".join(dict.fromkeys(problems)).rstrip(".")
            raise ConfigError(f"Options of {cls.command} are wrong:\n  {listed}")
        return options


# Groups


def _check_mechanism(spec: str, releases: Iterable[str] = ("words",)) -> str:
    """Give the spec of a mechanism in its one form, in which reports have it."""
    try:
        found = mechanism(spec, epsilon=1.0)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    if found.releases not in releases:
        raise ValueError(f"Mechanism {found.name} releases {found.releases}, no words. Take dptext vectors.")
    return spec.partition(":")[0] + "".join(found.spec.partition(":")[1:])


MechanismSpec: TypeAlias = Annotated[str, AfterValidator(_check_mechanism)]
EACH_ONCE: Final = AfterValidator(lambda numbers: tuple(sorted({*numbers})))
Epsilon: TypeAlias = Annotated[float, Field(ge=LEAST_EPSILON, allow_inf_nan=False)]


def mechanism_names(releases: Iterable[str] = ("words",)) -> list[str]:
    """Name the mechanisms that release words, or what is asked for."""
    return sorted(name for name, kind in MECHANISMS.items() if kind.releases in releases)


MECHANISM: Final = partial(NOISE, alias="mechanism", takes=mechanism_names)


class SearchOptions(Options):
    """How released words are found, in the commands that run a mechanism."""

    search: Annotated[str, read_by(Search.named)] = WORDS(
        f"how the nearest word is found; in lists: ivf:recall={RECALL:g}",
        ExactSearch.name,
        takes=lambda: sorted(SEARCHES),
    )

    def search_over(self, embedding: Embedding, release_words: int | None = None) -> Search:
        """Set up the search among the words of a bundle that may be output.

        Raises:
            ConfigError: More words than the bundle allows, or fewer than two; or the bundle or a mechanism
                does not suit the search.
        """
        chosen: Any = getattr(self, "mechanism", ())
        mechanisms = chosen if isinstance(chosen, tuple) else (chosen,)
        return chosen_search(self.search, embedding, mechanisms, release_words=release_words)


class MechanismOptions(SearchOptions):
    """One mechanism."""

    spec: MechanismSpec = MECHANISM("as laplace, mahalanobis:lambda=0.5 or exponential:truncate=6")
    epsilon: Epsilon = NOISE("privacy parameter, in nats per unit of distance; smaller: more noise")

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism."""
        return mechanism(self.spec, epsilon=self.epsilon)


class GridOptions(SearchOptions):
    """A grid: every mechanism at every epsilon."""

    specs: Annotated[tuple[MechanismSpec, ...], AfterValidator(lambda v: tuple(dict.fromkeys(v)))] = (
        MECHANISM("as laplace, mahalanobis:lambda=0.5; repeatable")
    )
    epsilon: Annotated[tuple[Epsilon, ...], EACH_ONCE] = NOISE("privacy parameters; several may follow")

    @property
    def mechanism(self) -> tuple[Mechanism, ...]:
        """Each mechanism once, in the order given, and of each the epsilons, ascending."""
        return tuple(mechanism(spec, epsilon=epsilon) for spec in self.specs for epsilon in self.epsilon)


class PolicyOptions(Options):
    """What happens to words, besides the mechanism, in the commands that sanitize texts."""

    oov: Annotated[str, policy_of(OovPolicy)] = WORDS(
        f"unknown words: {', '.join(OovPolicy.forms())}",
        "mask",
        first=True,
        takes=OovPolicy.forms,
    )
    protect: Annotated[str, policy_of(Protection)] = WORDS(
        "perturbed words: all, content (no stop words), slots:COLUMN", "all", takes=Protection.forms
    )
    layout: Annotated[str, policy_of(Layout)] = WORDS(
        "keep: punctuation, symbols and capitals pass as they are", "words", takes=Layout.forms
    )
    tokenizer: Annotated[str, policy_of(Segmentation)] = WORDS(
        "icu: also Chinese, Japanese, Thai, Lao, Khmer, Burmese", "words", takes=Segmentation.forms
    )

    @property
    def policy(self) -> TextPolicy:
        """The text policy.

        Raises:
            ConfigError: ICU is not installed.
        """
        return TextPolicy(oov=self.oov, protect=self.protect, layout=self.layout, tokenizer=self.tokenizer)


class ReleaseOptions(PolicyOptions):
    """The same, in commands with one release vocabulary."""

    release_words: int | None = WORDS("output only the first N releasable words", None)


class InputOptions(Options):
    """The private table of a job, and what names its rows."""

    input: str = TABLE("file, folder, or table name (--format table, iceberg)", takes="PATH", min_length=1)
    format: str = TABLE("parquet, orc, csv, json, avro, delta, iceberg or table", "parquet", min_length=1)
    read_option: tuple[Annotated[str, Field(pattern="^[^=]+=")], ...] = TABLE(
        "for Spark's reader, as header=true; repeatable", (), takes="NAME=VALUE", repr=False
    )
    id: str | None = TABLE(
        "unique column that names rows; else file and position", None, takes="COLUMN", first=True
    )
    where: str | None = TABLE(
        "only rows that meet this; Spark's logs show it, reports do not",
        None,
        takes="SQL",
        min_length=1,
        repr=False,
    )
    trust_id: bool = TABLE("skip the check that ids are unique and not null", False)

    @property
    def read_options(self) -> dict[str, str]:
        """Options of the input's format, by name."""
        return _pairs(self.read_option)

    def _json(self, *without: str) -> dict[str, Any]:
        """Give the options as JSON-ready values, without the filter's text and values of reader options."""
        values = self.model_dump(mode="json", by_alias=True, exclude={"where", *without})
        where = "given, not kept" if self.where else None
        return {**values, "where": where, "read-option": sorted(self.read_options)}


class TableOptions(InputOptions):
    """What the jobs share that turn a private table into one for release."""

    published: ClassVar[frozenset[str]] = frozenset(
        {"epsilon", "epsilon-from-private-rows", "id", "key", "text", "tokenizer", "trust-id"}
    )
    """Options that may be shared: no place, filter, name, nor dropped column except the id."""

    output: str = OUTPUT("folder or table to write", takes="PATH", min_length=1)
    output_format: str | None = OUTPUT("default: the input's format", None, min_length=1)
    write_option: tuple[Annotated[str, Field(pattern="^[^=]+=")], ...] = OUTPUT(
        "for Spark's writer, as compression=zstd; repeatable", (), takes="NAME=VALUE", repr=False
    )
    keep: tuple[str, ...] = TABLE(
        "column released AS IT IS; repeatable; '*': all others", (), takes="COLUMN", first=True
    )
    except_: tuple[str, ...] = TABLE(
        "with --keep '*': column to drop; repeatable", (), alias="except", takes="COLUMN"
    )
    key_file: LocalPath | None = NOISE(
        "32-byte key, mode 0600, to repeat a release; default: fresh", None, first=True, repr=False
    )
    name: str = NOISE(
        "with --key-file: name of this release, as 'queries 2026-03-01'", "", takes="NAME", first=True
    )
    trust_id: bool = TABLE("do not check that ids are unique: equal ids show equal texts", False)
    reports: str | None = OUTPUT(
        "folder for both reports; default: next to the output", None, takes="PATH", min_length=1
    )
    epsilon_from_private_rows: bool = OUTPUT("report that epsilon was chosen by looking at these rows", False)
    mode: Literal["error", "overwrite", "append"] = OUTPUT("if the output exists", "error")
    dry_run: bool = OUTPUT("check everything and print the guarantee; write nothing", False, first=True)

    @property
    def write_options(self) -> dict[str, str]:
        """Options of the output's format, by name."""
        return _pairs(self.write_option)

    @property
    def overwrite(self) -> bool:
        """Whether an output that exists is replaced."""
        return self.mode == "overwrite"

    @property
    def append(self) -> bool:
        """Whether rows are added to an output that exists."""
        return self.mode == "append"

    @property
    def private_folder(self) -> str:
        """The folder for those who run the job."""
        return self.beside("private")

    @property
    def report_path(self) -> str:
        """Where the private report goes."""
        return f"{self.private_folder}/report.json"

    @property
    def public_report_path(self) -> str:
        """Where the report goes that may be shared with the table."""
        return self.beside("release.json")

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        """What the job writes besides its output: a name and its path."""
        return ("Public report", self.public_report_path), ("Report", self.report_path)

    @property
    def places(self) -> tuple[tuple[str, str, str], ...]:
        """All that must lie apart: a name, the option that moves it, and its path."""
        files = ((what, "--reports", path) for what, path in self.files)
        return (("Input", "--input", self.input), ("Output", "--output", self.output), *files)

    def finish(self, report: Any) -> str:
        if self.dry_run:
            but = f" except the report: {self.report_path}" if self.reports else "."
            return f"Dry run: all options are right, nothing was written{but}"
        return "\n".join(f"{what}: {path}" for what, path in (("Output", self.output), *self.files))

    def beside(self, name: str) -> str:
        """Give the path of a file in the folder of reports, or next to the output."""
        if self.reports is not None:
            return f"{self.reports.rstrip('/')}/{name}"
        return f"{self.output.rstrip('/')}.{name}"

    def noise_key(self) -> NoiseKey:
        """Read the key, or make a fresh one.

        Raises:
            ConfigError: The key file cannot be used.
        """
        return NoiseKey.read(self.key_file) if self.key_file else NoiseKey.generate()

    def conflicts(self) -> Iterator[ConfigError]:
        try:
            check_label(self.key_file, self.name)
        except ConfigError as error:
            yield error

    def column_conflicts(self, **kinds: tuple[str, ...]) -> Iterator[ConfigError]:
        """Find what is wrong with the columns to sanitize, given by the options that name them."""
        sanitized = [name for names in kinds.values() for name in names]
        options = [f"--{kind}" for kind in kinds]
        if not sanitized:
            do = f"Name at least one with {' or '.join(options)}"
            yield ConfigError("No column is to be sanitized", do=do)
        if repeated := _listed(name for name in sanitized if sanitized.count(name) > 1):
            yield ConfigError(f"Columns are named twice in {' and '.join(options)}", got=repeated)
        if raw := _listed(name for name in sanitized if name in self.keep):
            yield ConfigError("Columns are both sanitized and released raw with --keep", got=raw)
        if self.except_ and ALL not in self.keep:
            yield ConfigError("Option --except is for --keep '*'", got=_listed(self.except_))
        if self.id in sanitized:
            yield ConfigError("The --id column cannot be sanitized itself", got=str(self.id))

    def to_json(self) -> dict[str, Any]:
        """Give the options as JSON-ready values, without anything that may be secret."""
        written, key = sorted(self.write_options), "file" if self.key_file else "fresh, not kept"
        return {**self._json("search", "key_file"), "write-option": written, "key": key}

    def to_publish(self) -> dict[str, Any]:
        """Give the options that may be shared, as JSON-ready values: those of ``published``."""
        return {name: value for name, value in self.to_json().items() if name in self.published}


def _pairs(values: Iterable[str]) -> dict[str, str]:
    return {name: value for name, _, value in (text.partition("=") for text in values)}


def _listed(names: Iterable[object]) -> str:
    return ", ".join(sorted({str(name) for name in names}))


def _for_texts(**given: str) -> Iterator[ConfigError]:
    """Find options that have nothing to do where there are no texts."""
    for name, value in given.items():
        if value != "words":
            yield ConfigError(f"Option --{name} is for texts", do="Name them with --text, or leave it out")


# Commands

BUNDLE_OPTION: Final = partial(option, under="Bundle")
TRAINING: Final = partial(option, under="Training")


class EmbeddingOptions(Options):
    """Make a bundle of the word vectors in SOURCE.

    The other commands read the bundle.
    """

    command = "embedding"
    positional = ("source",)
    usage = "glove.6B.300d.txt --output glove-300d"
    on_spark = False

    source: LocalPath = BUNDLE_OPTION("GloVe or word2vec text, word2vec binary, fastText .vec, or .npy")
    output: LocalPath = BUNDLE_OPTION("folder of the bundle to make")
    format: str = BUNDLE_OPTION(f"{', '.join(formats())}", "auto", takes=formats)
    vocabulary: LocalPath | None = BUNDLE_OPTION(
        "words of an .npy source, one a line; default: vocab.txt next to it", None
    )
    limit: int | None = BUNDLE_OPTION("read the first N words only", None, ge=2, first=True)
    normalize: Normalization = BUNDLE_OPTION("unit: scale every vector to length 1", "none", first=True)
    release_words: str | int | None = BUNDLE_OPTION(
        "words that may be output: a file, the first N, or all", None, takes="WORDS", first=True
    )
    never_output: LocalPath | None = BUNDLE_OPTION(
        "file of words that may never be output, one a line", None, first=True
    )
    geometry: GeometryName = BUNDLE_OPTION("of the vectors", "euclidean", first=True)
    index: Annotated[str, read_by(index_lists), read_by(lambda _: check_faiss())] | None = BUNDLE_OPTION(
        "ivf[:LISTS] for --search ivf of other commands; needs faiss", None, takes="INDEX", first=True
    )
    overwrite: bool = BUNDLE_OPTION("replace a bundle that exists", False)


class PoincareOptions(Options):
    """Train a Poincaré embedding of is-a pairs.

    The output is a bundle, as dptext embedding makes it.
    """

    command = "poincare"
    usage = "--pairs mammals.tsv.gz --dimension 10 --output mammals-10d"

    pairs: str = option(
        "Parquet with columns hyponym, hypernym[, count], or such a TSV",
        under="Pairs",
        takes="PATH",
        min_length=1,
    )
    output: LocalPath = OUTPUT("folder of the bundle to make; OUTPUT.vec and OUTPUT.png lie next to it")
    vocabulary: LocalPath | None = option(
        "keep pairs of these words: a bundle, or a file, one a line", None, under="Pairs", first=True
    )
    min_count: int = option("keep pairs seen this often, if pairs have a count", 10, under="Pairs", ge=0)
    min_links: int = option("remove words with this many links or fewer", 2, under="Pairs", ge=0, first=True)
    exclude: LocalPath | None = option("file of words to remove, one a line", None, under="Pairs")
    transitive_closure: bool = option(
        "add the pairs that follow from others", False, under="Pairs", first=True
    )
    dimension: int = TRAINING("dimension of the Poincaré ball", 10, ge=2, le=1000, first=True)
    epochs: int = TRAINING("largest number of passes over the pairs", 200, ge=1, first=True)
    negatives: int = TRAINING("random words that a batch's pairs are compared with", 128, ge=1)
    learning_rate: float = TRAINING(
        "hyperbolic step for a gradient of length 1", 0.3, gt=0, le=10, allow_inf_nan=False
    )
    batch_size: int = TRAINING("pairs of one update", 128, ge=1)
    patience: int = TRAINING("epochs without a better mean rank before training ends", 50, ge=1)
    max_radius: float | None = TRAINING(
        "of the ball, hyperbolic; default: 12 / sqrt(dimension - 1)",
        None,
        gt=0,
        le=12,
        allow_inf_nan=False,
        first=True,
    )
    seed: int = TRAINING("the same seed gives the same vectors", 0, ge=0, lt=2**63, first=True)
    checkpoint: LocalPath | None = TRAINING(
        "folder of the training's state: the same command continues", None, first=True
    )
    never_output: LocalPath | None = OUTPUT("file of words that may never be output, one a line", None)
    report: LocalPath | None = OUTPUT("where the report goes; default: OUTPUT.report.json", None)
    overwrite: bool = OUTPUT("replace a bundle and a report that exist", False)

    @property
    def report_path(self) -> Path:
        """Where the report goes."""
        return self.report or self.beside("report.json")

    @property
    def unfinished(self) -> str:
        continued = " The same command continues the training." if self.checkpoint else ""
        return super().unfinished + continued

    def finish(self, report: Any) -> str:
        return f"Bundle: {self.output}\nReport: {self.report_path}"

    def beside(self, suffix: str) -> Path:
        """Give the path next to the bundle with this suffix."""
        return self.output.with_name(f"{self.output.name}.{suffix}")


class TryOptions(ReleaseOptions, GridOptions):
    """Sanitize a SENTENCE of yours, without Spark.

    Each mechanism and epsilon sanitizes it several times.
    """

    command = "try"
    positional = ("sentence",)
    usage = (
        '"play some jazz in boston" --embedding glove-50d \\\n'
        "      --mechanism laplace --mechanism exponential --epsilon 5 10 20"
    )
    runner = "dptext_spark.preview"
    on_spark = False

    sentence: str | None = WORDS("what to sanitize; - or nothing: from standard input", None, repr=False)
    embedding: LocalPath = WORDS(BUNDLE)
    draws: int = NOISE("times that the sentence is sanitized by each", 3, ge=1, le=1000, first=True)


class CalibrateOptions(GridOptions):
    """Measure how often words change.

    It measures a mechanism at several epsilons, before anything is released.
    """

    command = "calibrate"
    usage = (
        "--embedding glove-50d --output calibration --mechanism laplace \\\n"
        "      --epsilon 5 10 20 --target 'p95(n_w) <= 0.5'"
    )

    embedding: LocalPath = MEASURE(BUNDLE)
    output: str = OUTPUT("folder for the tables; a killed run begins anew", takes="PATH", min_length=1)
    words: Annotated[int, Field(ge=2)] | Literal["all"] = MEASURE(
        "words to measure, spread over the vocabulary", 10_000, first=True
    )
    runs: int = MEASURE("runs of each word at each epsilon", 1000, ge=1, first=True)
    release_words: int | None = MEASURE("output only the first N releasable words", None)
    estimator: EstimatorName = MEASURE(
        "auto, plain, shared-ray (fast, for noise), exact (exponential)", "auto"
    )
    eta: float = MEASURE("probability that s_eta may leave out", ETA, gt=0.0, lt=1.0)
    confidence: float = MEASURE("of each interval, and of the target", CONFIDENCE, gt=0.5, lt=1.0)
    target: Annotated[str, read_by(Target.parse)] | None = MEASURE(
        "find the largest epsilon for this, as 'p95(n_w) <= 0.5'", None, takes="TARGET", first=True
    )
    compare: str | None = MEASURE(
        "another calibration: find epsilons of equal N_w", None, takes="PATH", first=True
    )
    transitions: bool = OUTPUT("keep the table of all transitions", False)
    example: tuple[str, ...] = OUTPUT(
        "word whose substitutions the report shows; repeatable", (), takes="WORD", first=True
    )
    noise_seed: int = NOISE("public seed of the noise", 0, ge=0, lt=2**63)
    overwrite: bool = OUTPUT("replace a calibration that exists", False, first=True)

    def conflicts(self) -> Iterator[ConfigError]:
        names = {str(spec).partition(":")[0] for spec in self.specs} if hasattr(self, "specs") else set()
        if len(names) > 1:
            what = "One calibration measures one mechanism, with different parameters"
            yield ConfigError(what, got=_listed(names), do="Compare two calibrations with --compare")

    def finish(self, report: Any) -> str:
        return f"Output: {self.output}"

    @property
    def settings(self) -> dict[str, tuple[Mechanism, ...]]:
        """The mechanism at each epsilon, by the names of its other parameters."""
        names = [setting(m) for m in self.mechanism]
        return {n: tuple(m for m, o in zip(self.mechanism, names, strict=True) if o == n) for n in names}

    def to_json(self) -> dict[str, Any]:
        """Give the options as JSON-ready values."""
        values = self.model_dump(mode="json", by_alias=True, exclude={"search"})
        return {**values, "mechanism": ", ".join(self.specs)}


class EvaluateOptions(PolicyOptions, GridOptions, InputOptions):
    """Attack simulated releases of your rows.

    It measures what attackers recover and what the texts keep; nothing is released.
    """

    command = "evaluate"
    usage = (
        "--input queries.parquet --text text --id id --embedding glove-50d --output evaluation \\\n"
        "      --mechanism laplace --mechanism exponential --epsilon 5 10 20 --target 'recovery(top1) <= 0.2'"
    )

    embedding: LocalPath = MEASURE(BUNDLE)
    output: str = OUTPUT("folder for private findings; a killed run begins anew", takes="PATH", min_length=1)
    text: str | None = TABLE("string column to evaluate; this or --tokens", None, takes="COLUMN", first=True)
    tokens: str | None = TABLE("array<string> column to evaluate", None, takes="COLUMN", first=True)
    label: str | None = MEASURE("column of classes: how well models learn them (a use)", None, takes="COLUMN")
    author: str | None = MEASURE(
        "column of authors: how well attackers learn them (a risk)", None, takes="COLUMN"
    )
    sample: Annotated[int, Field(ge=2)] | Literal["all"] = MEASURE(
        "rows to evaluate, the same ones in every run", 5000, first=True
    )
    hold_out: bool = MEASURE(
        "the printed release leaves the evaluated rows out; needs --id", False, first=True
    )
    public_corpus: str | None = MEASURE(
        "table of texts that attackers learn from; default: sampled rows", None, takes="PATH", min_length=1
    )
    versions: int = MEASURE("releases of each row that attackers have together", 1, ge=1, le=100)
    candidates: int = MEASURE("words that attackers consider at each place", CANDIDATES, ge=max(TOP))
    runs: int = MEASURE("draws of each word, from which attackers learn", 1000, ge=1)
    confidence: float = MEASURE("of each interval, and of the choice", CONFIDENCE, gt=0.5, lt=1.0)
    release_words: Annotated[tuple[int, ...], EACH_ONCE] = WORDS(
        "output only the first N releasable words; several may follow", ()
    )
    target: Annotated[str, read_by(Goal.parse)] | None = MEASURE(
        "find the best setting for this, as 'recovery(top1) <= 0.2'", None, takes="TARGET", first=True
    )
    noise_seed: int = NOISE("public seed of the simulated noise", 0, ge=0, lt=2**63)
    overwrite: bool = OUTPUT("replace an evaluation that exists", False)

    @property
    def goal(self) -> Goal | None:
        """What is asked for, if anything."""
        if self.target is None:
            return None
        goal = Goal.parse(self.target)
        return goal if self.label is None else goal.keeping("accuracy")

    @property
    def column(self) -> str:
        """The column that is evaluated."""
        return self.text or self.tokens or ""

    def conflicts(self) -> Iterator[ConfigError]:
        yield from super().conflicts()
        if (self.text is None) == (self.tokens is None):
            yield ConfigError("One column is evaluated", allowed="--text or --tokens, one of them")
        elif "[]" in str(self.column):
            yield ConfigError(
                "Fields inside arrays cannot be evaluated",
                got=str(self.column),
                do="Make a table of their elements with explode() first",
            )
        try:
            goal = None if self.target is None else Goal.parse(self.target)
        except (ConfigError, TypeError):
            return
        named = dict.fromkeys(LABELLED, "label") | {ATTRIBUTION: "author"}
        if goal is not None and (needed := named.get(goal.measure)) and getattr(self, needed) is None:
            yield ConfigError(f"The --target {goal} needs --{needed}", do="Name the column")
        classes = [name for name in (self.label, self.author) if name is not None]
        if len(classes) > len({*classes}):
            yield ConfigError("Options --label and --author name one column", got=str(self.label))
        if self.column in classes:
            yield ConfigError("The evaluated column has no classes", got=self.column)
        if inside := [name for name in classes if "." in name or "[]" in name]:
            yield ConfigError("Classes are columns, not fields inside them", got=", ".join(inside))
        if self.hold_out and (self.id is None or self.sample == "all"):
            yield ConfigError(
                "Option --hold-out needs --id and a --sample: the rows that are left are named by their ids",
                got=f"--sample {self.sample}, {'no --id' if self.id is None else f'--id {self.id}'}",
            )
        if goal is not None and goal.concern.versions not in (1, self.versions):
            yield ConfigError(
                "The --target counts versions that are not measured",
                allowed=f"1 or --versions {self.versions}",
                got=str(goal.concern.versions),
            )

    def finish(self, report: Any) -> str:
        return f"Output, which is private: {self.output}"

    def to_json(self) -> dict[str, Any]:
        """Give the options as JSON-ready values, without anything that may be secret."""
        return self._json()

    def release_command(self, mechanism: Mechanism, search: Search, *, others: str | None = None) -> str:
        """Write the command that makes a release with a setting.

        It says that epsilon was chosen from private rows; or, given the SQL condition of all ``others`` than
        those that were evaluated, it releases these alone.

        A filter and the values of read options, which may be private, have to be filled in: as it is written
        the command fails, for without the filter it would release rows that were never meant to be.
        """
        names = ("embedding", "text", "tokens", "id", "format", "oov", "protect", "layout", "tokenizer")
        fields = type(self).model_fields
        given = {name: v for name in names if (v := getattr(self, name)) != fields[name].default}
        given = {"input": self.input, "output": "sanitized", **given, **search.options}
        if self.release_words:
            given["release-words"] = search.release_words
        words = ["dptext", "privatize"]
        for name, value in given.items():
            words += [f"--{name}", str(value)]
        words += ["--trust-id"] if self.trust_id else []
        filters = [f"({FILLED_IN})" if others else FILLED_IN] if self.where else []
        if condition := " AND ".join([*filters, *([others] if others else [])]):
            words += ["--where", condition]
        words += [] if others else ["--epsilon-from-private-rows"]
        for name in sorted(self.read_options):
            words += ["--read-option", f"{name}={FILLED_IN}"]
        return f"{shlex.join(words)} {option_line(mechanism)}"


class AccountOptions(GridOptions):
    """Compute privacy loss, without Spark.

    It prints the worst case, and the loss with a small failure probability.
    """

    command = "account"
    usage = "--embedding glove-50d --mechanism laplace --epsilon 5 10 --words 1 10 100"
    runner = "dptext_spark.account"
    on_spark = False

    embedding: LocalPath = MEASURE(BUNDLE)
    words: tuple[Annotated[int, Field(ge=1, le=MOST_WORDS)], ...] = MEASURE(
        "words that differ together; several may follow", (1, *ROWS), first=True
    )
    distance: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...] = MEASURE(
        "how far each moves; several may follow; default: typical ones", (), first=True
    )
    deltas: tuple[Annotated[float, Field(ge=LEAST_DELTA, lt=1)], ...] = MEASURE(
        "failure probabilities; several may follow", DELTAS, first=True
    )
    report: LocalPath | None = OUTPUT("JSON file to write or replace", None, first=True)

    def finish(self, report: Any) -> str:
        """Write the account where it is wanted."""
        if self.report is None:
            return ""
        try:
            self.report.write_text(report.to_json(), encoding="utf-8")
        except OSError as error:
            raise JobError(f"The report {self.report} cannot be written", got=str(error.strerror)) from None
        return f"Report: {self.report}"


WorldName: TypeAlias = Literal["line", "star", "clusters", "bundle"]
WORLDS: Final = get_args(WorldName)
BUNDLE_WORLD: Final = "bundle"


def _check_audited(spec: str) -> str:
    return _check_mechanism(spec, ("words", "vectors"))


class AuditOptions(MechanismOptions):
    """Test the code against its stated guarantee.

    The exit code is 1 where the code breaks it.
    """

    command = "audit"
    usage = "--embedding glove-50d --mechanism laplace --epsilon 10"

    spec: Annotated[str, AfterValidator(_check_audited)] = MECHANISM(
        "what is audited, as mahalanobis:lambda=0.5", takes=partial(mechanism_names, ("words", "vectors"))
    )
    embedding: LocalPath | None = MEASURE(f"of world bundle: {BUNDLE}", None, first=True)
    world: tuple[WorldName, ...] = MEASURE(
        "line, star, clusters or bundle; repeatable; default: all", (), first=True
    )
    pair: tuple[str, ...] = MEASURE(
        "words to compare; repeatable; default: neighbours", (), takes="WORD:WORD", first=True
    )
    runs: int | None = MEASURE(
        "outputs of each word; default: 40000, of world bundle 4000", None, ge=100, first=True
    )
    confidence: float = MEASURE("chance that a correct mechanism passes", 0.999, gt=0.0, lt=1.0, first=True)
    noise_seed: int = NOISE("public seed of the noise", 0, ge=0, first=True)
    report: LocalPath | None = OUTPUT("JSON file to write or replace", None, first=True)

    @property
    def worlds(self) -> tuple[WorldName, ...]:
        """The worlds to look at, each once."""
        return tuple(dict.fromkeys(self.world)) or WORLDS

    def conflicts(self) -> Iterator[ConfigError]:
        if BUNDLE_WORLD in (self.world or WORLDS) and self.embedding is None:
            yield ConfigError("Option --embedding is missing", do="Or name small worlds only, with --world")

    def finish(self, report: Any) -> str:
        """Write the audit's report where it is wanted, and fail where there is a violation."""
        report.finish(self.report)
        return ""

    def to_json(self) -> dict[str, Any]:
        """Give the options as JSON-ready values."""
        return self.model_dump(mode="json", by_alias=True)


class PrivatizeOptions(ReleaseOptions, MechanismOptions, TableOptions):
    """Sanitize texts of a table into a new table."""

    command = "privatize"
    usage = (
        "--input queries.parquet --output sanitized --embedding glove-50d \\\n"
        "      --mechanism laplace --epsilon 10 --text text --id id --keep intent --key-file release.key \\\n"
        "      --name 'queries 2026-03-01'"
    )
    published = TableOptions.published | {
        *("layout", "mechanism", "oov", "protect", "release-words", "tokens"),
        *("row-budget", "row-delta", "within"),
    }

    embedding: LocalPath = WORDS(BUNDLE)
    text: tuple[str, ...] = TABLE("string column to sanitize; repeatable", (), takes="COLUMN", first=True)
    tokens: tuple[str, ...] = TABLE("array<string> column to sanitize; repeatable", (), takes="COLUMN")
    row_budget: float | None = BUDGET(
        "largest privacy loss of a row, in nats: long rows get a smaller epsilon",
        None,
        gt=0,
        allow_inf_nan=False,
    )
    within: float | None = BUDGET(
        "how far each word of a row moves; default: median nearest word", None, gt=0, allow_inf_nan=False
    )
    row_delta: float | None = BUDGET(
        "with --row-budget: failure probability; default: none", None, ge=LEAST_ROW_DELTA, lt=1
    )
    person: str | None = BUDGET("column of persons: report what their rows add up to", None, takes="COLUMN")
    incremental: str | None = option(
        "checkpoint folder: add files that are new since the last run",
        None,
        under="A table that grows",
        takes="PATH",
        min_length=1,
    )
    ledger: str | None = LEDGER(
        "folder of earlier releases: enter this one, and add it up", None, takes="PATH", min_length=1
    )
    budget: float | None = LEDGER(
        "with --ledger: refuse if a row would exceed this total epsilon", None, gt=0.0, allow_inf_nan=False
    )
    ledger_allow: tuple[Permission, ...] = LEDGER(
        "new-unit, weaker-policy: release despite --budget; repeatable", ()
    )

    @property
    def unfinished(self) -> str:
        going_on = "The output has the batches before; the same command goes on."
        return going_on if self.incremental else super().unfinished

    @property
    def places(self) -> tuple[tuple[str, str, str], ...]:
        checkpoint = [("Checkpoint", "--incremental", self.incremental)] if self.incremental else []
        ledger = [("Ledger", "--ledger", self.ledger)] if self.ledger else []
        return (*super().places, *checkpoint, *ledger)

    def rows_budget(self, nearest: float) -> RowBudget | None:
        """The largest loss of a row, if any; each word moves as far as ``nearest`` by default."""
        if self.row_budget is None:
            return None
        within = nearest if self.within is None else self.within
        return RowBudget(loss=self.row_budget, within=within, delta=self.row_delta or 0.0)

    def conflicts(self) -> Iterator[ConfigError]:
        yield from super().conflicts()
        yield from self.column_conflicts(text=self.text, tokens=self.tokens)
        if self.within is not None and self.row_budget is None and self.person is None:
            yield ConfigError("Option --within is for --row-budget or --person")
        if self.person is not None and self.incremental is not None:
            yield ConfigError(
                "Options --person and --incremental do not go together: rows of a person come in many runs",
                do="Count them in a --dry-run of the whole table",
            )
        if self.row_delta is not None and self.row_budget is None:
            yield ConfigError("Option --row-delta is for --row-budget")
        if not self.text:
            yield from _for_texts(layout=self.layout, tokenizer=self.tokenizer)
        if self.budget is not None and self.ledger is None:
            yield ConfigError("Option --budget needs --ledger, which has the earlier releases")
        if self.ledger_allow and self.budget is None:
            yield ConfigError("Option --ledger-allow is for --budget, which refuses it otherwise")
        if self.incremental is not None:
            yield from self._incremental_conflicts()

    def _incremental_conflicts(self) -> Iterator[ConfigError]:
        if self.key_file is None:
            yield ConfigError(
                "Option --incremental needs --key-file",
                do="Make one with: (umask 077; openssl rand -hex 32 > KEYFILE); a batch that is tried again "
                "then gets the same noise",
            )
        if self.mode != "error":
            yield ConfigError(f"Options --incremental and --mode {self.mode} do not go together")
        if self.id is not None and not self.trust_id:
            yield ConfigError(
                "Option --incremental cannot check that --id names every row of all runs once",
                do="Leave it out to name rows by file and position, or vouch for it with --trust-id",
            )


class VectorsOptions(VectorParameters, TableOptions):
    """Release vectors by projection and noise.

    A text is released as the average of its words' vectors.
    """

    command = "vectors"
    usage = "--input vectors.parquet --output released --vector vector --id id --epsilon 10"
    published = TableOptions.published | {"vector", *VectorParameters.model_fields}

    vector: tuple[str, ...] = TABLE(
        "array<float> or array<double> column; repeatable", (), takes="COLUMN", first=True
    )
    text: tuple[str, ...] = TABLE(
        "string column: each text the average of its words; repeatable", (), takes="COLUMN", first=True
    )
    embedding: LocalPath | None = WORDS(f"with --text: {BUNDLE}", None, first=True)
    tokenizer: Annotated[str, policy_of(Segmentation)] = WORDS(
        "icu: also Chinese, Japanese, Thai, Lao, Khmer, Burmese", "words", takes=Segmentation.forms
    )

    def conflicts(self) -> Iterator[ConfigError]:
        yield from super().conflicts()
        yield from self.column_conflicts(vector=self.vector, text=self.text)
        if not self.text:
            yield from _for_texts(tokenizer=self.tokenizer)
        if bool(self.text) != (self.embedding is not None):
            yield ConfigError(
                "Options --text and --embedding go together",
                do="Give a text column the bundle of its words' vectors; --vector columns need none",
            )

    @property
    def mechanism(self) -> ProjectedVectors:
        """How vectors are projected and noised, without the rest of the options."""
        return ProjectedVectors(**{name: getattr(self, name) for name in VectorParameters.model_fields})

    @property
    def projection_path(self) -> str:
        """Where the projections go, which belong to the release."""
        return self.beside("projection.json")

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        return ("Projection", self.projection_path), *super().files


class LedgerOptions(Options):
    """Show the releases in a ledger, and their sum."""

    command = "ledger"
    positional = ("action", "path")
    usage = "show ledger"

    action: Literal["show"] = LEDGER("show: its releases and their totals")
    path: str = LEDGER("folder that dptext privatize --ledger wrote", takes="PATH", min_length=1)
