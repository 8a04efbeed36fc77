"""What people pay to get their histories in: many small Claude Code files through ``agent/ctx.sock`` (spec 4.2)."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.bench import Bench
from tests.bench.figures import AtMost, Claim, Report
from tests.bench.rows.memory import mib_of, resident_mib
from tests.mounting import running_mount

TURNS = 2
BOUND_S = 60
BOUND_MIB = 300
# What rusage says of a process that was forked is at least what its parent had.
_MEASURED = """
import sys
from pathlib import Path
from mountctl.ctx import main
code = main()
print(Path("/proc/self/status").read_text())
sys.exit(code)
"""
_TICKS = os.sysconf("SC_CLK_TCK")


class _Run(NamedTuple):
    """A process that has ended: seconds on the clock and on the CPU, and the most memory it had, MiB."""

    wall: float
    cpu: float
    peak: float


def claude_code(bench: Bench) -> Report:
    """A projects directory of 20 000 sessions into a new store, then once more, when there is nothing to do."""
    count = bench.sizes.imported
    projects = _projects(bench.disk / "projects", count)
    with running_mount() as mount:
        started = _cpu_s(mount.pid)
        first = _import(projects, mount.path)
        daemon = _cpu_s(mount.pid) - started
        memory = resident_mib(mount.pid)
        again = _import(projects, mount.path)
    return Report(
        f"{count} Claude Code sessions of {TURNS * 4} lines imported",
        claims=[
            Claim("import, start to end", first.wall, AtMost(BOUND_S), unit=" s"),
            Claim("CPU of `ctx`", first.cpu, None, unit=" s"),
            Claim("CPU of the daemon", daemon, None, unit=" s"),
            Claim("memory of both", first.peak + memory, AtMost(BOUND_MIB), unit=" MiB"),
            Claim("the same import again", again.wall, None, unit=" s"),
        ],
    )


def _import(projects: Path, root: Path) -> _Run:
    arguments = ["agent", "session", "import", "coder", "--from", "claude-code", str(projects)]
    command = [sys.executable, "-c", _MEASURED, *arguments]
    begun = time.perf_counter()
    with subprocess.Popen(command, env=os.environ | {"CTX_ROOT": str(root)}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return _Run(time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, mib_of("VmHWM", said))


def _cpu_s(process: int) -> float:
    """Seconds of CPU that a process has had."""
    _, _, fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / _TICKS


def _projects(directory: Path, count: int) -> Path:
    for number in range(count):
        session = str(uuid.UUID(int=number + 1))
        project = directory / f"-work-{number % 50}"
        project.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(record) for record in _records(session, f"/work/{number % 50}", number))
        (project / f"{session}.jsonl").write_text("\n".join(lines) + "\n")
    return directory


def _records(session: str, cwd: str, number: int) -> Iterator[dict[str, Any]]:
    """Turns of a prompt, a call, its result, and an answer."""
    parent: str | None = None
    for turn in range(TURNS):
        for step, (kind, message) in enumerate(_turn(f"{number}-{turn}")):
            own = str(uuid.UUID(int=(number + 1 << 32) + turn * 4 + step + 1))
            yield {
                "parentUuid": parent,
                "isSidechain": False,
                "cwd": cwd,
                "sessionId": session,
                "version": "1.0.44",
                "type": kind,
                "message": message,
                "uuid": own,
                "timestamp": f"2025-07-{number % 28 + 1:02}T10:{turn:02}:{step:02}.000Z",
            }
            parent = own


def _turn(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    usage = {"input_tokens": 1200, "output_tokens": 90}
    answer = {"role": "assistant", "model": "claude-sonnet-4", "usage": usage}
    call = {"type": "tool_use", "id": f"toolu_{name}", "name": "Read", "input": {"file_path": f"/work/{name}.py"}}
    yield "user", {"role": "user", "content": f"Please look at {name} and say what it does. " * 4}
    yield "assistant", {**answer, "id": f"msg_{name}a", "content": [{"type": "text", "text": "I will read it."}, call]}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{name}", "content": "def f(x):\n    return x + 1\n" * 20}
    yield "user", {"role": "user", "content": [result]}
    yield "assistant", {**answer, "id": f"msg_{name}b", "content": [{"type": "text", "text": "It adds one. " * 30}]}
