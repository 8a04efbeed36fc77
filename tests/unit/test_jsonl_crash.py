"""A process that dies leaves a whole request or none of it (spec 1.3, 2.9), and never a fault of its own making.

Each case runs in a child that exits in the middle, without a chance to tidy up; the page cache survives, as it does
after ``kill -9``.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.errors import UnprovableHistory
from backend.jsonl import JsonlStore
from backend.rows import Session
from tests.unit.dying import KILLED, die_after_bytes, die_before_call, in_child
from tests.unit.jsonl_tree import (
    HOME,
    SESSIONS,
    append,
    coder,
    event,
    opened,
    picture,
    read_everything,
    say,
    session,
    write_cortexfs,
    write_session,
)

FIRST, SECOND = say("first"), event('{"type":"cwd","cwd":"/tmp"}')
REQUEST = (say("Überraschung 🎉", "assistant"), event('{"type":"state","from":"idle","state":"done"}'), say("last"))


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A store's directory; in memory where that is possible, as there are many copies of it."""
    above = Path(tempfile.mkdtemp(dir="/dev/shm")) if os.access("/dev/shm", os.W_OK) else tmp_path
    path = above / "store"
    path.mkdir(0o700)
    yield path
    shutil.rmtree(above)


@pytest.fixture(autouse=True)
def _no_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process dies here, not a machine."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def made(root: Path) -> None:
    """A store with one session of two entries."""
    store = opened(root)
    store.add_space(HOME, 1000, 1000, 0o700)
    owner = store.add_owner(HOME, "agent", "coder", 1000, 1000)
    append(store, store.create_session(owner.id, "default", 1000), FIRST, SECOND)
    store.close()


def contents(store: JsonlStore, row: Session) -> list[bytes]:
    """Both log files and what the entries say, which must agree."""
    messages, events = (store.read_stream(row.id, stream, 0, 1 << 20) for stream in ("messages", "events"))
    rows = store.rows(row.id)
    assert [each.n for each in rows] == list(range(row.n))
    assert b"".join(each.raw + b"\n" for each in rows if each.stream == "messages") == messages
    assert b"".join(each.raw + b"\n" for each in rows if each.stream == "events") == events
    raws = [each.raw for each in rows]
    assert store.latest(row.id) == ("Überraschung 🎉\n".encode() if REQUEST[0].raw in raws else b"")
    return raws


def lengths() -> Iterator[int]:
    """Where to die: within the journal now and then, within the log files and the order often."""
    yield from range(0, 700, 101)
    yield from range(700, 1600, 11)


def test_dying_at_any_byte_of_an_append_leaves_all_of_it_or_nothing(root: Path) -> None:
    made(root)
    old = [FIRST.raw, SECOND.raw]
    new = old + [line.raw for line in REQUEST]
    outcomes: set[int] = set()
    copy = root.with_name("copy")
    for count in lengths():
        shutil.copytree(root, copy)

        def work(count: int = count) -> None:
            store = opened(copy)
            row = session(store)
            die_after_bytes(count)
            append(store, row, *REQUEST)

        code = in_child(work)
        store = opened(copy)
        row = session(store)
        assert row.fault is None
        found = contents(store, row)
        assert found in (old, new)
        assert code != 0 or found == new
        append(store, row, say("next"))
        assert contents(store, session(store)) == [*found, say("next").raw]
        outcomes.add(len(found))
        store.close()
        shutil.rmtree(copy)
    assert outcomes == {2, 5}


def _append(store: JsonlStore) -> None:
    append(store, session(store), *REQUEST)


def _create(store: JsonlStore) -> None:
    store.create_session(coder(store).id, "second", 1000)


def _branch(store: JsonlStore) -> None:
    store.branch_session(session(store).id, 2, "second")


def _delete(store: JsonlStore) -> None:
    store.delete_session(session(store, "other").id)


def _archive(store: JsonlStore) -> None:
    directory = store.archive_directory(HOME, None, "coder")
    store.archive_session(session(store, "other").id, directory.id if directory else 0)


def _map(store: JsonlStore) -> None:
    store.set_mapping(coder(store).id, "by-hash", "abc", "default")
    store.set_current(coder(store).id, "other")


def _define(store: JsonlStore) -> None:
    store.set_definition_value(store.add_definition("agent", "coder"), "cwd", b"/work\n")


