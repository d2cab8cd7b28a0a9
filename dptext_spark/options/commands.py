"""The commands' options: one object for the command line, a TOML file, Python and the report.

A new command is a class here, a module of its name in ``dptext_spark.jobs``, and a file in ``conf``.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, get_args

from pydantic import Field, InstanceOf, Strict, field_validator
from pydantic_core import PydanticCustomError

from dptext_spark.accounting.ledger import Permission
from dptext_spark.accounting.row_budget import LEAST_ROW_DELTA, RowBudget
from dptext_spark.calibration.estimators import EstimatorName
from dptext_spark.calibration.record import option_line, setting
from dptext_spark.calibration.statistics import CONFIDENCE, ETA
from dptext_spark.calibration.target import Target
from dptext_spark.embedding.lists import check_faiss, index_lists
from dptext_spark.embedding.readers import formats
from dptext_spark.embedding.spaces import GeometryName, Normalization
from dptext_spark.errors import ConfigError, JobError
from dptext_spark.evaluation.comparison import ATTRIBUTION
from dptext_spark.evaluation.goal import LABELLED, Goal
from dptext_spark.evaluation.recovery import CANDIDATES, TOP
from dptext_spark.guarantee import DELTAS, ROWS
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import NoiseKey, check_label
from dptext_spark.options.configured import MechanismOptions, SearchOptions, as_json
from dptext_spark.options.validation import OneOf, Options, Shown, Under, findings
from dptext_spark.search.nearest import Search
from dptext_spark.text.layout import Layout
from dptext_spark.text.policies import OovPolicy, Protection, TextPolicy
from dptext_spark.text.segmentation import Segmentation
from dptext_spark.vectors.projected_vectors import ProjectedVectors, VectorParameters

LocalPath: TypeAlias = Annotated[Path, Strict(False)]
"""A path of this machine, given as text."""

TablePath: TypeAlias = Annotated[str, Shown(lambda: ["PATH"])]
"""A path of any scheme that Spark knows."""

Column: TypeAlias = Annotated[str, Shown(lambda: ["COLUMN"])]
"""A column, or a field inside one by its path."""

Word: TypeAlias = Annotated[str, Shown(lambda: ["WORD"])]

TokenizerName: TypeAlias = Annotated[str, OneOf(lambda: Segmentation.policies)]

NONE: Final = "none"
"""Among the values of an option that several are given of: to leave it out."""

ALL: Final = "*"
"""Among the columns that are kept: all others."""

# Headings of the help.
SOURCE: Final = Under("Source")
PAIRS: Final = Under("Pairs")
NOISE: Final = Under("Noise and key")
OUTPUT: Final = Under("Output")
INCREMENTAL: Final = Under("A table that grows")
LEDGER: Final = Under("Ledger")
TARGET: Final = Under("Target")
BUDGET: Final = Under("Rows and persons")

FILLED_IN: Final = "<as for evaluate>"
"""What a printed command has in place of what may be private."""

MOST_WORDS: Final = 10_000
LEAST_DELTA: Final = 1e-12
"""Below this the Fourier transforms that add losses up are no longer exact enough to tell."""


class EmbeddingOptions(Options):
    """Make a bundle of the word vectors in SOURCE.

    The other commands read the bundle.
    """

    command = "embedding"
    positional = ("source",)
    heading = "Bundle"
    usage = "glove.6B.300d.txt --output glove-300d"
    on_spark = False

    source: LocalPath = Field(description="GloVe or word2vec text, word2vec binary, fastText .vec, or .npy")
    output: LocalPath = Field(description="folder of the bundle to make")
    format: Annotated[str, OneOf(formats), SOURCE] = Field("auto", description="of the source")
    vocabulary: Annotated[LocalPath | None, SOURCE] = Field(
        None, description="words of an .npy source, one a line; default: vocab.txt beside it"
    )
    limit: Annotated[int | None, SOURCE] = Field(None, ge=2, description="read the first N words only")
    normalize: Normalization = Field("none", description="unit: scale every vector to length 1")
    release_words: Annotated[str | int | None, Shown(lambda: ["PATH", "INTEGER", "all"])] = Field(
        None,
        description="words that may be output: a file, one a line (in any capitals where none is written "
        "so), or N for the first N; default: all that a text can hold; all: the others as well",
    )
    never_output: LocalPath | None = Field(
        None, description="words that may never be output, in any capitals: a file, one a line"
    )
    geometry: GeometryName = Field("euclidean", description="of the vectors")
    index: Annotated[str | None, Shown(lambda: ["ivf[:LISTS]"])] = Field(
        None, description="lists of near words for --search ivf of the other commands; needs faiss"
    )
    overwrite: Annotated[bool, OUTPUT] = Field(False, description="replace a bundle that exists")

    @field_validator("index")
    @classmethod
    def _check_index(cls, value: str | None) -> str | None:
        with findings():
            if value is not None:
                index_lists(value)
                check_faiss()
        return value


class PoincareOptions(Options):
    """Train a Poincaré embedding of is-a pairs.

    The output is a bundle, as dptext embedding makes it.
    """

    command = "poincare"
    heading = "Training"
    usage = "--pairs mammals.tsv.gz --dimension 10 --output mammals-10d"

    pairs: TablePath = Field(
        min_length=1,
        description="is-a pairs: Parquet with columns hyponym, hypernym[, count], or such a TSV (.gz too)",
    )
    output: LocalPath = Field(
        description="folder of the bundle to make; OUTPUT.vec and OUTPUT.png lie beside it"
    )
    vocabulary: Annotated[LocalPath | None, PAIRS] = Field(
        None, description="keep pairs of these words only: a bundle, or a file with one word a line"
    )
    min_count: Annotated[int, PAIRS] = Field(
        10, ge=0, description="keep pairs seen this often; nothing where pairs have no count"
    )
    min_links: Annotated[int, PAIRS] = Field(
        2, ge=0, description="remove words with this many links or fewer"
    )
    exclude: Annotated[LocalPath | None, PAIRS] = Field(
        None, description="words to remove: a file with one word a line"
    )
    transitive_closure: Annotated[bool, PAIRS] = Field(
        False, description="add the pairs that follow from others"
    )
    dimension: int = Field(10, ge=2, le=1000, description="dimension of the Poincaré ball")
    epochs: int = Field(200, ge=1, description="passes over the pairs, at most")
    negatives: int = Field(128, ge=1, description="words that the pairs of a batch are told apart from")
    learning_rate: float = Field(
        0.3, gt=0, le=10, allow_inf_nan=False, description="hyperbolic step for a gradient of length 1"
    )
    batch_size: int = Field(128, ge=1, description="pairs of one update")
    patience: int = Field(50, ge=1, description="epochs without a better mean rank before training ends")
    max_radius: float | None = Field(
        None,
        gt=0,
        le=12,
        allow_inf_nan=False,
        description="hyperbolic radius that no word leaves: with a smaller one neighbours are nearer, and "
        "noise replaces more words; default: 12 / sqrt(dimension - 1)",
    )
    seed: int = Field(0, ge=0, lt=2**63, description="the same seed gives the same vectors")
    checkpoint: LocalPath | None = Field(
        None, description="folder for the state of the training; a run that was cut off goes on from it"
    )
    never_output: LocalPath | None = Field(
        None, description="words that may never be output, in any capitals: a file, one a line"
    )
    report: Annotated[LocalPath | None, OUTPUT] = Field(
        None, description="where the report goes; default: OUTPUT.report.json"
    )
    overwrite: Annotated[bool, OUTPUT] = Field(False, description="replace a bundle and a report that exist")

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
        """Give the path beside the bundle with this suffix."""
        return self.output.with_name(f"{self.output.name}.{suffix}")


def _listed(names: Iterable[object]) -> str:
    return ", ".join(sorted({str(name) for name in names}))


def _pair(given: str) -> tuple[str, str]:
    name, _, value = given.partition("=")
    return name, value


def _checked_pairs(values: tuple[str, ...]) -> tuple[str, ...]:
    if not all(re.match("[^=]+=", value) for value in values):
        raise PydanticCustomError("pairs", "NAME=VALUE")
    return values


def _for_texts(**given: str) -> Iterator[ConfigError]:
    """Find options that have nothing to do where there are no texts."""
    for option, value in given.items():
        if value != "words":
            yield ConfigError(f"Option --{option} is for texts", do="Name them with --text, or leave it out")


class InputOptions(Options):
    """The private table of a job, and what names its rows."""

    heading = "Table"

    input: TablePath = Field(
        min_length=1,
        description="file or folder, any path that Spark can read; a name with --format table or iceberg",
    )
    format: str = Field(
        "parquet",
        min_length=1,
        description="of the input: parquet, orc, csv, json, avro, delta, iceberg, or table for a "
        "table of Spark's catalogs",
    )
    read_option: tuple[Annotated[str, Shown(lambda: ["NAME=VALUE"])], ...] = Field(
        (),
        repr=False,
        description="NAME=VALUE for Spark's reader of the format; repeatable; with --incremental "
        "maxFilesPerTrigger=N makes batches of N files",
    )
    id: Column | None = Field(
        None,
        description="column that names each row, unique and without nulls; default: file and row position",
    )
    where: Annotated[str | None, Shown(lambda: ["SQL"])] = Field(
        None,
        min_length=1,
        repr=False,
        description="SQL condition that rows must meet; left out of reports, but Spark's own logs show it",
    )
    trust_id: bool = Field(False, description="skip the check that ids are unique and not null")

    @field_validator("read_option")
    @classmethod
    def _check_read_pairs(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        return _checked_pairs(values)

    @property
    def read_options(self) -> dict[str, str]:
        """Options of the input's format, by name."""
        return dict(_pair(value) for value in self.read_option)


