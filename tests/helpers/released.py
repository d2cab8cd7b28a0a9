"""What releases, bundles and ledgers hold under fixed keys, as hashes: the golden bytes.

    python -m tests.helpers.released [FILE]    # default: tests/released.json

A hash that changed is a change of noise; scripts/same-bytes compares them with those of another version.

Values are hashed and not files, rows in the order of their ids: neither partitions nor writers matter.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from dptext_spark import (
    Embedding,
    Exponential,
    Hyperbolic,
    HyperbolicIcdm,
    HyperbolicLebesgue,
    Laplace,
    Projection,
    RowBudget,
    Sanitizer,
    build_embedding,
)
from dptext_spark.cli import main
from dptext_spark.demo import GLOVE
from dptext_spark.embedding.lists import make_lists
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.mechanisms.vectors import ProjectedVectors
from dptext_spark.noise import NoiseKey, ReleaseNoise
from dptext_spark.poincare import Relations, Settings, train
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch
from dptext_spark.text.bags import KgramBags
from dptext_spark.text.policies import WORDS_ALONE
from dptext_spark.vector_sanitizer import VectorSanitizer
from dptext_spark.word_reader import WordReader
from tests.helpers import worlds

RELEASED: Final = Path(__file__).parents[1] / "released.json"
BALL_POINTS: Final = Path(__file__).parents[1] / "fixtures" / "mammals-3d.vec.gz"
KEY: Final = NoiseKey(bytes(range(32)))
LABEL: Final = "golden"
ROWS: Final = 60
SLOTS: Final = pa.list_(pa.struct({"start": pa.int32(), "end": pa.int32()}))
BUDGET: Final = RowBudget(loss=60.0, within=3.0, delta=1e-6)
LAPLACE: Final = Laplace(epsilon=8.0)


def table() -> pa.Table:
    """Rows with a text, its tokens, the slots of every row's first two words, and turns of a conversation."""
    demo = resources.files("dptext_spark.demo")
    with resources.as_file(demo / "queries.parquet") as path:
        texts = pq.read_table(path)["text"].to_pylist()[:ROWS]
    texts[3], texts[5] = None, ""
    texts[7] = "🙂 Zzyzx שלום 12,5 do n't DON'T, u.s.-led: New York"
    texts[9] = "我喜欢爵士乐 ฉันรักดนตรี play some Jazz"
    slots = [[{"start": m.start(), "end": m.end()} for m in [*_words(text)][:2]] for text in texts]
    turns = [
        None
        if row % 9 == 4
        else [{"text": text, "slots": spans}, {"text": "thank you", "slots": []}]
        for row, (text, spans) in enumerate(zip(texts, slots, strict=True))
    ]
    kind = pa.list_(pa.struct({"text": pa.string(), "slots": SLOTS}))
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "text": pa.array(texts, pa.string()),
            "tokens": pa.array(
                [text and [*text.split(), None, ""] for text in texts], pa.list_(pa.string())
            ),
            "slots": pa.array(slots, SLOTS),
            "turns": pa.array(turns, kind),
        }
    )


def _words(text: str | None) -> Iterator[re.Match[str]]:
    return re.finditer(r"\S+", text or "")


def bundles(folder: Path) -> dict[str, Embedding]:
    """Build the bundles of the releases; the points of the ball are stored, as training may differ a bit."""
    glove = build_embedding(GLOVE, folder / "glove")
    make_lists(glove, 64)
    return {
        "glove": glove,
        "unit": build_embedding(
            GLOVE, folder / "unit", normalize="unit", limit=3000, release_words=500
        ),
        "ball": build_embedding(BALL_POINTS, folder / "ball", geometry="poincare", format="text"),
    }


def trained() -> tuple[list[str], np.ndarray]:
    """Train the points of the ball: words, and float64 (words, 3)."""
    with resources.as_file(resources.files("dptext_spark.demo") / "mammals.tsv.gz") as path:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()[1:]
    hyponyms, hypernyms = zip(*(line.split("\t") for line in lines), strict=True)
    relations = Relations.from_words(hyponyms, hypernyms).closure()
    settings = Settings(dimension=3, epochs=12, max_radius=3.0)
    return list(relations.words), train(relations, settings)[0]


def stored() -> tuple[list[str], np.ndarray]:
    """Read the stored points of the ball."""
    lines = gzip.decompress(BALL_POINTS.read_bytes()).decode().splitlines()[1:]
    words, *numbers = zip(*(line.split(" ") for line in lines), strict=True)
    return list(words), np.array(numbers, dtype=np.float64).T


