"""The commands' options: one object for the command line, a TOML file, Python and the report.

A new command is a class here, a module of its name in ``dptext_spark.spark.jobs``, and a file in ``conf``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import Field, InstanceOf, Strict, field_validator
from pydantic_core import PydanticCustomError

from dptext_spark.calibration.estimators import EstimatorName
from dptext_spark.calibration.record import setting
from dptext_spark.calibration.statistics import CONFIDENCE, ETA, GAMMA
from dptext_spark.calibration.target import Target
from dptext_spark.embedding.readers import formats
from dptext_spark.embedding.spaces import GeometryName, Normalization
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import NoiseKey
from dptext_spark.options.configured import MechanismOptions, as_json
from dptext_spark.options.validation import OneOf, Options, Shown, Under, findings
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

ALL: Final = "*"
"""Among the columns that are kept: all others."""

# Headings of the help.
SOURCE: Final = Under("Source")
PAIRS: Final = Under("Pairs")
NOISE: Final = Under("Noise and key")
OUTPUT: Final = Under("Output")
INCREMENTAL: Final = Under("A table that grows")
TARGET: Final = Under("Target")


class EmbeddingOptions(Options):
    """Turn an embedding SOURCE into a bundle that the other commands read."""

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
        description="words that may be output: a file, one a line, or N for the first N; default: all that a "
        "text can hold; all: the others as well",
    )
    never_output: LocalPath | None = Field(
        None, description="words that may never be output, in any capitals: a file, one a line"
    )
    geometry: GeometryName = Field("euclidean", description="of the vectors")
    overwrite: Annotated[bool, OUTPUT] = Field(False, description="replace a bundle that exists")


class PoincareOptions(Options):
    """Train a Poincaré embedding of is-a pairs and make it a bundle."""

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


def _for_texts(**given: str) -> Iterator[ConfigError]:
    """Find options that have nothing to do where there are no texts."""
    for option, value in given.items():
        if value != "words":
            yield ConfigError(f"Option --{option} is for texts", do="Name them with --text, or leave it out")


class TableOptions(Options):
    """What the jobs that turn a private table into one for release have in common."""

    heading = "Table"

    input: TablePath = Field(
        min_length=1,
        description="file or folder, any path that Spark can read; a name with --format table or iceberg",
    )
    output: TablePath = Field(min_length=1, description="folder or table to write; must not exist")
    format: str = Field(
        "parquet",
        min_length=1,
        description="of the input: parquet, orc, csv, json, avro, delta, iceberg, or table for a "
        "table of Spark's catalogs",
    )
    output_format: Annotated[str | None, OUTPUT] = Field(
        None, min_length=1, description="of the output; default: the input's format"
    )
    read_option: tuple[Annotated[str, Shown(lambda: ["NAME=VALUE"])], ...] = Field(
        (), repr=False, description="NAME=VALUE for Spark's reader of the format; repeatable"
    )
    write_option: Annotated[tuple[Annotated[str, Shown(lambda: ["NAME=VALUE"])], ...], OUTPUT] = Field(
        (), repr=False, description="NAME=VALUE for Spark's writer of the format; repeatable"
    )
    id: Column | None = Field(
        None,
        description="column that names each row, unique and without nulls; default: file and row position",
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
        description="32-byte key, mode 0600, for a repeatable release; default: a fresh key, never kept",
    )
    where: Annotated[str | None, Shown(lambda: ["SQL"])] = Field(
        None,
        min_length=1,
        repr=False,
        description="SQL condition that rows must meet; left out of the report, but Spark's own logs show it",
    )
    salt: Annotated[str, Shown(lambda: ["LABEL"]), NOISE] = Field(
        "", description="keeps tables apart that share a key and ids"
    )
    trust_id: bool = Field(False, description="skip the check that ids are unique and not null")
    compression: Annotated[Literal["snappy", "zstd", "gzip", "lz4_raw", "none"] | None, OUTPUT] = Field(
        None, description="of the output's files; default: snappy, and none for csv and json"
    )
    report: Annotated[TablePath | None, OUTPUT] = Field(
        None, description="where the report goes; default: OUTPUT.report.json"
    )
    mode: Annotated[Literal["error", "overwrite", "append"], OUTPUT] = Field(
        "error",
        description="where the output exists: refuse; replace it; or add to it, where its format has commits",
    )
    overwrite: Annotated[bool, OUTPUT] = Field(
        False, description="replace an output table that exists, or that another run is writing"
    )
    dry_run: Annotated[bool, OUTPUT] = Field(
        False,
        description="check everything, print the guarantee; write nothing, or the report that --report names",
    )

    @classmethod
    def arranged(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """See :meth:`Options.arranged`; ``--overwrite`` is ``--mode overwrite``."""
        given = super().arranged(values)
        if given.get("mode") == "overwrite":
            given["overwrite"] = True
        elif given.get("overwrite") is True:
            given.setdefault("mode", "overwrite")
        return given

    @property
    def append(self) -> bool:
        """Whether rows are added to a table that may exist."""
        return self.mode == "append"

    @field_validator("read_option", "write_option")
    @classmethod
    def _check_pairs(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        if not all(re.match("[^=]+=", value) for value in values):
            raise PydanticCustomError("pairs", "NAME=VALUE")
        return values

    @property
    def read_options(self) -> dict[str, str]:
        """Options of the input's format, by name."""
        return dict(_pair(value) for value in self.read_option)

    @property
    def write_options(self) -> dict[str, str]:
        """Options of the output's format, by name."""
        return dict(_pair(value) for value in self.write_option)

    @property
    def report_path(self) -> str:
        """Where the report goes."""
        return self.report or self.beside("report.json")

    @property
    def files(self) -> tuple[tuple[str, str, str], ...]:
        """What the job writes beside its output: a name, the option that moves it, and its path."""
        return (("Report", "--report", self.report_path),)

    @property
    def places(self) -> tuple[tuple[str, str, str], ...]:
        """All that must lie apart, as in :attr:`files`."""
        return (("Input", "--input", self.input), ("Output", "--output", self.output), *self.files)

    def finish(self, report: Any) -> str:
        if self.dry_run:
            but = f" but the report: {self.report}" if self.report else "."
            return f"Dry run: all options are right, nothing was written{but}"
        written = [("Output", self.output), *((what, path) for what, _, path in self.files)]
        return "\n".join(f"{what}: {path}" for what, path in written)

    def beside(self, ending: str) -> str:
        """Give the path of a file that lies beside the output."""
        return f"{self.output.rstrip('/')}.{ending}"

    def noise_key(self) -> NoiseKey:
        """Read the key, or make a fresh one.

        Raises:
            ConfigError: The key file cannot be used.
        """
        return NoiseKey.read(self.key_file) if self.key_file else NoiseKey.generate()

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
        if self.overwrite and self.mode != "overwrite":
            yield ConfigError(f"Options --overwrite and --mode {self.mode} do not go together")
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
    release_words: int | None = Field(None, description="output only the first N releasable words")

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