class TableOptions(InputOptions):
    """What the jobs that turn a private table into one for release have in common."""

    heading = "Table"

    published: ClassVar[frozenset[str]] = frozenset(
        {"epsilon-from-private-rows", "id", "key", "text", "tokenizer", "trust-id"}
    )
    """Options that may be handed on: no place, filter, label, nor column that stays behind but for the id."""

    output: TablePath = Field(min_length=1, description="folder or table to write; must not exist")
    output_format: Annotated[str | None, OUTPUT] = Field(
        None, min_length=1, description="of the output; default: the input's format"
    )
    write_option: Annotated[tuple[Annotated[str, Shown(lambda: ["NAME=VALUE"])], ...], OUTPUT] = Field(
        (),
        repr=False,
        description="NAME=VALUE for Spark's writer of the format, such as compression=zstd; repeatable",
    )
    keep: tuple[Column, ...] = Field(
        (),
        description="column to pass through AS IT IS; repeatable; '*': all that are not sanitized, but for "
        "those of --except and that of slots",
    )
    except_: tuple[Column, ...] = Field(
        (), alias="except", description="with --keep '*': column to leave out; repeatable"
    )
    key_file: Annotated[LocalPath | None, NOISE] = Field(
        None,
        repr=False,
        description="32-byte key, mode 0600, for a repeatable release, which needs --salt; default: a fresh "
        "key, never kept",
    )
    salt: Annotated[str, Shown(lambda: ["LABEL"]), NOISE] = Field(
        "",
        description="with --key-file: the name of what is released, such as the table and its date; equal "
        "ids and texts under one key and label get equal noise. Without --id the rows of a single file are "
        "named by its own name: only the label tells a/part-0 from b/part-0",
    )
    trust_id: bool = Field(
        False,
        description="skip the check that ids are unique and not null; of rows with one id equal texts come "
        "out equal, so whoever can submit a row with the id of another tests guesses of its text",
    )
    reports: Annotated[TablePath | None, OUTPUT] = Field(
        None,
        min_length=1,
        description="folder for release.json, which you may share with the table, and private/report.json, "
        "which you keep; default: OUTPUT.release.json and OUTPUT.private/report.json; a table of a catalog "
        "needs it",
    )
    epsilon_from_private_rows: Annotated[bool, OUTPUT] = Field(
        False,
        description="say in the public report that epsilon was chosen by a look at these rows; else it says "
        "that it is assumed not to be",
    )
    mode: Annotated[Literal["error", "overwrite", "append"], OUTPUT] = Field(
        "error",
        description="where the output exists, or another run is writing it: refuse; replace it; or add rows, "
        "where its format has commits",
    )
    dry_run: Annotated[bool, OUTPUT] = Field(
        False,
        description="check everything and print the guarantee; write nothing, or the private report where "
        "--reports is given",
    )

    @property
    def overwrite(self) -> bool:
        """Whether a table that exists is replaced."""
        return self.mode == "overwrite"

    @property
    def append(self) -> bool:
        """Whether rows are added to a table that may exist."""
        return self.mode == "append"

    @field_validator("write_option")
    @classmethod
    def _check_written_pairs(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        return _checked_pairs(values)

    @property
    def write_options(self) -> dict[str, str]:
        """Options of the output's format, by name."""
        return dict(_pair(value) for value in self.write_option)

    @property
    def private_folder(self) -> str:
        """Where lies what is for those who run the job."""
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
            but = f" but the report: {self.report_path}" if self.reports else "."
            return f"Dry run: all options are right, nothing was written{but}"
        return "\n".join(f"{what}: {path}" for what, path in (("Output", self.output), *self.files))

    def beside(self, name: str) -> str:
        """Give the path of a file in the folder of reports, or beside the output."""
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
            check_label(self.key_file, self.salt)
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
            yield ConfigError("Columns are both sanitized and passed raw with --keep", got=raw)
        if self.except_ and ALL not in self.keep:
            yield ConfigError("Option --except is for --keep '*'", got=_listed(self.except_))
        if self.id in sanitized:
            yield ConfigError("The --id column cannot be sanitized itself", got=str(self.id))

    def to_json(self) -> dict[str, Any]:
        """Give the options as JSON-ready values, without the key file's place and the filter's text."""
        values = self.model_dump(
            mode="json", by_alias=True, exclude={"mechanism", "search", "key_file", "where"}
        )
        return {
            **values,
            "where": "given, not kept" if self.where else None,
            # Values may be passwords.
            "read-option": sorted(self.read_options),
            "write-option": sorted(self.write_options),
            "key": "file" if self.key_file else "fresh, not kept",
        }

    def to_publish(self) -> dict[str, Any]:
        """Give what may be handed on of the options, as JSON-ready values: those of ``published``."""
        return {name: value for name, value in self.to_json().items() if name in self.published}


class PolicyOptions(Options):
    """What becomes of words, beside the mechanism, in the commands that sanitize texts."""

    heading = "Words"

    oov: Annotated[str, Shown(OovPolicy.forms)] = Field("mask", description="words outside the vocabulary")
    protect: Annotated[str, Shown(Protection.forms)] = Field(
        "all", description=f"words that are perturbed: {Protection.choices()}"
    )
    layout: Annotated[str, OneOf(lambda: Layout.policies)] = Field(
        "words", description=f"of texts: {Layout.choices()}"
    )
    tokenizer: TokenizerName = Field("words", description=f"of texts: {Segmentation.choices()}")

    @field_validator("oov", mode="before")
    @classmethod
    def _check_oov(cls, value: Any) -> str:
        try:
            return str(OovPolicy.of(value))
        except ConfigError:
            raise PydanticCustomError("oov", "{choices}", {"choices": OovPolicy.choices()}) from None

    @property
    def policy(self) -> TextPolicy:
        """The text policy.

        Raises:
            ConfigError: ``protect`` is none of the policies, or ICU is not installed.
        """
        return TextPolicy(oov=self.oov, protect=self.protect, layout=self.layout, tokenizer=self.tokenizer)


class ReleaseOptions(PolicyOptions):
    """The same, of commands that release words, or what looks like a release."""

    release_words: int | None = Field(None, description="output only the first N releasable words")


class PrivatizeOptions(ReleaseOptions, MechanismOptions, SearchOptions, TableOptions):
    """Sanitize texts of a table into a new table."""

    command = "privatize"
    heading = "Text"
    usage = (
        "--input queries.parquet --output sanitized --embedding glove-50d \\\n"
        "      --mechanism laplace --epsilon 10 --text text --id id --keep intent --key-file release.key \\\n"
        "      --salt 'queries 2026-03-01'"
    )
    published = TableOptions.published | {
        *("layout", "oov", "protect", "release-words", "tokens"),
        *("row-budget", "row-delta", "within"),
    }

    embedding: LocalPath = Field(description="embedding bundle, made by dptext embedding")
    mechanism: InstanceOf[Mechanism] = Field(description="how words are perturbed")
    text: tuple[Column, ...] = Field(
        (), description="string column to sanitize; repeatable; this or --tokens must be given"
    )
    tokens: tuple[Column, ...] = Field((), description="array<string> column to sanitize; repeatable")
    row_budget: Annotated[float | None, BUDGET] = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="nats that a row may lose: its epsilon follows from its number of words, and --epsilon "
        "is the largest that a row gets",
    )
    within: Annotated[float | None, BUDGET] = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="with --row-budget or --person: how far each word moves at most, in the mechanism's "
        "metric; default: as far as the nearest word, the median of the embedding",
    )
    row_delta: Annotated[float | None, BUDGET] = Field(
        None,
        ge=LEAST_ROW_DELTA,
        lt=1,
        description="with --row-budget: additional probability; default: 0, a pure budget",
    )
    person: Annotated[Column | None, BUDGET] = Field(
        None,
        description="column that names whose a row is: the report says what the rows of a person add up to; "
        "it takes one more pass over the table",
    )
    incremental: Annotated[TablePath | None, INCREMENTAL] = Field(
        None,
        min_length=1,
        description="folder of a checkpoint: add the files that are new since the last run to the output",
    )
    ledger: Annotated[TablePath | None, LEDGER] = Field(
        None,
        min_length=1,
        description="folder that knows earlier releases: enter this one, and tell what it adds to them",
    )
    budget: Annotated[float | None, LEDGER] = Field(
        None,
        gt=0.0,
        allow_inf_nan=False,
        description="with --ledger: refuse a release after which a word of some row had lost more than "
        "this over all releases, in nats per unit of distance, as epsilon counts",
    )
    ledger_allow: Annotated[tuple[Permission, ...], LEDGER] = Field(
        (),
        description="with --budget: release all the same what counts in a new-unit, or under a weaker-policy "
        "than before, which lets out raw what was protected; repeatable",
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
        """What a row may lose, where that is limited; each word moves as far as ``nearest`` by default."""
        if self.row_budget is None:
            return None
        within = nearest if self.within is None else self.within
        return RowBudget(loss=self.row_budget, within=within, delta=self.row_delta or 0.0)

    def _budget_conflicts(self) -> Iterator[ConfigError]:
        if self.within is not None and self.row_budget is None and self.person is None:
            yield ConfigError("Option --within is for --row-budget or --person")
        if self.person is not None and self.incremental is not None:
            yield ConfigError(
                "Options --person and --incremental do not go together: rows of a person come in many runs",
                do="Count them in a --dry-run of the whole table",
            )
        if self.row_delta is not None and self.row_budget is None:
            yield ConfigError("Option --row-delta is for --row-budget")

    def conflicts(self) -> Iterator[ConfigError]:
        yield from super().conflicts()
        yield from self.column_conflicts(text=self.text, tokens=self.tokens)
        yield from self._budget_conflicts()
        if not self.text:
            yield from _for_texts(layout=self.layout, tokenizer=self.tokenizer)
        if self.budget is not None and self.ledger is None:
            yield ConfigError("Option --budget needs --ledger, which knows what was spent")
        if self.ledger_allow and self.budget is None:
            yield ConfigError("Option --ledger-allow is for --budget, which refuses it otherwise")
        if self.incremental is None:
            return
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

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), **as_json(self.mechanism)}

    def to_publish(self) -> dict[str, Any]:
        return {**super().to_publish(), **as_json(self.mechanism)}


