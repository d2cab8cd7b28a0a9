"""The report of a calibration: what the page holds, for whom, and what it must not need."""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure

from dptext_spark.calibration import Transitions, estimator, word_statistics
from dptext_spark.calibration.page import write_report
from dptext_spark.calibration.plots import Axis, percentile_plot
from dptext_spark.calibration.record import FORMAT_VERSION, setting
from dptext_spark.calibration.results import N_W_EDGES, S_W_EDGES, Curve, Results
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.helpers.calibration_oracle import cells, output_statistics, summary

EPSILONS = (1.0, 4.0, 16.0, 64.0)
HOSTILE = ["<script>alert(1)</script>", "a&b", '"quoted"', "$x^2$", "l'été", "كلمة", "..", "{{ 7 * 7 }}"]
RUNS = 50


# A calibration folder as the job writes it


def grid(name: str, epsilons: Sequence[float] = EPSILONS, **parameters: Any) -> list[Mechanism]:
    return [mechanism(name, epsilon=epsilon, **parameters) for epsilon in epsilons]


def calibrate(
    folder: Path, embedding: Embedding, settings: Sequence[Sequence[Mechanism]], *, name: str = "auto"
) -> Path:
    """Write a finished calibration of all words of an embedding."""
    tables: dict[str, list[pa.Table]] = defaultdict(list)
    facts: dict[str, Any] = {"distances": {}, "guarantee": [], "summary": []}
    for mechanisms in settings:
        kind = estimator(
            mechanisms,
            embedding,
            search=ExactSearch.over(embedding),
            runs=RUNS,
            name=name,  # type: ignore[arg-type]
        )
        transitions = kind(np.arange(len(embedding.words)), block=0)
        for part, table in parts_of(transitions).items():
            tables[part].append(named(table, mechanisms, embedding))
        facts["distances"][setting(mechanisms[0])] = distances(mechanisms[0], embedding)
        facts["guarantee"] += [
            {"setting": setting(m), **m.guarantee(embedding).to_json()} for m in mechanisms
        ]
        facts["estimator"] = kind.name
    for part, found in tables.items():
        (folder / part).mkdir(parents=True)
        (folder / part / "_SUCCESS").touch()
        for number, piece in enumerate(found):
            pq.write_table(piece, folder / part / f"part-{number}.parquet")
    facts["summary"] = pa.concat_tables(tables["summary"]).to_pylist()
    limits = {"low": 0.125, "high": 0.5, "floor": 0.0625}
    facts["summary"] = [row | limits for row in facts["summary"]]
    facts["summary"] += [
        row | dict.fromkeys(("sd", "min", "p5", "p50", "p95", "max")) | {"statistic": "bayes_risk_zipf"}
        for row in facts["summary"][:1]
    ]
    facts |= facts_of(settings, embedding)
    (folder / "calibration.json").write_text(json.dumps(facts), encoding="utf-8")
    return folder


def parts_of(transitions: Transitions) -> dict[str, pa.Table]:
    words, outputs = word_statistics(transitions), output_statistics(transitions)
    return {
        "words": words,
        "outputs": outputs,
        "transitions": cells(transitions),
        "summary": pa.concat_tables([summary(words), summary(outputs)]),
    }


def named(table: pa.Table, mechanisms: Sequence[Mechanism], embedding: Embedding) -> pa.Table:
    """Put names for numbers, and say whose the table is."""
    epsilons = np.array([m.epsilon for m in mechanisms])[table["epsilon_index"].to_numpy()]
    columns = {
        "mechanism": pa.array([mechanisms[0].name] * len(table)),
        "setting": pa.array([setting(mechanisms[0])] * len(table)),
        "epsilon": pa.array(epsilons),
    }
    for name in table.column_names[1:]:
        column = table[name].combine_chunks()
        columns[name] = embedding.words.take(column) if name in ("word", "output") else column
    return pa.table(columns)