class PrivatizeOptions(PolicyOptions, MechanismOptions, TableOptions):
    """Sanitize columns of a table into another one."""

    command = "privatize"
    heading = "Text"
    usage = (
        "--input queries.parquet --output sanitized --embedding glove-50d \\\n"
        "      --mechanism laplace --epsilon 10 --text text --id id --keep intent --key-file release.key"
    )

    embedding: LocalPath = Field(description="embedding bundle, made by dptext embedding")
    mechanism: InstanceOf[Mechanism] = Field(description="how words are perturbed")
    text: tuple[Column, ...] = Field(
        (), description="string column to sanitize; repeatable; this or --tokens must be given"
    )
    tokens: tuple[Column, ...] = Field((), description="array<string> column to sanitize; repeatable")
    calibration: Annotated[TablePath | None, OUTPUT] = Field(
        None, description="folder that dptext calibrate wrote for this release, to be quoted in the report"
    )
    incremental: Annotated[TablePath | None, INCREMENTAL] = Field(
        None,
        min_length=1,
        description="folder of a checkpoint: add the files that are new since the last run to the output",
    )
    batch_files: Annotated[int | None, INCREMENTAL] = Field(
        None, ge=1, description="with --incremental: files added at once, at most; default: all that are new"
    )

    @property
    def unfinished(self) -> str:
        going_on = "The output has the batches before; the same command goes on."
        return going_on if self.incremental else super().unfinished

    @property
    def places(self) -> tuple[tuple[str, str, str], ...]:
        checkpoint = [("Checkpoint", "--incremental", self.incremental)] if self.incremental else []
        return (*super().places, *checkpoint)

    def conflicts(self) -> Iterator[ConfigError]:
        yield from self.column_conflicts(text=self.text, tokens=self.tokens)
        if not self.text:
            yield from _for_texts(layout=self.layout, tokenizer=self.tokenizer)
        if self.incremental is None:
            if self.batch_files is not None:
                yield ConfigError("Option --batch-files is for --incremental runs")
            return
        if self.key_file is None:
            yield ConfigError(
                "Option --incremental needs --key-file",
                do="Make one with: (umask 077; openssl rand -hex 32 > KEYFILE); a batch that is tried again "
                "then gets the same noise",
            )
        for given, option in ((self.overwrite, "overwrite"), (self.append, "mode append")):
            if given:
                yield ConfigError(f"Options --incremental and --{option} do not go together")
        if self.id is not None and not self.trust_id:
            yield ConfigError(
                "Option --incremental cannot check that --id names every row of all runs once",
                do="Leave it out to name rows by file and position, or vouch for it with --trust-id",
            )

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), **as_json(self.mechanism)}


