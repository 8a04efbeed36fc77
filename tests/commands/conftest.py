"""Places for commands to mount: below /var/tmp, with runtime files of their own, cleaned up whatever a test did.

Tests of ``ctx`` share a mount in a module, with an agent for each.
"""

import contextlib
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxfs import mounts, probe
from ctxfs.health import examine
from tests.commands.running import Ran, ctx, in_process, mountctl
from tests.mounting import PATIENCE_S, SCRATCH, RunningMount, abort_connection, running_mount, wait_until


class Place:
    """A mountpoint and a store that are not there yet, and commands that know them."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.mountpoint = base / "ctx"
        self.store = base / "store"
        self.runtime = base / "run"
        self.last_mount: Ran | None = None
        self.environment = {
            **os.environ,
            "CTXFS_RUNTIME_DIR": str(self.runtime),
            "CTX_ROOT": str(self.mountpoint),
            "CTXFS_UMOUNT_TIMEOUT": str(int(PATIENCE_S / 2)),
            "XDG_CONFIG_HOME": str(base / "config"),
        }

    def mountctl(self, *arguments: str) -> Ran:
        return mountctl(*arguments, environment=self.environment)

    def ctx(self, *arguments: str) -> Ran:
        return ctx(*arguments, environment=self.environment)

    def mount(self, *options: str) -> Ran:
        """``mountctl mount`` of this place."""
        self.last_mount = self.mountctl("mount", str(self.mountpoint), "--store", str(self.store), *options)
        return self.last_mount

    def umount(self, *options: str) -> Ran:
        return self.mountctl("umount", str(self.mountpoint), *options)

    def mounted(self) -> mounts.Mount | None:
        return mounts.mount_at(str(self.mountpoint))

    def daemon(self) -> int:
        """The pid of the daemon that serves the mountpoint."""
        mount = self.mounted()
        assert mount is not None, self.last_mount
        state = examine(mount, self.runtime).daemon
        assert state is not None
        return state.pid

    def kill(self) -> int:
        """kill -9 of the daemon; returns its pid when it is gone."""
        daemon = self.daemon()
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: is_gone(daemon), "the death of the daemon")
        return daemon


class Agent:
    """An agent of its own for each test, on a mount that they share."""

    def __init__(self, mount: RunningMount, name: str) -> None:
        self.mount = mount
        self.name = name
        self.directory = mount.path / f"home/{os.geteuid()}/agent/{name}/session"

    def run(self, *arguments: str) -> Ran:
        return ctx(*arguments, environment=self.mount.environment)

    def new(self, *sessions: str) -> None:
        for session in sessions:
            assert self.run("agent", "session", "new", self.name, session).code == 0

    def say(self, session: str, role: str, content: object, **more: object) -> str:
        """Appends a message; its line."""
        line = json.dumps({"role": role, "content": content, **more}) + "\n"
        with (self.directory / session / "messages.jsonl").open("a") as file:
            file.write(line)
        return line

    def texts(self, session: str) -> list[str]:
        """What the messages of a session say, those that are a text."""
        lines = (self.directory / session / "messages.jsonl").read_text().splitlines()
        return [json.loads(line)["content"] for line in lines]


class Store:
    """An agent with the sessions of a test, and what became of them. Commands run in this process: they are many."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.live = agent.directory
        self.archived = agent.directory.parents[2] / "archived_sessions" / agent.name
        self.live.parent.mkdir()
        self.new("first")

    def new(self, *names: str) -> None:
        for name in names:
            (self.live / name).mkdir()

    def gc(self, *options: str) -> Ran:
        return in_process(self.agent.mount.path, "session", "gc", self.agent.name, *options)

    def archive(self, *words: str) -> Ran:
        return in_process(self.agent.mount.path, "session", "archive", self.agent.name, *words)

    def state(self) -> tuple[list[str], list[str]]:
        """The live sessions as the index has them, sorted, and the archived ones; both must be true."""
        listed = sorted((self.live / "index/list").read_text().split())
        assert listed == sorted(set(os.listdir(self.live)) - {"index"})
        return listed, sorted(os.listdir(self.archived)) if self.archived.exists() else []


def is_gone(pid: int) -> bool:
    """Whether a process has ended with all its threads; one that nobody has waited for is gone too."""
    return status_letter(pid) in ("", "Z") and threads(pid) <= 1


def stop(pid: int) -> None:
    """SIGSTOP, and waits until it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: status_letter(pid) == "T", "the stop")


def threads(pid: int) -> int:
    """How many threads a process has."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except (FileNotFoundError, ProcessLookupError):
        return 0


def status_letter(pid: int) -> str:
    """A process's state as in proc(5), empty where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.fixture
def place(fuse_device: None) -> Iterator[Place]:
    base = Path(tempfile.mkdtemp(prefix="ctxfs-test-", dir=SCRATCH))
    base.chmod(0o755)
    yield Place(base)
    for mount in reversed(mounts.mounts()):
        if mount.mountpoint.startswith(f"{base}/"):
            _end(mount, base / "run")
    shutil.rmtree(base)


def _end(mount: mounts.Mount, runtime: Path) -> None:
    daemon = examine(mount, runtime).daemon if mount.fstype == mounts.FSTYPE else None
    if daemon is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(daemon.pid, signal.SIGKILL)
    if mount.fstype.startswith("fuse"):
        abort_connection(mount)
    with contextlib.suppress(OSError):
        probe.umount(mount.mountpoint, probe.MNT_DETACH)
    wait_until(lambda: not mounts.is_mounted(mount), "the unmount")


@pytest.fixture(scope="module")
def shared_mount(fuse_device: None) -> Iterator[RunningMount]:
    with running_mount() as mount:
        yield mount


@pytest.fixture
def agent(shared_mount: RunningMount, request: pytest.FixtureRequest) -> Agent:
    return Agent(shared_mount, f"a{abs(hash(request.node.name)) % 10**8}")


@pytest.fixture
def store(agent: Agent) -> Store:
    return Store(agent)
