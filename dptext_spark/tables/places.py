"""The paths of a run: looked at before Spark starts, where they can be seen then, and with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import combinations, product, starmap
from typing import Final, NamedTuple, Self

from pyspark.sql import SparkSession

from dptext_spark.errors import ConfigError
from dptext_spark.spark.session import is_connect
from dptext_spark.tables.storage import LocalFiles, Storage, is_partition

INPUT: Final = "Input"
OUTPUT: Final = "Output"


class Place(NamedTuple):
    """A path of a run: what lies there, and the option that moves it."""

    what: str
    option: str
    path: str


@dataclass(frozen=True, kw_only=True)
class Places:
    """All paths of a run, and what answers for them: first this machine, then Spark."""

    paths: tuple[Place, ...]
    storage: LocalFiles = field(default_factory=LocalFiles)

    @classmethod
    def of(cls, paths: Iterable[tuple[str, str, str]]) -> Self:
        """Return places before Spark starts: what each is, the option that moves it, its path."""
        return cls(paths=tuple(starmap(Place, paths)))

    def with_spark(self, spark: SparkSession) -> Self:
        """Return the same places, all of which can be seen."""
        # On Spark Connect only reports are files, of this machine or of a volume that it mounts.
        storage = LocalFiles(spark) if is_connect(spark) else Storage(spark)
        return replace(self, storage=storage)

    @property
    def visible(self) -> list[Place]:
        """Those that can be seen already."""
        return [place for place in self.paths if self.storage.sees(place.path)]

    def check_apart(self) -> None:
        """Refuse places of which one lies inside another."""
        real_paths = [(place, self._real(place)) for place in self.visible]
        for (first, sources), (second, targets) in combinations(real_paths, 2):
            for source, target in product(sources, targets):
                if f"{source}/".startswith(f"{target}/") or f"{target}/".startswith(f"{source}/"):
                    raise ConfigError(
                        f"{second.what} and {first.what.lower()} lie inside one another",
                        got=f"{source} and {target}",
                        do=f"Choose another {second.option}",
                    )

    def _real(self, place: Place) -> list[str]:
        """Return the full path of a place; of an input that is a pattern those that it means."""
        paths = [place.path]
        if place.what == INPUT:
            paths = self.storage.matches(place.path) or paths
        return [*map(self.storage.real, paths)]

    def check_outside(self, partition: str) -> None:
        """Refuse files of a run inside the table of which its output is a partition."""
        table = self.storage.real(partition)
        if not is_partition(table):
            return
        while is_partition(table):
            table = table.rpartition("/")[0]
        for place in self.visible:
            path = self.storage.real(place.path)
            if place.what not in (INPUT, OUTPUT) and path.startswith(f"{table}/"):
                raise ConfigError(
                    f"{place.what} lies inside the table of which the output is a partition",
                    got=f"{path} in {table}",
                    do=f"Choose another {place.option}",
                )
