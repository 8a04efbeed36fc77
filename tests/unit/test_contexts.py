"""Which sessions' derived files are kept in mind, and what the kernel is told of them (spec 1.7)."""

import os

import pytest

from backend.lines import parse_line
from backend.rows import Append, Line
from ctxfs import contexts
from ctxfs.inodes import Kind, Node, inode_of
from ctxfs.kernel_cache import CONTEXT_FILES
from tests.unit.world import ALICE, World

LINE = parse_line("messages", b'{"role":"user","content":"hi"}')
LONG = parse_line("messages", b'{"role":"user","content":"%s"}' % (b"hi " * 1000))
CUT = parse_line("events", b'{"type":"cut","before":0,"summary":[],"reason":"test"}')
PROMPT = parse_line(
    "events", b'{"type":"mark","name":"prompt","data":{"header":{},"turn":1,"step":0,"reason":"r","sources":[]}}'
)


def new_session(world: World, lines: int = 1) -> int:
    owner = world.store.owner(f"home/{ALICE.uid}", "agent", "coder")
    assert owner is not None
    number = world.store.create_session(owner.id, f"s{os.urandom(8).hex()}", ALICE.uid).id
    append(world, number, lines)
    return number


def append(world: World, number: int, lines: int = 1, line: Line = LINE) -> None:
    world.does(world.core.commits.append(Append(number, [line] * lines)))


def inodes(number: int) -> set[int]:
    return {inode_of(Node(kind, number)) for kind in CONTEXT_FILES}


def look(world: World, number: int, kind: Kind = Kind.CONTEXT_LOG) -> int:
    """A stat: the size."""
    return int(world.does(world.operations.getattr(inode_of(Node(kind, number)), ALICE)).st_size)


def test_an_append_to_what_nobody_looked_at_says_nothing_of_it(world: World) -> None:
    looked_at, other = new_session(world), new_session(world)
    look(world, looked_at)
    world.told.clear()
    append(world, other)
    assert not world.told & (inodes(looked_at) | inodes(other))
    append(world, looked_at)
    assert inodes(looked_at) <= world.told


def test_the_kernel_hears_of_appends_once_until_it_asks_again(world: World) -> None:
    number = new_session(world)
    size = look(world, number)
    append(world, number)
    world.told.clear()
    append(world, number)
    assert not world.told & inodes(number)
    assert look(world, number) > size
    append(world, number)
    assert world.told & inodes(number) == {inode_of(Node(Kind.CONTEXT_LOG, number))}


def test_a_long_log_is_looked_at_while_others_go_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    number, turns = new_session(world, 1000), 0

    async def others_first() -> None:
        nonlocal turns
        turns += 1

    monkeypatch.setattr(world.core.commits, "others_first", others_first)
    look(world, number)
    assert turns >= 1000 // 64
    turns = 0
    append(world, number)
    look(world, number)
    assert turns == 0


def test_those_used_last_are_kept_and_of_the_others_the_kernel_must_ask(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "MOST_SESSIONS", 3)
    numbers = [new_session(world) for _ in range(6)]
    for number in numbers[:3]:
        look(world, number)
    look(world, numbers[0])
    world.told.clear()
    look(world, numbers[3])
    assert (len(world.core.contexts), world.told) == (3, inodes(numbers[1]))
    for number in numbers:
        assert look(world, number) > 0
    assert len(world.core.contexts) == 3


def test_what_they_take_is_bounded_in_bytes_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "MOST_BYTES", 20_000)
    for number in [new_session(world, 500) for _ in range(10)]:
        look(world, number, Kind.CONTEXT_MESSAGES)
    assert 1 <= len(world.core.contexts) <= 20_000 // 2000


def test_an_open_file_keeps_its_session(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "MOST_SESSIONS", 2)
    held, *others = [new_session(world) for _ in range(5)]
    opened = world.does(world.operations.open(inode_of(Node(Kind.CONTEXT_LOG, held)), os.O_RDONLY, ALICE))
    for number in others:
        look(world, number)
    assert world.core.contexts.knows(held, "log.jsonl")
    append(world, held)
    assert world.does(world.operations.read(opened.fh, 0, 1 << 20)).count(b"\n") == 2  # type: ignore[arg-type]
    world.does(world.operations.release(opened.fh))
    for number in others:
        look(world, number)
    assert not world.core.contexts.knows(held, "log.jsonl")


@pytest.mark.parametrize("change", [LINE, CUT, PROMPT], ids=["message", "cut", "prompt"])
@pytest.mark.parametrize("kind", CONTEXT_FILES)
def test_what_is_read_while_the_log_grows_is_what_the_file_is_then(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: Kind, change: Line
) -> None:
    number = new_session(world)
    for line in [LONG, PROMPT] * 100:
        append(world, number, line=line)
    turns = 0

    async def others_first() -> None:
        nonlocal turns
        turns += 1
        if turns == 1:
            await world.core.commits.append(Append(number, [change]))

    look(world, number, kind)
    monkeypatch.setattr(world.core.commits, "others_first", others_first)
    read = world.does(world.core.contexts.read(number, CONTEXT_FILES[kind], 0, 1 << 20))
    assert turns
    assert len(read) == look(world, number, kind)
    assert read == world.does(world.core.contexts.read(number, CONTEXT_FILES[kind], 0, 1 << 20))


@pytest.mark.parametrize("log", [Kind.MESSAGES, Kind.EVENTS])
def test_beside_a_writer_of_its_log_a_file_is_not_read_from_pages_that_the_kernel_kept(world: World, log: Kind) -> None:
    number, other = new_session(world), new_session(world)

    def is_direct(number: int) -> bool:
        inode = inode_of(Node(Kind.CONTEXT_LOG, number))
        return bool(world.does(world.operations.open(inode, os.O_RDONLY, ALICE)).direct_io)

    flags = os.O_WRONLY | os.O_APPEND
    writers = [world.does(world.operations.open(inode_of(Node(log, number)), flags, ALICE)) for _ in range(2)]
    for writer in writers:
        assert (is_direct(number), is_direct(other)) == (True, False)
        world.does(world.operations.release(writer.fh))
    assert not is_direct(number)


def test_that_there_is_no_request_takes_no_look_at_a_log_without_events(world: World) -> None:
    number = new_session(world, 500)
    session = world.core.subjects.session(number).session
    world.does(world.core.contexts.known_ready(number))
    assert world.core.contexts.view(session, "request.json") is None
    assert len(world.core.contexts) == 0


def test_what_is_deleted_is_forgotten(world: World) -> None:
    number = new_session(world)
    look(world, number)
    world.core.contexts.forget(number)
    assert len(world.core.contexts) == 0
    world.told.clear()
    append(world, number)
    assert not world.told & inodes(number)
