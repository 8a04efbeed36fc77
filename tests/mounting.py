"""A running mount in one line, and the watchdog that keeps a hung one from stopping the suite.

``running_mount`` starts the real daemon as its own process on a store and mountpoint below /var/tmp (other uids can
reach them). At its end the mount must unmount, the daemon must exit 0, and its log must hold no warning that the test
did not announce. Every mount made here is known to ``time_limit``, which aborts them all when a test takes too long.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from ctxfs import mounts, probe
from ctxfs.agents.settings import Settings
from ctxfs.plan import Plan, daemon_command
from ctxfs.runtime import DaemonState, RuntimeFiles
from ctxfs.stores import Format

TIME_LIMIT_S = 300.0
PATIENCE_S = 60.0
"""How long anything is waited for: on a busy machine all is slow, and only what fails takes so long."""
SCRATCH = Path("/var/tmp")
PROJECT = Path(__file__).resolve().parent.parent
DAEMON = "ctxfs.daemon"

_alive: list["RunningMount"] = []


class RunningMount:
    """A daemon that serves ``path`` from ``store``; the same object can be killed and started again."""

    def __init__(self, base: Path, form: Format, options: frozenset[str], module: str = DAEMON) -> None:
        self.agents = Settings()
        self.base = base
        self.module = module
        self.path = base / "ctx"
        self.store = base / "store"
        self.log = base / "daemon.log"
        self.format = form
        self.options = options
        self.files = RuntimeFiles(base / "run", str(self.path))
        self.environment = os.environ | {"CTXFS_RUNTIME_DIR": str(base / "run"), "CTX_ROOT": str(self.path)}
        self.allowed: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None
        for directory in (self.path, self.store):
            directory.mkdir(exist_ok=True)
        self.store.chmod(0o700)

    @property
    def pid(self) -> int:
        """The daemon's."""
        assert self.process is not None
        return self.process.pid

    @property
    def mount(self) -> mounts.Mount:
        """The mount as mountinfo has it."""
        found = mounts.mount_at(str(self.path))
        assert found is not None, f"{self.path} is not mounted"
        return found

    @property
    def state(self) -> DaemonState:
        """What the daemon wrote about itself."""
        state = self.files.read_state()
        assert state is not None
        return state

    def start(self) -> None:
        """Returns when the mount answers."""
        read_end, write_end = os.pipe()
        plan = Plan(str(self.path), self.store, self.format, self.options, self.base / "run", agents=self.agents)
        with self.log.open("ab") as log, os.fdopen(read_end, "rb") as ready:
            interpreter, option, _, *arguments = daemon_command(plan, write_end)
            self.process = subprocess.Popen(
                [interpreter, option, self.module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(write_end,),
                cwd=PROJECT,
                env=self.environment,
            )
            os.close(write_end)
            _alive.append(self)
            with _killed_after(self.process, PATIENCE_S):
                answer = ready.readline()
        if answer != b"ok\n":
            self.process.wait(PATIENCE_S)
            raise AssertionError(f"the daemon did not start: {answer!r}\n{self.log.read_text()}")

    def kill(self) -> None:
        """kill -9: leaves a dead mount."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        """SIGTERM, as an init system stops it; returns the exit status."""
        assert self.process is not None
        self.process.terminate()
        with _killed_after(self.process, PATIENCE_S):
            return self.process.wait()

    def restart(self) -> None:
        """Stops it and mounts the same store again."""
        assert self.stop() == 0
        self.start()

    def allow(self, pattern: str) -> None:
        """Log lines that match this regular expression may be warnings."""
        self.allowed.append(pattern)

    def complaints(self) -> list[str]:
        """Warnings and errors in the daemon's log that no test announced."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        bad = [line for line in lines if not re.search(r" (DEBUG|INFO) ", line)]
        return [line for line in bad if not any(re.search(pattern, line) for pattern in self.allowed)]

    def abort(self) -> None:
        """Ends every call that waits on the mount, and the daemon; for the watchdog and for the clean-up."""
        found = mounts.mount_at(str(self.path))
        if self.process is not None:
            self.process.kill()
        if found is not None:
            abort_connection(found)

    def unmount(self) -> None:
        """Ends the daemon, if it still runs, and unmounts whatever is left."""
        if self.process is not None and self.process.poll() is None:
            self.abort()
            self.process.wait(PATIENCE_S)
        while (found := mounts.mount_at(str(self.path))) is not None:
            if found.fstype == mounts.FSTYPE:
                self.abort()
            probe.umount(str(self.path), probe.MNT_DETACH)

    def remove(self) -> None:
        """Unmounts and deletes the store; never walks into a mount."""
        self.unmount()
        shutil.rmtree(self.base)


def abort_connection(mount: mounts.Mount) -> None:
    """Ends every call that waits on a mount that is there."""
    connection = probe.connection(mount.device[1])
    if connection is not None:
        probe.abort(connection)
        os.close(connection)


@contextlib.contextmanager
def running_mount(
    form: Format = "sqlite",
    *,
    options: frozenset[str] = frozenset(),
    allow: Sequence[str] = (),
    module: str = DAEMON,
    below: Path = SCRATCH,
    agents: Settings = Settings(),  # noqa: B008
) -> Iterator[RunningMount]:
    """A fresh store, mounted; what must hold at its end is claimed at its end.

    ``module`` is run as the daemon, ``below`` is where the store and the mountpoint are made.
    """
    base = Path(tempfile.mkdtemp(prefix="ctxfs-test-", dir=below))
    base.chmod(0o755)
    mount = RunningMount(base, form, options, module)
    mount.allowed.extend(allow)
    mount.agents = agents
    try:
        mount.start()
        yield mount
        if mount.process is not None and mount.process.poll() is None:
            assert mount.stop() == 0, mount.log.read_text()
            assert mounts.mount_at(str(mount.path)) is None
        assert not (complaints := mount.complaints()), "\n".join(complaints)
    finally:
        if mount in _alive:
            _alive.remove(mount)
        mount.remove()


class TestTookTooLong(BaseException):
    """Raised in a test by its watchdog; not an ``Exception``, so that no test catches it by accident."""

    __test__ = False


class _Watchdog:
    """A thread that gives up on the main thread's work: no signal interrupts a call that waits on a FUSE daemon."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.main = threading.get_ident()
        self.gave_up = False
        self.reported = False
        self.over = False
        self.timer = threading.Timer(seconds, self._give_up)
        self.timer.daemon = True

    def _give_up(self) -> None:
        self.gave_up = True
        for mount in list(_alive):
            mount.abort()
        signal.pthread_kill(self.main, signal.SIGALRM)

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if not self.over:
            self.report()

    def report(self) -> None:
        self.reported = True
        raise TestTookTooLong(f"the test took longer than {self.seconds:g} s; its mounts were aborted")


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Ends the body after ``seconds``: first every mount is aborted, so that no system call hangs, then it is raised.

    Main thread only.
    """
    watchdog = _Watchdog(seconds)
    before = signal.signal(signal.SIGALRM, watchdog.on_signal)
    watchdog.timer.start()
    try:
        yield
    finally:
        watchdog.over = True
        watchdog.timer.cancel()
        watchdog.timer.join()
        signal.signal(signal.SIGALRM, before)
        if watchdog.gave_up and not watchdog.reported:
            watchdog.report()


@contextlib.contextmanager
def _killed_after(process: subprocess.Popen[bytes], seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Waits for something that announces itself by nothing; fails by name."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s:g} s"
        time.sleep(0.005)


def umount(mountpoint: Path, *options: str) -> None:
    """umount(8). Who merely looks at a mount, as a ``status`` of other tests does, makes it busy for a moment."""
    command = ["umount", *options, str(mountpoint)]
    wait_until(lambda: subprocess.run(command, check=False).returncode == 0, "the unmount")
