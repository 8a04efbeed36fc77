"""Field report 1 and spec 1.3: after kill -9 of the daemon every acknowledged line is there, and none is torn."""

import errno
import functools
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.acting import message, new_session, opened, write_once
from tests.mounting import PATIENCE_S, RunningMount, running_mount, wait_until

ROUNDS = 20
WRITERS = 4
GONE = (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO)


class Writer(threading.Thread):
    """Appends numbered lines to a log until the daemon is gone; ``acknowledged`` counts writes that returned."""

    def __init__(self, log: Path, name: str) -> None:
        super().__init__()
        self.log = log
        self.writer = name
        self.acknowledged = 0
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            with opened(self.log, os.O_WRONLY | os.O_APPEND) as descriptor:
                while True:
                    os.write(descriptor, message(f"{self.writer} {self.acknowledged} " + "x" * random.randrange(3000)))
                    self.acknowledged += 1
        except OSError as error:
            self.error = error


def have_acknowledged(writers: list[Writer], lines: int) -> bool:
    return sum(writer.acknowledged for writer in writers) >= lines


def stored(log: Path) -> dict[str, list[int]]:
    """Numbers of the lines by writer; fails on half a line."""
    content = log.read_bytes()
    assert content == b"" or content.endswith(b"\n")
    assert log.stat().st_size == len(content)
    numbers: dict[str, list[int]] = {}
    for line in content.splitlines():
        writer, number, _ = json.loads(line)["content"].split(" ")
        numbers.setdefault(writer, []).append(int(number))
    return numbers


@pytest.mark.limit(600)
def test_no_acknowledged_line_is_lost_and_none_is_torn(mount: RunningMount) -> None:
    logs = [new_session(mount.path) / "messages.jsonl" for _ in range(2)]
    for turn in range(ROUNDS):
        writers = [Writer(logs[number % 2], f"r{turn}w{number}") for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        wanted = random.randrange(1, 200)
        wait_until(functools.partial(have_acknowledged, writers, wanted), f"{wanted} lines")
        mount.kill()
        for writer in writers:
            writer.join()
            assert writer.error is not None
            assert writer.error.errno in GONE
        mount.unmount()
        mount.start()
        found = [stored(log) for log in logs]
        for number, writer in enumerate(writers):
            numbers = found[number % 2].get(writer.writer, [])
            # The last request may have been stored without its answer having arrived.
            assert numbers == list(range(len(numbers)))
            assert writer.acknowledged <= len(numbers) <= writer.acknowledged + 1


def test_a_rest_is_gone_and_the_next_line_starts_fresh(mount: RunningMount) -> None:
    log = new_session(mount.path) / "messages.jsonl"
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, message("whole") + message("torn")[:20])
    mount.kill()
    mount.unmount()
    mount.start()
    write_once(log, message("next"))
    assert log.read_bytes() == message("whole") + message("next")
    with pytest.raises(OSError, match="not connected"):
        os.close(descriptor)


def test_values_temporaries_and_keys_after_a_kill(mount: RunningMount) -> None:
    session = new_session(mount.path)
    key = session.parent / "index/by-hash/h"
    write_once(session / "state", b"active\n")
    write_once(session / "cwd", b"/here\n")
    (session / "AGENTS.md").write_text("be kind\n")
    key.write_text(f"{session.name}\n")
    (session / "tmp").write_text("unsaved\n")
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in session.iterdir() if path.is_file()}
    mount.kill()
    mount.unmount()
    mount.start()
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in session.iterdir() if path.is_file()}
    assert after == before
    assert after["state"][0] == b"active\n"
    assert key.read_text() == f"{session.name}\n"
    assert not (session / "tmp").exists()


READ_AGAIN = """
import os, sys
log = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(log, 0, 0, os.POSIX_FADV_DONTNEED)
os.read(log, 1)
"""
SET = """
import os, sys
os.write(os.open(sys.argv[1], os.O_WRONLY), b"active\\n")
"""


def is_reading(process: int) -> bool:
    """Whether it waits for pages."""
    return "filemap_read" in Path(f"/proc/{process}/stack").read_text()


def waits_for_a_read(daemon: int) -> bool:
    """Whether a thread is having pages dropped that are being read: no signal ends that."""
    stacks = Path(f"/proc/{daemon}/task").glob("*/stack")
    return any("fuse_reverse_inval_inode" in stack.read_text() for stack in stacks)


@pytest.fixture
def silent() -> Iterator[RunningMount]:
    with running_mount(module="tests.silent_daemon") as mount:
        yield mount


def test_a_daemon_that_waits_for_itself_in_the_kernel_dies_and_nobody_waits_for_it(silent: RunningMount) -> None:
    """Field report 30: who uses the mount gets an error at once, and it can be mounted again."""
    session = new_session(silent.path)
    log = session / "events.jsonl"
    write_once(session / "state", b"done\n")
    before = log.read_bytes()
    (silent.base / "silent").touch()
    reader = subprocess.Popen([sys.executable, "-c", READ_AGAIN, str(log)], stderr=subprocess.DEVNULL)
    wait_until(lambda: is_reading(reader.pid), "the read")
    writer = subprocess.Popen([sys.executable, "-c", SET, str(session / "state")], stderr=subprocess.DEVNULL)
    assert silent.process is not None
    daemon = silent.process.pid
    wait_until(lambda: waits_for_a_read(daemon), "the wait for it")
    silent.kill()
    assert (reader.wait(PATIENCE_S), writer.wait(PATIENCE_S)) == (1, 1)
    (silent.base / "silent").unlink()
    silent.unmount()
    silent.start()
    assert log.read_bytes().startswith(before)
    assert (session / "state").read_bytes() == b"active\n"