class VectorsOptions(VectorParameters, TableOptions):
    """Release vectors by projection and noise.

    A text is released as the average of its words' vectors.
    """

    command = "vectors"
    heading = "Vectors"
    usage = "--input vectors.parquet --output released --vector vector --id id --epsilon 10"
    published = TableOptions.published | {"vector", *VectorParameters.model_fields}

    vector: tuple[Column, ...] = Field(
        (), description="array<float> or array<double> column; repeatable; this or --text must be given"
    )
    text: tuple[Column, ...] = Field(
        (), description="string column, each text the average of its words' vectors; repeatable"
    )
    embedding: LocalPath | None = Field(None, description="with --text: embedding bundle of the words")
    tokenizer: TokenizerName = Field("words", description=f"of texts: {Segmentation.choices()}")

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
    heading = "Ledger"
    usage = "show ledger"

    action: Literal["show"] = Field(description="show: its releases and their totals")
    path: TablePath = Field(min_length=1, description="folder that dptext privatize --ledger wrote")


WorldName: TypeAlias = Literal["line", "star", "clusters", "bundle"]
WORLDS: Final = get_args(WorldName)
BUNDLE_WORLD: Final = "bundle"


class AuditOptions(MechanismOptions, SearchOptions):
    """Test the code against its stated guarantee.

    The exit code is 1 where the code breaks it.
    """

    command = "audit"
    heading = "Audit"
    usage = "--embedding glove-50d --mechanism laplace --epsilon 10"
    releases = ("words", "vectors")

    embedding: LocalPath | None = Field(
        None, description="embedding bundle of world bundle, made by dptext embedding"
    )
    mechanism: InstanceOf[Mechanism] = Field(description="what is audited")
    world: tuple[WorldName, ...] = Field((), description="where words are compared; repeatable; default: all")
    pair: tuple[Annotated[str, Shown(lambda: ["WORD:WORD"])], ...] = Field(
        (),
        description="words to compare; repeatable; of the bundle, or of the small worlds where --world "
        "leaves the bundle out; default: two words and their neighbours, or all pairs of a small world",
    )
    runs: int | None = Field(
        None,
        ge=100,
        description="outputs of each word; default: 40000, and 4000 for words of the bundle",
    )
    confidence: float = Field(
        0.999, gt=0.0, lt=1.0, description="a correct mechanism passes with this probability or more"
    )
    noise_seed: Annotated[int, NOISE] = Field(
        0, ge=0, description="public number that the noise is made from"
    )
    report: Annotated[LocalPath | None, OUTPUT] = Field(
        None, description="JSON file to write; one that exists is replaced"
    )

    @property
    def worlds(self) -> tuple[WorldName, ...]:
        """The worlds to look at, each once."""
        return tuple(dict.fromkeys(self.world)) or WORLDS

    def conflicts(self) -> Iterator[ConfigError]:
        if BUNDLE_WORLD in (self.world or WORLDS) and self.embedding is None:
            yield ConfigError("Option --embedding is missing", do="Or name small worlds only, with --world")
        yield from super().conflicts()

    def finish(self, report: Any) -> str:
        """Write the audit's report where it is wanted, and fail where there is a violation."""
        report.finish(self.report)
        return ""

    def to_json(self) -> dict[str, Any]:
        """Give the options as JSON-ready values."""
        values = self.model_dump(mode="json", by_alias=True, exclude={"mechanism"})
        return {**values, **as_json(self.mechanism)}


