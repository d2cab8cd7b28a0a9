"""Canaries through the whole job: planted words show nowhere in what a run writes."""

import itertools
import json

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, Schema, WriterProperties, write_deltalake
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from dptext_spark import Laplace, TextPrivatizer, privatize
from dptext_spark.cli import main
from dptext_spark.spark.versions import to_arrow
from dptext_spark.text.actions import Surrogate
from tests.helpers.canaries import IDENTIFIERS, found, key_forms, text_forms
from tests.helpers.lakes import IcebergLake
from tests.helpers.tables import spark_settings
from tests.helpers.worlds import KEY, LABEL

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

CANARIES = {
    name: f"qz{name}zq"
    for name in (
        "text",
        "nested",
        "token",
        "other",
        "id",
        "place",
        "person",
        "comment",
        "label",
        "filter",
    )
}
"""Unknown words by the place that they are planted in."""

METADATA = {
    "comment": CANARIES["comment"],
    "ml_attr": {"type": "nominal", "vals": [CANARIES["label"]]},
}


def struct(**kinds):
    return StructType([StructField(name, kind, True, METADATA) for name, kind in kinds.items()])


def row(number):
    """Words that are known stand around one that is not; only what lies in slots may hold a canary."""
    text = f"W0{number}, {CANARIES['text'].upper()}! the (w02), {', '.join(IDENTIFIERS.values())}"
    nested = f"w03 {CANARIES['nested']}; {'; '.join(IDENTIFIERS.values())}."
    return {
        "id": f"{number}{CANARIES['id']}",
        "number": number,
        "text": text,
        "words": ["w04", CANARIES["token"], None, *IDENTIFIERS.values()],
        "turns": [{"text": nested, "slots": [{"start": 4, "end": len(nested)}]}, None],
        "slots": [{"start": 5, "end": 5 + len(CANARIES["text"])}],
        "marks": [{"start": 1, "end": 2}],
        "kept": {"by": {"k": {"name": "w06"}}, "all": [{"name": "w07"}]},
        "other": f"{CANARIES['other']} {CANARIES['filter'] if number == 0 else number}",
        "person": CANARIES["person"],
        "place": CANARIES["place"],
    }


SLOTS = ArrayType(struct(start=LongType(), end=LongType()))
NAMED = struct(name=StringType())
SCHEMA = struct(
    id=StringType(),
    number=LongType(),
    text=StringType(),
    words=ArrayType(StringType()),
    turns=ArrayType(struct(text=StringType(), slots=SLOTS)),
    slots=SLOTS,
    marks=SLOTS,
    kept=struct(by=MapType(StringType(), NAMED), all=ArrayType(NAMED)),
    other=StringType(),
    person=StringType(),
    place=StringType(),
)
ROWS = [row(number) for number in range(4)]
FLAT = ["id", "number", "text", "other", "person", "place"]

FORMATS = ("parquet", "orc", "delta", "json", "iceberg", "table", "csv")
FILES = ("parquet", "orc", "json", "csv")
OOV = ("mask", "drop", "random")
PROTECT = ("all", "content", "slots", "spans")
LAYOUTS = ("words", "keep")
KINDS = {
    "text": ("--text", "text", "slots"),
    "nested": ("--text", "turns[].text", "turns[].slots"),
    "tokens": ("--tokens", "words", "marks"),
}
EXTRAS = (
    ("--ledger", "{}/ledger", "--identifiers", "surrogate:a"),
    ("--person", "person", "--row-budget", "30:within=0.5"),
    ("--incremental", "{}/checkpoint"),
)


def product():
    """All cases: CSV has texts alone, tokens have no layout, and lakehouses no new files."""
    for case in itertools.product(FORMATS, OOV, PROTECT, LAYOUTS, KINDS, range(len(EXTRAS))):
        name, _, protect, layout, kind, extra = case
        flat = name != "csv" or (kind == "text" and protect in ("all", "content"))
        if flat and (kind != "tokens" or layout == "words") and (name in FILES or extra != 2):
            yield case