class VectorsOptions(VectorParameters, TableOptions):
    """Release vectors, or texts as averages of word vectors, by random projection and noise."""

    command = "vectors"
    heading = "Vectors"
    usage = "--input vectors.parquet --output released --vector vector --id id --epsilon 10"

    vector: tuple[Column, ...] = Field(
        (), description="array<float> or array<double> column; repeatable; this or --text must be given"
    )
    text: tuple[Column, ...] = Field(
        (), description="string column, each text the average of its words' vectors; repeatable"
    )
    embedding: LocalPath | None = Field(None, description="with --text: embedding bundle of the words")
    tokenizer: TokenizerName = Field("words", description=f"of texts: {Segmentation.choices()}")

    def conflicts(self) -> Iterator[ConfigError]:
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
    def files(self) -> tuple[tuple[str, str, str], ...]:
        return (("Projection", "--output", self.projection_path), *super().files)


WorldName: TypeAlias = Literal["line", "star", "clusters", "edge", "bundle"]
WORLDS: Final = get_args(WorldName)
BUNDLE_WORLD: Final = "bundle"


class AuditOptions(MechanismOptions):
    """Check the running code against its claimed guarantee; the exit code is 1 where it breaks it."""

    command = "audit"
    heading = "Audit"
    usage = "--embedding glove-50d --mechanism laplace --epsilon 10"
    releases = ("words", "vectors")

    embedding: LocalPath | None = Field(
        None, description="embedding bundle of world bundle, made by dptext embedding"
    )
    mechanism: InstanceOf[Mechanism] = Field(description="what is audited")
    world: tuple[WorldName, ...] = Field(
        (), description="where words are compared; repeatable; default: all that fit"
    )
    pair: tuple[Annotated[str, Shown(lambda: ["WORD:WORD"])], ...] = Field(
        (),
        description="words to compare; repeatable; of the bundle, or of the small worlds where --world "
        "leaves the bundle out; default: two words and their neighbours, or all pairs of a small world",
    )
    runs: int | None = Field(
        None,
        ge=100,
        description="outputs of each word; default: 40000, and 10000 or fewer for words of the bundle",
    )
    confidence: float = Field(
        0.999, gt=0.0, lt=1.0, description="probability of finding nothing where there is nothing"
    )
    noise_seed: Annotated[int, NOISE] = Field(
        0, ge=0, description="public number that the noise follows from"
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

    def finish(self, report: Any) -> str:
        """Write the audit's report where it is wanted, and fail where it found something."""
        report.finish(self.report)
        return ""

    def to_json(self) -> dict[str, Any]:
        """Give the options as JSON-ready values."""
        values = self.model_dump(mode="json", by_alias=True, exclude={"mechanism"})
        return {**values, **as_json(self.mechanism)}


class GridOptions(MechanismOptions):
    """What the commands have in common that take a mechanism at several lambdas and epsilons."""

    spread = ("lambda", "epsilon")

    embedding: LocalPath = Field(description="embedding bundle, made by dptext embedding")
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
        build = super()._build
        points = product(*(value.get(name, (None,)) for name in cls.spread))
        chosen = [{n: v for n, v in zip(cls.spread, point, strict=True) if v is not None} for point in points]
        grid = {tuple(point.values()): build({**value, **point}) for point in chosen}
        return tuple(grid[point] for point in sorted(grid))

    @field_validator("epsilon", "lambda_")
    @classmethod
    def _each_once(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(sorted({*values}))


class TryOptions(PolicyOptions, GridOptions):
    """Show what a SENTENCE of yours becomes, several times for each mechanism and epsilon; needs no Spark."""

    command = "try"
    positional = ("sentence",)
    heading = "Sentence"
    usage = (
        '"play some jazz in boston" --embedding glove-50d \\\n'
        "      --mechanism laplace --mechanism exponential --epsilon 5 10 20"
    )
    runner = "dptext_spark.preview"
    on_spark = False
    several = True

    sentence: str | None = Field(
        None, repr=False, description="what to sanitize; from standard input where it is - or left out"
    )
    mechanism: tuple[InstanceOf[Mechanism], ...] = Field(description="how words are perturbed; repeatable")
    draws: int = Field(3, ge=1, le=1000, description="times that the sentence is sanitized by each")

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


class CalibrateOptions(GridOptions):
    """Measure what a mechanism does to words at several epsilons, before anything is released."""

    command = "calibrate"
    heading = "Measuring"
    usage = (
        "--embedding glove-50d --output calibration --mechanism laplace \\\n"
        "      --epsilon 5 10 20 --target 'p95(n_w) <= 0.5'"
    )

    output: TablePath = Field(
        min_length=1, description="folder for the tables; a run that was killed continues"
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
    gamma: float = Field(
        GAMMA, ge=1.0, allow_inf_nan=False, description="deniability: factor within which a word is as likely"
    )
    confidence: float = Field(
        CONFIDENCE, gt=0.5, lt=1.0, description="of each interval, and of each test of the target"
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
        False, description="replace a calibration that exists, finished or not"
    )

    @field_validator("target")
    @classmethod
    def _check_target(cls, value: str) -> str:
        with findings():
            Target.parse(value)
        return value

    @property
    def unfinished(self) -> str:
        return "The same command continues."

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
