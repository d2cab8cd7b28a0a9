"""What is fuzzed: how valid inputs are made, how a case changes one, and what reads it.

Each target reads its case as a command or a worker would, without Spark: those with Spark are in
:mod:`scripts.fuzz.spark_targets`.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_spark import Exponential, Laplace, Release
from dptext_spark.accounting.ledger import write_event
from dptext_spark.cli import read_config
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import MANIFEST, PARTS, WORDS, Embedding, Manifest, fingerprint
from dptext_spark.embedding.lists import InvertedLists, list_counts, make_lists
from dptext_spark.embedding.word_lists import WordList
from dptext_spark.estimates.released import ReleasedColumn
from dptext_spark.estimates.topics import read_topics
from dptext_spark.jobs.ledger import report as ledger_report
from dptext_spark.noise import NoiseKey
from dptext_spark.options import COMMANDS, PrivatizeOptions
from dptext_spark.report.facts import Report, release_facts
from dptext_spark.report.measured_risk import measured_risk
from dptext_spark.sealing import file_sha256, sealed
from dptext_spark.search.ivf import IvfSearch
from dptext_spark.tables.checkpoint import Checkpoint
from dptext_spark.tables.columns import TableColumns
from dptext_spark.tables.formats import parquet
from dptext_spark.tables.ledger_folder import LedgerFolder
from dptext_spark.tables.storage import LocalFiles
from dptext_spark.text.patterns.find import find
from dptext_spark.text.patterns.names import MARKS
from dptext_spark.text.patterns.user import UserPatterns
from scripts.fuzz.mutations import Rng, changed_bytes, changed_lines, changed_tree
from tests.helpers import ledgers, worlds

ROOT: Final = Path(__file__).resolve().parents[2]
CANARY: Final = "zebulonquartz"
"""A word of inputs that no message may have."""

_TARGETS: dict[str, type[Target]] = {}


class Target(ABC):
    """One kind of input; a subclass is in :func:`targets` by its ``name``."""

    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        _TARGETS[cls.name] = cls

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Make valid inputs, once."""

    @abstractmethod
    def case(self, rng: Rng, place: Path) -> Callable[[], object]:
        """Write a changed input below an empty folder, and return what reads it."""


def targets() -> dict[str, type[Target]]:
    """Return all targets by name, those with Spark last."""
    import_module("scripts.fuzz.spark_targets")
    return _TARGETS


def _chosen(rng: Rng, values: Any) -> Any:
    return values[int(rng.integers(0, len(values)))]


class Readers(Target):
    """Sources of embeddings, in all formats and containers, built into a bundle."""

    name = "readers"

    def prepare(self) -> None:
        rng = np.random.default_rng(0)
        words = [CANARY, *(f"w{row}" for row in range(18)), "a b"]
        vectors = rng.standard_normal((len(words), 3)).astype("<f4")
        lines = []
        binary = f"{len(words)} 3\n".encode()
        for word, vector in zip(words, vectors, strict=True):
            numbers = " ".join(f"{number:.4f}" for number in vector)
            lines.append(f"{word} {numbers}\n")
            binary += word.replace(" ", "_").encode() + b" " + vector.tobytes() + b"\n"
        text = "".join(lines).encode()
        array = io.BytesIO()
        np.save(array, vectors)
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
            opened.writestr("glove.txt", text)
        self.vocabulary = "".join(f"{word}\n" for word in words).encode()
        self.seeds = {
            "text.txt": text,
            "header.vec": f"{len(words)} 3\n".encode() + text,
            "binary.bin": binary,
            "vectors.npy": array.getvalue(),
            "text.gz": gzip.compress(text, mtime=0),
            "text.bz2": bz2.compress(text),
            "text.xz": lzma.compress(text),
            "text.zip": archive.getvalue(),
            "binary.bin.gz": gzip.compress(binary, mtime=0),
        }

    def case(self, rng: Rng, place: Path) -> Callable[[], object]:
        name = _chosen(rng, [*self.seeds])
        seeds = [*self.seeds.values()]
        source = place / name
        source.write_bytes(changed_bytes(rng, self.seeds[name], seeds))
        vocabulary = self.vocabulary
        if rng.random() < 0.3:
            vocabulary = changed_bytes(rng, vocabulary)
        (place / "vocab.txt").write_bytes(vocabulary)
        options: dict[str, Any] = {}
        if rng.random() < 0.3:
            options = {"limit": int(rng.integers(1, 30)), "strict": bool(rng.random() < 0.5)}
        geometry = _chosen(rng, ("euclidean", "euclidean", "poincare"))

        def read() -> None:
            before = {*os.listdir(place)}
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    bundle = build_embedding(source, place / "out", geometry=geometry, **options)
                Embedding.open(bundle.path)
            except Exception:
                if {*os.listdir(place)} != before:
                    raise AssertionError("partial output was left") from None
                raise

        return read