class GridOptions(MechanismOptions):
    """What the commands have in common that take a mechanism at several lambdas and epsilons."""

    spread: ClassVar[tuple[str, ...]] = ("lambda", "epsilon")

    mechanism: tuple[InstanceOf[Mechanism], ...] = Field(
        description="what is measured: the mechanism at each lambda and epsilon"
    )
    epsilon: tuple[float, ...] = Field(description="privacy parameters; several may follow")
    lambda_: tuple[float, ...] = Field(
        (),
        alias="lambda",
        description="weights of the covariance in the noise, which must be given; several may follow",
    )

    @field_validator("mechanism", mode="before")
    @classmethod
    def _build(cls, value: Any) -> Any:
        """Build the mechanism at each lambda, and there at each epsilon."""
        if not isinstance(value, dict):
            return value
        build, given = super()._build, [name for name in cls.spread if name in value]
        grid = {}
        for point in product(*(value[name] for name in given)):
            chosen = (None if each == NONE else each for each in point)
            grid[point] = build({**value, **dict(zip(given, chosen, strict=True))})
        return tuple(grid[point] for point in sorted(grid, key=lambda point: [*map(_size, point)]))

    @field_validator("epsilon", "lambda_")
    @classmethod
    def _each_once(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(sorted({*values}))


def _size(value: float | str) -> float:
    """By what values of an option are ordered, ``NONE`` last."""
    return math.inf if isinstance(value, str) else value


class AccountOptions(GridOptions):
    """Compute privacy loss, without Spark.

    It prints the worst case, and the loss with a small failure probability.
    """

    command = "account"
    heading = "Account"
    usage = "--embedding glove-50d --mechanism laplace --epsilon 5 10 --words 1 10 100"
    runner = "dptext_spark.account"
    on_spark = False

    embedding: LocalPath = Field(description="embedding bundle, made by dptext embedding")
    words: tuple[Annotated[int, Field(ge=1, le=MOST_WORDS)], ...] = Field(
        (1, *ROWS), description="words that may differ together; several may follow"
    )
    distance: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...] = Field(
        (),
        description="how far apart they are; several may follow; default: a typical word and its nearest, "
        "10th and 100th nearest, and the farthest",
    )
    deltas: tuple[Annotated[float, Field(ge=LEAST_DELTA, lt=1)], ...] = Field(
        DELTAS, description="additional probabilities; several may follow"
    )
    report: Annotated[LocalPath | None, OUTPUT] = Field(
        None, description="JSON file to write; one that exists is replaced"
    )

    def finish(self, report: Any) -> str:
        """Write the account where it is wanted."""
        if self.report is None:
            return ""
        try:
            self.report.write_text(report.to_json(), encoding="utf-8")
        except OSError as error:
            raise JobError(f"The report {self.report} cannot be written", got=str(error.strerror)) from None
        return f"Report: {self.report}"


