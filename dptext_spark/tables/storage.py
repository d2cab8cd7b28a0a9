"""Paths, of this machine and of any file system that Hadoop knows, and facts about queries.

What Spark's Python API lacks is asked of the JVM's own objects here and in no other module.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dptext_spark.bars import tell
from dptext_spark.errors import ConfigError, JobError
from dptext_spark.parsing import json_value
from dptext_spark.spark import USER_SETTINGS, java
from dptext_spark.spark.failures import condition
from dptext_spark.spark.java import has_ended, java_class

NO_FILE: Final = "no such file"
LOCAL_URL: Final = ("^file:/+", "file:/")
"""Spark writes the URL of a local file in two ways: a pattern, and the one way to write it."""
_LOCAL_SYSTEM: Final = "org.apache.hadoop.fs.LocalFileSystem"
_NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC
# Any of them may say that a path without a scheme lies in HDFS.
_CONFIGURING: Final = (
    *("HADOOP_CONF_DIR", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR"),
    *("SPARK_HOME", "YARN_CONF_DIR"),
)
_LIBRARIES: Final = (
    "Give Spark the library of this file system by spark.jars.packages (spark-submit --packages): "
    "hadoop-aws of Hadoop's own version for s3a:// (not s3://), hadoop-azure for abfss:// "
    "(not wasbs://), gcs-connector for gs://"
)
_CAUSES: Final = {
    "CANNOT_MERGE_SCHEMAS": "a column that has two types in its files",
    "PATH_NOT_FOUND": NO_FILE,
    "UNABLE_TO_INFER_SCHEMA": "no files",
    "COLUMN_ALREADY_EXISTS": "equal names, or in capitals only: "
    "--spark-conf spark.sql.caseSensitive=true",
}


def cause(error: Exception) -> str:
    """Name an error that Spark met on files, in words where users see it often."""
    named = condition(error)
    return _CAUSES.get(named, named)


def partition_columns(df: DataFrame) -> tuple[str, ...]:
    """Name the columns that Spark takes from names of folders, for a frame of files."""
    return tuple(_plan(df)[0].relation().partitionSchema().fieldNames())


def columns_in_both(df: DataFrame) -> StructType:
    """Return the columns that files have and the names of their folders too, with the files' types.

    Spark must have found the columns itself: of a schema that it is given it forgets them.
    """
    relation = _plan(df)[0].relation()
    fields = StructType.fromJson(json.loads(relation.dataSchema().json()))
    is_exact = str(df.sparkSession.conf.get("spark.sql.caseSensitive")).lower() == "true"
    form = str if is_exact else str.lower
    partitions = {*map(form, relation.partitionSchema().fieldNames())}
    return StructType([field for field in fields if form(field.name) in partitions])


def roots(df: DataFrame) -> list[str]:
    """Return the folders that a query of a catalog's tables reads, if Spark lists their files."""
    leaves = _plan(df)[0].collectLeaves()
    folders = list[str]()
    for i in range(leaves.size()):
        with suppress(Py4JError):  # another kind of table
            folders += leaves.apply(i).relation().location().rootPaths().mkString("\n").split("\n")
    return folders


def has_subquery(df: DataFrame) -> bool:
    """Return whether a frame's query has another query inside it."""
    plan, patterns = _plan(df)
    return bool(plan.containsPattern(patterns.PLAN_EXPRESSION()))


def is_settled(df: DataFrame) -> bool:
    """Return whether a frame has the same rows at every evaluation, if its tables have."""
    plan, patterns = _plan(df)
    return bool(plan.deterministic() and not plan.containsPattern(patterns.CURRENT_LIKE()))


def _plan(df: DataFrame) -> tuple[Any, Any]:
    """Return a frame's plan, and the names of what plans may contain."""
    jvm: Any = df.sparkSession._jvm
    patterns = java_class(jvm, "org.apache.spark.sql.catalyst.trees.TreePattern")
    return df._jdf.queryExecution().analyzed(), patterns