class Bundles(Target):
    """Files of a bundle, and manifests that fit them but lie."""

    name = "bundles"

    def prepare(self) -> None:
        self.bundles = []
        for geometry in ("euclidean", "poincare"):
            folder = self.folder / geometry
            folder.mkdir()
            vectors = worlds.uneven(40, 4) * 0.1
            names = [CANARY, *worlds.words(39)]
            bundle = worlds.build(folder, vectors, names, geometry=geometry)
            self.bundles.append(bundle.path)

    def case(self, rng: Rng, place: Path) -> Callable[[], object]:
        bundle = place / "bundle"
        seed = _chosen(rng, self.bundles)
        shutil.copytree(seed, bundle)
        names = sorted(path.name for path in bundle.iterdir())
        name = _chosen(rng, names)
        kind = rng.random()
        if kind < 0.5:
            donors = [path.read_bytes() for path in seed.iterdir()]
            file = bundle / name
            file.write_bytes(changed_bytes(rng, file.read_bytes(), donors))
        elif kind < 0.6:
            (bundle / name).write_bytes((seed / _chosen(rng, names)).read_bytes())
        elif kind < 0.65:
            (bundle / name).unlink()
            if rng.random() < 0.5:
                (bundle / name).mkdir()
        lie = rng.random() < 0.6
        if lie:
            _reseal(bundle, rng if kind >= 0.65 else None)
        verify = bool(rng.random() < 0.7)

        def read() -> None:
            opened = Embedding.open(bundle, verify=verify)
            opened.words.to_pylist()
            opened.forms.to_pylist()
            if verify:  # else numbers are whatever they are
                sanitizer = worlds.sanitizer(opened, _mechanism(opened))
                sanitizer.sanitize(["w1 w2 unknown"], [1], column="text")

        return read


def _mechanism(bundle: Embedding) -> Any:
    if bundle.manifest.geometry == "euclidean":
        return Laplace(epsilon=5.0)
    return Exponential(epsilon=5.0)


def _reseal(bundle: Path, rng: Rng | None) -> None:
    """Make a manifest fit its files; with ``rng`` it lies besides."""
    try:
        entries = json.loads((bundle / MANIFEST).read_bytes())
        entries.pop("sha256", None)
        for name in entries["files"]:
            if (bundle / name).is_file():
                entries["files"][name] = file_sha256(bundle / name)
        if rng is not None:
            entries = changed_tree(rng, entries)
        try:
            words = pq.read_table(bundle / WORDS)
            columns = [words[name].combine_chunks() for name in ("word", "form")]
            entries["fingerprint"] = fingerprint(Manifest(**entries), *columns)
        except Exception:  # noqa: BLE001 - it lies too much for one
            pass
        (bundle / MANIFEST).write_bytes(sealed(entries))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return


class Parts(Target):
    """Optional parts of a bundle: lists of an index and codes, with records that fit but lie."""

    name = "parts"

    def prepare(self) -> None:
        bundle = worlds.build(self.folder, worlds.uneven(400, 16))
        make_lists(bundle, 4)
        self.bundle = bundle.path

    def case(self, rng: Rng, place: Path) -> Callable[[], object]:
        bundle = place / "bundle"
        shutil.copytree(self.bundle, bundle)
        folder = bundle / PARTS
        file = _chosen(rng, sorted(folder.glob("ivf-*")))
        if rng.random() < 0.6 and file.suffix == ".npy":
            file.write_bytes(changed_bytes(rng, file.read_bytes()))
        elif file.suffix == ".npy":
            _lie_in_array(rng, file)
        for record in folder.glob("*.json"):
            entries = json.loads(record.read_bytes())
            entries.pop("sha256")
            for name in entries["files"]:
                entries["files"][name] = file_sha256(folder / f"{record.stem}.{name}")
            if file.suffix == ".json":
                entries = changed_tree(rng, entries)
            record.write_bytes(sealed(entries))

        def read() -> None:
            opened = Embedding.open(bundle)
            list_counts(opened)
            InvertedLists.open(opened, 4)
            search = IvfSearch.over(opened, lists=4, probes=2)
            sanitizer = worlds.sanitizer(opened, Laplace(epsilon=5.0), search=search)
            sanitizer.sanitize(["w1 w2 w3 w4"], [1], column="text")

        return read


