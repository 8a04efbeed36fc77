"""A full disk below the sqlite store (spec 1.4; field report 5): said to the writer, nothing torn, recovers."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from backend.errors import OpenError, StoreFull
from backend.rows import Append, Appended, Session
from backend.sqlite import SqliteStore
from tests.contract.harness import Harness, raws, say
from tests.loop_disk import loop_disk

LINE = say("x" * 10_000)


@pytest.fixture
def disk() -> Iterator[Path]:
    with loop_disk(8 << 20) as made:
        yield made.mountpoint


@pytest.fixture
def at(disk: Path) -> Iterator[Harness]:
    harness = Harness("sqlite", disk)
    yield harness
    harness.store.close()


def fill(at: Harness, session: Session) -> int:
    """Appends until the disk is full; the number of lines that went in."""
    for n in range(10_000):
        [result] = at.store.append([Append(session.id, [LINE])])
        if not isinstance(result, Appended):
            assert isinstance(result, StoreFull)
            return n
    raise AssertionError("the disk never became full")


def test_a_full_disk_refuses_and_keeps_what_it_has(at: Harness) -> None:
    session = at.session("s")

    stored = fill(at, session)

    assert stored > 100
    assert "disk of the store is full" in (at.store.status().failure or "")
    assert at.now(session).n == stored
    assert at.stream(session, "messages") == raws([LINE] * stored)
    at.reopen()
    assert at.stream(session, "messages") == raws([LINE] * stored)


def test_every_change_is_refused_whole(at: Harness) -> None:
    session = at.session("s")
    fill(at, session)
    before = at.now(session)

    with pytest.raises(StoreFull):
        at.store.write_snapshot(session.id, "AGENTS.md", b"x" * (1 << 20))

    assert at.store.snapshot(session.id, "AGENTS.md") is None
    assert at.now(session) == before


def test_writing_goes_on_when_space_is_freed(at: Harness, disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(b"\0" * (2 << 20))
    session = at.session("s")
    stored = fill(at, session)

    ballast.unlink()
    at.append(session, LINE)

    assert at.store.status().failure is None
    assert at.stream(session, "messages") == raws([LINE] * (stored + 1))


def test_deleting_a_session_frees_the_room_it_had(at: Harness) -> None:
    kept, doomed = at.session("kept"), at.session("doomed")
    at.append(kept, LINE)
    fill(at, doomed)

    at.store.delete_session(doomed.id)
    assert isinstance(at.store, SqliteStore)
    at.store.maintain()

    assert fill(at, kept) > 100


def test_a_session_is_deleted_while_lines_of_many_wait(at: Harness, disk: Path) -> None:
    sessions = [at.session(f"s{n}") for n in range(100)]
    for session in sessions:
        at.append(session, say("y" * 1000))
    fill(at, sessions[0])
    for session in sessions[1:]:
        at.store.append([Append(session.id, [say("z" * 100)])])

    at.store.delete_session(sessions[0].id)

    assert at.store.session_by_id(sessions[0].id) is None
    assert at.stream(sessions[1], "messages").startswith(raws([say("y" * 1000)]))


def test_a_small_append_fits_where_a_big_neighbour_does_not(at: Harness, disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(b"\0" * (1 << 20))
    big, small = at.session("big"), at.session("small")
    fill(at, big)
    ballast.unlink()

    results = at.store.append([Append(big.id, [say("z" * 900_000)]), Append(small.id, [say("s")])])

    assert [type(result).__name__ for result in results] == ["StoreFull", "Appended"]
    assert at.stream(small, "messages") == raws([say("s")])


def test_a_disk_that_others_filled_refuses_to_open_or_opens(at: Harness, disk: Path) -> None:
    session = at.session("s")
    stored = fill(at, session)
    at.store.close()
    fill_disk(disk / "ballast")

    try:
        at.store = at._open()
    except OpenError as refusal:
        assert "full" in str(refusal)
        (disk / "ballast").unlink()
        at.store = at._open()

    assert at.now(session).n == stored


def fill_disk(file: Path) -> None:
    with file.open("wb", buffering=0) as ballast, suppress(OSError):
        while True:
            ballast.write(b"\0" * 4096)
