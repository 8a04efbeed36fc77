"""What a running daemon leaves in its runtime directory, so that commands can judge a mount without touching it.

Per mountpoint: a state file (who serves it), a lock that the daemon holds while it lives, its control socket and, if
it runs detached, its log. Names are made from the mountpoint, so a restart finds and replaces them. Spec 4.6.
"""

import contextlib
import fcntl
import hashlib
import os
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from backend.errors import CtxError
from backend.mountinfo import mounts
from ctxfs.public_files import write_public

Process = Literal["running", "stopped", "dying", "gone"]

MAX_STATE_BYTES = 1 << 16
_THREADS_FIELD, _START_TIME_FIELD = 17, 19


class AlreadyMounted(CtxError):
    """Another ctxfs daemon serves this mountpoint (spec 4.6)."""

    exit_code = 5


class DaemonState(msgspec.Struct, frozen=True):
    """Who serves a mountpoint. ``started`` is the process's start time in clock ticks since boot, so that a reused
    pid is not mistaken for it; ``since`` in seconds since the epoch; ``device`` of the mount; ``log``: where to look.
    """

    pid: int
    started: int
    mountpoint: str
    store: str
    format: str
    version: str
    device: tuple[int, int]
    since: int
    log: str | None


class Server(NamedTuple):
    """A daemon of which only its process is known; ``started`` as in ``DaemonState``."""

    pid: int
    started: int


class RuntimeFiles:
    """The runtime files of one mountpoint (a canonical path); ``directory`` is 0755 for root, else 0700."""

    def __init__(self, directory: Path, mountpoint: str) -> None:
        key = hashlib.sha256(os.fsencode(mountpoint)).hexdigest()[:16]
        self.directory = directory
        self.state = directory / f"{key}.json"
        self.lock = directory / f"{key}.lock"
        self.socket = directory / f"{key}.sock"
        self.log = directory / f"{key}.log"

    def make_directory(self) -> None:
        """Makes the runtime directory and what is missing above it (``OSError``)."""
        with contextlib.suppress(FileExistsError):
            self.directory.mkdir(parents=True)
            self.directory.chmod(0o755 if os.geteuid() == 0 else 0o700)
        owner = self.directory.lstat().st_uid
        if owner not in (os.geteuid(), 0):
            raise PermissionError(f"{self.directory} belongs to uid {owner}")

    def take_lock(self) -> int:
        """A descriptor that holds the mountpoint's lock until it is closed (``AlreadyMounted``)."""
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise AlreadyMounted("another ctxfs daemon serves this mountpoint: see `mountctl status`") from None
        return descriptor

    def holder(self) -> Server | None:
        """The process that holds the lock, as the kernel's table has it: to ask for the lock could refuse a daemon."""
        try:
            file = _name_in_locks(self.lock)
            held = [line.split() for line in Path("/proc/locks").read_text(encoding="ascii").splitlines()]
            [pid] = {int(words[4]) for words in held if words[1] == "FLOCK" and words[5] == file}
            return Server(pid, start_time(pid))
        except (OSError, ValueError, LookupError, StopIteration):
            return None

    def write_state(self, state: DaemonState) -> None:
        """Replaces the state file; all may read it, it holds nothing secret (``OSError``)."""
        write_public(self.state, msgspec.json.encode(state) + b"\n")

    def read_state(self) -> DaemonState | None:
        """The last daemon's state, None if there is none that can be read."""
        try:
            return msgspec.json.decode(_content(self.state), type=DaemonState)
        except (OSError, msgspec.DecodeError, RecursionError):
            return None

    def clear(self) -> None:
        """Removes what says that a daemon lives; the lock file stays, its holder may be another one by now."""
        for path in (self.state, self.socket):
            path.unlink(missing_ok=True)


def _content(path: Path) -> bytes:
    """Of a small file, at once: a user may have put anything where root looks (``OSError``)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.read(descriptor, MAX_STATE_BYTES)
    finally:
        os.close(descriptor)


def _name_in_locks(path: Path) -> str:
    """A file as ``/proc/locks`` has it; stat(2) gives an overlay's files other devices and inodes (``OSError``)."""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        text = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii")
    finally:
        os.close(descriptor)
    info = dict(line.split(":\t", 1) for line in text.splitlines())
    major, minor = next(mount.device for mount in mounts() if mount.mount_id == int(info["mnt_id"]))
    return f"{major:02x}:{minor:02x}:{info['ino']}"


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot (``OSError`` if there is none)."""
    return int(_stat_fields(pid)[_START_TIME_FIELD])


def process_of(state: DaemonState | Server) -> Process:
    """What has become of a daemon; one whose main thread is gone is dying until all its threads are.

    Until then it may still hold the store's lock and the FUSE connection.
    """
    try:
        fields = _stat_fields(state.pid)
    except OSError:
        return "gone"
    if int(fields[_START_TIME_FIELD]) != state.started:
        return "gone"
    if fields[0] in ("Z", "X"):
        return "dying" if int(fields[_THREADS_FIELD]) > 1 else "gone"
    return "stopped" if fields[0] == "T" else "running"


def runs_as(state: DaemonState | Server, uid: int | None) -> bool:
    """Whether the process that ``state`` names is that user's: a user's own state file may name anything."""
    try:
        return os.stat(f"/proc/{state.pid}").st_uid == uid
    except OSError:
        return True


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command, which may itself hold spaces and parentheses."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()