def mammals(ball: Embedding) -> pa.Table:
    """Rows of a text each, of words of the ball."""
    words = ball.words.to_pylist()[:ROWS]
    texts = [f"the {word} and {other}" for word, other in zip(words, reversed(words), strict=True)]
    return pa.table({"id": range(len(texts)), "text": texts})


MECHANISMS: Final[dict[str, Mechanism]] = {
    "laplace": LAPLACE,
    "laplace vickrey": Laplace(epsilon=8.0, select="vickrey", t=0.4),
    "mahalanobis": mechanism("mahalanobis", epsilon=8.0, **{"lambda": 0.5}),
    "projection": Projection(epsilon=8.0),
    "projection spectral": Projection(
        epsilon=8.0, beta=0.8, sensitivity="spectral", dimension=20, seed=3
    ),
    "projection paper": Projection(epsilon=8.0, sensitivity="paper", dimension=20),
    "exponential": Exponential(epsilon=4.0),
    "exponential truncated": Exponential(epsilon=4.0, truncate=3.5),
}
POLICIES: Final[dict[str, dict[str, Any]]] = {
    "drop": {"oov": "drop"},
    "random": {"oov": "random"},
    "keep-unprotected": {"oov": "keep-unprotected"},
    "content": {"protect": "content"},
    "slots": {"protect": "slots:slots"},
    "layout keep": {"layout": "keep"},
    "icu": {"tokenizer": "icu"},
    "icu slots": {"tokenizer": "icu", "protect": "slots:slots"},
    "words alone": {"identifiers": "off", "numbers": "words"},
    "numbers": {"numbers": "words"},
    "surrogates": {"identifiers": "surrogate:golden"},
    "masked spans": {"mask_spans": "slots"},
}
BALL: Final[dict[str, Mechanism]] = {
    "hyperbolic": Hyperbolic(epsilon=12.0),
    "hyperbolic-icdm": HyperbolicIcdm(epsilon=12.0, select="vickrey", t=0.5),
    "hyperbolic-lebesgue": HyperbolicLebesgue(epsilon=2.0),
    "exponential ball": Exponential(epsilon=9.0),
}


def sanitizer(embedding: Embedding, mechanism: Mechanism = LAPLACE, **options: Any) -> Sanitizer:
    """Open a release under the fixed key and label, as the jobs do."""
    return worlds.sanitizer(embedding, mechanism, key=KEY, name=LABEL, **options)


def sanitizers(made: dict[str, Embedding]) -> Iterator[tuple[str, Sanitizer]]:
    """Each mechanism, search, policy and budget once, over words of GloVe."""
    glove = made["glove"]
    for name, kind in MECHANISMS.items():
        yield name, sanitizer(glove, kind)
    for name, policies in POLICIES.items():
        yield name, sanitizer(glove, **policies)
    yield "unit", sanitizer(made["unit"])
    yield "release words", sanitizer(glove, search=ExactSearch(release_words=900))
    yield "lists", sanitizer(glove, search=IvfSearch.over(glove, lists=64, probes=8))
    for oov in ("mask", "drop"):
        yield f"row budget {oov}", sanitizer(glove, row_budget=BUDGET, oov=oov)
    yield "row budget exponential", sanitizer(glove, Exponential(epsilon=4.0), row_budget=BUDGET)


def released(made: dict[str, Embedding]) -> dict[str, str]:
    """Hash what the Python classes release, by case and column."""
    rows, found = table(), {}
    for name, release in sanitizers(made):
        slots = rows["slots"] if release.release.policy.spans_column else None
        for column in ("text", "tokens"):
            if column == "text" or slots is None:
                values = release.sanitize(
                    rows[column], rows["id"], column=column, slots=slots
                ).values
                found[f"{name}, {column}"] = hashed(values)
    animals = mammals(made["ball"])
    for name, kind in BALL.items():
        release = sanitizer(made["ball"], kind)
        found[f"{name}, text"] = hashed(
            release.sanitize(animals["text"], animals["id"], column="text").values
        )
    return found | _vectors(made["glove"], rows)


