"""What the benchmarks found, as a page in Markdown with figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Final, Literal

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from dptext_spark.calibration.plots import number

_COMMAND: Final = "python -m scripts.benchmarks --data DATA --output docs/benchmarks"
_STYLE: Final[dict[str, Any]] = {
    "svg.hashsalt": "benchmarks",  # the same figure has the same bytes
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
_MARKERS: Final = "os^DvPX*"


def write_page(results: Mapping[str, Any], output: Path) -> None:
    """Write ``results.md`` and its figures beside ``results.json``."""
    for old in output.glob("*-figure-*.svg"):
        old.unlink()
    sections = results["sections"]
    lines = ["# Results", ""]
    lines += ["Written by the command below, from `results.json`; [what the figures mean](README.md).", ""]
    lines += ["```", _COMMAND, "```", ""]
    if results["small"]:
        lines += ["**Only tried, with `--small`: the figures mean nothing.**", ""]
    if failed := [name for name, found in sections.items() if "failed" in found]:
        lines += [f"**Failed: {', '.join(failed)}.**", ""]
    lines += table([{"machine": name, "": value} for name, value in results["machine"].items()])
    for name, found in sections.items():
        lines += ["", f"## {found.get('title', name)}", ""]
        lines.append(
            f"`python -m scripts.benchmarks.{name}`, {found['date']}, {found['seconds']} s; "
            f"load of the machine before: {found['load before']}."
        )
        if "failed" in found:
            lines += ["", f"**Failed: {found['failed']}.**"]
            continue
        lines += ["", *table(found["rows"])]
        for i, plot in enumerate(found.get("plots", ()), 1):
            file = f"{name}-figure-{i}.svg"
            draw(found["rows"], plot, output / file)
            lines += ["", f"![{title_of(plot)}; the numbers are in the table]({file})"]
        for note in found.get("notes", ()):
            lines += ["", note]
    output.joinpath("results.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lay rows out in Markdown; columns of numbers stand to the right."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    right = [all(is_number(row.get(column)) for row in rows) for column in columns]
    lines = [columns, ["---:" if each else "---" for each in right]]
    lines += [[written(row.get(column, "")) for column in columns] for row in rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def is_number(value: Any) -> bool:
    """Whether a cell stands to the right: a number, or none at all."""
    return value in (None, "") or (isinstance(value, int | float) and not isinstance(value, bool))


def written(value: Any) -> str:
    """Write a cell."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if value is None or isinstance(value, int | float) else str(value)


def title_of(plot: Mapping[str, Any]) -> str:
    """Name a figure."""
    return str(plot.get("title") or f"{', '.join(plot['y'])} over {plot['x']}")


def draw(rows: Sequence[Mapping[str, Any]], plot: Mapping[str, Any], file: Path) -> None:
    """Draw a figure as SVG."""
    x, log = plot["x"], plot.get("log", "")
    where = plot.get("where", {}).items()
    shown = [row for row in rows if row.get(x) is not None and all(row.get(k) == v for k, v in where)]
    curves = curves_of(shown, x, plot["y"], plot.get("by"))
    lines = all(is_number(row[x]) for row in shown)
    names = [plain(x), plain(", ".join(plot["y"]))]
    with style.context(["default", "tableau-colorblind10", _STYLE]):
        figure = Figure(figsize=(6.4, 4.0))
        axes = figure.subplots()
        if lines:
            for marker, (label, points) in zip(cycle(_MARKERS), curves.items(), strict=False):
                axes.plot(*zip(*sorted(points), strict=True), label=plain(label), marker=marker)
            axes.set(xlabel=names[0], ylabel=names[1])
        else:
            draw_bars(axes, curves)
            axes.set(xlabel=names[1])
        if "x" in log and lines:
            logarithmic(axes, "x")
        if "y" in log:
            logarithmic(axes, "y" if lines else "x")  # bars lie, so that their names can be read
        axes.set_title(plain(title_of(plot)), loc="left", fontsize=10.0)
        if len(curves) > 1:
            figure.legend(loc="outside lower center", ncols=2, fontsize=8.0)
        figure.savefig(file, format="svg", metadata={"Date": None})


def curves_of(
    rows: Sequence[Mapping[str, Any]], x: str, columns: Sequence[str], by: str | None
) -> dict[str, list[tuple[Any, float]]]:
    """Points of each curve that has some, by its label."""
    curves: dict[str, list[tuple[Any, float]]] = {}
    for row in rows:
        for y in columns:
            group = [str(row.get(by))] if by else []
            label = ", ".join([*group, *([y] if len(columns) > 1 else [])])
            if isinstance(value := row.get(y), int | float):
                curves.setdefault(label, []).append((row[x], value))
    return curves


def logarithmic(axes: Axes, name: Literal["x", "y"]) -> None:
    """Make an axis logarithmic, with numbers as people write them."""
    (axes.set_xscale if name == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if name == "x" else axes.yaxis
    low, high = axis.get_minpos(), axis.get_data_interval()[1]  # bars begin at 0
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100.0 * low else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axis.set_minor_formatter(NullFormatter())


def draw_bars(axes: Axes, curves: Mapping[str, Sequence[tuple[Any, float]]]) -> None:
    """Draw a bar for each point, those of one name beside each other."""
    names = list(dict.fromkeys(str(name) for points in curves.values() for name, _ in points))
    height = 0.8 / max(1, len(curves))
    for i, (label, points) in enumerate(curves.items()):
        places = [names.index(str(name)) + (i - (len(curves) - 1) / 2) * height for name, _ in points]
        axes.barh(places, [value for _, value in points], height=height, label=plain(label))
    axes.set_yticks(range(len(names)), [plain(name) for name in names], fontsize=8.0)
    axes.invert_yaxis()


def plain(text: str) -> str:
    """A label in which nothing is mathematics."""
    return text.replace("$", r"\$")
