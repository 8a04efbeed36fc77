"""An open directory: it goes on where the last reply was full, and begins anew once anything changed."""

import errno
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from pyfuse3 import FUSEError

from backend.lines import parse_line
from backend.rows import Append
from ctxfs.inodes import Kind, Node
from ctxfs.listings import Listing
from tests.unit.world import World

SESSIONS = 7


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.store.add_space("home/0", 0, 0, 0o700)
    owner = world.store.add_owner("home/0", "agent", "coder", 0, 0)
    for number in range(SESSIONS):
        world.store.create_session(owner.id, f"s{number}", 0)
    yield world
    world.close()


@pytest.fixture
def listing(world: World) -> Listing:
    owner = world.store.owner("home/0", "agent", "coder")
    assert owner is not None
    return Listing(world.tree, world.core.kernel, Node(Kind.SESSIONS, owner.id), 0)


def replies(listing: Listing, entries: int, start: int = 0) -> Iterator[list[str]]:
    """The names of each reply, which takes so many entries and finds no room for the next one."""
    while names := reply(listing, entries, start):
        start = names[-1][0]
        yield [name for _, name in names]


def reply(listing: Listing, entries: int, start: int) -> list[tuple[int, str]]:
    found = [(offset, name) for offset, name, _ in islice(listing.after(start), entries + 1)]
    return found[:entries]


@pytest.mark.parametrize("entries", [1, 2, 3, SESSIONS, SESSIONS + 1, 100])
def test_replies_of_any_length_make_the_whole_listing(listing: Listing, entries: int) -> None:
    names = [name for names in replies(listing, entries) for name in names]
    assert names == ["index", *(f"s{number}" for number in range(SESSIONS))]


def test_it_asks_the_store_no_more_while_nothing_changes(
    world: World, listing: Listing, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    take = world.store.listing

    def counted(owner: int, after: int = 0, limit: int = 1000) -> object:
        calls.append(after)
        return take(owner, after, limit)

    monkeypatch.setattr(world.store, "listing", counted)
    assert len(list(replies(listing, 2))) == 4
    assert len(calls) == len(["the page with all of them", "the one after it, which is empty"])


def test_what_was_appended_between_two_replies_shows_in_the_second(world: World, listing: Listing) -> None:
    before = reply(listing, 3, 0)
    session = world.store.session(listing.node.id, "s5")
    assert session is not None
    line = parse_line("messages", b'{"role":"user","content":"x"}')
    world.loop.run(lambda: _append(world, Append(session.id, [line], time=10**12)))

    times = {name: entry.subject.updated_at for _, name, entry in listing.after(before[-1][0])}
    assert times["s5"] == 10**12
    assert list(times) == ["s2", "s3", "s4", "s5", "s6"]


async def _append(world: World, append: Append) -> None:
    await world.core.commits.append(append)


def test_reading_again_from_the_start_begins_anew(world: World, listing: Listing) -> None:
    reply(listing, 3, 0)
    world.store.create_session(listing.node.id, "late", 0)
    assert [name for _, name, _ in listing.after(0)][-1] == "late"


def test_an_offset_that_was_not_the_last_is_gone_back_to(listing: Listing) -> None:
    offsets = [offset for offset, _ in reply(listing, 5, 0)]
    assert [name for _, name in reply(listing, 2, offsets[1])] == ["s1", "s2"]


def test_a_directory_that_is_gone_has_no_listing(world: World) -> None:
    gone = Listing(world.tree, world.core.kernel, Node(Kind.SESSIONS, 99), 0)
    with pytest.raises(FUSEError) as error:
        next(gone.after(0))
    assert error.value.errno == errno.ESTALE