def some():
    """Few cases that have every value of each option."""
    cases = {case: {*enumerate(case)} for case in sorted(product())}
    missing = set().union(*cases.values())
    while missing:
        case = max(cases, key=lambda case: len(cases[case] & missing))
        missing -= cases[case]
        yield case


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("canaries")


@pytest.fixture(scope="module")
def frame(spark):
    return spark.createDataFrame(ROWS, SCHEMA)


@pytest.fixture(scope="module")
def inputs(frame, place, spark):
    """The table in every format, by the format's name; its files lie in a folder of that name."""
    root = place / "inputs"
    for name in FILES:
        given = frame.select(FLAT) if name == "csv" else frame
        writer = (
            given.write.partitionBy("place").option("header", True).option("compression", "none")
        )
        writer.format(name).save(str(root / name))
    rows, plain = to_arrow(frame), WriterProperties(compression="UNCOMPRESSED")
    DeltaTable.create(root / "delta", Schema.from_json(SCHEMA.json()), partition_by=["place"])
    write_deltalake(root / "delta", rows, mode="append", writer_properties=plain)
    spark.sql(f"create database canaries location '{place}/tables'")
    with (
        pytest.MonkeyPatch.context() as patch,
        spark_settings(spark, parquet_compression_codec="uncompressed"),  # of ledgers, too
    ):
        frame.write.partitionBy("place").saveAsTable("canaries.entries", path=str(root / "table"))
        lake = IcebergLake(place, patch)
        documented = pa.schema(
            [each.with_metadata({"doc": METADATA["comment"]}) for each in rows.schema]
        )
        made = {"location": f"file://{root}/iceberg"}
        made["properties"] = {"write.parquet.compression-codec": "uncompressed"}
        lake.catalog.create_table("db.entries", documented, **made).append(rows)
        named = {name: str(root / name) for name in FORMATS}
        yield named | {"table": "canaries.entries", "iceberg": "lake.db.entries"}
    spark.sql("drop database canaries cascade")


SECRETS = {
    **{name: text_forms(word) for name, word in (CANARIES | IDENTIFIERS).items()},
    "key": key_forms(KEY.secret),
    "surrogates' key": key_forms(Surrogate("a").key(KEY).secret),
}


def hits(*places):
    """The files that hold a secret, by the secret."""
    files = {name: set() for name in SECRETS}
    for file, name in found(places, SECRETS):
        files[name].add(str(file))
    return files


ACCOUNTS = {
    "delta": [("comment", "_delta_log"), ("id", "_delta_log")],
    "iceberg": [("comment", ".metadata.json"), ("id", ".avro")],
}
"""Where accounts of files quote the schema and the columns' statistics."""


def test_the_search_finds_what_is_planted_in_every_input(inputs, place):
    """So it would find it in an output of the format too."""
    for name in inputs:
        wanted = {*CANARIES, *IDENTIFIERS} - {"label", "comment"}
        wanted -= {"nested", "token"} if name == "csv" else set()
        wanted |= {"comment"} if name == "iceberg" else set()
        wanted |= {"comment", "label"} if name in ("parquet", "delta", "table") else set()
        seen = hits(place / "inputs" / name)
        assert {secret for secret, files in seen.items() if files} == wanted, name
        for secret, part in ACCOUNTS.get(name, ()):
            assert any(part in file for file in seen[secret]), (name, secret, part)


