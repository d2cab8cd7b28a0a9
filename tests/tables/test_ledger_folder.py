"""The folder of a ledger, while other runs and servers write to it."""

from unittest.mock import MagicMock

import pytest

from dptext_spark.accounting.ledger import Ledger
from dptext_spark.errors import ConfigError
from dptext_spark.tables.ledger_folder import LedgerFolder
from dptext_spark.tables.storage import LocalFiles


def test_a_ledger_that_another_run_begins_meanwhile_is_one(tmp_path):
    """Rejects asking whether it was begun before looking what is in its folder."""

    class Meanwhile(LocalFiles):
        def exists(self, path):
            return self._then_begun(super().exists(path))

        def children(self, folder):
            return self._then_begun(super().children(folder))

        def _then_begun(self, answer):
            (tmp_path / "ledger" / "events").mkdir(parents=True, exist_ok=True)
            return answer

    assert LedgerFolder(str(tmp_path / "ledger"), Meanwhile()).read() == Ledger()


def test_a_server_must_write_where_this_machine_reads(tmp_path):
    """Rejects a look at what the server's driver reads alone; here its tasks write somewhere else."""
    with pytest.raises(
        ConfigError, match=r"does not see the ledger .* Got: a folder of this machine alone"
    ):
        LedgerFolder(str(tmp_path / "ledger"), LocalFiles()).check_seen(MagicMock())
    assert not any(tmp_path.iterdir())
