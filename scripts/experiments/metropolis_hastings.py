"""What the Metropolis-Hastings sampler of Feyisetan et al. 2019 (Algorithm 2) samples: an experiment.

The algorithm proposes x' ~ N(x_t, Sigma), lifts x' to the hyperboloid, projects it into the Poincaré ball
and accepts it with probability f(x') / f(x_t), f the noise density of equation 7. The proposal is symmetric
in one chart and the density belongs to another; no Hastings correction makes up for it. This script runs the
algorithm in its two readings and tells by Kolmogorov-Smirnov tests which law of |x| comes out:

    ball         as printed: N is centred at the ball coordinates of x_t (section V-C: "the final coordinates
                 of the sampled point x_t is in the Poincaré model")
    hyperboloid  N is centred at the Lorentz coordinates of x_t (line 2: "x_0 = [1, 0, ..., 0]")

Each result comes from a chain of its own, so that all are independent and the test is exact. The last column
says how many successive results of one chain, as the paper releases them, are worth one independent result.
The prose of section V-C accepts where f(x') / f(x_t) is *below* the uniform; ``--prose`` runs that.

    python scripts/experiments/metropolis_hastings.py [--chains 4000] [--steps 600] [--seed 1] [--prose]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import integrate, stats

# Dimension, epsilon, and sigma where Sigma = sigma² I; the paper gives none.
SETTINGS = [(2, 4.0, 0.2), (2, 4.0, 0.5), (5, 8.0, 0.2), (5, 8.0, 0.3)]
READINGS = ("ball", "hyperboloid")


@dataclass(frozen=True, kw_only=True)
class Chains:
    """Algorithm 2, many times at once.

    Attributes:
        n: Dimension.
        epsilon: The paper's privacy parameter.
        sigma: Standard deviation of each coordinate of the proposal.
        reading: ``ball`` or ``hyperboloid``.
        prose: Accept where the ratio is below the uniform.
    """

    n: int
    epsilon: float
    sigma: float
    reading: str
    prose: bool = False

    def run(self, chains: int, steps: int, seed: int) -> np.ndarray:
        """|x_t| of every chain at every step, (steps, chains)."""
        rng = np.random.default_rng(seed)
        x = np.zeros((chains, self.n))  # the ball coordinates of [1, 0, ..., 0]
        lengths = np.empty((steps, chains))
        for step in range(steps):
            proposed = project(self._centre(x) + self.sigma * rng.standard_normal(x.shape))
            ratio = np.exp(self._log_f(length(proposed)) - self._log_f(length(x)))
            u = rng.random(chains)
            accepted = ratio < u if self.prose else u <= ratio
            x = np.where(accepted[:, None], proposed, x)
            lengths[step] = length(x)
        return lengths

    def _centre(self, x: np.ndarray) -> np.ndarray:
        return x if self.reading == "ball" else 2 * x / (1 - np.square(x).sum(axis=1, keepdims=True))

    def _log_f(self, rho: np.ndarray) -> np.ndarray:
        """ln of equation 7 up to a constant: -epsilon times the hyperbolic distance from the origin."""
        return -2 * self.epsilon * np.arctanh(rho)

    def stationary(self, cells: int = 400) -> Callable[[np.ndarray], np.ndarray]:
        """Distribution function of |x| that the ball's chain tends to, from its transition matrix on a grid.

        By symmetry |x_t| is a Markov chain itself: |x' before line 7|² / sigma² is noncentral chi-square.
        """
        edges = np.linspace(0, 1, cells + 1)
        rho = (edges[1:] + edges[:-1]) / 2
        lifted = np.append(2 * edges[:-1] / (1 - edges[:-1] ** 2), 1e6)
        below = stats.ncx2.cdf((lifted / self.sigma) ** 2, self.n, (rho[:, None] / self.sigma) ** 2)
        ratio = np.exp(np.minimum(self._log_f(rho) - self._log_f(rho)[:, None], 0))
        moves = np.diff(below, axis=1) * ratio
        moves[np.diag_indices(cells)] += 1 - moves.sum(axis=1)
        law = np.full(cells, 1 / cells)
        law = law @ np.linalg.matrix_power(moves, 2**12)
        return lambda values: np.interp(values, edges, np.append(0, np.cumsum(law / law.sum())))


def project(lifted: np.ndarray) -> np.ndarray:
    """Project points of the hyperboloid, given by their space part, into the ball (equations 4 and 6)."""
    return lifted / (1 + np.sqrt(1 + np.square(lifted).sum(axis=1, keepdims=True)))


def length(x: np.ndarray) -> np.ndarray:
    return np.sqrt(np.square(x).sum(axis=1))


def by_measure(n: int, epsilon: float, measure: str) -> Callable[[np.ndarray], np.ndarray]:
    """Distribution function of |x| where equation 7 is the density by a measure."""
    r = np.linspace(1e-6, 80, 400_001)
    log_sinh, log_cosh_half = r + np.log(-np.expm1(-2 * r) / 2), r / 2 + np.log1p(np.exp(-r)) - np.log(2)
    logs = {
        "ball": (n - 1) * np.log(np.tanh(r / 2)) - 2 * log_cosh_half,
        "volume": (n - 1) * log_sinh,
        "hyperboloid": (n - 1) * log_sinh + np.logaddexp(r, -r),
    }[measure] - epsilon * r
    below = integrate.cumulative_simpson(np.exp(logs - logs.max()), x=r, initial=0)
    return lambda rho: np.interp(2 * np.arctanh(rho), r, below / below[-1])


def worth(lengths: np.ndarray) -> float:
    """Integrated autocorrelation time: steps of a chain for each independent result."""
    later = lengths[len(lengths) // 2 :]
    later = later - later.mean()
    lags = range(1, len(later) // 2)
    correlations = np.array([(later[lag:] * later[:-lag]).mean() for lag in lags]) / (later**2).mean()
    noise = np.flatnonzero(correlations < 0.01)
    return float(1 + 2 * correlations[: noise[0] if len(noise) else None].sum())


def laws(chains: Chains) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """The target, and what may come out instead."""
    named = {
        "equation 7 by Lebesgue measure of the ball (the target)": "ball",
        "equation 7 by hyperbolic volume": "volume",
        "equation 7 by Lebesgue measure of the hyperboloid's space": "hyperboloid",
    }
    found = {name: by_measure(chains.n, chains.epsilon, measure) for name, measure in named.items()}
    if chains.reading == "ball" and not chains.prose:
        found["the chain's own stationary law, numerically"] = chains.stationary()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="What Algorithm 2 of the ICDM 2019 paper samples.")
    parser.add_argument("--chains", type=int, default=4000, help="independent results, one from each chain")
    parser.add_argument("--steps", type=int, default=600, help="steps of a chain, the last one is its result")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prose", action="store_true", help="accept as section V-C says, not Algorithm 2")
    options = parser.parse_args()
    for (n, epsilon, sigma), reading in product(SETTINGS, READINGS):
        chains = Chains(n=n, epsilon=epsilon, sigma=sigma, reading=reading, prose=options.prose)
        lengths = chains.run(options.chains, options.steps, options.seed)
        print(
            f"n={n}, epsilon {epsilon:g}, sigma {sigma:g}, {reading} reading: {options.chains} independent "
            f"results after {options.steps} steps, one worth {worth(lengths):.3g} steps of a chain; "
            f"{(lengths[-1] == 0).mean():.0%} never left the origin"
        )
        for name, law in laws(chains).items():
            test = stats.kstest(law(lengths[-1]), "uniform")
            print(f"    distance {test.statistic:.3f}, p {test.pvalue:<8.2g} {name}")


if __name__ == "__main__":
    main()