def distances(configured: Mechanism, embedding: Embedding) -> dict[str, Any]:
    metric = configured.metric(embedding)
    ordered = np.sort(metric.to_all(np.arange(metric.words)), axis=1)
    levels = {"min": 0.0, "p5": 0.05, "p50": 0.5, "p95": 0.95, "max": 1.0}
    rows = [
        {"neighbour": k, **{n: float(np.quantile(ordered[:, k], q)) for n, q in levels.items()}}
        for k in (1, 2, 4)
    ]
    return {"metric": metric.description, "words": metric.words, "neighbours": rows}


def facts_of(settings: Sequence[Sequence[Mechanism]], embedding: Embedding) -> dict[str, Any]:
    manifest = embedding.manifest
    names = [setting(mechanisms[0]) for mechanisms in settings]
    gains = [
        {"setting": name, "baseline": names[0], "epsilon": 4.0, "statistic": "n_w"}
        | {"difference": -0.0312, "low": -0.05, "high": -0.01}
        for name in names[1:]
    ]
    return {
        "format_version": FORMAT_VERSION,
        "options": {"mechanism": settings[0][0].name, "epsilon": EPSILONS, "confidence": 0.9, "eta": 0.05},
        "embedding": {
            "fingerprint": manifest.fingerprint,
            "source": manifest.source_name,
            "words": manifest.words,
            "dimension": manifest.dimension,
            "geometry": manifest.geometry,
            "normalization": manifest.normalization,
        },
        "release_words": embedding.releasable,
        "runs": RUNS,
        "sample": {"words": len(embedding.words), "blocks": 1},
        "gains": gains,
        "target": [target(names[0], 3.25), target(names[0], None)],
        "matches": [
            {"n_w": "average", "other": {"mechanism": "laplace", "setting": "", "epsilon": 2.0}}
            | {"value": 0.25, "mechanism": settings[0][0].name, "setting": names[0], "epsilon": epsilon}
            for epsilon in (None, 2.5)
        ],
        "versions": {"python": "3.11"},
    }


def target(name: str, epsilon: float | None) -> dict[str, Any]:
    found = {"target": "p95(n_w) <= 0.5", "confidence": 0.9, "setting": name, "epsilon": epsilon, "tried": []}
    found["looks"] = 1
    rest = {"missed": 3.26, "measured": 0.48, "bound": 0.499, "options": "--mechanism laplace --epsilon 3.25"}
    return found | (rest if epsilon else {"missed": 0.001, "measured": None, "bound": None, "options": None})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Embedding:
    """Forty words of the plane, some of them dangerous."""
    names = HOSTILE + worlds.words(32)
    points = np.random.default_rng(5).standard_normal((40, 2))
    return worlds.build(tmp_path_factory.mktemp("hostile"), points, names)


@pytest.fixture(scope="module")
def several(world: Embedding, tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = [grid("mahalanobis", **{"lambda": weight}) for weight in (0.1, 0.5, 0.9)]
    return calibrate(tmp_path_factory.mktemp("several"), world, settings)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, but not turned into images, which takes most of the time."""
    monkeypatch.setattr(Figure, "savefig", lambda self, file, **options: file.write(b"no image"))


@pytest.fixture(scope="module")
def drawn(world: Embedding, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One setting, with its page."""
    folder = calibrate(tmp_path_factory.mktemp("drawn") / "single", world, [grid("laplace")])
    write_report(folder)
    return folder


@pytest.fixture
def single(drawn: Path, tmp_path: Path) -> Path:
    """One setting, without its page."""
    ignored = shutil.ignore_patterns("plots", "report.html")
    return Path(shutil.copytree(drawn, tmp_path / "single", ignore=ignored))


# The page as a reader's machine sees it

VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Tags, attributes and text; closing tags must match."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.of_tag: dict[str, list[str]] = defaultdict(list)
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)
        if self.open:
            self.of_tag[self.open[-1]].append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts))

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def page_of(folder: Path, **options: Any) -> Page:
    return Page(write_report(folder, **options))


