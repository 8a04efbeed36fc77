"""One bug in one place never ends the mount (field report 33): EIO for that call, a count, and all else goes on."""

import contextlib
import os
import select
from collections.abc import Callable, Iterator
from pathlib import Path

import pyfuse3
import pytest

from ctxfs import control, mounts
from tests.faulty_daemon import FATAL, PLACES
from tests.mount.acting import figures
from tests.mount.scenery import append, put, said
from tests.mounting import PATIENCE_S, RunningMount, running_mount, wait_until
from tests.people import ALICE, outcome
from tests.socket.client import connected

HASH = "session/index/by-hash"


@pytest.fixture(scope="module")
def faulty(fuse_device: None) -> Iterator[RunningMount]:
    """A mount whose daemon raises where ``planted`` says."""
    with running_mount(
        module="tests.faulty_daemon", allow=["internal error in", "user database", "readers were not told"]
    ) as mount:
        agent = mount.path / "home/0/agent/coder"
        agent.mkdir()
        for name in ("one", "two"):
            (agent / "session" / name).mkdir()
        (agent / "data/link").symlink_to("x")
        (agent / "data/full").mkdir()
        yield mount


@pytest.fixture
def agent(faulty: RunningMount) -> Path:
    return faulty.path / "home/0/agent/coder"


@contextlib.contextmanager
def planted(mount: RunningMount, name: str) -> Iterator[None]:
    """The named place raises in the body."""
    fault = mount.base / "fault"
    fault.write_text(name)
    try:
        yield
    finally:
        fault.unlink()


def counted(mount: RunningMount) -> int:
    """How often the daemon answered EIO, or would have if anybody had waited."""
    count: int = figures(mount)["errors"].get("EIO", 0)
    return count


@contextlib.contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags)
    try:
        yield descriptor
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)


Call = Callable[[Path], contextlib.AbstractContextManager[Callable[[], object]]]


def call(function: Callable[[Path], object]) -> Call:
    """A call that needs no preparation."""

    @contextlib.contextmanager
    def prepared(agent: Path) -> Iterator[Callable[[], object]]:
        yield lambda: function(agent)

    return prepared


def on_descriptor(name: str, flags: int, function: Callable[[int], object]) -> Call:
    """A call on a file that was opened before the bug."""

    @contextlib.contextmanager
    def prepared(agent: Path) -> Iterator[Callable[[], object]]:
        with opened(agent / name, flags) as descriptor:
            yield lambda: function(descriptor)

    return prepared


@contextlib.contextmanager
def getattr_of_what_changed(agent: Path) -> Iterator[Callable[[], object]]:
    append(agent / "session/one/messages.jsonl", said("x"))
    yield lambda: os.stat(agent / "session/one/messages.jsonl")


@contextlib.contextmanager
def read_of_what_changed(agent: Path) -> Iterator[Callable[[], object]]:
    append(agent / "session/one/messages.jsonl", said("x"))
    with opened(agent / "session/one/messages.jsonl", os.O_RDONLY) as descriptor:
        yield lambda: os.read(descriptor, 10)


@contextlib.contextmanager
def unlink_of_a_key(agent: Path) -> Iterator[Callable[[], object]]:
    put(agent / HASH / "key", "one")
    yield (agent / HASH / "key").unlink


@contextlib.contextmanager
def rename_of_a_temporary(agent: Path) -> Iterator[Callable[[], object]]:
    (agent / "session/one/.tmp").write_text("x")
    yield lambda: os.rename(agent / "session/one/.tmp", agent / "session/one/.tmp2")


ONE = "session/one"
LOG = f"{ONE}/messages.jsonl"
APPEND = os.O_WRONLY | os.O_APPEND
ANSWERED: dict[str, Call] = {
    "lookup": call(lambda agent: os.stat(agent / ONE / "no such file")),
    "getattr": getattr_of_what_changed,
    "setattr": call(lambda agent: os.utime(agent / LOG)),
    "readlink": call(lambda agent: os.readlink(agent / "data/link")),
    "mknod": call(lambda agent: os.mkfifo(agent / "data/fifo")),
    "mkdir": call(lambda agent: os.mkdir(agent / "session/three")),
    "unlink": unlink_of_a_key,
    "rmdir": call(lambda agent: os.rmdir(agent / "data/full")),
    "symlink": call(lambda agent: os.symlink("x", agent / "data/new")),
    "rename": rename_of_a_temporary,
    "link": call(lambda agent: os.link(agent / "data/link", agent / "data/hard", follow_symlinks=False)),
    "open": call(lambda agent: os.close(os.open(agent / LOG, os.O_RDONLY))),
    "create": call(lambda agent: os.close(os.open(agent / ONE / ".new", os.O_WRONLY | os.O_CREAT))),
    "read": read_of_what_changed,
    "write": on_descriptor(LOG, APPEND, lambda descriptor: os.write(descriptor, said("x"))),
    "flush": on_descriptor(LOG, APPEND, os.close),
    "fsync": on_descriptor(LOG, APPEND, os.fsync),
    "fsyncdir": on_descriptor(ONE, os.O_RDONLY, os.fsync),
    "opendir": call(lambda agent: os.close(os.open(agent / ONE, os.O_RDONLY))),
    "readdir": on_descriptor(ONE, os.O_RDONLY, os.listdir),
    "statfs": call(os.statvfs),
    "setxattr": call(lambda agent: os.setxattr(agent / ONE, "user.ctx.compact", b"{}")),
    "getxattr": call(lambda agent: os.getxattr(agent / ONE, "user.ctx.n")),
    "listxattr": call(lambda agent: os.listxattr(agent / ONE)),
    "removexattr": call(lambda agent: os.removexattr(agent / ONE, "user.ctx.n")),
    "commit": on_descriptor(LOG, APPEND, lambda descriptor: os.write(descriptor, said("x"))),
    "sync": on_descriptor(LOG, APPEND, os.fsync),
}