def is_plain() -> bool:
    """Return whether Spark is not running, and will be started as this package alone sets it up."""
    configured = not os.environ.keys().isdisjoint(_CONFIGURING)
    configured |= Path(pyspark.__file__).with_name("conf").exists()
    # These may say where paths lead and how names are read; others, such as the driver's memory, do
    # not.
    configured |= any(
        name.startswith(("spark.hadoop.", "spark.sql.")) for name in USER_SETTINGS.get()
    )
    return not configured and not java.is_running()


def is_absent(path: str) -> bool:
    """Return whether a path of this machine, which is no pattern, leads nowhere; or Spark knows."""
    place = local_path(path)
    return is_plain() and place is not None and literal(path) == path and not os.path.exists(place)


def local_path(path: str) -> str | None:
    """Return the full path where Hadoop would look on this machine; None for a place elsewhere."""
    scheme = re.match(r"[^/:]*:", path)  # as Hadoop finds it
    if scheme is not None:
        path = re.sub(r"^file:(//(?=/))?", "", path)
        if scheme[0] != "file:" or not path.startswith("/"):
            return None
    return None if path.startswith("//") else os.path.abspath(path)


def is_partition(path: str) -> bool:
    """Return whether the last folder of a path is one of a partition, ``COLUMN=VALUE``."""
    return re.search("/?[^/=]+=[^/]*$", os.path.normpath(path)) is not None


def table_files(place: Path) -> Iterator[Path]:
    """Walk through a table's files on this machine, without those that Spark passes over."""
    if place.is_file():
        if not _is_hidden(place.name):
            yield place
        return
    for entry in sorted(place.iterdir()):
        if not _is_hidden(entry.name):
            yield from table_files(entry)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _printable(path: str) -> str:
    """Write a path whose bytes may not be UTF-8."""
    return os.fsencode(path).decode(errors="backslashreplace")


def literal(path: str) -> str:
    """Write a path as a pattern that stands for it alone."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def file_url(url: str) -> str:
    """Write the URL of a file in one way, as :data:`LOCAL_URL` says."""
    return re.sub(*LOCAL_URL, url)


def check_target(path: str) -> None:
    """Refuse to write through a symbolic link of this machine: anybody may have put it there."""
    place = local_path(path)
    if place is not None and os.path.islink(place):
        raise ConfigError(
            f"{path} is a symbolic link, and would lead what is written to another place",
            got=os.path.realpath(place),
            do="Remove it, or give the path that it leads to",
        )


def check_private_folder(path: str) -> None:
    """Refuse a folder for private files that is a link, or that another user has."""
    check_target(path)
    owner = foreign_owner(path)
    if owner is not None:
        raise ConfigError(
            f"The folder {path} is for private files, and belongs to another user",
            allowed="a folder of the user who runs the job, or none yet",
            got=f"user id {owner}",
            do="Remove it, or choose another place",
        )


def warn_of_others(what: str, path: str) -> None:
    """Warn where another user can change a folder whose content a run has to believe."""
    place = local_path(path)
    owner = foreign_owner(path)
    who = f"user id {owner}"
    if owner is None:
        with suppress(OSError):
            mode = os.stat(place or "").st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                owner = -1
                who = "every user of this machine"
    if owner is not None:
        tell(
            f"Warning, for those who run the job: {who} can change {what} {path}. Nothing shows "
            "what is removed from it"
        )


def foreign_owner(path: str) -> int | None:
    """Return the user id of a file's owner who is neither root nor the user; None for all else."""
    place = local_path(path)
    with suppress(OSError):
        owner = os.stat(place or "").st_uid
        if owner not in (0, os.geteuid()):
            return owner
    return None