def _lie_in_array(rng: Rng, file: Path) -> None:
    """Write an array of another shape, type or content."""
    array = np.load(file)
    changes = [array[:-1], array[::-1], array[None], array * 1000, -array]
    changes += [array.astype(kind) for kind in ("<f8", "<i8", "<U9")]
    changes.append(np.zeros_like(array))
    np.save(file, _chosen(rng, changes))


class Ledgers(Target):
    """Events of a ledger, and what ``dptext ledger`` says of them."""

    name = "ledgers"

    def prepare(self) -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        for number in (1, 2, 3):
            entry = ledgers.entry(number, total=10 * number, label=CANARY)
            facts = entry.model_dump(mode="json")
            release = facts.pop("release")
            reserved = {n: facts[n] for n in ("number", "time", "terms", "fingerprints")}
            self.events.append((release, "reserved", reserved))
            assessed = {name: facts[name] for name in ("rows", "total", "counts")}
            assessed["rows"] = {"new": 3, "equal": 0, "changed": 0, "free": 0}
            self.events.append((release, "assessed", assessed))
            self.events.append((release, "ended", {"state": "committed"}))

    def case(self, rng: Rng, place: Path) -> Callable[[], object]:
        events = place / "ledger" / "events"
        events.mkdir(parents=True)
        changed = int(rng.integers(0, len(self.events)))
        for number, (release, event, facts) in enumerate(self.events):
            if number == changed and rng.random() < 0.7:
                facts = changed_tree(rng, facts)
            name, content = write_event(release, event, facts)
            encoded = content.encode()
            if number == changed and rng.random() < 0.3:
                encoded = changed_bytes(rng, encoded)
            if number == changed and rng.random() < 0.1:
                continue
            (events / name).write_bytes(encoded)

        def read() -> None:
            ledger = LedgerFolder(str(place / "ledger"), LocalFiles()).read()
            ledger_report("ledger", ledger).describe()

        return read


class Checkpoints(Target):
    """The files of a checkpoint, those of Spark's own among them."""

    name = "checkpoints"

    def prepare(self) -> None:
        entries = []
        for batch in (0, 1):
            path = f"file:///in/{CANARY}/{batch}.parquet"
            entries.append({"path": path, "timestamp": 1_700_000_000_000, "batchId": batch})
        log = "\n".join(["v1", *map(json.dumps, entries)])
        offset = 'v1\n{"batchWatermarkMs":0}\n{"logOffset":1}'
        self.texts = {"stream/sources/0/1.compact": log, "stream/offsets/1": offset}
        self.trees: dict[str, Any] = {
            "dptext.json": {"input": "file:/in", "key": "aa", "columns": {"fields": []}},
            "batches/000000.json": {"rows": 6, "tokens": 20, "longest": 4},
            "batches/000001.json": {"rows": 6, "tokens": 20, "longest": 4},
            "sizes/000000.json": {"ab" * 32: 100},
        }

    def case(self, rng: Rng, place: Path) -> Callable[[], object]:
        contents: dict[str, bytes] = {}
        for name, text in self.texts.items():
            contents[name] = text.encode()
        for name, tree in self.trees.items():
            contents[name] = json.dumps(tree, indent=2).encode()
        name = _chosen(rng, [*contents])
        if name in self.trees and rng.random() < 0.6:
            contents[name] = json.dumps(changed_tree(rng, self.trees[name])).encode()
        elif rng.random() < 0.6:
            *head, last = self.texts.get(name, "{}").splitlines()
            last = json.dumps(changed_tree(rng, json.loads(last)))
            contents[name] = "\n".join([*head, last]).encode()
        else:
            contents[name] = changed_bytes(rng, contents[name])
        if rng.random() < 0.1:
            contents[f"batches/{_chosen(rng, ('x', '-1', '٣', '9' * 30))}.json"] = b"{}"
        for name, content in contents.items():
            file = place / "checkpoint" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

        def read() -> None:
            checkpoint = Checkpoint(path=str(place / "checkpoint"), storage=LocalFiles())
            checkpoint.identity()
            checkpoint.added_files()
            checkpoint.sizes()
            for path in checkpoint.counts_paths:
                checkpoint.counts(path)

        return read


class Keys(Target):
    """Key files."""

    name = "keys"
    secret: ClassVar = (
        b"zebulonquartz-\x80\xff\x01\x02\x03\x04\x05\x06\x07\x08\x09\x10\x11\x12\x13\x14\x15\x16"
    )

    def prepare(self) -> None:
        self.seeds = [self.secret, self.secret.hex().encode(), self.secret.hex().encode() + b"\n"]

    def case(self, rng: Rng, place: Path) -> Callable[[], object]:
        path = place / "key"
        path.write_bytes(changed_bytes(rng, _chosen(rng, self.seeds), self.seeds))
        path.chmod(_chosen(rng, (0o600, 0o600, 0o400, 0o644, 0o660)))
        if rng.random() < 0.05:
            path.unlink()
            path.mkdir()
        return lambda: NoiseKey.read(path)


