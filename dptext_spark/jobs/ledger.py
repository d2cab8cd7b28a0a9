"""The job of ``dptext ledger``: what a ledger knows; without Spark where it lies on this machine."""

from __future__ import annotations

from dptext_spark.errors import ConfigError
from dptext_spark.options import LedgerOptions
from dptext_spark.report.ledger_account import LedgerAccount
from dptext_spark.spark.failures import plain_errors
from dptext_spark.spark.session import session
from dptext_spark.tables.ledger_folder import LedgerFolder
from dptext_spark.tables.local import LocalFiles, is_plain, local_path
from dptext_spark.tables.storage import Places, Storage


def run(options: LedgerOptions) -> LedgerAccount:
    """Run ``dptext ledger show``: read all events, add up; nothing is written.

    Raises:
        ConfigError: There is no ledger, or it is damaged.
        JobError: Its file system failed.
    """
    with plain_errors("The ledger could not be read"):
        local = is_plain() and local_path(options.path) is not None
        storage: Places = LocalFiles() if local else Storage(session("dptext ledger"))
        folder = LedgerFolder(path=options.path, storage=storage)
        if not folder.begun:
            raise ConfigError(
                f"There is no ledger {options.path}",
                allowed="a folder that dptext privatize --ledger wrote",
            )
        return LedgerAccount(path=options.path, ledger=folder.read())
