"""The C programs of the benchmark: compiled when it starts, run for each measurement."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

SOURCES = Path(__file__).parent
_CC = ("cc", "-O2", "-Wall", "-Wextra", "-Werror", "-std=gnu11")


class Sample(msgspec.Struct):
    """What one run of the client measured: ``wall_ns`` from the common start of its processes to the last end."""

    count: int
    median_ns: int
    p95_ns: int
    wall_ns: int

    @property
    def median_us(self) -> float:
        return self.median_ns / 1000

    @property
    def each_us(self) -> float:
        """Wall time per operation, over all processes."""
        return self.wall_ns / self.count / 1000


class Client:
    """The compiled ``client.c``; ``cpu`` None leaves the place to the scheduler."""

    def __init__(self, directory: Path) -> None:
        self._program = directory / "client"
        subprocess.run([*_CC, SOURCES / "client.c", "-o", self._program], check=True)

    def __call__(
        self,
        operation: str,
        *arguments: str | Path,
        cpu: int | None = None,
        count: int = 1,
        processes: int = 1,
        size: int = 200,
        cwd: Path | None = None,
    ) -> Sample:
        """Runs ``operation`` (client.c names them) ``count`` times on each path; it must succeed."""
        place = [] if cpu is None else ["-c", str(cpu)]
        options = ["-n", str(count), "-j", str(processes), "-s", str(size), *place]
        command = [str(self._program), *options, operation, *map(str, arguments)]
        answer = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, check=True).stdout
        return msgspec.json.decode(answer, type=Sample)


def build_passthrough(directory: Path) -> Path | None:
    """Compiles ``passthrough.c``; None where libfuse's headers are not installed."""
    if shutil.which("pkg-config") is None:
        return None
    found = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        return None
    program = directory / "passthrough"
    flags: Sequence[str] = found.stdout.split()
    subprocess.run([*_CC, SOURCES / "passthrough.c", "-o", program, *flags], check=True)
    return program
