"""A jsonl store on a disk that fails, is full, or loses power (spec 1.3, 2.9)."""

import errno
import itertools
import os
import threading
from contextlib import ExitStack, closing
from itertools import chain
from pathlib import Path

import pytest

from backend.errors import (
    CtxError,
    StoreFailed,
    StoreFull,
)
from backend.jsonl import JsonlStore
from backend.jsonl.disk import fsync
from backend.rows import Append
from tests.loop_disk import loop_disk
from tests.unit.jsonl_tree import CD, HOME, SESSIONS, append, coder, made, opened, picture, raws, say, session


class Failing:
    """``os.pwrite`` that fails after so many bytes, having written them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real = os.pwrite
        self.left: int | None = None
        self.number = errno.ENOSPC
        monkeypatch.setattr(os, "pwrite", self.write)

    def write(self, descriptor: int, content: bytes, offset: int) -> int:
        if self.left is None:
            return self._real(descriptor, content, offset)
        if not self.left:
            raise OSError(self.number, os.strerror(self.number))
        written = self._real(descriptor, content[: self.left], offset)
        self.left -= written
        return written


@pytest.mark.parametrize(
    "number, kind", [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreFailed)]
)
def test_a_failed_append_reaches_the_caller_and_leaves_nothing(
    store: JsonlStore, root: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[CtxError]
) -> None:
    append(store, session(store), say("before"), CD)
    logs = [root / SESSIONS / "default" / name for name in ("messages.jsonl", "events.jsonl", ".store/order.jsonl")]
    disk = Failing(monkeypatch)
    disk.number = number
    for left in range(0, 1500, 13):
        before, files = session(store), [path.read_bytes() for path in logs]
        disk.left = left
        [result] = store.append([Append(before.id, [say("zwei 🎉", "assistant"), CD, say("x")])])
        disk.left = None
        if not isinstance(result, CtxError):
            break
        assert isinstance(result, kind)
        assert (session(store), [path.read_bytes() for path in logs]) == (before, files)
        assert store.status().failure
    assert left > 1000
    assert store.status().failure is None
    assert session(store).n == 5


def test_a_failed_append_that_was_taken_back_does_not_claim_a_later_tail(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = made(root)
    append(store, session(store), say("before"))
    disk = Failing(monkeypatch)
    disk.left = 900
    assert isinstance(store.append([Append(session(store).id, [say("x" * 500)])])[0], StoreFull)
    disk.left = None
    store.close()
    path = root / SESSIONS / "default/messages.jsonl"
    path.write_bytes(path.read_bytes() + b'{"somebody')
    store = opened(root)
    assert session(store).fault
    store.close()
    assert path.read_bytes().endswith(b'{"somebody')


def test_a_failed_append_leaves_the_others_of_its_group_alone(
    store: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [store.create_session(coder(store).id, f"s{number}", 1000) for number in range(3)]
    disk = Failing(monkeypatch)
    real = disk.write
    store.append([Append(row.id, [say("x")]) for row in rows])

    def write(descriptor: int, content: bytes, offset: int) -> int:
        if b"bad" in content:
            raise OSError(errno.ENOSPC, "")
        return real(descriptor, content, offset)

    monkeypatch.setattr(os, "pwrite", write)
    results = store.append([Append(row.id, [say(text)]) for row, text in zip(rows, ("a", "bad", "b"), strict=True)])
    assert [isinstance(result, CtxError) for result in results] == [False, True, False]
    assert [raws(store, row)[1:] for row in rows] == [[say("a").raw], [], [say("b").raw]]


@pytest.mark.parametrize("left", [0, 40, 150])
def test_a_session_that_cannot_be_made_leaves_nothing(
    store: JsonlStore, root: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    before = picture(root / HOME)
    disk = Failing(monkeypatch)
    disk.left = left
    with pytest.raises(StoreFull):
        store.create_session(coder(store).id, "other", 1000)
    disk.left = None
    assert {name: file[:2] for name, file in picture(root / HOME).items()} == {
        name: file[:2] for name, file in before.items()
    }
    assert store.create_session(coder(store).id, "other", 1000)


def test_sync_fails_when_the_disk_does_and_from_then_on(store: JsonlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "")

    append(store, session(store), say("x"))
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreFailed):
        store.sync()
    monkeypatch.undo()
    with pytest.raises(StoreFailed):
        store.sync()
    with pytest.raises(StoreFailed):
        store.close()


def test_sync_runs_beside_everything_else(store: JsonlStore) -> None:
    rows = [store.create_session(coder(store).id, f"s{number}", 1000) for number in range(20)]
    directory = store.add_archive_directory(HOME, None, "coder", 1000)
    stop, failures = threading.Event(), list[BaseException]()

    def run() -> None:
        while not stop.is_set():
            try:
                store.sync()
            except BaseException as error:
                failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    for number, row in itertools.product(range(5), rows):
        append(store, row, say(str(number)))
    for row in rows[:10]:
        store.archive_session(row.id, directory.id)
    for row in rows[10:]:
        store.delete_session(row.id)
    stop.set()
    thread.join()
    assert not failures


def test_a_full_disk_recovers_when_there_is_space() -> None:
    with loop_disk(8 << 20) as disk:
        ballast = disk.mountpoint / "ballast"
        ballast.write_bytes(b"x" * (1 << 20))
        with closing(made(disk.mountpoint / "store")) as store:
            row, accepted, line = session(store), list[bytes](), say("x" * 50_000)
            while not isinstance(result := store.append([Append(row.id, [line, CD])])[0], CtxError):
                accepted += [line.raw, CD.raw]
            assert isinstance(result, StoreFull)
            assert store.status().failure
            assert raws(store, row) == accepted
            ballast.unlink()
            os.sync()
            append(store, row, line)
            assert store.status().failure is None
        with closing(opened(disk.mountpoint / "store")) as store:
            assert session(store).fault is None
            assert raws(store, session(store)) == [*accepted, line.raw]


# power cuts


FILES = ("messages.jsonl", "events.jsonl", ".store/order.jsonl", ".store/journal")
FLUSHED = [files for size in range(len(FILES) + 1) for files in itertools.combinations(FILES, size)]
REQUESTS = [[say("one"), CD], [say("two", "assistant")], [CD, say("three"), say("four")], [say("five" * 3000)]]


@pytest.mark.parametrize("reopened", [False, True], ids=["first mount", "later mount"])
def test_a_power_cut_loses_no_synced_line_and_leaves_whole_requests(reopened: bool) -> None:
    """Whichever files the kernel has written out by then."""
    prefixes = [[line.raw for line in chain.from_iterable(REQUESTS[: count + 1])] for count in range(len(REQUESTS))]
    with loop_disk(32 << 20) as disk, ExitStack() as stack:
        for number, flushed in enumerate(FLUSHED):
            root = disk.mountpoint / str(number)
            store = made(root)
            append(store, session(store), *REQUESTS[0])
            store.sync()
            if reopened:
                store.close()
                store = opened(root)
            stack.enter_context(closing(store))
            for request in REQUESTS[1:]:
                append(store, session(store), *request)
            for name in flushed:
                fsync(str(root / SESSIONS / "default" / name))
        with disk.after_power_cut() as after:
            for number in range(len(FLUSHED)):
                with closing(opened(after / str(number))) as found:
                    row = session(found)
                    assert row.fault is None
                    assert raws(found, row) in prefixes
                    append(found, row, say("next"))


def test_a_power_cut_after_a_sync_loses_nothing() -> None:
    with loop_disk(32 << 20) as disk, closing(made(disk.mountpoint)) as store:
        for number in range(3):
            append(store, session(store), say(str(number)), CD)
            if number == 1:
                store.create_session(coder(store).id, "other", 1000)
                store.set_mapping(coder(store).id, "by-hash", "abc", "other")
                store.set_current(coder(store).id, "other")
                store.write_snapshot(session(store).id, "AGENTS.md", b"# rules\n")
            store.sync()
            with disk.after_power_cut() as after, closing(opened(after)) as found:
                row = session(found)
                assert (row.fault, raws(found, row)) == (None, raws(store, session(store)))
                assert coder(found).current == ("other" if number else "default")
                if number:
                    assert found.mapping(coder(found).id, "by-hash", "abc")
                    assert found.read_snapshot(row.id, "AGENTS.md") == b"# rules\n"
