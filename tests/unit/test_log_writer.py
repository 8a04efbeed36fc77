"""What happens on one handle of a log while another call on it waits: nothing that was accepted is lost."""

import errno
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pyfuse3
import pytest
from pyfuse3 import EntryAttributes, FileInfo, FUSEError

from backend.errors import CtxError
from backend.rows import Append, Appended
from ctxfs.budget import USER_LIMIT
from ctxfs.ctx_socket.importing import import_entries
from ctxfs.ctx_socket.requests import Import
from ctxfs.inodes import Kind, Node, inode_of
from ctxfs.sockets.connection import Peer
from tests.unit.world import ALICE, World

A, B, C = (b'{"role":"user","content":"%s"}\n' % name for name in (b"a", b"b", b"c"))


class Truncated:
    update_atime = update_mtime = update_ctime = update_mode = update_uid = update_gid = False
    update_size = True


class Session:
    """Open files of one session, by what the kernel would ask of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.operations: Any = world.operations
        world.store.add_space("home/1001", 1001, 1001, 0o700)
        owner = world.store.add_owner("home/1001", "agent", "a", 1001, 1001)
        self.id = world.store.create_session(owner.id, "s", 1001).id

    def open(self, kind: Kind, flags: int) -> int:
        opened: FileInfo = self.world.does(self.operations.open(inode_of(Node(kind, self.id)), flags, ALICE))
        return int(opened.fh)

    def truncate(self, kind: Kind, fh: int, size: int = 0) -> None:
        attributes = EntryAttributes()
        attributes.st_size = size
        self.world.does(self.operations.setattr(inode_of(Node(kind, self.id)), attributes, Truncated(), fh, ALICE))

    def write(self, fh: int, offset: int, data: bytes) -> None:
        assert self.world.does(self.operations.write(fh, offset, data)) == len(data)

    def together(self, *calls: Coroutine[Any, Any, Any]) -> list[Any]:
        """Results of calls that are started in this order, each before the one before has ended."""
        answers: list[Any] = [None] * len(calls)

        async def call(index: int, coroutine: Coroutine[Any, Any, Any]) -> None:
            try:
                answers[index] = await coroutine
            except (CtxError, FUSEError) as error:
                answers[index] = error

        async def main() -> None:
            for index, coroutine in enumerate(calls):
                self.world.loop.start(call(index, coroutine))

        self.world.loop.run(main)
        return answers

    def messages(self) -> bytes:
        return self.world.store.read_stream(self.id, "messages", 0, 1 << 30)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def session(world: World) -> Session:
    return Session(world)


def test_a_write_during_the_close_of_a_replacement_is_stored_after_it(session: Session) -> None:
    fh = session.open(Kind.MESSAGES, os.O_RDWR)
    session.write(fh, 0, A)
    session.truncate(Kind.MESSAGES, fh)
    session.write(fh, 0, A + B)
    operations = session.operations
    assert session.together(operations.flush(fh), operations.write(fh, len(A + B), C)) == [None, len(C)]
    assert session.messages() == A + B + C


def test_two_closes_of_a_replacement_store_it_once_and_both_wait(session: Session) -> None:
    fh = session.open(Kind.MESSAGES, os.O_RDWR)
    session.write(fh, 0, A)
    session.truncate(Kind.MESSAGES, fh)
    session.write(fh, 0, A + B)
    operations = session.operations
    assert session.together(operations.flush(fh), operations.flush(fh)) == [None, None]
    assert session.messages() == A + B


def test_a_replacement_that_was_refused_is_refused_at_each_close(session: Session) -> None:
    fh = session.open(Kind.MESSAGES, os.O_RDWR)
    session.write(fh, 0, A)
    session.truncate(Kind.MESSAGES, fh)
    session.write(fh, 0, B)
    for _ in range(2):
        assert session.world.outcome(session.operations.flush(fh)) == errno.EPERM
    assert session.messages() == A


def test_a_close_waits_for_what_was_written_while_another_close_waited(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, syncs, started, go_on = session.world, [0], threading.Event(), threading.Semaphore(0)

    def sync() -> None:
        syncs[0] += 1
        started.set()
        go_on.acquire()

    monkeypatch.setattr(world.store, "sync", sync)
    fh = session.open(Kind.MESSAGES, os.O_WRONLY | os.O_APPEND)

    async def write_during_the_sync() -> None:
        started.wait()
        await session.operations.write(fh, 0, B)
        go_on.release(2)

    session.write(fh, 0, A)
    session.together(session.operations.flush(fh), write_during_the_sync())
    world.does(session.operations.flush(fh))
    assert syncs == [2]
    world.does(session.operations.flush(fh))
    assert syncs == [2]


def test_a_long_write_lets_others_go_first(session: Session) -> None:
    fh = session.open(Kind.MESSAGES, os.O_WRONLY | os.O_APPEND)
    seen: list[int] = []

    async def other() -> None:
        seen.append(len(session.messages()))

    session.together(session.operations.write(fh, 0, A * 5000), other())
    assert seen == [0]
    assert session.messages() == A * 5000


def test_content_that_others_began_to_append_is_not_appended_twice(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = session.world.store
    real: Callable[[Any], Any] = store.append

    def raced(batch: list[Append]) -> list[Appended | CtxError]:
        monkeypatch.setattr(store, "append", real)
        real([Append(session.id, batch[0].lines[:1])])
        return list(real(batch))

    fh = session.open(Kind.MESSAGES, os.O_RDWR)
    session.write(fh, 0, A)
    session.truncate(Kind.MESSAGES, fh)
    session.write(fh, 0, A + B + C)
    monkeypatch.setattr(store, "append", raced)
    session.world.does(session.operations.flush(fh))
    assert session.messages() == A + B + C


@pytest.mark.parametrize("offset", [1 << 20, 0])
def test_handles_of_a_snapshot_hold_no_more_than_the_budget(session: Session, offset: int) -> None:
    session.world.store.write_snapshot(session.id, "AGENTS.md", b"x" * (1 << 20))
    handles = [session.open(Kind.AGENTS_MD, os.O_WRONLY) for _ in range(100)]
    taken = [session.world.outcome(session.operations.write(fh, offset, b"y")) for fh in handles]
    held = sum(len(session.operations._handles[fh]._draft or b"") for fh in handles)
    assert held <= USER_LIMIT
    assert set(taken) == ({errno.EFBIG} if offset else {0, errno.ENOSPC})
    for fh in handles:
        session.world.outcome(session.operations.flush(fh))
        session.world.does(session.operations.release(fh))
    session.world.core.budget.resize(ALICE.uid, 0, USER_LIMIT)


@pytest.mark.parametrize("kind", [Kind.MESSAGES, Kind.EVENTS])
def test_until_the_kernel_has_dropped_its_pages_a_log_that_was_read_has_its_old_size(
    session: Session, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """By stat and by name; only then the writer is answered (field report 2: no zeros in place of a line)."""
    may_drop = threading.Event()
    monkeypatch.setattr(pyfuse3, "invalidate_inode", lambda _, attr_only=False: attr_only or may_drop.wait())
    inode, directory = inode_of(Node(kind, session.id)), inode_of(Node(Kind.SESSION, session.id))
    line = A if kind is Kind.MESSAGES else b'{"type":"cwd","cwd":"/"}\n'
    name = b"messages.jsonl" if kind is Kind.MESSAGES else b"events.jsonl"
    operations = session.operations
    writer, reader = session.open(kind, os.O_WRONLY), session.open(kind, os.O_RDONLY)
    session.write(writer, 0, line)
    assert session.world.does(operations.read(reader, 0, 4096)) == line
    seen: list[int] = []

    async def write() -> None:
        await operations.write(writer, len(line), line)
        seen.append(len(await operations.read(reader, 0, 4096)))

    async def look() -> None:
        for attributes in (await operations.getattr(inode, ALICE), await operations.lookup(directory, name, ALICE)):
            seen.append(attributes.st_size)
        may_drop.set()

    session.together(write(), look())
    session.together(look())
    assert seen == [len(line), len(line), 2 * len(line), 2 * len(line), 2 * len(line)]


def test_of_a_log_that_the_kernel_forgot_no_pages_are_dropped(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, bool]] = []
    monkeypatch.setattr(pyfuse3, "invalidate_inode", lambda number, attr_only=False: told.append((number, attr_only)))
    inode = inode_of(Node(Kind.MESSAGES, session.id))
    writer, reader = session.open(Kind.MESSAGES, os.O_WRONLY), session.open(Kind.MESSAGES, os.O_RDONLY)
    for number in range(4):
        session.world.does(session.operations.read(reader, 0, 4096))
        if number >= 2:
            session.operations.forget([(inode, 1)])
        session.write(writer, number * len(A), A)
    assert [number for number, attr_only in told if not attr_only] == [inode, inode]


class Direct:
    """Both a bridge and a connection that asks for an import of ``A``, without a socket and a thread."""

    peer = Peer(1001, 1001, frozenset((1001,)), 0)

    def __init__(self, world: World) -> None:
        self.core = world.core
        self.answers: list[Any] = []

    async def run(self, call: Callable[..., Any]) -> Any:
        return call(self.core)

    async def perform(self, call: Callable[..., Coroutine[Any, Any, Any]]) -> Any:
        return await call(self.core)

    async def receive(self, _: int) -> bytes:
        return A.rstrip()

    async def send(self, answer: Any) -> None:
        self.answers.append(answer)


def test_an_import_is_answered_once_the_kernel_has_dropped_the_pages_of_its_log(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_drop = threading.Event()
    monkeypatch.setattr(pyfuse3, "invalidate_inode", lambda _, attr_only=False: attr_only or may_drop.wait())
    session.world.does(session.operations.read(session.open(Kind.MESSAGES, os.O_RDONLY), 0, 4096))
    direct: Any = Direct(session.world)
    answers: list[list[Any]] = []

    async def look() -> None:
        answers.append(list(direct.answers))
        may_drop.set()

    request = Import(agent="a", session="s", entries=[("messages", 1000)])
    session.together(import_entries(direct, direct, request), look())
    assert (answers, direct.answers) == ([[]], [{"type": "imported", "n": 1}])
    assert session.messages() == A
