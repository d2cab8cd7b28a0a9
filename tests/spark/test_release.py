"""What a release opens before Spark starts: one key, bundle, policy and mechanism, or all faults at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.guarantee import Distances
from dptext_spark.options import PrivatizeOptions
from dptext_spark.spark.release import Release
from tests.helpers.worlds import KEY

GOOD: dict[str, Any] = {
    "input": "in",
    "output": "out",
    "embedding": "bundle",
    "mechanism": "laplace",
    "epsilon": 5.0,
    "text": "text",
}


def test_a_release_binds_key_bundle_and_policy(line: Embedding, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text(KEY.secret.hex() + "\n")
    key_file.chmod(0o600)
    given = {
        **GOOD,
        "embedding": line.path,
        "key-file": key_file,
        "name": "label",
        "release-words": 3,
        "protect": "slots:s",
    }
    release = Release(PrivatizeOptions.of(given))
    assert release.embedding.fingerprint == line.fingerprint
    assert (release.search.release_words, release.policy.protect.slots_column) == (3, "s")
    assert release.guarantee.epsilon == 5.0
    again, other = (Release(PrivatizeOptions.of({**given, "name": salt})) for salt in ("label", "other"))
    assert again.noise == release.noise != other.noise
    fresh = [Release(PrivatizeOptions.of({**GOOD, "embedding": line.path})).noise for _ in "12"]
    assert fresh[0] != fresh[1]


def test_a_release_reports_all_that_is_wrong(tmp_path: Path) -> None:
    given = {
        **GOOD,
        "embedding": tmp_path / "none",
        "key-file": tmp_path / "key",
        "name": "label",
    }
    with pytest.raises(ConfigError) as caught:
        Release(PrivatizeOptions.of(given))
    message = str(caught.value)
    assert message.startswith("2 things are wrong:\n")
    for fault in ("key file .* cannot be read", "no embedding bundle"):
        assert len([line for line in message.splitlines() if re.search(fault, line)]) == 1
    assert ".." not in message


@pytest.mark.parametrize("mixing", [0.3, 0.1000000001, 1.0])
def test_a_ledger_counts_in_euclidean_distance(small: Embedding, mixing: float) -> None:
    """For pairs of words: what is counted is no less than the loss in the norm of the mechanism.

    Rejects the mechanism's own epsilon or law, typical distances in its norm, and a lambda that is rounded.
    """
    options = {**GOOD, "embedding": small.path, "mechanism": f"mahalanobis:lambda={mixing}"}
    release = Release(PrivatizeOptions.of(options))
    counted, own = release.accounted, release.guarantee
    assert repr(mixing) in own.metric and counted.metric == "Euclidean distance of their vectors"
    assert counted.epsilon == own.euclidean_epsilon > own.epsilon
    norms = release.mechanism.metric(small), small.space.metric()
    assert counted.distances == Distances.measure(norms[1]) != own.distances
    rng = np.random.default_rng(3)
    pairs = rng.integers(0, 300, (2, 200))
    for elliptical, euclidean in zip(*(norm.between(*pairs) for norm in norms), strict=True):
        assert counted.law.bound(euclidean) * (1 + 1e-12) >= own.law.bound(elliptical)
    loss, of_mechanism = (
        law.atoms(norm.between(*pairs[:, :1])[0])[0].max()
        for law, norm in ((counted.law, norms[1]), (own.law, norms[0]))
    )
    assert loss >= of_mechanism
    plain = Release(PrivatizeOptions.of({**GOOD, "embedding": small.path}))
    assert plain.accounted is plain.guarantee


def test_an_epsilon_without_a_euclidean_one_stays_as_it_is(ball: Embedding) -> None:
    release = Release(PrivatizeOptions.of({**GOOD, "embedding": ball.path, "mechanism": "hyperbolic"}))
    assert release.accounted is release.guarantee
