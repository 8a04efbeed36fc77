"""What the kernel is told, and in which thread: attributes before the answer, names from a thread of their own."""

import errno
import threading
from collections.abc import Iterator
from typing import Any

import pyfuse3
import pytest

from backend.lines import parse_line
from backend.memory import MemoryStore
from backend.rows import Append, Appended, Removed, Session
from ctxfs.files.index import key_of
from ctxfs.inodes import Kind, Node, inode_of
from ctxfs.kernel_cache import KernelCache, Watcher
from ctxfs.loop import Future, Loop
from ctxfs.privacy import Access
from ctxfs.statistics import CacheCounts, Statistics
from ctxfs.subjects import Subjects
from ctxfs.users import Users


class Kernel:
    """Stands in for the kernel's side of pyfuse3: takes notes of what it is told, and by whom."""

    def __init__(self) -> None:
        self.attributes: list[int] = []
        self.pages: list[int] = []
        self.names: list[tuple[int, bytes]] = []
        self.threads: set[str] = set()
        self.answer: int | None = None
        self.pages_answer: int | None = None

    def invalidate_inode(self, inode: int, attr_only: bool = False) -> None:
        (self.attributes if attr_only else self.pages).append(inode)
        self._maybe_fail(self.answer if attr_only else self.pages_answer)

    def invalidate_entry(self, parent: int, name: bytes) -> None:
        self.threads.add(threading.current_thread().name)
        self.names.append((parent, name))
        self._maybe_fail(self.answer)

    def _maybe_fail(self, answer: int | None) -> None:
        if answer is not None:
            raise OSError(answer, "no")


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(pyfuse3, "invalidate_inode", kernel.invalidate_inode)
    monkeypatch.setattr(pyfuse3, "invalidate_entry", kernel.invalidate_entry)
    return kernel


class World:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.loop = Loop()
        self.users = Users(self.loop, lambda uid: uid)
        self.subjects = Subjects(self.store, self.users, Access(0, 0, shared=True), 1, CacheCounts())
        self.cache = KernelCache(self.subjects, self.loop, Statistics())
        self.store.add_space("home/1001", 1001, 1001, 0o700)
        self.owner = self.store.add_owner("home/1001", "agent", "coder", 1001, 1001).id

    def session(self, name: str) -> Session:
        return self.store.create_session(self.owner, name, 1001)

    def append(self, session: Session, line: bytes) -> Appended:
        stream: Any = "messages" if b'"role"' in line else "events"
        [result] = self.store.append([Append(session.id, [parse_line(stream, line, scope="private")])])
        assert isinstance(result, Appended)
        return result

    def close(self) -> None:
        self.cache.close()
        self.users.close()


@pytest.fixture
def world(kernel: Kernel) -> Iterator[World]:
    world = World()
    yield world
    world.close()


def inodes(session: Session, *kinds: Kind) -> set[int]:
    return {inode_of(Node(kind, session.id)) for kind in kinds}


def test_an_append_tells_of_every_file_it_changed(world: World, kernel: Kernel) -> None:
    session = world.session("one")
    world.session("two")
    change = world.append(session, b'{"role":"assistant","content":"hi"}')
    world.cache.appended(change)
    told = set(kernel.attributes)
    assert told >= inodes(session, Kind.MESSAGES, Kind.LATEST, Kind.SESSION)
    assert inode_of(Node(Kind.LIST, world.owner)) in told
    assert not told & inodes(session, Kind.EVENTS, Kind.STATE, Kind.CWD, Kind.META, Kind.CREATED_AT)
    assert kernel.names == []


def test_a_file_that_keeps_growing_is_told_once_until_the_kernel_asks_for_it(world: World, kernel: Kernel) -> None:
    session = world.session("one")
    [messages] = inodes(session, Kind.MESSAGES)

    def told() -> bool:
        kernel.attributes.clear()
        world.cache.appended(world.append(session, b'{"role":"user","content":"hi"}'))
        return messages in kernel.attributes

    assert [told(), told()] == [True, False]
    world.cache.told(messages)
    assert [told(), told()] == [True, False]
    world.cache.alias(70, messages)
    assert [told(), 70 in kernel.attributes] == [True, True]


def run_until_shown(world: World, session: Session) -> None:
    async def main() -> None:
        over = world.cache.hidden(session.id)
        assert over is not None
        await over

    world.loop.run(main)


@pytest.mark.parametrize("answer", [None, errno.ENOENT, errno.ENOMEM])
def test_pages_of_a_log_that_was_read_are_dropped_before_its_size_is_told(
    world: World, kernel: Kernel, caplog: pytest.LogCaptureFixture, answer: int | None
) -> None:
    """Also under the name of what was renamed onto it; whatever the kernel answers, the writer is answered."""
    session = world.session("one")
    [messages] = inodes(session, Kind.MESSAGES)
    world.cache.alias(70, messages)
    world.cache.pages.read(messages, 0)
    world.cache.appended(world.append(session, b'{"role":"user","content":"hi"}'))
    assert messages not in kernel.attributes
    kernel.pages_answer = answer
    run_until_shown(world, session)
    assert kernel.pages == [messages, 70]
    assert messages in kernel.attributes
    assert ("did not drop pages" in caplog.text) == (answer == errno.ENOMEM)


def test_of_a_log_that_nobody_read_no_pages_are_dropped(world: World, kernel: Kernel) -> None:
    session = world.session("one")
    [messages] = inodes(session, Kind.MESSAGES)
    world.cache.pages.read(messages, 0)
    world.cache.appended(world.append(session, b'{"type":"cwd","cwd":"/"}'))
    assert world.cache.hidden(session.id) is None
    world.cache.pages.forgotten(messages)
    world.cache.appended(world.append(session, b'{"role":"user","content":"hi"}'))
    assert world.cache.hidden(session.id) is None
    assert kernel.pages == []