def edited(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = folder / "calibration.json"
    facts = json.loads(file.read_text())
    change(facts)
    file.write_text(json.dumps(facts))


@pytest.fixture(scope="module")
def page(several: Path) -> Page:
    return page_of(several)


def test_the_page_has_its_sections_and_figures_with_findings(page: Page) -> None:
    ids = [a["id"] for a in page.attributes("h2")]
    assert ids == [
        "percentiles", "histograms", "least-protected", "risks", "substitutions", "target", "gains",
        "matches", "neighbours", "guarantee", "numbers",
    ]  # fmt: skip
    assert [a["aria-labelledby"] for a in page.attributes("section")] == ids
    assert len(page.attributes("h1")) == 1 and page.attributes("html") == [{"lang": "en"}]
    alts = [a["alt"] or "" for a in page.attributes("img")]
    assert len(alts) == 5
    for alt in alts:
        assert re.search(r"lambda=0\.1.*lambda=0\.5.*lambda=0\.9", alt) and re.search(r"\d", alt)
    assert "lambda=0.1: median N_w rises from" in alts[0] and "at epsilon 64" in alts[0]
    assert "median S_w falls from" in alts[1] and "to 1 at epsilon 64" in alts[1]
    for said in ("measurements, not guarantees", "Any of 35 words", "-0.0312", "met up to epsilon 3.25"):
        assert said in page.text, said


@pytest.mark.usefixtures("undrawn")
def test_risks_come_with_limits_floors_and_priors(single: Path) -> None:
    """Rejects a bare number of a guesser of whom nobody says among which words he guesses."""
    edited(single, lambda facts: unseen(facts, 0.06))
    page = page_of(single)
    risk = json.loads((single / "calibration.json").read_text())["summary"][-1]
    assert f"{risk['mean']:.3g} 0.125 to 0.5" in page.text.replace("–", "")
    assert "0.0625" in page.text and "Limits at 90% confidence" in page.text
    assert "one of all 40 words" in page.text and "the k-th of them has weight 1/k" in page.text
    assert page.text.count("Epsilon 4: Not enough runs for a reliable number; increase --runs.") == 2
    edited(single, lambda facts: unseen(facts, 0.05))
    assert "Not enough runs" not in page_of(single).text

    edited(single, lambda facts: facts["summary"].pop())
    assert "The calibration has no risks." in page_of(single).text


def unseen(facts: dict[str, Any], share: float) -> None:
    """Let new outputs come up so often at epsilon 4, and never elsewhere."""
    for row in facts["summary"]:
        if row["statistic"] == "unseen":
            row["mean"] = share if row["epsilon"] == 4.0 else 0.0


@pytest.mark.usefixtures("undrawn")
def test_findings_are_those_of_the_summary(single: Path) -> None:
    facts = json.loads((single / "calibration.json").read_text())
    n_w = {row["epsilon"]: row for row in facts["summary"] if row["statistic"] == "n_w"}
    alt = page_of(single).attributes("img")[0]["alt"]
    assert alt == (
        f"Median N_w rises from {n_w[1.0]['p50']:.2f} at epsilon 1 to {n_w[64.0]['p50']:.2f} at epsilon 64, "
        f"where the middle 90% of words lie from {n_w[64.0]['p5']:.2f} to {n_w[64.0]['p95']:.2f}."
    )


def test_the_page_is_self_contained(page: Page) -> None:
    assert not re.search(r"https?:|//cdn|@import|url\(", page.source)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            if name in ("src", "srcset", "href"):
                assert (value or "").startswith(("data:image/png;base64,", "#")), (tag, name)
    anchors = {(a["href"] or "")[1:] for a in page.attributes("a")}
    assert anchors <= {attributes.get("id") for _, attributes in page.tags}


def test_the_images_beside_the_page_are_those_in_it(drawn: Path) -> None:
    page = Page(drawn / "report.html")
    files = sorted((drawn / "plots").iterdir())
    assert [f.stem for f in files] == ["n_w", "n_w_histogram", "neighbours", "s_w", "s_w_histogram"]
    for attributes in page.attributes("img"):
        assert attributes["width"] == "960"
    for file in files:
        content = file.read_bytes()
        width, height = struct.unpack(">II", content[16:24])
        assert any((a["width"], a["height"]) == (str(width), str(height)) for a in page.attributes("img"))
        assert b"tEXtSoftware" not in content and b"tIME" not in content


def test_equal_input_gives_equal_bytes(drawn: Path, single: Path) -> None:
    """Also under a user's own style of figures, and after parts were written in another order."""
    for part in ("words", "transitions"):
        table = pq.read_table(single / part / "part-0.parquet")
        backwards = table.take(np.arange(len(table))[::-1])
        pq.write_table(backwards, single / part / "part-0.parquet", row_group_size=7)
    with matplotlib.rc_context({"lines.linewidth": 9.0, "font.size": 30.0, "axes.facecolor": "red"}):
        assert write_report(single).read_bytes() == (drawn / "report.html").read_bytes()
        assert matplotlib.rcParams["lines.linewidth"] == 9.0
    assert (drawn / "plots/n_w.png").read_bytes() == (single / "plots/n_w.png").read_bytes()


@pytest.mark.usefixtures("undrawn")
def test_words_are_escaped_and_kept_apart(single: Path) -> None:
    page = page_of(single, words_of_choice=HOSTILE)
    assert "<script" not in page.source
    assert "script" not in {tag for tag, _ in page.tags}
    shown = set(page.of_tag["bdi"])
    # The parser may hand a word over in pieces, but these come whole.
    assert {"<script>alert(1)</script>", "a&b", "$x^2$", "كلمة", "{{ 7 * 7 }}"} <= shown


def test_settings_are_escaped_too(single: Path) -> None:
    """Rejects mathematics and markup in a setting's name, in figures and in tables."""
    wrong = "$\\frac{<b>$"

    def rename(facts: dict[str, Any]) -> None:
        facts["distances"] = {wrong: facts["distances"][""]}
        for row in (*facts["summary"], *facts["guarantee"], *facts["target"], *facts["matches"]):
            row["setting"] = wrong
        facts["summary"] += [row | {"setting": "other"} for row in facts["summary"]]

    edited(single, rename)
    assert page_of(single).attributes("b") == []


@pytest.mark.usefixtures("undrawn")
def test_substitutions_are_the_most_frequent_outputs(single: Path) -> None:
    cells = pq.read_table(single / "transitions").to_pylist()
    own = [c for c in cells if c["word"] == "w7" and c["epsilon"] == 4.0]
    own.sort(key=lambda c: (-c["count"], c["output"]))
    found = Results.open(single).substitutions(["w7", "absent"], top=3)
    assert found is not None and {row["word"] for row in found} == {"w7"}
    assert [(r["output"], r["count"]) for r in found if r["epsilon"] == 4.0] == [
        (c["output"], c["count"]) for c in own[:3]
    ]
    text = page_of(single, words_of_choice=["w7", "absent", "w7"]).text
    assert f"{own[0]['output']} {100 * own[0]['count'] / RUNS:.1f}%" in text
    assert "Not among the measured words: absent." in text
    assert text.count("Becomes") == 1


@pytest.mark.usefixtures("undrawn")
def test_without_a_choice_some_words_are_shown(single: Path) -> None:
    words = sorted(pq.read_table(single / "words")["word"].unique().to_pylist(), key=str.encode)
    found = Results.open(single).some_words(6)
    assert found == tuple(words[40 * i // 6] for i in range(6))
    assert page_of(single).text.count("Becomes") == 6


def test_a_pass_over_words_counts_all_of_them(several: Path) -> None:
    results = Results.open(several)
    line = next(iter(results.grid))
    table = pq.read_table(several / "words").to_pylist()
    rows = [r for r in table if r["setting"] == line.setting and r["epsilon"] == 16.0]
    census = results.census(line, 16.0, top=5)
    assert census is not None and census.words == len(rows) == 40
    assert census.high == sum(r["n_w"] >= 0.95 for r in rows)
    expected = sorted(rows, key=lambda r: (-r["n_w"], r["word"].encode()))[:5]
    assert [t["word"] for t in census.top] == [r["word"] for r in expected]
    assert census.n_w.tolist() == np.histogram([r["n_w"] for r in rows], N_W_EDGES)[0].tolist()
    assert census.s_w.tolist() == np.histogram([r["s_w"] for r in rows], S_W_EDGES)[0].tolist()
    assert census.s_w.sum() == 40


@pytest.mark.usefixtures("undrawn")
def test_exact_probabilities_have_no_interval(world: Embedding, tmp_path: Path) -> None:
    exact = page_of(calibrate(tmp_path / "exact", world, [grid("exponential")]))
    assert "exact probabilities" in exact.text and "% interval for" not in exact.text
    counted = page_of(calibrate(tmp_path / "plain", world, [grid("laplace")], name="plain"))
    assert "a 90% interval for that word" in counted.text and "with noise of its own" not in counted.text
    assert "noise of its own, which all epsilons share" in counted.text


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("part", "section", "said"),
    [
        ("transitions", "substitutions", "--transitions keeps them"),
        ("words", "histograms", "no table of words"),
        ("distances", "neighbours", "no distances"),
        ("guarantee", "guarantee", "does not quote a guarantee"),
        ("summary", "percentiles", "no percentiles"),
        ("target", None, None),
        ("gains", None, None),
        ("matches", None, None),
    ],
)
def test_missing_parts_are_said_or_left_out(
    single: Path, part: str, section: str | None, said: str | None
) -> None:
    shutil.rmtree(single / part, ignore_errors=True)
    edited(single, lambda facts: facts.update(summary=[]) if part == "summary" else facts.pop(part, None))
    page = page_of(single)
    ids = {a["id"] for a in page.attributes("h2")}
    assert (section in ids and said in page.text) if section and said else part not in ids


@pytest.mark.usefixtures("undrawn")
def test_a_folder_with_nothing_but_its_json_gives_a_page(single: Path) -> None:
    for part in ("words", "outputs", "transitions", "summary"):
        shutil.rmtree(single / part)
    assert len(page_of(single, words_of_choice=["w1"]).attributes("img")) == 3


@pytest.mark.usefixtures("undrawn")
def test_one_epsilon_gives_a_page(world: Embedding, tmp_path: Path) -> None:
    page = page_of(calibrate(tmp_path / "one", world, [grid("laplace", (4.0,))]))
    assert re.match(r"Median N_w is 0\.\d\d at epsilon 4, where", page.attributes("img")[0]["alt"] or "")


def test_what_is_no_calibration_is_refused(tmp_path: Path, single: Path) -> None:
    with pytest.raises(InputError, match="not a finished calibration"):
        write_report(tmp_path)
    edited(single, lambda facts: facts.update(format_version=99))
    with pytest.raises(ConfigError, match="not a calibration of this version"):
        write_report(single)
    assert not (single / "report.html").exists()


def test_the_finding_of_a_curve_says_where_it_stays() -> None:
    x = np.array([1.0, 2.0])
    y = Axis(name="N_w", label="N_w", digits=2)
    epsilon = Axis(name="epsilon", label="Epsilon")
    flat = Curve(x=x, p5=np.zeros(2), p50=np.array([0.001, 0.002]), p95=np.ones(2))
    plot = percentile_plot("flat", {"": flat}, epsilon, y)
    assert plot.alt.startswith("Median N_w stays 0.00 from epsilon 1 to epsilon 2, where")


def test_figures_differ_without_colour() -> None:
    """Rejects lines told apart by their colours alone."""
    from dptext_spark.calibration.plots import _look

    looks = [(str(look["color"]), str(look["ls"])) for look in map(_look, range(35))]
    assert len(set(looks)) == 35
    assert len({dash for _, dash in looks[:5]}) == 5