def _vectors(glove: Embedding, rows: pa.Table) -> dict[str, str]:
    rng = np.random.default_rng(5)
    numbers = pa.array(
        [None, *rng.standard_normal((ROWS - 1, 300)).tolist()], pa.list_(pa.float32())
    )
    ids = rows["id"].combine_chunks()

    def release(
        parameters: ProjectedVectors, values: pa.Array, embedding: Embedding | None = None
    ) -> str:
        length = 300 if embedding is None else embedding.dimension
        noise = ReleaseNoise.of(
            KEY,
            salt=LABEL,
            noise_parameters={"name": "vectors", "epsilon": parameters.epsilon},
            fingerprint="",
        )
        mechanism = (
            parameters.of_length(length) if parameters.kgrams is None else parameters.of_bags()
        )
        reader: WordReader | KgramBags | None = mechanism.bags(WORDS_ALONE.tokenizer)
        if embedding is not None:
            reader = WordReader(bundle=embedding, policy=WORDS_ALONE)
        sanitizer = VectorSanitizer(mechanism=mechanism, noise=noise, reader=reader)
        return hashed(sanitizer.sanitize(values, ids, column="vector").values)

    paper = ProjectedVectors(epsilon=30.0, sensitivity="paper", beta=0.9, seed=2)
    bags = ProjectedVectors(epsilon=30.0, kgrams=2)
    return {
        "bags of 2-grams": release(bags, rows["text"].combine_chunks()),
        "vectors": release(ProjectedVectors(epsilon=30.0), numbers),
        "vectors paper": release(paper, numbers),
        "vectors of texts": release(
            ProjectedVectors(epsilon=30.0), rows["text"].combine_chunks(), embedding=glove
        ),
    }


def described(made: dict[str, Embedding]) -> dict[str, dict[str, str]]:
    """Say of each bundle its fingerprint and hashes of its words and vectors."""
    return {
        name: {
            "fingerprint": bundle.fingerprint,
            "words": hashed(bundle.words),
            "vectors": hashlib.sha256(np.ascontiguousarray(bundle.vectors).data).hexdigest(),
        }
        for name, bundle in made.items()
    }


PLACES: Final = ("key", "glove", "table", "days", "checkpoint", "ledger")
TABLE: Final = "--key-file key --name golden --embedding glove --input table --id id --keep id"
WORDS: Final = f"privatize {TABLE} --mechanism laplace --epsilon 8"
JOBS: Final = {
    "text": f"{WORDS} --text text",
    "row budget": f"{WORDS} --text text --text turns[].text --tokens tokens "
    "--row-budget 60:within=3,delta=1e-6 --oov drop --ledger ledger",
    "nested slots": f"{WORDS} --text turns[].text --protect slots:turns[].slots --ledger ledger",
    "grown": "privatize --key-file key --name golden --embedding glove --input days --incremental checkpoint "
    "--mechanism laplace --epsilon 8 --text text --keep dt",
    "vectors": f"vectors {TABLE} --text text --epsilon 30",
}


def jobs(made: dict[str, Embedding], folder: Path) -> dict[str, str]:
    """Hash what the jobs release on Spark, by case and column, and the contexts that ledgers keep."""
    rows, found = table(), {}
    pq.write_table(rows, _made(folder / "table" / "a.parquet"))
    for day in (1, 2):
        file = _made(folder / "days" / f"dt=2026-01-0{day}" / "day.parquet")
        pq.write_table(rows.select(["text"]).slice(20 * day, 20), file)
    (folder / "key").touch(mode=0o600)
    (folder / "key").write_bytes(KEY.secret)
    (folder / "glove").symlink_to(made["glove"].path)
    for name, command in JOBS.items():
        place = folder / name.replace(" ", "-")
        # Spark's JVM, where one runs already, has a working folder of its own.
        arguments = [str(folder / part) if part in PLACES else part for part in command.split()]
        result = CliRunner().invoke(main, [*arguments, "--output", str(place)])
        if result.exit_code:
            raise RuntimeError(f"{name}: {result.output}")
        output = pq.read_table(place)
        order = "id" if "id" in output.column_names else "text"
        for column in sorted({*output.column_names} - {"id"}):
            found[f"{name}, {column}"] = hashed(output.sort_by(order)[column])
    sealed = pq.read_table(folder / "ledger" / "rows", columns=["row", "column", "context"])
    lines = sorted(
        (line["row"].hex(), line["column"], line["context"].hex()) for line in sealed.to_pylist()
    )
    return found | {"contexts": hashed([list(line) for line in lines])}


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def hashed(values: pa.Array | list[Any]) -> str:
    """SHA-256 of values in their order."""
    listed = values if isinstance(values, list) else values.to_pylist()
    return hashlib.sha256(json.dumps(listed, ensure_ascii=True).encode()).hexdigest()


def everything(path: Path) -> None:
    """Write the golden bytes."""
    with tempfile.TemporaryDirectory() as folder:
        made = bundles(Path(folder))
        golden: dict[str, dict[str, Any]] = {"bundles": described(made), "released": released(made)}
        golden["jobs"] = jobs(made, Path(folder, "jobs"))
    path.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
    print(f"{path}: {sum(map(len, golden.values()))} hashes")


if __name__ == "__main__":
    everything(Path(sys.argv[1]) if len(sys.argv) > 1 else RELEASED)
