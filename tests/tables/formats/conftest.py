"""What tests of formats share."""

import shutil

import pytest

from tests.helpers.lakes import DeltaLake, IcebergLake


@pytest.fixture
def options(ring_release):
    return {**ring_release, "epsilon": 1e-3, "id": "id", "trust_id": True, "keep": ["id", "note"]}


@pytest.fixture
def deltas(tmp_path, monkeypatch):
    return DeltaLake(tmp_path, monkeypatch)


@pytest.fixture
def icebergs(tmp_path, monkeypatch):
    return IcebergLake(tmp_path, monkeypatch)


@pytest.fixture
def run(dptext, tmp_path):
    """``dptext privatize`` from one table of a lake to another."""

    def invoke(lake, *arguments, output="out"):
        given = ["--format", lake.kind.name, "--id", "id", "--trust-id", "--keep", "id", *arguments]
        shutil.rmtree(tmp_path / "reports", ignore_errors=True)
        given += ["--reports", str(tmp_path / "reports")]
        return dptext(lake.place("in"), *given, output=lake.place(output))

    return invoke