_OF_TOML: Final = (
    "[ ] { } = # , \\ nan inf -1 0 1e400 1_000 true 1979-05-27 07:32:00 [] {} [[]] a.b.c"
)
_TOKENS: Final = [
    *_OF_TOML.split(),
    *('"', "'", '"""', "'''", '""', '["a"]', '["a", 1]', "\ud7ff", "\u2028", "\0", "\x1b"),
    *("mechanism = ", "epsilon = ", "[[types]]\n", "\n", " ", "laplace:", ":="),
]
_WORD: Final = f'"{CANARY}"'  # where it is no option: a message quotes the value of one
_LONG_TOKENS: Final = ["[" * 2000, "{a=" * 2000, "9" * 5000]


class Configs(Target):
    """TOML files of options, topics, and lists of words."""

    name = "configs"

    def prepare(self) -> None:
        self.seeds = {}
        for path in sorted((ROOT / "conf").glob("*.toml")):
            self.seeds[path.stem] = path.read_text(encoding="utf-8")
        self.lists = f"{CANARY}\nw1\nblue harbour\n"
        self.topics = f'food = ["{CANARY}", "sushi"]\nfilm = ["movie"]\n'
        self.lines = f"food: {CANARY} sushi\nfilm: movie\n"

    def case(self, rng: Rng, place: Path) -> Callable[[], object]:
        kind = rng.random()
        if kind < 0.1:
            return self._word_list(rng, place / "words.txt")
        if kind < 0.25:
            topics = place / _chosen(rng, ("topics.toml", "topics.txt"))
            text = self.topics if topics.suffix == ".toml" else self.lines
            topics.write_bytes(self._changed(rng, text, _WORD))
            return lambda: read_topics(topics)
        command = _chosen(rng, [*self.seeds])
        config = place / "config.toml"
        config.write_bytes(self._changed(rng, self.seeds[command]))

        def read() -> None:
            model = COMMANDS[command]
            options = model.of(model.named(read_config(config)))
            options.to_json()

        return read

    def _word_list(self, rng: Rng, path: Path) -> Callable[[], object]:
        path.write_bytes(self._changed(rng, self.lists, _WORD))
        return lambda: WordList.read(path, "--never-output").denied(["w1", "w2", "blue harbour"])

    def _changed(self, rng: Rng, text: str, *words: str) -> bytes:
        if rng.random() < 0.2:
            return changed_bytes(rng, text.encode())
        tokens = [*_TOKENS, *_LONG_TOKENS, *words]
        return changed_lines(rng, text, tokens).encode(errors="surrogatepass")


_OF_PATTERNS: Final = (
    r"( ) * + ? { } [ ] | ^ $ . \b \1 (?=a) (a+)+ (a|a)* .*.* {1000000} {0,} (?<!a) (?P<x>a) "
    r"\p{L} (?R) ((a{1,1000}){1,1000}){1,1000} \N{x} (?i) (?e) {e<=3} \L<x> (?# (?<=a*) "
    r"\d+\d+ (?>a+) a*+ \X \K (?&x) (*FAIL) (?1)"
)


class Patterns(Target):
    """Files of identifiers' patterns, and texts that they look at."""

    name = "patterns"
    file: ClassVar = """\
allow = ["support@example.com"]
allow_patterns = ['2[0-9]{3}']

[[types]]
name = "customer"
pattern = 'K-[0-9]{8}'
check = "luhn"

[[types]]
name = "project"
words = ["zebulonquartz", "Blue Harbour"]
"""

    def prepare(self) -> None:
        self.text = f"{CANARY} K-12345678 tel 0170 1234567, 2026-03-01 at a@b.example 4111 1111"

    def case(self, rng: Rng, place: Path) -> Callable[[], object]:
        path = place / "patterns.toml"
        tokens = [*_OF_PATTERNS.split(), *_TOKENS, _WORD]
        path.write_text(changed_lines(rng, self.file, tokens), encoding="utf-8")
        text = changed_lines(
            rng, self.text, ["9" * 40, "@", ".", "٣", "\u202e", "\0", "é", "\uff0d"]
        )

        def read() -> None:
            patterns = UserPatterns.read(path, MARKS)
            find(text, [*MARKS, *patterns.names], patterns)

        return read


