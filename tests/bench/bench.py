"""What every row of the benchmark works with: the client, the places, and how they are measured beside each other."""

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.client import Client, build_passthrough
from tests.bench.figures import Bound, Claim, Measured, Placement, interleave
from tests.bench.places import Contents, Served, native_sessions, serve
from tests.mounting import SCRATCH

System = Callable[[int | None], float]
"""Measures one round, on the CPU of that number or on any; the figure of it."""
Medians = Mapping[Placement, Mapping[str, float]]

OURS = "ctxfs"
MEMORY = Path("/dev/shm")
CPU = max(os.sched_getaffinity(0))


class Bench:
    """One run; everything is made when a row first asks for it, and gone when ``stack`` is closed."""

    def __init__(self, stack: contextlib.ExitStack, sizes: "Sizes") -> None:
        self.sizes = sizes
        self._stack = stack

    def _directory(self, base: Path) -> Path:
        path = Path(tempfile.mkdtemp(prefix="ctxfs-bench-", dir=base))
        self._stack.callback(shutil.rmtree, path)
        return path

    @functools.cached_property
    def client(self) -> Client:
        """The measuring client."""
        return Client(self.disk)

    @functools.cached_property
    def disk(self) -> Path:
        """A directory on the disk that the stores are on."""
        return self._directory(SCRATCH)

    @functools.cached_property
    def memory(self) -> Path:
        """A directory on tmpfs."""
        return self._directory(MEMORY)

    @functools.cached_property
    def lone(self) -> Served:
        """A mount with as few sessions as there can be."""
        return self._stack.enter_context(serve(Contents(1, {"short": 1})))

    @functools.cached_property
    def some(self) -> Served:
        """A mount with 10k sessions and a log of 100 MB."""
        sizes = self.sizes
        return self._stack.enter_context(serve(Contents(sizes.some, {"read": sizes.read_lines})))

    @functools.cached_property
    def many(self) -> Served:
        """A mount with 100k sessions, and logs from one entry to 1 GiB."""
        return self._stack.enter_context(serve(Contents(self.sizes.many, {str(n): n for n in self.sizes.logs})))

    @functools.cached_property
    def native_some(self) -> Mapping[str, Path]:
        """As many native sessions as ``some`` has, on the disk and in memory."""
        return {name: native_sessions(base / "some", self.sizes.some) for name, base in self.natives.items()}

    @functools.cached_property
    def native_many(self) -> Mapping[str, Path]:
        """As many native sessions as ``many`` has."""
        return {name: native_sessions(base / "many", self.sizes.many) for name, base in self.natives.items()}

    @functools.cached_property
    def natives(self) -> Mapping[str, Path]:
        """A directory on each native file system, by the name of that."""
        return {file_system(self.disk): self.disk, "tmpfs": self.memory}

    @functools.cached_property
    def native(self) -> str:
        """The name of the file system on disk."""
        return file_system(self.disk)

    @contextlib.contextmanager
    def passthrough(self) -> Iterator[tuple[int, Path] | None]:
        """The C passthrough on a directory of tmpfs: its pid, and a file there; None where it cannot be built."""
        program = build_passthrough(self.disk)
        if program is None:
            yield None
            return
        shown, mountpoint = self._directory(MEMORY), self._directory(SCRATCH)
        (shown / "file").touch()
        with subprocess.Popen([program, shown, mountpoint], stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            try:
                yield server.pid, mountpoint / "file"
            finally:
                server.terminate()

    @contextlib.contextmanager
    def bare_mount(self, database: Path | None = None) -> Iterator[tuple[int, Path]]:
        """``bare_mount.py``: its pid, and its directory, in which every name is a file."""
        mountpoint = self._directory(SCRATCH)
        command = [sys.executable, "-m", "tests.bench.bare_mount", str(mountpoint)]
        with subprocess.Popen(
            command + ([] if database is None else [str(database)]), stdout=subprocess.PIPE
        ) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            try:
                yield server.pid, mountpoint
            finally:
                subprocess.run(["umount", mountpoint], check=True)

    def compare(self, systems: Mapping[str, System], servers: Sequence[int]) -> Medians:
        """Interleaved rounds of all systems, with the servers' processes first on one CPU, then on any."""
        medians: dict[Placement, dict[str, float]] = {}
        for placement, cpu in ((Placement.PINNED, CPU), (Placement.UNPINNED, None)):
            with placed((*servers, os.getpid()), cpu):
                rounds = {name: functools.partial(measure, cpu) for name, measure in systems.items()}
                medians[placement] = interleave(self.sizes.rounds, rounds)
        return medians


@dataclass(frozen=True)
class Sizes:
    """How much of everything: rounds, sessions, lines of 1 KiB, operations of a round, sessions imported."""

    rounds: int = 5
    some: int = 10_000
    many: int = 100_000
    read_lines: int = 100_000
    logs: Sequence[int] = (1, 1_000, 1 << 20)
    operations: int = 2_000
    imported: int = 20_000


QUICK = Sizes(rounds=3, many=20_000, logs=(1, 1_000, 1 << 17), operations=500, imported=2_000)
"""Enough to see that everything works, and roughly how."""


@contextlib.contextmanager
def placed(processes: Sequence[int], cpu: int | None) -> Iterator[None]:
    """All threads of these processes on that CPU (None: on any) until the end."""
    everywhere = os.sched_getaffinity(0)
    _place(processes, everywhere if cpu is None else {cpu})
    try:
        yield
    finally:
        _place(processes, everywhere)


def _place(processes: Sequence[int], cpus: set[int]) -> None:
    for process in processes:
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), cpus)


def file_system(path: Path) -> str:
    """The type of the file system that a path is on."""
    command = ["df", "--output=fstype", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1]


def measured(medians: Medians, unit: str, prefix: str = "") -> list[Measured]:
    """The table's lines of a comparison."""
    systems = next(iter(medians.values()))
    return [
        Measured(f"{prefix}{system}", unit, {placement: values[system] for placement, values in medians.items()})
        for system in systems
    ]


def speed(what: str, medians: Medians, native: str, bound: Bound) -> list[Claim]:
    """How fast we are beside ``native``: its time divided by ours, for each placement."""
    return [Claim(what, values[native] / values[OURS], bound, placement) for placement, values in medians.items()]


def cost(what: str, medians: Medians, other: str, bound: Bound | None) -> list[Claim]:
    """How much more we take than ``other``: our time divided by its, for each placement."""
    return [Claim(what, values[OURS] / values[other], bound, placement) for placement, values in medians.items()]


def progress(message: str) -> None:
    """Says what is being measured; figures go to stdout, this does not."""
    print(message, file=sys.stderr, flush=True)