class LocalFiles:
    """What is asked of paths, answered for this machine without a JVM; nothing off it exists.

    ``spark`` is the session of the run; None before it starts. A client of Spark Connect has one,
    and no JVM.
    """

    def __init__(self, spark: SparkSession | None = None) -> None:
        self.spark = spark

    def sees(self, path: str) -> bool:
        """Return whether ``path`` is certain to lead here to what Spark finds there."""
        return local_path(path) is not None and (self.spark is not None or is_plain())

    def exists(self, path: str) -> bool:
        """Return whether anything is at ``path``."""
        place = local_path(path)
        return place is not None and os.path.exists(place)

    def qualified(self, path: str) -> str:
        """Return the full path with scheme."""
        place = local_path(path)
        if place is None:
            return path
        return f"file:{place}"

    def real(self, path: str) -> str:
        """Return the full path, symbolic links of local files followed: one place has one."""
        place = local_path(path)
        if place is None:
            return path
        return f"file:{os.path.realpath(place)}".rstrip("/")

    def matches(self, pattern: str) -> list[str]:
        """Return the path where there is such a one, or else what it means as a pattern."""
        return [self.qualified(pattern)] if self.exists(pattern) else []

    def children(self, folder: str) -> list[str]:
        """Return the full paths of what lies in a folder; none where there is no such folder."""
        try:
            return [f"file:{entry.path}" for entry in os.scandir(local_path(folder) or "")]
        except OSError:
            return []

    def below(self, folder: str, pattern: str) -> list[str]:
        """Return paths below a folder, of any letters, that a pattern with ``*`` means."""
        paths = [folder]
        for part in pattern.split("/"):
            if "*" in part:
                inside = chain.from_iterable(map(self.children, paths))
                paths = [path for path in inside if fnmatchcase(path.rpartition("/")[2], part)]
            else:
                paths = [f"{path}/{part}" for path in paths]
        return [path for path in paths if "*" in part or self.exists(path)]

    def read(self, path: str) -> str:
        """Read a text file; raises ConfigError where there is none."""
        what = f"The file {path} cannot be read"
        if not self.exists(path):
            raise ConfigError(what, got=NO_FILE)
        try:
            return self._content(path).decode()
        except (OSError, Py4JJavaError, PySparkException, UnicodeDecodeError) as error:
            if isinstance(error, ConnectionError):  # of a JVM that has ended: it is not the file
                raise
            raise ConfigError(what, got=condition(error)) from None

    def _content(self, path: str) -> bytes:
        return Path(local_path(path) or path).read_bytes()

    def write(self, path: str, text: str, *, private: bool = False) -> None:
        """Write a text file, and the folders above it, replacing what is there.

        One that is ``private`` is its owner's alone, where the file system knows of owners.
        """
        check_target(path)
        place = Path(local_path(path) or path)
        place.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | _NO_LINK
        mode = 0o666
        if private:
            place.unlink(missing_ok=True)  # it may be readable by others
            flags |= os.O_EXCL
            mode = 0o600
        with open(os.open(place, flags, mode), "wb") as file:
            file.truncate()
            file.write(text.encode())

    def make_folder(self, path: str, *, private: bool = False) -> None:
        """Make a folder, and those above it, unless it is there.

        One that is ``private`` is its owner's alone, where the file system knows of owners.
        """
        place = Path(local_path(path) or path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir(mode=0o700 if private else 0o777, exist_ok=True)
        if private:
            check_private_folder(path)

    def rename(self, source: str, target: str) -> None:
        """Rename; the target must not exist."""
        os.rename(str(local_path(source)), str(local_path(target)))

    def delete(self, path: str) -> None:
        """Remove what is there, with all that is in it."""
        shutil.rmtree(str(local_path(path)), ignore_errors=True)

    @contextmanager
    def locked(self, path: str, taken: str) -> Iterator[None]:
        """Hold a lock that ends with the driver, where the file system has such locks.

        Raises:
            JobError: Another process has it; the message is ``taken``.
        """
        check_target(path)
        try:
            descriptor = os.open(local_path(path) or path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666)
        except OSError as error:
            raise _closed_lock(path, str(error.strerror)) from None
        with open(descriptor, "w") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as Java does
            except (BlockingIOError, PermissionError):
                raise JobError(taken, got=path, do="Wait until it has ended") from None
            except OSError:
                pass  # a volume without locks
            yield


def _closed_lock(path: str, why: str) -> ConfigError:
    return ConfigError(
        f"The lock {path} cannot be opened",
        got=why,
        do="Remove it if another user put it there, and no run is at work",
    )


def spark_log(storage: LocalFiles, folder: str) -> list[dict[str, Any]]:
    """Read a log of files that Spark keeps for a stream: its newest summary, and the rest."""
    batches = dict[int, str]()
    newest_summary = 0
    for path in storage.children(folder):
        name, _, ending = path.rpartition("/")[2].partition(".")
        if name.isdecimal() and ending in ("", "compact"):
            batches[int(name)] = path
            if ending:
                newest_summary = max(newest_summary, int(name))
    entries = list[dict[str, Any]]()
    for batch, path in sorted(batches.items()):
        if batch >= newest_summary:
            _version, *lines = storage.read(path).splitlines() or [""]
            entries += map(partial(_log_entry, path), lines)
    return entries


def _log_entry(log: str, line: str) -> dict[str, Any]:
    """Read a line of such a log: it names a file, and has more."""
    try:
        entry = json_value(line)
    except ValueError:
        entry = None
    if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
        raise ConfigError(
            "The account that Spark keeps of a stream's files is damaged",
            got=log,
            do="Restore it from a copy",
        )
    return entry


def _paths(statuses: Iterable[Any]) -> list[str]:
    return [str(status.getPath().toString()) for status in statuses]


class Storage(LocalFiles):
    """The same of paths of any scheme that Hadoop knows, through its own file system."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self._context: Any = spark.sparkContext
        self._jvm = cast(Any, self._context._jvm)
        self._conf: Any = self._context._jsc.hadoopConfiguration()
        self._path = java_class(self._jvm, "org.apache.hadoop.fs.Path")
        self._types = java_class(self._jvm, "py4j.reflection.TypeUtil")
        own = self._conf.get("fs.file.impl") in (None, _LOCAL_SYSTEM)
        default = str(self._conf.get("fs.defaultFS"))
        # How absolute paths begin at which Python sees what Java does, without a dozen questions.
        self._local: tuple[str, ...] = ()
        if own and default.startswith("file:"):
            self._local = ("/", "file:/")
        elif own:
            self._local = ("file:/",)

    def sees(self, path: str) -> bool:
        return True

    def _is_here(self, path: str) -> bool:
        """Return whether Java finds there what Python does; other letters depend on its locale."""
        is_usual = path.isascii() and path.isprintable() and local_path(path) is not None
        return is_usual and path.startswith(self._local)

    def _at(self, path: str) -> tuple[Any, Any]:
        """Return a path's file system, and the path as it has it."""
        try:
            place = self._path(path)
            system = place.getFileSystem(self._conf)
            # Checksums beside local files are no part of an output, and fail at names with a colon.
            checked = "org.apache.hadoop.fs.ChecksumFileSystem"
            if self._types.isInstanceOf(checked, system):
                self._check_name(local_path(path) or path)
                system = system.getRawFileSystem()
            return system, system.makeQualified(place)
        except (Py4JJavaError, PySparkException) as error:
            if has_ended():  # it is not the path
                raise
            do = "Correct it; one that begins with a name with a colon needs ./ before it"
            if re.search("(?i)ClassNotFound|No FileSystem for scheme", str(error)):
                do = _LIBRARIES
            raise ConfigError(
                f"The path {path} cannot be used", got=condition(error), do=do
            ) from None

    def _check_name(self, path: str) -> None:
        """Refuse a name of this machine that Java cannot have under its locale: it sees nothing."""
        if path.isascii():
            return
        encoding = str(java_class(self._jvm, "java.lang.System").getProperty("sun.jnu.encoding"))
        is_utf8 = encoding.upper() in ("UTF-8", "UTF8")
        name = _printable(path)
        if is_utf8 and name == path:
            return
        do = "Rename it in UTF-8"
        if not is_utf8:
            do = "Set LC_ALL=C.UTF-8 where Spark is started, by spark-submit or another program"
        raise ConfigError(f"Java cannot read the name {name}", got=f"a locale of {encoding}", do=do)

    def check_file_names(self, pattern: str) -> None:
        """Refuse a table of this machine with names that Java cannot read: it passes over them."""
        place = local_path(self.qualified(pattern))
        if place is None:
            return
        with suppress(OSError):  # Spark finds what is wrong
            for match in self._local_matches(place):
                for file in table_files(match):
                    self._check_name(str(file))

    def _local_matches(self, pattern: str) -> list[Path]:
        """List what a pattern of Hadoop's means on this machine, whatever letters names have."""
        if os.path.exists(pattern):
            return [Path(pattern)]
        places = [Path("/")]
        for part in Path(pattern).parts[1:]:
            if literal(part) == part:
                places = [place / part for place in places]
                continue
            glob = java_class(self._jvm, "org.apache.hadoop.fs.GlobPattern")(part)
            entries = chain.from_iterable(place.iterdir() for place in places if place.is_dir())
            places = [entry for entry in entries if glob.matches(_printable(entry.name))]
        return [place for place in places if place.exists()]

    def exists(self, path: str) -> bool:
        if self._is_here(path):
            return super().exists(path)
        system, place = self._at(path)
        return bool(system.exists(place))

    def qualified(self, path: str) -> str:
        if self._is_here(path):
            return super().qualified(path)
        return str(self._at(path)[1].toString())

    def pattern(self, path: str) -> str:
        """Write a path as a pattern for Spark's readers: one that is there means itself."""
        return literal(path) if self.exists(path) else path

    def folder(self, path: str) -> tuple[str, bool]:
        """Return the folder that a path is, or that its file lies in, and whether it is a file.

        The folder is URL-encoded, without scheme and host.
        """
        system, place = self._at(path)
        is_file = bool(system.exists(place) and system.getFileStatus(place).isFile())
        folder = place.getParent() if is_file else place
        return str(folder.toUri().getRawPath()), is_file

    def real(self, path: str) -> str:
        if self._is_here(path):
            return super().real(path)
        system, place = self._at(path)
        missing: list[str] = []
        while not system.exists(place) and place.getParent() is not None:
            missing.insert(0, place.getName())
            place = place.getParent()
        uri = system.resolvePath(place).toUri()
        folder = str(uri.toString())
        if uri.getScheme() == "file":
            folder = f"file:{os.path.realpath(uri.getPath())}"
        return "/".join([folder.rstrip("/"), *missing])

    def matches(self, pattern: str) -> list[str]:
        if self.exists(pattern) or literal(pattern) == pattern:
            return super().matches(pattern)
        system, place = self._at(pattern)
        try:
            return _paths(system.globStatus(place) or ())
        except PySparkException as error:
            raise ConfigError(
                f"Spark cannot look for {pattern} as a pattern",
                allowed="patterns where no name has a colon",
                got=condition(error),
                do="Give one folder or file, or rename it",
            ) from None

    def children(self, folder: str) -> list[str]:
        system, place = self._at(folder)
        if not system.exists(place) or not system.getFileStatus(place).isDirectory():
            return []
        return _paths(system.listStatus(place))

    def footer(self, url: str) -> pq.ParquetFile:
        """Read the footer of a Parquet file: its schema, with INT96 in microseconds; no rows."""
        place = self._path(java_class(self._jvm, "java.net.URI")(url))
        system = place.getFileSystem(self._conf)
        size = system.getFileStatus(place).getLen()
        with closing(system.open(place)) as stream:
            stream.seek(max(0, size - 8))
            length = int.from_bytes(bytes(stream.readNBytes(4)), "little")
            stream.seek(max(0, size - length - 8))
            end = bytes(stream.readAllBytes())
        return pq.ParquetFile(pa.BufferReader(b"PAR1" + end), coerce_int96_timestamp_unit="us")

    def delete(self, path: str) -> None:
        system, place = self._at(path)
        system.delete(place, True)

    def delete_at_exit(self, path: str, *, keep: bool = False) -> None:
        """Make the JVM remove what is there at its end, also by a signal; or ``keep`` it."""
        system, place = self._at(path)
        if keep:
            system.cancelDeleteOnExit(place)
        else:
            system.deleteOnExit(place)

    def await_tasks(self) -> None:
        """Wait until Spark runs no task, for a minute at most: cancelled ones may still write."""
        # The scheduler itself: Spark's status is some hundred milliseconds old.
        scheduler = self._context._jsc.sc().taskScheduler()
        deadline = time.monotonic() + 60
        if scheduler is None:  # Spark has stopped, and its tasks with it
            return
        while time.monotonic() < deadline:
            counts = scheduler.runningTasksByExecutors().values().mkString(" ").split()
            if not any(map(int, counts)):
                return
            time.sleep(0.1)

    def make_folder(self, path: str, *, private: bool = False) -> None:
        system, place = self._at(path)
        is_new = not system.exists(place)
        system.mkdirs(place)
        if private and not is_new:
            check_private_folder(path)
        elif private:  # after it: mkdirs() with a mode would give it to new folders above, too
            system.setPermission(place, self._permission("700"))

    def rename(self, source: str, target: str) -> None:
        system, place = self._at(source)
        _, goal = self._at(target)
        if system.exists(goal) or not system.rename(place, goal):
            raise JobError(
                f"{source} could not be renamed to {target}", do="See whether another run wrote it"
            )

    def _content(self, path: str) -> bytes:
        system, place = self._at(path)
        with closing(system.open(place)) as stream:
            return bytes(stream.readAllBytes())

    def write(self, path: str, text: str, *, private: bool = False) -> None:
        check_target(path)
        system, place = self._at(path)
        uri = place.toUri()
        if private and uri.getScheme() == "file":
            super().write(uri.getPath(), text, private=True)
            return
        stream = system.create(place, True)
        if private:  # before anything is in it
            system.setPermission(place, self._permission("600"))
        stream.write(bytearray(text.encode()))
        stream.close()

    def put(self, source: Path, path: str, *, private: bool = False) -> None:
        """Copy a file or a folder from this machine to a place where nothing is.

        What is ``private`` is for a folder that is its owner's alone, so that nobody reads it
        meanwhile.
        """
        system, place = self._at(path)
        system.copyFromLocalFile(False, False, self._path(str(source)), place)
        if not private:
            return
        for entry in [source, *source.rglob("*")]:
            mode = "700" if entry.is_dir() else "600"
            copy = self._path(f"{path}/{entry.relative_to(source)}".removesuffix("/."))
            system.setPermission(copy, self._permission(mode))

    def _permission(self, mode: str) -> Any:
        permission = java_class(self._jvm, "org.apache.hadoop.fs.permission.FsPermission")
        return permission(mode)

    @contextmanager
    def locked(self, path: str, taken: str) -> Iterator[None]:
        uri = self._at(path)[1].toUri()
        if uri.getScheme() != "file":
            yield
            return
        check_target(path)
        # Of the JVM and not of Python: its threads may outlive a killed Python process for a
        # moment.
        files = java_class(self._jvm, "java.io.RandomAccessFile")
        try:
            channel = files(uri.getPath(), "rw").getChannel()
        except Py4JJavaError as error:
            raise _closed_lock(path, condition(error)) from None
        try:
            if channel.tryLock() is None:
                raise JobError(taken, got=path, do="Wait until it has ended")
            yield
        finally:
            channel.close()
