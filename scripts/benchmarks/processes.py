"""Watches what a job's processes use, from outside, and takes next to nothing of the processor for it.

Where a job has all cores to itself, whoever watches it takes from it what it is measured by: to have the
kernel count the pages of a JVM and of Python workers takes a tenth of a second, so that is done ever more
rarely.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from typing import Final

import psutil

EVERY: Final = 0.25
"""Seconds between two looks at processor time and resident memory, some microseconds for each process."""

_TREE: Final = 4  # looks for each time that the processes are listed anew
_FIRST, _RARELY, _GROWTH = 1.0, 20.0, 1.6  # seconds between looks at shares of pages, at first and at most


class Use(threading.Thread):
    """Samples what a tree of processes uses: memory, as peaks by role in MB, and processor time.

    Args:
        root: The process at the tree's root; this one is left out.
        shares: Whether pages that processes share are told apart, too.
    """

    def __init__(self, root: int, *, shares: bool) -> None:
        super().__init__(daemon=True)
        self.root, self.shares, self.stop = root, shares, threading.Event()
        self.peaks: dict[str, float] = defaultdict(float)
        self.own = 0.0
        """What watching took itself, seconds of processor time."""
        self._spent: dict[tuple[int, float], float] = {}
        self._tree: list[tuple[str, psutil.Process]] = []

    @property
    def processor(self) -> float:
        """Processor time of all processes, seconds, less what each spent after its last sample."""
        return sum(self._spent.values())

    def run(self) -> None:
        pause, looks, due = _FIRST, 0, time.monotonic() + _FIRST
        while not self.stop.wait(EVERY / 5 if looks < 5 * _TREE else EVERY):  # what ends soon is seen, too
            if looks % _TREE == 0:
                self._tree = _below(self.root)
            looks += 1
            for role, process in self._tree:
                self._look(role, process)
            if self.shares and time.monotonic() >= due:
                self._share()
                pause = min(_GROWTH * pause, _RARELY)
                due = time.monotonic() + pause
            self.own = time.thread_time()

    def _look(self, role: str, process: psutil.Process) -> None:
        try:
            with process.oneshot():
                times, memory, began = process.cpu_times(), process.memory_info(), process.create_time()
        except psutil.Error:  # it ended meanwhile
            return
        self._spent[process.pid, began] = times.user + times.system
        self._peak(f"{role} RSS", memory.rss)
        self._peak(f"{role} RSS but for mapped files", memory.rss - memory.shared)

    def _share(self) -> None:
        maps = [size for role, process in self._tree if (size := self._pages(role, process))]
        if maps:
            self._peak(f"matrix PSS, sum over driver and workers, {len(maps)} in all", sum(maps))

    def _pages(self, role: str, process: psutil.Process) -> int:
        """Note how a process shares its memory; give the bytes of the matrix that it accounts for."""
        try:
            memory = process.memory_full_info()
            parts = process.memory_maps(grouped=False) if role in ("driver", "worker") else []
        except psutil.Error:
            return 0
        self._peak(f"{role} PSS", memory.pss)
        matrix = [part for part in parts if part.path.endswith("vectors.npy")]
        if role == "worker":
            self._peak("worker USS (private)", memory.uss)
            self._peak("matrix private per worker", sum(part.private_dirty for part in matrix))
        return sum(part.pss for part in matrix)

    def _peak(self, name: str, value: float) -> None:
        self.peaks[name] = max(self.peaks[name], value / 2**20)


def _below(root: int) -> list[tuple[str, psutil.Process]]:
    """Give the processes of a tree, and what each is."""
    found = []
    try:
        top = psutil.Process(root)
        every = [top, *top.children(recursive=True)]
    except psutil.Error:
        return []
    for process in every:
        try:
            if process.pid != os.getpid():
                found.append((_role(process), process))
        except psutil.Error:
            continue
    return found


def _role(process: psutil.Process) -> str:
    if process.name() == "java":
        return "JVM"
    command = process.cmdline()
    if "pyspark.daemon" not in command:
        return "driver"
    parent = process.parent()
    return "worker" if parent is not None and "pyspark.daemon" in parent.cmdline() else "worker daemon"


def watch(job: subprocess.Popen[bytes], *, root: int | None = None, shares: bool) -> tuple[float, Use]:
    """Wait for a job that was just started; give its seconds, and what it used.

    Args:
        root: Whose processes are looked at, where they are not the job's.
    """
    start, use = time.perf_counter(), Use(root or job.pid, shares=shares)
    use.start()
    if job.wait():
        sys.exit(f"the job failed with exit code {job.returncode}")
    seconds = time.perf_counter() - start
    use.stop.set()
    use.join()
    return seconds, use


def run_job(command: list[str]) -> tuple[float, Use]:
    """Run a job; give its seconds, and what it used, shares of pages included."""
    return watch(subprocess.Popen(command, stdout=subprocess.DEVNULL), shares=True)
