"""Field report 5: a full disk is told to the very writer, tears no line, shows in status, and ends with it."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.disks import MIB, mount_on_disk, need_loop_devices
from tests.mount.acting import message, new_session, opened, refused, write_once
from tests.mounting import RunningMount
from tests.people import outcome


@pytest.fixture
def small() -> Iterator[RunningMount]:
    """A mount whose store is on a disk of 8 MiB, 1 MiB of it taken by something else."""
    need_loop_devices()
    with mount_on_disk(8 * MIB) as (mount, _):
        mount.allow("ENOSPC|full")
        ballast(mount).write_bytes(b"\0" * (1 * MIB))
        yield mount


def ballast(mount: RunningMount) -> Path:
    return mount.store / "disk/ballast"


def fill(log: Path, size: int = 20_000) -> list[bytes]:
    """Appends lines until the disk is full; those that were acknowledged."""
    acknowledged: list[bytes] = []
    with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor, refused(errno.ENOSPC):
        while len(acknowledged) < 5000:
            line = message(f"{len(acknowledged)} " + "x" * size)
            os.write(descriptor, line)
            acknowledged.append(line)
    return acknowledged


def status(mount: RunningMount) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (mount.path / "status").read_text().splitlines())


def test_a_full_disk_is_told_to_the_writer_and_tears_nothing(small: RunningMount) -> None:
    log = new_session(small.path) / "messages.jsonl"
    assert status(small)["state"] == "ok"
    acknowledged = fill(log)
    assert len(acknowledged) > 10
    assert log.read_bytes() == b"".join(acknowledged)
    assert log.stat().st_size == sum(map(len, acknowledged))
    assert status(small)["state"] == "failing"
    with refused(errno.ENOSPC):
        write_once(log, message("x" * 20_000))
    assert log.read_bytes() == b"".join(acknowledged)


def test_it_recovers_when_space_is_freed(small: RunningMount) -> None:
    log = new_session(small.path) / "messages.jsonl"
    acknowledged = fill(log)
    before = (small.path / "status").stat().st_mtime_ns
    ballast(small).unlink()
    write_once(log, message("after"))
    assert log.read_bytes() == b"".join(acknowledged) + message("after")
    assert status(small)["state"] == "ok"
    assert (small.path / "status").stat().st_mtime_ns > before
    small.restart()
    assert log.read_bytes() == b"".join(acknowledged) + message("after")


def test_every_kind_of_write_says_enospc_and_changes_nothing(small: RunningMount) -> None:
    session = new_session(small.path)
    (session / "AGENTS.md").write_text("old\n")
    fill(session / "messages.jsonl")
    with refused(errno.ENOSPC):
        (session / "AGENTS.md").write_bytes(b"y" * 900_000)
    assert (session / "AGENTS.md").read_text() == "old\n"
    (session / "tmp").write_bytes(b"y" * 900_000)
    with refused(errno.ENOSPC):
        (session / "tmp").rename(session / "AGENTS.md")
    assert (session / "AGENTS.md").read_text() == "old\n"


def test_small_writes_are_whole_or_refused_while_it_is_full(small: RunningMount) -> None:
    """The last free pages may go to one or the other; what is refused has changed nothing."""
    session = new_session(small.path)
    index = session.parent / "index"
    log = session / "messages.jsonl"
    before = b"".join(fill(log) + fill(log, 1))
    assert log.read_bytes() == before
    outcomes = set()
    for turn in range(40):
        state = ("active", "done")[turn % 2]
        old = (session / "state").read_text()
        did = outcome((session / "state").write_text, f"{state}\n")
        assert (session / "state").read_text() == (f"{state}\n" if did == "ok" else old)
        outcomes.add(did)
        key = index / f"by-hash/k{turn}"
        outcomes.add(did := outcome(key.write_text, session.name))
        assert key.exists() == (did == "ok")
        made = session.parent / f"made{turn}"
        outcomes.add(did := outcome(made.mkdir))
        assert made.exists() == (did == "ok")
    assert "ENOSPC" in outcomes
    assert outcomes <= {"ok", "ENOSPC"}
    listed = (index / "list").read_text().split()
    assert sorted(listed) == sorted(name for name in os.listdir(session.parent) if name != "index")


def test_a_full_disk_survives_a_restart(small: RunningMount) -> None:
    log = new_session(small.path) / "messages.jsonl"
    acknowledged = fill(log)
    small.kill()
    small.unmount()
    ballast(small).unlink()
    small.start()
    assert log.read_bytes() == b"".join(acknowledged)