def _add(store: JsonlStore) -> None:
    store.add_space("shared/team", 0, 1000, 0o2770)
    store.add_owner("shared/team", "model", "debug/echo", 0, 1000)


@pytest.mark.parametrize(
    "work, foreign",
    [
        *((work, False) for work in (_append, _create, _branch, _delete, _archive, _map, _define, _add)),
        *((work, True) for work in (_append, _branch, _archive)),
    ],
)
def test_dying_between_any_two_steps_leaves_a_sound_store(
    root: Path, work: Callable[[JsonlStore], None], foreign: bool
) -> None:
    made(root)
    store = opened(root)
    append(store, store.create_session(coder(store).id, "other", 1000), say("other"))
    store.add_archive_directory(HOME, None, "coder", 1000)
    store.close()
    if foreign:
        shutil.rmtree(root / SESSIONS / "default/.store")
        shutil.rmtree(root / SESSIONS / "other/.store")
    copy = root.with_name("copy")
    for number in range(100):
        shutil.copytree(root, copy)

        def child(number: int = number) -> None:
            store = opened(copy)
            read_everything(store)
            die_before_call(number)
            work(store)

        code = in_child(child)
        store = opened(copy)
        assert_sound(store)
        store.close()
        shutil.rmtree(copy)
        if code == 0:
            break
        assert code == KILLED
    assert code == 0 and number > 3


def assert_sound(store: JsonlStore) -> None:
    """Everything is there once, without a fault, and can be appended to."""
    owner = coder(store)
    live = store.sessions(owner.id)
    directory = store.archive_directory(HOME, None, "coder")
    archived = store.archived_sessions(directory.id) if directory else []
    names = sorted(row.name for row in (*live, *archived))
    assert names in (["default", "other"], ["default", "other", "second"], ["default"])
    assert len({row.session_id for row in (*live, *archived)}) == len(names)
    assert [row.fault for row in (*live, *archived)] == [None] * len(names)
    assert sorted(store.list_content(owner.id).decode().split()) == sorted(row.name for row in live)
    for row in live:
        contents(store, row)
        append(store, row, FIRST)
        assert contents(store, session(store, row.name))[-1] == FIRST.raw
    assert (current := coder(store).current) is None or current in names
    assert {row.session for row in store.mappings(owner.id, "by-hash")} <= {"default"}


def test_the_small_files_follow_the_log_after_a_crash(root: Path) -> None:
    made(root)

    def work() -> None:
        store = opened(root)
        row = session(store)
        die_before_call(5)  # the sequence's reservation, the journal, both log files, the order
        append(store, row, *REQUEST)

    assert in_child(work) == KILLED
    store = opened(root)
    assert (session(store).n, session(store).state) == (5, "done")
    store.close()
    directory = root / SESSIONS / "default"
    assert (directory / "state").read_bytes() == b"done\n"
    assert (directory / "latest.md").read_bytes() == "Überraschung 🎉\n".encode()


def test_mtimes_grow_over_a_crash_and_a_clock_that_went_back(root: Path) -> None:
    made(root)
    before = session(store := opened(root, clock=lambda: 2 * 10**18))
    append(store, before, *REQUEST)
    first = session(store)
    store.close()

    def work() -> None:
        store = opened(root, clock=lambda: 10**18)
        append(store, session(store), *REQUEST)

    assert in_child(work) == 0
    store = opened(root, clock=lambda: 10**18)
    second = session(store)
    for field in ("messages_mtime", "events_mtime", "latest_mtime"):
        assert getattr(second, field) > getattr(first, field)
    store.close()


TAILS = [b'{"role":"user","content":"half', b'{"role":"user","content":"whole"}\n', b"\n", b"\0"]


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("stream", ["messages.jsonl", "events.jsonl", ".store/order.jsonl"])
@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_a_tail_that_is_not_ours_is_a_fault_and_stays(root: Path, stream: str, tail: bytes, killed: bool) -> None:
    made(root)

    def work() -> None:
        store = opened(root)
        append(store, session(store), *REQUEST)
        if not killed:
            store.close()

    assert in_child(work) == 0
    path = root / SESSIONS / "default" / stream
    path.write_bytes(path.read_bytes() + tail)
    assert_unprovable(root)


