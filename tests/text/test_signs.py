"""The list of signs that a layout lets pass."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import unicodedata
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import regex

from dptext_spark.errors import ConfigError
from dptext_spark.text import signs
from dptext_spark.text.layout import Layout
from dptext_spark.text.signs import FILE, SHA256, UNICODE, listed_signs

LIST = json.loads(FILE.read_text(encoding="utf-8"))


@pytest.fixture
def unread() -> Iterator[None]:
    listed_signs.cache_clear()
    yield
    listed_signs.cache_clear()


def test_the_list_is_the_one_that_is_named() -> None:
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() == SHA256 and LIST["unicode"] == UNICODE
    codes = [code for first, last in LIST["signs"] for code in range(first, last + 1)]
    assert codes == sorted({*codes}) and len(codes) == 6803
    known = [chr(code) for code in codes if unicodedata.category(chr(code)) != "Cn"]
    assert len(known) > 5900 and {unicodedata.category(sign)[0] for sign in known} == {"P", "S"}
    assert regex.fullmatch(r"[\p{P}\p{S}\p{Cn}]+", "".join(map(chr, codes)))


def test_listed_emoji_are_made_of_signs() -> None:
    """Rejects keycaps, flags and tags, and single signs, which need no sequence."""
    assert len({*LIST["sequences"]}) == 1810
    for sequence in LIST["sequences"]:
        bare = sequence.replace("\ufe0f", "").replace("\u200d", "")
        assert len(bare) < len(sequence) and listed_signs().passing(bare) == bare
        assert not regex.search(r"[\p{L}\p{N}\p{M}\p{Cf}\p{Regional_Indicator}]", bare)


@pytest.mark.parametrize("content", [None, FILE.read_bytes().replace(b"[33,47]", b"[33,90]")])
@pytest.mark.usefixtures("unread")
def test_another_list_is_refused(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the options are read, on the driver, and by a worker that has another copy."""
    worker = Layout.of("keep")
    listed_signs.cache_clear()
    monkeypatch.setattr(signs, "FILE", tmp_path / "signs.json")
    if content is not None:
        (tmp_path / "signs.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"--layout keep\) is damaged.*35c2eefc6306.*Install dptext-spark"):
        Layout.of("keep")
    with pytest.raises(ConfigError, match="is damaged"):
        listed_signs()
    assert worker.identity == "keep, Unicode 17.0, list 35c2eefc6306"


def test_workers_read_it_from_a_package_in_a_zip(tmp_path: Path) -> None:
    """As ``spark-submit --py-files dptext_spark.zip`` sends it."""
    package = Path(signs.__file__).parents[1]
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        for path in [*package.glob("*.py"), *package.glob("text/*.py"), package / "text" / "signs.json"]:
            archive.write(path, path.relative_to(package.parent))
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from dptext_spark.text.signs import FILE, listed_signs"
    )
    code += "; print(listed_signs().passing(', a'), FILE)"
    command = [sys.executable, "-P", "-c", code, str(tmp_path / "package.zip")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(",  ") and "package.zip" in done.stdout


def test_white_space_becomes_spaces_and_line_feeds() -> None:
    every = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    spaces = "".join(regex.findall(r"\p{White_Space}", every)).replace("\r", "") + "\r"
    expected = regex.sub(r"[\n-\r\x85\u2028\u2029]", "\n", spaces)
    assert listed_signs().passing(spaces) == regex.sub(r"[^\n]", " ", expected)
    assert listed_signs().passing("\r\n\n\r") == "\n\n\n"
