"""What another user of this machine may have put where a run writes, reads or locks."""

import os

import pytest

from dptext_spark.errors import ConfigError
from dptext_spark.options import PrivatizeOptions
from dptext_spark.tables.columns import TableColumns
from dptext_spark.tables.run import TableRun
from dptext_spark.tables.storage import LocalFiles, warn_of_others

NEIGHBOUR = 54321


def give_away(path, monkeypatch):
    """Make a path another user's: root can, all others become another user themselves."""
    if os.geteuid() == 0:
        os.chown(path, NEIGHBOUR, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: NEIGHBOUR)


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim"
    path.write_text("mine")
    return path


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("target", ["victim", "nowhere"])
def test_nothing_is_written_through_a_link(tmp_path, victim, target, private):
    """Rejects a writer that follows links, also one that leads nowhere yet."""
    (tmp_path / "report.json").symlink_to(tmp_path / target)
    with pytest.raises(ConfigError, match="is a symbolic link"):
        LocalFiles().write(str(tmp_path / "report.json"), "counts", private=private)
    assert victim.read_text() == "mine" and not (tmp_path / "nowhere").exists()


def test_a_link_that_is_put_there_meanwhile_is_not_followed(tmp_path, victim, monkeypatch):
    """Rejects a look at the path before it is opened, and no more."""
    monkeypatch.setattr("dptext_spark.tables.storage.check_target", lambda path: None)
    (tmp_path / "link").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        LocalFiles().write(str(tmp_path / "link"), "counts")
    with (
        pytest.raises(ConfigError, match=r"lock .* cannot be opened"),
        LocalFiles().locked(str(tmp_path / "link"), "taken"),
    ):
        pass
    assert victim.read_text() == "mine"


def test_a_private_folder_is_ones_own(tmp_path, victim, monkeypatch):
    """Rejects a planted folder, whose owner reads and replaces what lies in it, and a link."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    with pytest.raises(ConfigError, match="is a symbolic link"):
        LocalFiles().make_folder(str(tmp_path / "link"), private=True)
    LocalFiles().make_folder(str(tmp_path / "theirs"), private=True)
    give_away(tmp_path / "theirs", monkeypatch)
    with pytest.raises(ConfigError, match=r"belongs to another user.*Got: user id"):
        LocalFiles().make_folder(str(tmp_path / "theirs"), private=True)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("mode", ["error", "overwrite"])
@pytest.mark.parametrize("name", ["out", "out.release.json", "out.release.html", "out.private"])
def test_planted_links_are_refused_before_spark_starts(tmp_path, name, mode):
    """Rejects a run that finds out at its end, or follows a link that leads nowhere yet."""
    options = PrivatizeOptions.of({
        "input": str(tmp_path / "in"),
        "output": str(tmp_path / "out"),
        "embedding": "b",
        "mechanism": "laplace",
        "epsilon": 1.0,
        "text": "text",
        "mode": mode,
    })  # fmt: skip
    run = TableRun.of(options, TableColumns(text=("text",), keep=(), id=None))
    run.check_free()
    (tmp_path / name).symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is a symbolic link"):
        run.check_free()


def test_a_lock_that_is_a_link_empties_nothing(tmp_path, victim):
    """Rejects a lock that is opened as any file is: it would be emptied."""
    (tmp_path / "lock").symlink_to(victim)
    with (
        pytest.raises(ConfigError, match="is a symbolic link"),
        LocalFiles().locked(str(tmp_path / "lock"), "taken"),
    ):
        pass
    assert victim.read_text() == "mine"
    (tmp_path / "lock").unlink()
    with LocalFiles().locked(str(tmp_path / "lock"), "taken"):
        assert (tmp_path / "lock").exists()
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").mkdir()
    with (
        pytest.raises(ConfigError, match="cannot be opened"),
        LocalFiles().locked(str(tmp_path / "lock"), "taken"),
    ):
        pass


def test_others_who_can_change_a_ledger_are_named(tmp_path, monkeypatch, capsys):
    """Rejects silence: who removes a release from a ledger leaves no trace."""
    folder = tmp_path / "ledger"
    warn_of_others("the ledger", str(folder))
    folder.mkdir(mode=0o755)
    warn_of_others("the ledger", str(folder))
    folder.chmod(0o1777)
    warn_of_others("the ledger", str(folder))
    assert capsys.readouterr().err == ""
    folder.chmod(0o777)
    warn_of_others("the ledger", str(folder))
    assert "every user of this machine can change the ledger" in capsys.readouterr().err
    folder.chmod(0o755)
    give_away(folder, monkeypatch)
    warn_of_others("the ledger", str(folder))
    assert "can change the ledger" in capsys.readouterr().err