class SeveralOptions(GridOptions):
    """What the commands have in common that take several mechanisms, each at its lambdas and epsilons."""

    several = True

    mechanism: tuple[InstanceOf[Mechanism], ...] = Field(description="how words are perturbed; repeatable")

    @field_validator("mechanism", mode="before")
    @classmethod
    def _build(cls, value: Any) -> Any:
        """Build each mechanism at its lambdas and epsilons, of the options that are its own."""
        if not isinstance(value, dict):
            return value
        build, owners, chosen = super()._build, cls.mechanism_options(), value["mechanism"]
        names = [*dict.fromkeys(map(str, chosen))] if isinstance(chosen, list | tuple) else [chosen]
        found: list[Mechanism] = []
        for name in names:
            # What is none of the chosen ones' is given to each, to be refused.
            others = {n for n, of in owners.items() if name not in of and not of.keys().isdisjoint(names)}
            found += build({**{n: v for n, v in value.items() if n not in others}, "mechanism": name})
        return tuple(found)


class TryOptions(ReleaseOptions, SeveralOptions, SearchOptions):
    """Sanitize a SENTENCE of yours, without Spark.

    Each mechanism and epsilon sanitizes it several times.
    """

    command = "try"
    positional = ("sentence",)
    heading = "Sentence"
    usage = (
        '"play some jazz in boston" --embedding glove-50d \\\n'
        "      --mechanism laplace --mechanism exponential --epsilon 5 10 20"
    )
    runner = "dptext_spark.preview"
    on_spark = False

    sentence: str | None = Field(
        None, repr=False, description="what to sanitize; from standard input where it is - or left out"
    )
    embedding: LocalPath = Field(description="embedding bundle, made by dptext embedding")
    draws: int = Field(3, ge=1, le=1000, description="times that the sentence is sanitized by each")