class Reports(Target):
    """Public reports of releases, and evaluations that are quoted."""

    name = "reports"

    def prepare(self) -> None:
        self.bundle = worlds.build(self.folder, worlds.uneven(40, 4))
        self.release = Release.open(embedding=self.bundle, mechanism=Laplace(epsilon=4.0))
        values = {"input": "in", "output": "out", "embedding": "b", "text": ["text"]}
        self.options = PrivatizeOptions.of({**values, "mechanism": "laplace", "epsilon": 4.0})
        facts = release_facts(
            self.release,
            self.release.guarantee(),
            None,
            options=self.options.to_json(),
            row_id="",
            kept=["id"],
            sanitized=self.options.text,
        )
        public = Report(facts=facts, text="").to_publish(self.options.published)
        self.public = json.loads(public)
        setting = {"search": self.release.search.label, "release_words": 40, "attacker": "a"}
        setting |= {"options": "laplace 4", "recovered": 0.2, "recovered_high": 0.3}
        setting |= {"recovered_floor": 0.1, "linked": None}
        self.evaluation = {
            "options": {**self.options.to_json(), "text": "text", "tokens": None, "where": None},
            "embedding": {"fingerprint": self.bundle.fingerprint},
            "settings": [{**setting, "options": self.release.mechanism.options}],
            "started": "2026-01-01T00:00:00",
            "attackers": [{"name": "context-free"}],
            "confidence": 0.95,
            "sample": {"attacked": 100},
            "concern": {"versions": 1, "guesses": 1},
        }

    def case(self, rng: Rng, place: Path) -> Callable[[], object]:
        is_evaluation = rng.random() < 0.4
        tree = self.evaluation if is_evaluation else self.public
        text = json.dumps(changed_tree(rng, tree))
        if rng.random() < 0.1:
            text = changed_bytes(rng, text.encode()).decode(errors="replace")

        def read() -> object:
            if is_evaluation:
                return measured_risk(text, self.release, self.options.to_json())
            return ReleasedColumn.read(text, self.bundle, "text")

        return read


class ParquetFiles(Target):
    """Parquet: footers, their schemas and statistics, page sizes, as far as Python reads them."""

    name = "parquet"

    def prepare(self) -> None:
        columns = {"id": pa.array(range(50), pa.int64())}
        columns["text"] = pa.array([f"{CANARY} {row}" for row in range(50)])
        columns["time"] = pa.array(range(50), pa.timestamp("ns"))
        columns["list"] = pa.array([["a"]] * 50)
        columns["struct"] = pa.array([{"a": 1}] * 50)
        table = pa.table(columns)
        fields = [{"name": name, "type": "string", "nullable": True} for name in columns]
        for field in fields:
            field["metadata"] = {}
        self.spark_schema = {"type": "struct", "fields": fields}
        self.table = table
        self.plain = self._written(table, None)

    def _written(self, table: pa.Table, schema: Any) -> bytes:
        if schema is not None:
            metadata = {"org.apache.spark.sql.parquet.row.metadata": json.dumps(schema)}
            table = table.replace_schema_metadata(metadata)
        buffer = io.BytesIO()
        pq.write_table(table, buffer, data_page_size=64, row_group_size=20, write_page_index=True)
        return buffer.getvalue()

    def case(self, rng: Rng, place: Path) -> Callable[[], object]:
        file = place / "in" / "a.parquet"
        file.parent.mkdir()
        if rng.random() < 0.4:
            content = self._written(self.table, changed_tree(rng, self.spark_schema))
        else:
            content = self._with_changed_footer(rng)
        file.write_bytes(content)
        columns = TableColumns(text=("text",), keep=("id",), id=None)

        def footer(_: str) -> pq.ParquetFile:
            end = int.from_bytes(content[-8:-4], "little") + 8
            buffer = pa.BufferReader(b"PAR1" + content[-end:])
            return pq.ParquetFile(buffer, coerce_int96_timestamp_unit="us")

        def read() -> None:
            options = SimpleNamespace(place=str(file.parent), options={})
            parquet.Parquet.check_columns(options, LocalFiles(), columns)  # type: ignore[arg-type]
            storage: Any = SimpleNamespace(footer=footer)
            parquet._types(storage, {}, str(file))

        return read

    def _with_changed_footer(self, rng: Rng) -> bytes:
        """Return a file whose footer, and so sizes and statistics, says something else."""
        content = self.plain
        size = int.from_bytes(content[-8:-4], "little")
        footer = changed_bytes(rng, content[-8 - size : -8])
        end = len(footer).to_bytes(4, "little") + b"PAR1"
        if rng.random() < 0.1:
            end = rng.bytes(4) + b"PAR1"
        return content[: -8 - size] + footer + end
