"""A picture of the Poincaré disk.

Needs the extra ``[report]``, so it is imported only where a picture is drawn.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from dptext_spark.geometry import Floats
from dptext_spark.geometry.metric import squared_norms
from dptext_spark.poincare.relations import Relations


def disk_coordinates(vectors: Floats) -> Floats:
    """Return points (V, n) of the ball in the disk, (V, 2).

    Their norms are true, and their angles those of the two principal axes.
    """
    if vectors.shape[1] == 2:
        return vectors
    _, axes = np.linalg.eigh(vectors.T @ vectors)
    flat = vectors @ axes[:, -2:]
    flat_norms = np.maximum(squared_norms(flat), np.finfo(np.float64).tiny)
    scale = np.sqrt(squared_norms(vectors) / flat_norms)
    return np.asarray(flat * scale[:, None])


def draw(vectors: Floats, relations: Relations, path: Path) -> None:
    """Write a PNG of points of the ball (V, n), some pairs, and names of the most linked words."""
    points = disk_coordinates(vectors)
    figure = Figure(figsize=(9, 9))
    axes = FigureCanvasAgg(figure).figure.add_axes((0.02, 0.02, 0.96, 0.93))
    axes.add_patch(Circle((0, 0), 1, fill=False, color="0.6"))
    pairs = relations.pairs[:: 1 + len(relations.pairs) // 1_000]
    axes.add_collection(LineCollection(list(points[pairs]), colors="0.8", linewidths=0.4))
    sample = points[:: 1 + len(points) // 5_000]
    axes.scatter(sample[:, 0], sample[:, 1], s=3, c="tab:blue", linewidths=0)
    for row in np.argsort(-relations.links, kind="stable")[:25]:
        name = relations.words[row].replace("$", r"\$")  # which would start a formula
        axes.annotate(name, points[row], fontsize=8, color="tab:red")
    dimension = vectors.shape[1]
    kind = "true norms, angles of the two principal axes"
    if dimension == 2:
        kind = "the disk"
    counts = f"{len(points):,} words, {len(relations.pairs):,} pairs, {dimension} dimensions"
    axes.set_title(f"{counts}: {kind}")
    axes.set(xlim=(-1.02, 1.02), ylim=(-1.02, 1.02), aspect="equal")
    axes.set_axis_off()
    figure.savefig(path, dpi=120)