class CalibrateOptions(GridOptions, SearchOptions):
    """Measure how often words change.

    It measures a mechanism at several epsilons, before anything is released.
    """

    command = "calibrate"
    heading = "Measuring"
    usage = (
        "--embedding glove-50d --output calibration --mechanism laplace \\\n"
        "      --epsilon 5 10 20 --target 'p95(n_w) <= 0.5'"
    )

    embedding: LocalPath = Field(description="embedding bundle, made by dptext embedding")
    output: TablePath = Field(
        min_length=1, description="folder for the tables; a run that was killed begins anew"
    )
    words: Annotated[int, Field(ge=2)] | Literal["all"] = Field(
        10_000, description="words to measure, evenly spread over the vocabulary: N or all"
    )
    runs: int = Field(1000, ge=1, description="runs of each word at each epsilon")
    release_words: int | None = Field(
        None, description="output only the first N releasable words, as the release will"
    )
    estimator: EstimatorName = Field(
        "auto", description="plain: as a release runs; shared-ray: fast, for noise; exact: for exponential"
    )
    eta: float = Field(ETA, gt=0.0, lt=1.0, description="probability that s_eta may leave out")
    confidence: float = Field(
        CONFIDENCE, gt=0.5, lt=1.0, description="of each interval, and of the search for the target"
    )
    target: Annotated[str | None, TARGET] = Field(
        None, description="find the largest epsilon that meets this, for example 'p95(n_w) <= 0.5'"
    )
    compare: Annotated[TablePath | None, TARGET] = Field(
        None, description="another calibration's folder: find the epsilons that match its N_w"
    )
    transitions: Annotated[bool, OUTPUT] = Field(
        False, description="keep the table of all transitions as well"
    )
    example: Annotated[tuple[Word, ...], OUTPUT] = Field(
        (), description="word whose substitutions the report shows, measured beside the others; repeatable"
    )
    noise_seed: Annotated[int, NOISE] = Field(
        0, ge=0, lt=2**63, description="public number that the noise follows from"
    )
    overwrite: Annotated[bool, OUTPUT] = Field(
        False, description="replace a calibration that exists, or what a killed run left"
    )

    @field_validator("target")
    @classmethod
    def _check_target(cls, value: str) -> str:
        with findings():
            Target.parse(value)
        return value

    def finish(self, report: Any) -> str:
        return f"Output: {self.output}"

    @property
    def settings(self) -> dict[str, tuple[Mechanism, ...]]:
        """The mechanism at each epsilon, by the names of its other parameters."""
        names = [setting(m) for m in self.mechanism]
        return {n: tuple(m for m, o in zip(self.mechanism, names, strict=True) if o == n) for n in names}

    def to_json(self) -> dict[str, Any]:
        """Give the options as JSON-ready values; the mechanism with one epsilon's and lambda's parameters."""
        values = self.model_dump(mode="json", by_alias=True, exclude={"mechanism", "search"})
        return {**as_json(self.mechanism[0]), **values}


