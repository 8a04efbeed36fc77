"""Runtime files that another user may have made: whoever looks gets an answer at once, or none (spec 4.6, status)."""

import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ctxfs import control
from ctxfs.runtime import DaemonState, RuntimeFiles, start_time

STATE = DaemonState(1, 2, "/ctx", "/store", "sqlite", "0.1", (0, 50), 3, None)


@pytest.fixture
def files(tmp_path: Path) -> RuntimeFiles:
    return RuntimeFiles(tmp_path, "/ctx")


def test_what_a_daemon_wrote_is_read(files: RuntimeFiles) -> None:
    files.write_state(STATE)
    assert files.read_state() == STATE


def test_a_link_where_a_state_goes_is_replaced_and_not_followed(files: RuntimeFiles) -> None:
    victim = files.directory / "victim"
    victim.write_text("mine")
    for name in (files.state.name, f"{files.state.stem}.{STATE.pid}.tmp"):
        (files.directory / name).symlink_to(victim)
    files.write_state(STATE)
    assert (files.read_state(), victim.read_text()) == (STATE, "mine")


def fifo_with_a_silent_writer(path: Path) -> int:
    os.mkfifo(path)
    return os.open(path, os.O_RDWR)


@pytest.mark.parametrize(
    "plant",
    [
        os.mkfifo,
        fifo_with_a_silent_writer,
        os.mkdir,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.write_text("["),
        lambda path: path.write_text("[" * 60_000),
        lambda path: path.write_text('{"pid":"x"}'),
        lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40),
    ],
    ids=["fifo", "open fifo", "directory", "link", "half", "deep", "wrong type", "huge"],
)
def test_anything_else_is_no_state(files: RuntimeFiles, plant: Callable[[Path], object]) -> None:
    plant(files.state)
    assert files.read_state() is None


@contextmanager
def talking(path: Path, say: Callable[[socket.socket, threading.Event], None]) -> Iterator[None]:
    """A server that says something of its own to one client, until the test is over."""
    over = threading.Event()

    def serve() -> None:
        client, _ = server.accept()
        with client:
            try:
                say(client, over)
            except OSError:
                return

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def nothing(_: socket.socket, over: threading.Event) -> None:
    over.wait()


def drops(client: socket.socket, over: threading.Event) -> None:
    while not over.wait(0.02):
        client.sendall(b" ")


def a_flood(client: socket.socket, over: threading.Event) -> None:
    while not over.is_set():
        client.sendall(b" " * 65536)


def depth(client: socket.socket, over: threading.Event) -> None:
    client.sendall(b'{"a":' + b"[" * 100_000 + b"\n")


def an_end(client: socket.socket, over: threading.Event) -> None:
    client.sendall(b'{"half":')


@pytest.mark.parametrize("say", [nothing, drops, a_flood, depth, an_end])
def test_no_server_can_keep_who_asks_it(tmp_path: Path, say: Callable[[socket.socket, threading.Event], None]) -> None:
    with talking(tmp_path / "socket", say), pytest.raises(control.ControlError, match="no answer from the daemon"):
        control.ask(tmp_path / "socket", "status", 0.2)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts an overlay")
def test_who_holds_the_lock_is_found_on_an_overlay_too(tmp_path: Path) -> None:
    """As in a container, whose root is one: there a file has another device for stat(2) than for the kernel's table."""
    lower, above = tmp_path / "lower", tmp_path / "above"
    upper, work, merged = (above / name for name in ("upper", "work", "merged"))
    with ExitStack() as mounted:
        for layer in (lower, above):
            layer.mkdir()
            mount(mounted, "-t", "tmpfs", "tmpfs", layer)
        for directory in (upper, work, merged):
            directory.mkdir()
        mount(mounted, "-t", "overlay", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", merged)
        files = RuntimeFiles(merged, "/ctx")
        assert files.holder() is None
        lock = files.take_lock()
        assert files.holder() == (os.getpid(), start_time(os.getpid()))
        os.close(lock)
        assert files.holder() is None


def mount(mounted: ExitStack, *arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True)
    mounted.callback(subprocess.run, ["umount", arguments[-1]], check=True)
