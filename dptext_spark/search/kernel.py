"""Products of 8-bit integers by the library onnxruntime, where it is installed.

They are several times as fast as products in single precision. A processor without instructions for
8-bit dot products may cut sums to 16 bits; so the kernel is tried on the largest sums before it is
used.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int32]

BLOCK: Final = 512
"""Most words, and most points, of one product: its scores, 1 MiB, stay in the cache."""

# One operator, MatMulInteger, as scripts/make_product_model.py writes it; the package may be a zip.
MODEL: Final = files("dptext_spark.search").joinpath("product.onnx")
_TRIED_SIZES: Final = (1, 2, 3, 5, 8, 13, 16, 31, 48, 65, BLOCK)


@cache
def _library() -> Any:
    import onnxruntime  # late: it costs a worker 30 MB

    onnxruntime.disable_telemetry_events()
    return onnxruntime


@cache
def session() -> Any:
    """Return this process's session of the model, which runs in one thread."""
    onnxruntime = _library()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(
        MODEL.read_bytes(), options, providers=["CPUExecutionProvider"]
    )


def prepare(words: NDArray[np.uint8]) -> Any:
    """Return words' codes (w, K) in the form that a product takes, without a copy."""
    return _library().OrtValue.ortvalue_from_numpy(words)


def multiplier(points: NDArray[np.int8], scores: Integers) -> Callable[[Any, int], None]:
    """Return a function that writes products with points (K, t) to the first lines of ``scores``.

    Its arguments are prepared words and their number.
    """
    model = session()
    binding = model.io_binding()
    binding.bind_cpu_input("points", points)
    bound_count = 0

    def multiply(words: Any, count: int) -> None:
        nonlocal bound_count
        if count != bound_count:
            shape = (count, scores.shape[1])
            binding.bind_output("scores", "cpu", 0, np.int32, shape, scores.ctypes.data)
            bound_count = count
        binding.bind_ortvalue_input("words", words)
        model.run_with_iobinding(binding)

    return multiply


@cache
def trusted_bits(width: int) -> int:
    """Return how many bits codes of ``width`` columns may have on this processor: 8, 7 or 0."""
    if find_spec("onnxruntime") is None:
        return 0
    pattern = np.arange(BLOCK)[:, None] * 31 + np.arange(width) * 17
    signs = np.where(pattern // 64 % 3, 1, -1)
    points = ((127 - pattern % 5) * signs).astype(np.int8)
    for bits in (8, 7):
        words = ((1 << bits) - 1 - pattern % 3).astype(np.uint8)
        if _is_exact(words, points):
            return bits
    return 0


def _is_exact(words: NDArray[np.uint8], points: NDArray[np.int8]) -> bool:
    """Check products of words (w, K) and points (t, K) in many shapes."""
    exact = (words.astype(np.float64) @ points.T.astype(np.float64)).astype(np.int64)
    for word_count, point_count in itertools.product(_TRIED_SIZES, repeat=2):
        scores = np.empty((word_count, point_count), dtype=np.int32)
        multiply = multiplier(np.ascontiguousarray(points[:point_count].T), scores)
        multiply(prepare(words[:word_count]), word_count)
        if not np.array_equal(scores, exact[:word_count, :point_count]):
            return False
    return True
