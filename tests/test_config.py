"""Options: all faults at once, the file and the command line, what a report keeps of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dptext_spark.config import Release, all_of, embedding_options, privatize_options, read_config
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import BundleError, ConfigError
from dptext_spark.mechanisms import Laplace, Mahalanobis
from dptext_spark.noise import NoiseKey
from dptext_spark.options import option_name
from tests.helpers.worlds import KEY

GOOD: dict[str, Any] = {
    "input": "in",
    "output": "out/",
    "embedding": "bundle",
    "mechanism": "laplace",
    "epsilon": 5.0,
    "text": ("text",),
}


def test_good_options() -> None:
    options = privatize_options({**GOOD, "salt": None, "release-words": 7})
    assert options.mechanism == Laplace(epsilon=5.0)
    assert (options.input, options.embedding, options.text) == ("in", Path("bundle"), ("text",))
    assert (options.id, options.keep, options.oov, options.release_words) == (None, (), "mask", 7)
    assert options.report_path == "out.report.json"
    assert privatize_options({**GOOD, "report": "r.json"}).report_path == "r.json"
    with pytest.raises(ValueError, match="frozen"):
        options.input = "other"


def test_parameters_reach_their_mechanism() -> None:
    options = privatize_options({**GOOD, "mechanism": "mahalanobis", "lambda": 0.25})
    assert options.mechanism == Mahalanobis(epsilon=5.0, lambda_=0.25)


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        privatize_options(
            {"epsilon": -1.0, "mechanism": "laplace", "lambda": 0.5, "oov": "lose", "input": ""}
        )
    message = str(caught.value)
    for fault in (
        "--epsilon has a wrong value. .* Got: -1.0",
        "--lambda is not an option of this command or mechanism",
        "No column is to be sanitized. Name at least one with --text or --tokens",
        "--input has a wrong value.* Got: ''",
        "--output is missing",
        "--embedding is missing",
        "--oov has a wrong value.*mask, drop, random, fail or keep-unprotected.* Got: 'lose'",
    ):
        assert len(re.findall(fault, message)) == 1, fault
    assert len(message.splitlines()) == 8


@pytest.mark.parametrize("name", [*GOOD])
def test_each_option_that_must_be_given_is_asked_for(name: str) -> None:
    given = {key: value for key, value in GOOD.items() if key != name}
    with pytest.raises(ConfigError, match=f"--{name}"):
        privatize_options(given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": ("a", "b", "a")}, "named twice in --text and --tokens. Got: a\\.$"),
        ({"text": ("a",), "tokens": ("a",)}, "named twice in --text and --tokens. Got: a\\.$"),
        ({"keep": ("id", "text")}, "both sanitized and passed raw with --keep. Got: text\\.$"),
        ({"id": "text"}, "--id column cannot be sanitized itself. Got: text\\.$"),
        ({"text": ()}, "No column is to be sanitized"),
        ({"mechanism": "gauss"}, "mechanism is unknown. Allowed: .*laplace, mahalanobis.* Got: 'gauss'"),
        ({"bogus": 1}, "--bogus is not an option"),
        ({"epsilon": "5"}, "--epsilon has a wrong value.* number.* Got: '5'"),
        ({"epsilon": True}, "--epsilon has a wrong value.* number.* Got: True"),
    ],
)
def test_wrong_combinations(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        privatize_options({**GOOD, **change})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"incremental": "c"}, "--incremental needs --key-file"),
        ({"incremental": "c", "key-file": "k", "overwrite": True}, "do not go together"),
        ({"incremental": "c", "key-file": "k", "id": "id"}, "cannot check that --id.*--trust-id"),
        ({"batch-files": 3}, "--batch-files is for --incremental"),
        ({"batch-files": 0, "incremental": "c", "key-file": "k"}, "--batch-files has a wrong value.*Got: 0"),
    ],
)
def test_options_of_incremental_runs(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        privatize_options({**GOOD, **given})
    good = {"incremental": "c", "key-file": "k", "id": "id", "trust-id": True, "batch-files": 3}
    assert privatize_options({**GOOD, **good}).batch_files == 3


def test_what_a_report_keeps_of_the_options() -> None:
    kept = privatize_options({**GOOD, "key-file": "/secret/place", "id": "id"}).to_json()
    assert (kept["mechanism"], kept["epsilon"], kept["key"], kept["id"]) == ("laplace", 5.0, "file", "id")
    assert "/secret/place" not in str(kept)
    assert privatize_options(GOOD).to_json()["key"] == "fresh, not kept"
    filtered = privatize_options({**GOOD, "where": "name = 'Zebulon'"}).to_json()
    assert filtered["where"] == "given, not kept"
    assert "Zebulon" not in str(filtered)
    assert kept["where"] is None
    mahalanobis = privatize_options({**GOOD, "mechanism": "mahalanobis", "lambda": 0.25}).to_json()
    assert (mahalanobis["mechanism"], mahalanobis["lambda"]) == ("mahalanobis", 0.25)


def test_embedding_options() -> None:
    options = embedding_options({"source": "glove.txt", "output": "bundle", "limit": 5})
    assert (options.source, options.limit, options.normalize) == (Path("glove.txt"), 5, "none")
    with pytest.raises(ConfigError, match=r"(?s)--limit.*2 or more.*Got: 1.*--colour"):
        embedding_options({"source": "a", "output": "b", "limit": 1, "colour": 3})


def test_option_names() -> None:
    assert option_name("release_words") == "release-words"


# The release


def test_a_release_binds_key_bundle_and_policy(line: Embedding, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text(KEY.secret.hex() + "\n")
    key_file.chmod(0o600)
    given = {**GOOD, "embedding": line.path, "key-file": key_file, "release-words": 3, "protect": "slots:s"}
    release = Release(privatize_options(given))
    assert release.embedding.fingerprint == line.fingerprint
    assert (release.release_words, release.policy.protect.slots_column) == (3, "s")
    assert release.guarantee.epsilon == 5.0
    again, other = (Release(privatize_options({**given, "salt": salt})) for salt in ("", "other"))
    assert again.noise == release.noise != other.noise
    fresh = [Release(privatize_options({**GOOD, "embedding": line.path})).noise for _ in "12"]
    assert fresh[0] != fresh[1]


def test_a_release_reports_all_that_is_wrong(tmp_path: Path) -> None:
    given = {**GOOD, "embedding": tmp_path / "none", "key-file": tmp_path / "key", "protect": "some"}
    with pytest.raises(ConfigError) as caught:
        Release(privatize_options(given))
    message = str(caught.value)
    assert message.startswith("3 things are wrong:\n")
    for fault in ("key file .* cannot be read", "no embedding bundle", "--protect"):
        assert len([line for line in message.splitlines() if re.search(fault, line)]) == 1
    assert ".." not in message


def test_all_of_runs_every_check() -> None:
    assert all_of(lambda: 1, lambda: "two") == [1, "two"]
    seen = []

    def fail() -> None:
        seen.append(1)
        raise BundleError("Broken")

    with pytest.raises(BundleError, match="Broken"):
        all_of(fail, lambda: seen.append(2))
    assert seen == [1, 2]
    with pytest.raises(ConfigError, match="2 things are wrong"):
        all_of(fail, fail)


def test_no_message_holds_the_key(tmp_path: Path) -> None:
    for content in (KEY.secret + b"x", KEY.secret.hex().encode() + b"zz", KEY.secret[:-1]):
        key_file = tmp_path / "key"
        key_file.write_bytes(content)
        key_file.chmod(0o600)
        with pytest.raises(ConfigError) as caught:
            NoiseKey.read(key_file)
        assert KEY.secret.hex()[:16] not in str(caught.value)
        assert repr(KEY.secret)[2:12] not in str(caught.value)


# TOML


def test_a_file_of_options(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('release-words = 5\ntext = ["a"]\n')
    allowed = {"release-words": "release_words", "text": "text"}
    assert read_config(path, allowed) == {"release_words": 5, "text": ["a"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"epsilonn = 3", "unknown options.*Allowed: epsilon, text. Got: epsilonn. .*epsilonn -> epsilon"),
        (b"zzz = 3", "Got: zzz. Remove them"),
        (b"epsilon = ", "is not TOML"),
        (b"epsilon = 1\nepsilon = 2", "is not TOML"),
        (b"\xff\xfe", "is not TOML"),
    ],
)
def test_a_wrong_file_of_options(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_config(path, {"epsilon": "epsilon", "text": "text"})
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(tmp_path / "none.toml", {})