SHRUNK = [
    (stream, cut, killed)
    for stream in ("messages.jsonl", "events.jsonl", ".store/order.jsonl")
    for cut in (1, 20, 1000)
    for killed in (False, True)
    # An order that ends early is how a killed request looks.
    if cut == 1000 or not (killed and "order" in stream)
]


@pytest.mark.parametrize("stream, cut, killed", SHRUNK)
def test_a_file_that_shrank_is_a_fault(root: Path, stream: str, cut: int, killed: bool) -> None:
    made(root)

    def work() -> None:
        store = opened(root)
        for _ in range(3):
            append(store, session(store), *REQUEST)
        if not killed:
            store.close()

    assert in_child(work) == 0
    path = root / SESSIONS / "default" / stream
    path.write_bytes(path.read_bytes()[:-cut])
    assert_unprovable(root)


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: (d / "messages.jsonl").unlink(),
        lambda d: (d / ".store/order.jsonl").unlink(),
        lambda d: (d / ".store/order.jsonl").write_bytes(b""),
        lambda d: (d / ".store/order.jsonl").write_bytes(b"x" * (d / ".store/order.jsonl").stat().st_size),
        lambda d: (d / "messages.jsonl").write_bytes(b'{"r":1}\n' + (d / "messages.jsonl").read_bytes()[8:]),
        lambda d: (d / "events.jsonl").write_bytes((d / "events.jsonl").read_bytes().replace(b'"', b"!")),
        lambda d: (d / ".store/manifest.json").write_bytes(b"{}"),
    ],
    ids=["no messages", "no order", "empty order", "bad order", "other lines", "other bytes", "other format"],
)
def test_other_damage_to_our_own_files_is_a_fault(root: Path, damage: Callable[[Path], object]) -> None:
    made(root)
    damage(root / SESSIONS / "default")
    assert_unprovable(root)


def assert_unprovable(root: Path) -> None:
    """Served, never appended to, never touched."""
    before = picture(root / SESSIONS / "default")
    for _ in range(2):
        store = opened(root)
        row = session(store)
        assert row.fault
        read_everything(store)
        with pytest.raises(UnprovableHistory):
            append(store, row, say("x"))
        store.close()
    assert picture(root / SESSIONS / "default") == before


def test_a_file_swapped_while_the_store_is_open_is_noticed(root: Path) -> None:
    made(root)
    store = opened(root)
    assert session(store).fault is None
    path = root / SESSIONS / "default/messages.jsonl"
    shutil.copy(path, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)
    content = path.read_bytes()
    with pytest.raises(UnprovableHistory):
        append(store, session(store), say("x"))
    assert session(store).fault
    store.close()
    assert path.read_bytes() == content


def test_a_tree_copied_without_times_is_whole(root: Path) -> None:
    made(root)
    shutil.copytree(root, root.with_name("copy"), copy_function=shutil.copyfile)
    store = opened(root.with_name("copy"))
    assert contents(store, session(store)) == [FIRST.raw, SECOND.raw]
    append(store, session(store), say("x"))
    store.close()


def test_a_foreign_tree_dies_and_lives_as_well(root: Path) -> None:
    write_cortexfs(root)
    write_session(root, "torn", messages_jsonl=b'{"half')
    before = picture(root / SESSIONS / "torn")

    def work() -> None:
        store = opened(root)
        die_after_bytes(3000)
        for _ in range(100):
            append(store, session(store), *REQUEST)

    assert in_child(work) == KILLED
    store = opened(root)
    assert session(store).fault is None
    assert session(store, "torn").fault
    store.close()
    assert picture(root / SESSIONS / "torn") == before


def test_a_session_that_was_not_moved_into_the_archive_in_time_keeps_its_id(root: Path) -> None:
    made(root)
    store = opened(root)
    other = store.create_session(coder(store).id, "other", 1000)
    directory = store.add_archive_directory(HOME, None, "coder", 1000)
    store.close()

    def work() -> None:
        store = opened(root)
        row = session(store, "other")
        assert store.archive_directory(HOME, None, "coder")
        os.rename = lambda *_: os._exit(KILLED)
        store.archive_session(row.id, directory.id)

    assert in_child(work) == KILLED
    store = opened(root)
    assert store.archived_sessions(directory.id) == []
    assert session(store, "other").id == other.id
    store.close()