def test_what_is_no_append_is_always_told(world: World, kernel: Kernel) -> None:
    world.cache.attributes_changed(5)
    world.cache.attributes_changed(5)
    assert kernel.attributes == [5, 5]


def test_the_subject_of_a_changed_session_is_the_new_row(world: World, kernel: Kernel) -> None:
    session = world.session("one")
    assert world.subjects.session(session.id).session.n == 0
    world.cache.appended(world.append(session, b'{"role":"user","content":"hi"}'))
    assert world.subjects.session(session.id).session.n == 1


def test_names_go_from_a_thread_of_their_own(world: World, kernel: Kernel) -> None:
    world.cache.entry_changed(5, "name")
    world.cache.entry_changed(6, "other")
    world.cache.close()
    assert kernel.names == [(5, b"name"), (6, b"other")]
    assert kernel.threads == {"ctxfs-notify"}
    world.cache = KernelCache(world.subjects, world.loop, Statistics())


def test_who_is_to_end_the_loop_is_called_when_no_thread_waits_for_it(world: World, kernel: Kernel) -> None:
    names: list[list[tuple[int, bytes]]] = []
    world.cache.entry_changed(5, "name")

    async def main() -> None:
        over: Future[None] = Future(world.loop)
        world.cache.finish(lambda: over.set(None))
        await over
        names.append(list(kernel.names))

    world.loop.run(main)
    world.cache.entry_changed(5, "later")
    world.cache.close()
    assert [*names, kernel.names] == [[(5, b"name")], [(5, b"name")]]


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOTCONN, errno.EBADF, errno.EPERM, errno.ENOMEM])
def test_the_thread_lives_on_whatever_the_kernel_answers(world: World, kernel: Kernel, number: int) -> None:
    kernel.answer = number
    world.cache.entry_changed(5, "one")
    world.cache.entry_changed(5, "two")
    world.cache.close()
    assert [name for _, name in kernel.names] == [b"one", b"two"]
    world.cache = KernelCache(world.subjects, world.loop, Statistics())


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENODEV, errno.ENOTCONN, errno.EBADF])
def test_what_the_kernel_does_not_know_need_not_be_told(world: World, kernel: Kernel, number: int) -> None:
    kernel.answer = number
    world.cache.attributes_changed(5)
    assert kernel.attributes == [5]


def test_another_answer_is_raised_to_the_handler(world: World, kernel: Kernel) -> None:
    kernel.answer = errno.ENOMEM
    with pytest.raises(OSError):
        world.cache.attributes_changed(5)


def test_aliases_are_told_with_their_target(world: World, kernel: Kernel) -> None:
    world.cache.alias(70, 5)
    world.cache.attributes_changed(5)
    world.cache.unalias(70, 5)
    world.cache.attributes_changed(5)
    assert kernel.attributes == [5, 70, 5]
    assert world.cache._aliases == {}


def test_an_uncovered_key_is_told_and_a_gone_one_loses_its_name(world: World, kernel: Kernel) -> None:
    owner, interned = world.owner, world.subjects.interned
    session = world.session("one")
    change = Appended(session, keys_changed=("cwd-a",), keys_gone=("cwd-b",))
    numbers = []
    for key in ("cwd-a", "cwd-b"):
        numbers.append(interned.id(key_of(owner, "by-cwd", key)))
        interned.remember(numbers[-1])
    world.cache.appended(change)
    world.cache.close()
    assert {inode_of(Node(Kind.CWD_KEY, number)) for number in numbers} <= set(kernel.attributes)
    assert kernel.names == [(inode_of(Node(Kind.BY_CWD, owner)), b"cwd-b")]
    world.cache = KernelCache(world.subjects, world.loop, Statistics())


def test_a_removed_session_is_told_with_all_its_files(world: World, kernel: Kernel) -> None:
    session = world.session("one")
    world.subjects.session(session.id)
    world.cache.removed(world.owner, session.id, Removed(listed=True, keys_gone=(("by-hash", "h"),)))
    told = set(kernel.attributes)
    assert told >= inodes(session, Kind.SESSION, Kind.CONTEXT, Kind.MESSAGES, Kind.STATE, Kind.AGENTS_MD)
    assert {inode_of(Node(kind, world.owner)) for kind in (Kind.LIST, Kind.CURRENT, Kind.SESSIONS)} <= told


class Handle:
    def __init__(self) -> None:
        self.notified = 0

    def notify(self) -> None:
        self.notified += 1


def test_a_watcher_says_once_that_the_file_grew(world: World, kernel: Kernel) -> None:
    session, watcher = world.session("one"), Watcher()
    inode = inode_of(Node(Kind.MESSAGES, session.id))
    world.cache.watch(inode, watcher)
    assert not watcher.ask(None)
    world.cache.appended(world.append(session, b'{"role":"user","content":"hi"}'))
    assert watcher.ask(None)
    assert not watcher.ask(None)
    world.cache.unwatch(inode, watcher)
    world.cache.appended(world.append(session, b'{"role":"user","content":"hi"}'))
    assert not watcher.ask(None)


def test_who_waits_is_woken_once_and_not_forgotten_for_a_look(world: World, kernel: Kernel) -> None:
    session, watcher = world.session("one"), Watcher()
    waiting: Any = Handle()
    world.cache.watch(inode_of(Node(Kind.MESSAGES, session.id)), watcher)
    watcher.ask(waiting)
    watcher.ask(None)
    for _ in range(2):
        world.cache.appended(world.append(session, b'{"role":"user","content":"hi"}'))
    assert waiting.notified == 1