def ask_poll(agent: Path) -> None:
    with opened(agent / LOG, os.O_RDONLY) as descriptor:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        assert poll.poll(0) == [(descriptor, select.POLLERR)]


def close_directory(agent: Path) -> None:
    with opened(agent / ONE, os.O_RDONLY):
        pass


def forget_a_key(agent: Path) -> None:
    with unlink_of_a_key(agent) as unlink:
        unlink()


def append_after_a_read(agent: Path) -> None:
    append(agent / LOG, said("x"))
    (agent / LOG).read_bytes()
    append(agent / LOG, said("y"))


UNANSWERED: dict[str, Callable[[Path], None]] = {
    "poll": ask_poll,
    "release": lambda agent: os.close(os.open(agent / LOG, os.O_RDONLY)),
    "releasedir": close_directory,
    "forget": forget_a_key,
    "publishing": lambda agent: append(agent / LOG, said("x")),
    "showing": append_after_a_read,
}
BESIDE = {"user database", "maintenance", "figures", "socket", "bridge"}
# With default_permissions the kernel never asks for access; the others are no requests.
NEVER_ASKED = {"access", "init", "stacktrace"}


def test_every_handler_is_tried() -> None:
    handlers = {
        name for name in dir(pyfuse3.Operations) if callable(getattr(pyfuse3.Operations, name)) and name[0] != "_"
    }
    assert set(ANSWERED) | set(UNANSWERED) | BESIDE | NEVER_ASKED == handlers | set(PLACES)


def works(mount: RunningMount, agent: Path) -> bool:
    """What other people's requests need: nearly every handler."""
    ALICE.does((mount.path / f"home/{ALICE.uid}/agent/a").mkdir, exist_ok=True)
    session = mount.path / f"home/{ALICE.uid}/agent/a/session/s"
    ALICE.does(session.mkdir, exist_ok=True)
    ALICE.does(append, session / "messages.jsonl", said("fine"))
    return ALICE.does((session / "latest.md").read_bytes) == b"fine\n" and "messages.jsonl" in os.listdir(agent / ONE)


@pytest.mark.parametrize("name", ANSWERED)
def test_a_bug_is_eio_for_that_call_and_the_mount_goes_on(faulty: RunningMount, agent: Path, name: str) -> None:
    before = counted(faulty)
    with ANSWERED[name](agent) as act:
        with planted(faulty, name):
            assert outcome(act) == "EIO"
        assert outcome(act) != "EIO" or name in ("flush",)
    assert works(faulty, agent)
    assert counted(faulty) > before


@pytest.mark.parametrize("name", [name for name in UNANSWERED if name != "user database"])
def test_a_bug_that_nobody_is_told_of_is_counted(faulty: RunningMount, agent: Path, name: str) -> None:
    before = counted(faulty)
    with planted(faulty, name):
        UNANSWERED[name](agent)
        wait_until(lambda: counted(faulty) > before, f"the count of a failed {name}")
    assert works(faulty, agent)


def test_a_failing_user_database_keeps_nobody_from_a_home(faulty: RunningMount) -> None:
    with planted(faulty, "user database"):
        status = (faulty.path / "home/424242").stat()
    assert (status.st_uid, status.st_gid) == (424242, 424242)
    assert (faulty.path / "home/424243").stat().st_uid == 424243


def test_what_was_refused_by_a_bug_in_the_commit_is_not_stored(faulty: RunningMount, agent: Path) -> None:
    log = agent / "session/two/messages.jsonl"
    with planted(faulty, "commit"):
        assert outcome(append, log, said("lost")) == "EIO"
    append(log, said("kept"))
    assert log.read_bytes() == said("kept")


def test_a_bug_in_maintenance_is_logged_and_the_mount_goes_on(faulty: RunningMount, agent: Path) -> None:
    with planted(faulty, "maintenance"):
        wait_until(lambda: faulty.log.read_text().count("planted in maintenance") >= 2, "the next round")
    assert works(faulty, agent)


def test_a_bug_in_the_figures_is_an_error_for_who_asked_and_the_mount_goes_on(
    faulty: RunningMount, agent: Path
) -> None:
    with planted(faulty, "figures"), pytest.raises(control.ControlError, match="RuntimeError"):
        figures(faulty)
    assert works(faulty, agent)
    assert figures(faulty)["sessions"] >= 2


@pytest.mark.parametrize("name", ["socket", "bridge"])
def test_a_bug_behind_a_socket_is_an_error_for_that_request_and_the_connection_goes_on(
    faulty: RunningMount, agent: Path, name: str
) -> None:
    before = counted(faulty)
    with connected(faulty.path / "agent/ctx.sock") as client:
        with planted(faulty, name):
            assert client.ask("status")["code"] == "EIO"
        assert client.ask("status")["type"] == "status"
    assert works(faulty, agent)
    assert counted(faulty) > before


def test_a_thread_that_dies_ends_the_daemon_loudly_and_leaves_no_mount(fuse_device: None) -> None:
    with running_mount(module="tests.faulty_daemon", allow=["."]) as mount, planted(mount, FATAL):
        with pytest.raises(OSError, match=r"Transport endpoint|connection abort"):
            os.stat(mount.path / "home/0/agent")
        assert mount.process is not None
        assert mount.process.wait(PATIENCE_S) == 70
        assert mounts.mount_at(str(mount.path)) is None
        (report,) = [line for line in mount.log.read_text().splitlines() if "the daemon failed" in line]
        assert "planted in loop" in report and "in raise_if_chosen" in report and "the FUSE thread died" in report