class EvaluateOptions(PolicyOptions, SeveralOptions, SearchOptions, InputOptions):
    """Attack simulated releases of your rows.

    It measures what attackers recover and what the texts keep; nothing is released.
    """

    command = "evaluate"
    heading = "Evaluation"
    usage = (
        "--input queries.parquet --text text --id id --embedding glove-50d --output evaluation \\\n"
        "      --mechanism laplace --mechanism exponential --epsilon 5 10 20 --target 'recovery(top1) <= 0.2'"
    )

    spread = ("truncate", "t", "lambda", "epsilon")

    embedding: LocalPath = Field(description="embedding bundle, made by dptext embedding")
    output: TablePath = Field(
        min_length=1,
        description="folder for the findings, which are private; a run that was killed begins anew",
    )
    text: Column | None = Field(None, description="string column to evaluate; this or --tokens must be given")
    tokens: Column | None = Field(None, description="array<string> column to evaluate")
    label: Column | None = Field(
        None, description="column of classes: how well models learn them from released texts is a use, too"
    )
    author: Column | None = Field(
        None, description="column of authors: how well an attacker learns them from released texts is a risk"
    )
    sample: Annotated[int, Field(ge=2)] | Literal["all"] = Field(
        5000, description="rows to evaluate, the same ones in every run, in three thirds: N or all"
    )
    hold_out: bool = Field(
        False,
        description="the printed release leaves the evaluated rows out, so that its epsilon is not chosen "
        "from rows that it has; needs --id",
    )
    public_corpus: TablePath | None = Field(
        None,
        min_length=1,
        description="table of the same format and column, from whose texts attackers learn the language; "
        "default: from a third of the sampled rows, and from those that they attack",
    )
    versions: int = Field(
        1,
        ge=1,
        le=100,
        description="releases of each row that attackers also have together, each under a key",
    )
    candidates: int = Field(
        CANDIDATES, ge=max(TOP), description="words that attackers take into account at each place"
    )
    runs: int = Field(
        1000, ge=1, description="draws of each word, from which attackers learn what a mechanism does"
    )
    confidence: float = Field(CONFIDENCE, gt=0.5, lt=1.0, description="of each interval, and of the choice")
    truncate: tuple[Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | Literal["none"], ...] = Field(
        (),
        description="distances from which on all words are equally likely, or none, which is far slower; "
        "several may follow",
    )
    t: tuple[Annotated[float, Field(ge=0.0, le=1.0)], ...] = Field(
        (),
        description="with --select vickrey: 0 takes the nearest word always, 1 the second; several may "
        "follow",
    )
    release_words: Annotated[tuple[int, ...], Under(PolicyOptions.heading)] = Field(
        (), description="output only the first N releasable words; several may follow"
    )
    target: Annotated[str | None, TARGET] = Field(
        None,
        description="find the setting that keeps most, or risks least, within this limit, for example "
        "'recovery(top1) <= 0.2' or 'similarity >= 0.9'",
    )
    noise_seed: Annotated[int, NOISE] = Field(
        0, ge=0, lt=2**63, description="public number that the rehearsals' noise follows from"
    )
    overwrite: Annotated[bool, OUTPUT] = Field(
        False, description="replace an evaluation that exists, or what a killed run left"
    )

    @field_validator("truncate", "t", "release_words")
    @classmethod
    def _each_value_once(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(sorted({*values}, key=_size))

    @field_validator("target")
    @classmethod
    def _check_target(cls, value: str) -> str:
        with findings():
            Goal.parse(value)
        return value

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
        if goal is not None and (option := named.get(goal.measure)) and getattr(self, option) is None:
            yield ConfigError(f"The --target {goal} needs --{option}", do="Name the column")
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
                "The --target is of versions that are not measured",
                allowed=f"1 or --versions {self.versions}",
                got=str(goal.concern.versions),
            )

    def finish(self, report: Any) -> str:
        return f"Output, which is private: {self.output}"

    def to_json(self) -> dict[str, Any]:
        """Give the options as JSON-ready values, without the mechanisms and the filter's text."""
        values = self.model_dump(mode="json", by_alias=True, exclude={"mechanism", "where"})
        mechanisms = list(dict.fromkeys(mechanism.name for mechanism in self.mechanism))
        where = "given, not kept" if self.where else None
        # Values may be passwords.
        return {
            "mechanism": mechanisms,
            **values,
            "where": where,
            "read-option": sorted(self.read_options),
        }

    def release_command(self, mechanism: Mechanism, search: Search, *, others: str | None = None) -> str:
        """Write the command that makes a release with a setting.

        It says that epsilon was chosen from private rows; or, given the SQL condition of all ``others`` than
        those that were evaluated, it releases these alone.

        A filter and the values of read options, which may be private, have to be filled in: as it is written
        the command fails, for without the filter it would release rows that were never meant to be.
        """
        given = {
            "input": self.input,
            "output": "sanitized",
            "format": None if self.format == "parquet" else self.format,
            "embedding": str(self.embedding),
            "text": self.text,
            "tokens": self.tokens,
            "id": self.id,
        }
        policies = {
            name: value
            for name in ("oov", "protect", "layout", "tokenizer")
            if (value := getattr(self, name)) != type(self).model_fields[name].default
        }
        if self.release_words:
            policies["release_words"] = search.release_words
        policies |= search.options
        words = ["dptext", "privatize"]
        for name, value in (given | policies).items():
            words += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
        words += ["--trust-id"] if self.trust_id else []
        filters = [f"({FILLED_IN})" if others else FILLED_IN] if self.where else []
        if condition := " AND ".join([*filters, *([others] if others else [])]):
            words += ["--where", condition]
        words += [] if others else ["--epsilon-from-private-rows"]
        for name in sorted(self.read_options):
            words += ["--read-option", f"{name}={FILLED_IN}"]
        return f"{shlex.join(words)} {option_line(mechanism)}"
