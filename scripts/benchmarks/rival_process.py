"""One package at work, another one in its own virtual environment: so nothing of this project is needed here.

    VENV/bin/python scripts/benchmarks/rival_process.py NAME EMBEDDING.txt TEXTS.txt EPSILON rate SECONDS
    VENV/bin/python scripts/benchmarks/rival_process.py NAME EMBEDDING.txt TEXTS.txt EPSILON facts

``rate`` sanitizes the texts, a line each, again and again, by the package's documented call with its own
threads. ``facts`` gives what the texts become here, and in two processes that are forked from this one, as
those of Spark are. Prints JSON in the last line.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from itertools import count
from pathlib import Path

Call = Callable[[list[str]], list[str]]
FORK_SECONDS = 60.0


def pypantera(embedding: Path, epsilon: float) -> tuple[Call, Callable[[], None]]:
    """CMP, over a data frame of texts; vectors as text without a header."""
    frame = import_module("pandas").DataFrame
    lines = embedding.read_text(encoding="utf-8").partition("\n")[2]
    headless = embedding.with_suffix(f".{os.getpid()}")
    headless.write_text(lines, encoding="utf-8")
    # The wheel puts its modules into a package of this name.
    engine = import_module("src.EmbeddingPerturbationMechanism.cmp").CMP(
        {"embPath": str(headless), "epsilon": epsilon}
    )
    headless.unlink()

    def call(texts: list[str]) -> list[str]:
        found = engine.obfuscateText(frame({"id": range(len(texts)), "text": texts}), 1)
        return [" ".join(row) for row in found["obfuscatedText"]]

    return call, lambda: None


def mldp_text(embedding: Path, epsilon: float) -> tuple[Call, Callable[[], None]]:
    """MultivariateCalibrated with its index, a word at a time."""
    dimension = int(embedding.open(encoding="utf-8").readline().split()[1])
    engine = import_module("mldp_text").get_mechanism(
        "multivariate_calibrated", epsilon=epsilon, embed=str(embedding), dim=dimension
    )
    return lambda texts: [" ".join(map(engine.replace_word, text.split())) for text in texts], lambda: None


def dp_diffractor(embedding: Path, epsilon: float) -> tuple[Call, Callable[[], None]]:
    """The geometric mechanism over one embedding, a list of texts at a time; stop words replaced, too."""
    package = import_module("diffractor")
    config = package.DiffractorConfig(epsilon=epsilon, replace_stopwords=True, verbose=False)
    # It takes embeddings of known names only, from its cache.
    cache = Path.home() / ".cache" / "diffractor" / "glove-commoncrawl-30.txt"
    if not cache.exists():
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_bytes(embedding.read_bytes())
    engine = package.Diffractor(config, model_names=[cache.stem])
    return engine.rewrite, engine.close


def dptext_spark(embedding: Path, epsilon: float) -> tuple[Call, Callable[[], None]]:
    """A Privatizer in one thread, with a fresh key; each row has an id of its own, as a table's rows have."""
    package = import_module("dptext_spark")
    import_module("threadpoolctl").threadpool_limits(1)
    bundle = embedding.with_suffix(f".bundle-{os.getpid()}")
    engine = package.Privatizer(
        embedding=package.build_embedding(embedding, bundle), mechanism=package.Laplace(epsilon=epsilon)
    )
    turns = count()

    def call(texts: list[str]) -> list[str]:
        turn = next(turns)
        ids = [f"{os.getpid()} {turn} {i}" for i in range(len(texts))]
        found: list[str] = engine.sanitize(texts, ids, column="text").values.to_pylist()
        return found

    return call, lambda: shutil.rmtree(bundle)


PACKAGES = {
    "pypantera": pypantera,
    "mldp-text": mldp_text,
    "dp-diffractor": dp_diffractor,
    "dptext-spark": dptext_spark,
}
TEXTS_AT_ONCE = {"dptext-spark": 1000}
"""Texts of a call; the others take lists a text after the other, or have no call for more than one."""


def spent() -> float:
    """Processor time of this process and of those that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def forked(call: Call, texts: list[str]) -> list[str] | None:
    """Sanitize texts in a process forked from this one; None where that takes too long."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        os.write(theirs, json.dumps(call(texts)).encode())
        os._exit(0)
    ready, _, _ = select.select([ours], [], [], FORK_SECONDS)
    said = os.read(ours, 1 << 16) if ready else b""
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return json.loads(said) if said else None


def rate(call: Call, close: Callable[[], None], texts: list[list[str]], seconds: float) -> dict[str, object]:
    """Sanitize lists of texts one after the other, again and again."""
    call(texts[0])  # what is made once
    words, used, start = 0, spent(), time.perf_counter()
    for turn in count():
        if time.perf_counter() - start >= seconds:
            break
        some = texts[turn % len(texts)]
        call(some)
        words += sum(len(text.split()) for text in some)
    taken = time.perf_counter() - start
    close()
    return {"words": words, "seconds": taken, "processor seconds": spent() - used}


def main(name: str, embedding: str, source: str, epsilon: str, what: str, seconds: str = "0") -> None:
    """Measure."""
    began = time.perf_counter()
    call, close = PACKAGES[name](Path(embedding), float(epsilon))
    found: dict[str, object] = {"seconds to start": time.perf_counter() - began}
    texts = Path(source).read_text(encoding="utf-8").splitlines()
    if what == "facts":
        children = [forked(call, texts) for _ in range(2)]
        found |= {"forked": children, "here": call(texts)}
        close()
    else:
        size = TEXTS_AT_ONCE.get(name, 1)
        batches = [texts[i : i + size] for i in range(0, len(texts), size)]
        found |= rate(call, close, batches, float(seconds))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
