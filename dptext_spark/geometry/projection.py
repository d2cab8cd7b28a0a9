"""Public projections: matrices, their noise, and how much they stretch differences."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import scipy
from threadpoolctl import threadpool_limits

from dptext_spark.bars import progress_bar
from dptext_spark.geometry import Floats, Floats32, Ints, WordVectors
from dptext_spark.geometry.products import ExactProduct, gamma
from dptext_spark.geometry.sphere import bits_left, gamma_quantile, noise_error, uniform_directions
from dptext_spark.noise import ColumnNoise, NoiseKey, to_uniform

_PUBLIC_KEY: Final = NoiseKey(hashlib.sha256(b"dptext-spark public projection").digest())
# So many of them make sgemm run at full speed; their scores take 16 MiB.
_LEFT_BLOCK: Final = 8192
_RIGHT_BLOCK: Final = 512
_SAMPLED_PAIRS: Final = 2**14
_CHUNK: Final = 4096
# The last bits of ndtri, sums and LAPACK differ between machines; multiples of these units do not.
_NORMAL_UNIT: Final = 2.0**-24
_CONSTANT_UNIT: Final = 2.0**-30


def least_dimension(dimension: int, beta: float, delta: float) -> int:
    """Compute the dimension m that the paper projects n to.

    It is (sqrt(log2 n) + sqrt(ln(1 / delta)))² / beta². Lengths are distorted by more than beta,
    relatively, with probability delta. The paper leaves the constants of its bound open; these
    reproduce the dimensions of its experiments except for one row: 51, 100 and 199 for 50, 100 and
    200. No constant gives all three, unless it is between 43.80 and 44.00 and rounded down.

    Source: Feyisetan and Kasiviswanathan 2021, Lemma 4, and section 5 for the Gaussian width.
    """
    width = math.sqrt(math.log2(dimension))
    return math.ceil((width + math.sqrt(-math.log(delta))) ** 2 / beta**2)


def sparse_dimension(dimension: int, entries: float, beta: float, delta: float) -> int:
    """Compute the paper's m for vectors of few non-zero entries, by their Gaussian width.

    Source: Feyisetan and Kasiviswanathan 2021, section 3.
    """
    width = math.sqrt(entries * math.log(dimension / entries))
    return math.ceil((width + math.sqrt(-math.log(delta))) ** 2 / beta**2)


def gaussian_projection(seed: int, rows: int, columns: int) -> Floats:
    """Draw a projection from ``columns`` to ``rows`` dimensions: float64 (m, n), N(0, 1 / m).

    It is public by design: a pure function of its arguments, without any secret. Privacy comes from
    the noise that is added to projected vectors, and holds against anyone who knows the matrix.
    """
    shape = f"{seed} {rows} {columns}".encode("ascii")
    noise = ColumnNoise(key=_PUBLIC_KEY.derive(shape), uint64s_per_token=columns)
    words = np.empty((rows, columns), dtype=np.uint64)
    noise.fill(words, noise.row_key(b"", ()), 0)
    normals: Floats = np.rint(scipy.special.ndtri(to_uniform(words)) / _NORMAL_UNIT) * _NORMAL_UNIT
    normals /= math.sqrt(rows)
    return normals


def main_axes(axes: Floats, rows: int) -> Floats:
    """Return the widest main axes of public vectors as a projection, float64 (m, n).

    ``axes`` (n, n) are eigenvectors of the covariance in columns, by ascending eigenvalues. The
    entries are rounded, for the last bits of LAPACK differ between machines: rows are orthonormal
    except for that, and :func:`spectral_constant` bounds what it costs.
    """
    widest = axes[:, ::-1][:, :rows].T
    return np.ascontiguousarray(np.rint(widest / _NORMAL_UNIT) * _NORMAL_UNIT)


@dataclass(frozen=True, eq=False)
class PublicProjection:
    """A matrix that projects vectors, to the same bits whatever the batch and the thread count."""

    matrix: Floats  # (m, n), not all zero

    def times(self, vectors: Floats) -> Floats:
        """Project vectors, float64 (t, n), finite, to a fresh array (t, m)."""
        # Each row is scaled by its own power of two, because ExactProduct takes entries in [-1, 1].
        _, exponents = np.frexp(np.abs(vectors).max(axis=1))
        with np.errstate(under="ignore"):
            images = self._product.times(np.ldexp(vectors, -exponents[:, None]))
            np.ldexp(images, exponents[:, None], out=images)
        return images

    @property
    def error(self) -> float:
        """Bound |computed - exact| / |x| of an image.

        With the parts' B bits each product of two entries, of size 1 and scale at most, misses
        2^-2B scale by both factors' last cuts and 2^-2B scale / 4 by the two low parts, which are
        not multiplied; a row's largest entry is 1/2 or more.
        """
        rows, columns = self.matrix.shape
        unit = math.ldexp(self._product.scale, -2 * self._product.bits)
        return float(4.0 * columns * math.sqrt(rows) * unit)

    @cached_property
    def _product(self) -> ExactProduct:
        return ExactProduct.of(self.matrix.T)


class NoProjection(PublicProjection):
    """Leaves vectors as they are."""

    error = 0.0

    def times(self, vectors: Floats) -> Floats:
        return vectors.copy()


@dataclass(frozen=True, eq=False)
class NoisyProjection:
    """Projects vectors and adds noise of density proportional to exp(-|z| / scale) in m dimensions.

    Source: Feyisetan and Kasiviswanathan 2021, Claim 3; Wu et al. 2017.
    """

    projection: PublicProjection  # from n to m dimensions
    scale: float  # sensitivity over epsilon

    def __call__(self, vectors: Floats, uniforms: Floats) -> Floats:
        """Turn vectors (t, n) and uniforms (t, m + 1), overwritten, into noisy images (t, m)."""
        points = uniform_directions(uniforms[:, 1:])
        points *= self.lengths(uniforms[:, 0])[:, None]
        points += self.projection.times(vectors)
        return points

    def lengths(self, uniforms: Floats) -> Floats:
        """Turn uniforms (t,) into lengths of the noise (t,)."""
        return gamma_quantile(len(self.projection.matrix), uniforms) * self.scale

    def bits(self, longest: float) -> int:
        """Return the bits of mean noise, in any direction, above the errors of such vectors."""
        matrix = self.projection.matrix
        # The image's error, and that of its sum with the noise, in lengths of the noise.
        rounding = 2.0**-53 * float(np.linalg.norm(matrix))
        image_error = longest * (self.projection.error + rounding)
        error = noise_error(len(matrix)) + 2.0**-53
        return bits_left(error + image_error / (len(matrix) * self.scale), len(matrix))


def _rounded_up(value: float) -> float:
    return (math.floor(value / _CONSTANT_UNIT) + 1) * _CONSTANT_UNIT


def spectral_constant(matrix: Floats) -> float:
    """Bound |matrix (x - y)| / |x - y| by the largest singular value, rounded up."""
    # One thread: with more, LAPACK's last bits follow their number.
    with threadpool_limits(limits=1, user_api="blas"):
        largest = float(np.linalg.norm(matrix, 2))
    # LAPACK's error is at most a modest multiple of max(m, n) roundoffs.
    return _rounded_up(largest * (1.0 + 16.0 * max(matrix.shape) * 2.0**-53))


def vocabulary_constant(vectors: WordVectors, projection: PublicProjection) -> float:
    """Find the largest |projection (x - y)| / |x - y| over all pairs of distinct vectors (V, n).

    All pairs are scored by a single-precision product; those that may exceed the largest ratio so
    far, given a proven bound on that product's rounding error, are computed in double precision
    from their difference. The result, an upper bound about 10^-8 above it, is the same whatever the
    thread count.
    """
    words = len(vectors)
    scores = _Scores(vectors, projection)
    bar = progress_bar(
        desc="Sensitivity", total=words**2 / 2, unit="pair", unit_scale=True, delay=2.0
    )
    buffer = np.empty(_LEFT_BLOCK * _RIGHT_BLOCK, dtype=np.float32)
    with bar, np.errstate(under="ignore"):
        # Pairs spread over the vocabulary come first, so that few others are candidates.
        numbers = np.arange(_SAMPLED_PAIRS, dtype=np.int64)
        left_words = numbers % words
        right_words = (left_words + 1 + (numbers // words) * 37) % words
        sampled = _largest_ratio(vectors, projection, left_words, right_words)
        largest = max(scores.floor, sampled)
        for left_rows in _blocks(0, words, _LEFT_BLOCK):
            left_factors = scores.left(left_rows)
            for right_rows in _blocks(left_rows.start, words, _RIGHT_BLOCK):
                upper = left_factors[: right_rows.stop - left_rows.start]
                factors = scores.right(right_rows, largest)
                block = buffer[: len(upper) * len(factors)].reshape(len(upper), len(factors))
                np.matmul(upper, factors.T, out=block)
                # Pairs on and below the diagonal are a word with itself, and pairs seen before.
                square = block[right_rows.start - left_rows.start :]
                square[np.tri(*square.shape, dtype=np.bool_)] = -np.inf
                if block.max(initial=-np.inf) >= 0.0:
                    rows, columns = np.divmod(np.flatnonzero(block >= 0.0), block.shape[1])
                    left_words = rows + left_rows.start
                    right_words = columns + right_rows.start
                    ratio = _largest_ratio(vectors, projection, left_words, right_words)
                    largest = max(largest, ratio)
                bar.update(block.size - square.size // 2)
    return _rounded_up(largest * (1.0 + 2.0**-48) + projection.error)


def _largest_ratio(
    vectors: WordVectors, projection: PublicProjection, left: Ints, right: Ints
) -> float:
    """Find the largest ratio of pairs of words, int64 (t,) each, in double precision."""
    largest = 0.0
    for chunk in _blocks(0, len(left), _CHUNK):
        gaps = vectors[left[chunk]].astype(np.float64) - vectors[right[chunk]]
        lengths = np.sqrt(np.square(gaps).sum(axis=1))
        distinct = lengths > 0.0
        images = projection.times(gaps[distinct])
        ratios = np.sqrt(np.square(images).sum(axis=1)) / lengths[distinct]
        largest = max(largest, float(ratios.max(initial=0.0)))
    return largest


def _blocks(start: int, stop: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, stop)) for first in range(start, stop, size))


class _Scores:
    """Factors of a product that shows which pairs may exceed the largest ratio so far.

    The ratio b is of |p_i - p_j| to |x_i - x_j|, x the vectors and p their images. A pair's score
    (|p_i - p_j|² - b² |x_i - x_j|²) / 2 is a product of two rows,

        (p_i, x_i, |p_i|²/2, |x_i|²/2, 1) · (-p_j, b² x_j, 1, -b², (|p_j|² - b² |x_j|²)/2),

    so that only the right one changes as b grows. By Higham 2002, eq. 3.5, a single-precision
    product of k terms in any order strays by gamma_k times the sum of their absolute values, here
    at most N_i + N_j with N = |p|² + b² |x|². Each row carries ``slack`` N of its own in its sums
    of squares, so that a pair whose ratio exceeds b never scores below 0. The vectors are centred
    first, for N counts their lengths.
    """

    def __init__(self, vectors: WordVectors, projection: PublicProjection) -> None:
        self.vectors = vectors
        self.matrix = projection.matrix
        # Above 0, so that the double precision of p is relative to b |x| as well.
        self.floor = 2.0**-10 * float(np.sqrt(np.square(projection.matrix).sum()))
        terms = sum(projection.matrix.shape) + 3
        # The terms added to k pay for rounding the factors, and double-precision p, to single
        # precision.
        self.slack = 1.01 * gamma(1.01 * terms + 8) + 2.0 * projection.error / self.floor
        self.underflow = terms * 2.0**-112
        blocks = [*_blocks(0, len(vectors), _CHUNK)]
        self.centre = sum(vectors[b].sum(axis=0, dtype=np.float64) for b in blocks) / len(vectors)
        largest = max(float(np.abs(vectors[b]).max()) for b in blocks)
        _, exponent = math.frexp(largest)
        self.unit = math.ldexp(1.0, exponent)

    def left(self, rows: slice) -> Floats32:
        """Compute left factors of some rows, float32 (b, m + n + 3)."""
        points, images, lengths, image_lengths = self._squared(rows)
        ones = np.ones_like(lengths)
        return np.concatenate(
            [images, points, image_lengths, lengths, ones], axis=1, dtype=np.float32
        )

    def right(self, rows: slice, largest: float) -> Floats32:
        """Compute right factors of some rows, with b the largest ratio so far."""
        points, images, lengths, image_lengths = self._squared(rows)
        square = largest**2
        ones = np.ones_like(lengths)
        constants = image_lengths - square * lengths
        return np.concatenate(
            [-images, square * points, ones, -square * ones, constants], axis=1, dtype=np.float32
        )

    def _squared(self, rows: slice) -> tuple[Floats, ...]:
        """Compute x (b, n), p (b, m), and halves of |x|² less slack and |p|² plus slack."""
        points = (self.vectors[rows] - self.centre) / self.unit
        images = points @ self.matrix.T
        squares = np.square(points).sum(axis=1, keepdims=True)
        image_squares = np.square(images).sum(axis=1, keepdims=True)
        lengths = (0.5 - self.slack) * squares
        image_lengths = (0.5 + self.slack) * image_squares + self.underflow
        return points, images, lengths, image_lengths