@pytest.fixture
def run(inputs, ring, key_file, place, tmp_path, spark):
    """Run a command on an input; gives the folder with all that it wrote and printed."""

    def release(command, name, *options, number=0, code=0, rows=3):
        folder = tmp_path / f"{number}-{name}"
        folder.mkdir()
        output = {"table": f"spark_catalog.canaries.out{number}", "iceberg": f"lake.db.out{number}"}
        given = [
            "--input",
            inputs[name],
            "--format",
            name,
            "--output",
            output.get(name, f"{folder}/out"),
        ]
        given += ["--reports", str(folder)]
        given += [
            "--key-file",
            str(key_file),
            "--name",
            LABEL,
            "--epsilon",
            "10",
            "--keep",
            "number",
        ]
        given += ["--where", f"other not like '%{CANARIES['filter']}%'"]
        given += ["--write-option", "compression=none"]
        given += ["--id", "id", *(option.format(folder) for option in options)]
        done = CliRunner().invoke(main, [command, *given])
        (folder / "printed").write_text(f"{done.output}\n{done.stderr}\n{done.exception!r}")
        assert done.exit_code == code, done.output
        assert code or json.loads((folder / "private/report.json").read_text())["rows"] == rows
        for kind, files in (
            ("table", f"tables/out{number}"),
            ("iceberg", f"warehouse/db/out{number}"),
        ):
            if name == kind and (place / files).exists():
                (place / files).rename(folder / "out")
        if name == "table" and not code:
            described = spark.sql(f"describe table extended {output[name]}").collect()
            about = f"{described} {spark.table(output[name]).schema.json()}"
            (folder / "described").write_text(about)
        return folder

    return release


def options_of(ring, case):
    name, oov, protect, layout, kind, extra = case
    option, column, slots = KINDS[kind]
    protected = {"slots": ("--protect", f"slots:{slots}"), "spans": ("--mask-spans", slots)}
    kept = () if name == "csv" else ("--keep", "kept")
    mechanism = ("--embedding", str(ring.path), "--mechanism", "laplace", "--oov", oov)
    laid_out = () if layout == "words" else ("--layout", layout)
    policies = (*protected.get(protect, ("--protect", protect)), *laid_out)
    return [*mechanism, *policies, option, column, *kept, "--trust-id", *EXTRAS[extra]]


def release_all(run, ring, cases):
    """Release the table in each of these cases, and search all that was written; gives their number."""
    wrong, number = [], 0
    for number, case in enumerate(cases, 1):
        folder = run("privatize", case[0], *options_of(ring, case), number=number)
        assert any(folder.glob("out/**/*")), case
        left = hits(folder)
        # Spark's list of the files that were taken: their folders are named by values.
        left["place"] -= {str(file) for file in folder.glob("checkpoint/stream/sources/0/*")}
        wrong += [f"{name} in {sorted(files)} of {case}" for name, files in left.items() if files]
    assert not wrong, "\n".join(wrong)
    return number


def test_no_canary_leaves_a_run(run, ring):
    """In a few runs that write all kinds of places."""
    assert 6 < release_all(run, ring, some()) < 10


def test_no_canary_leaves_by_another_way(run, ring, frame):
    """By the Python functions, as vectors, or from a run that fails; one that leaks is found."""
    folder = run(
        "vectors", "parquet", "--embedding", str(ring.path), "--text", "text", "--keep", "kept"
    )
    given = {"embedding": ring.path, "mechanism": Laplace(epsilon=10), "id": "id"}
    given |= {"text": ["text", "turns[].text"], "tokens": "words", "keep": ["number", "kept"]}
    rows = frame.coalesce(1)
    privatize(rows, **given).write.parquet(str(folder / "function"))
    TextPrivatizer(**given, trust_id=True).transform(rows).write.parquet(str(folder / "stage"))
    assert not any(hits(folder).values())
    bundle = ("--embedding", str(ring.path), "--mechanism", "laplace", "--text", "text")
    assert not any(
        hits(run("privatize", "orc", *bundle, "--oov", "fail", number=1, code=2)).values()
    )
    seen = hits(run("privatize", "orc", *bundle, "--oov", "keep-unprotected", number=2))
    assert [name for name, files in seen.items() if files] == ["text"]


@pytest.mark.long
def test_no_canary_leaves_any_run(run, ring):
    assert release_all(run, ring, sorted(product())) > 500
