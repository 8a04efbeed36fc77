"""Which inodes the kernel knows: numbers, names, lookup counts."""

import errno
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.files.passthrough_inodes import DISK_TAG, Inode, InodeTable, Listed

DEVICE = 7


def file(number: int, device: int = DEVICE, kind: int = stat.S_IFREG) -> Listed:
    return Listed(device, number, kind | 0o644)


def directory(number: int) -> Listed:
    return file(number, kind=stat.S_IFDIR)


@pytest.fixture
def table() -> InodeTable:
    return InodeTable(DEVICE)


@pytest.fixture
def top() -> Inode:
    return Inode(DISK_TAG | 2, directory(2))


def learn(table: InodeTable, parent: Inode, name: bytes, what: Listed) -> Inode:
    inode = table.learn(parent, name, what)
    inode.lookups += 1
    return inode


def test_number_is_the_disk_s_own(table: InodeTable, top: Inode) -> None:
    assert learn(table, top, b"file", file(12)).number == DISK_TAG | 12


def test_files_of_another_device_get_other_numbers(table: InodeTable, top: Inode) -> None:
    numbers = {learn(table, top, b"%d" % device, file(12, device)).number for device in (DEVICE, 8, 9)}
    assert len(numbers) == 3
    assert all(number & DISK_TAG for number in numbers)


def test_a_number_the_kernel_still_uses_is_not_given_again(table: InodeTable, top: Inode) -> None:
    removed = learn(table, top, b"old", file(12))
    table.remove_name(removed, top, b"old")
    table.bury(removed)
    assert learn(table, top, b"new", file(12)).number != removed.number


def test_another_kind_of_file_is_another_inode(table: InodeTable, top: Inode) -> None:
    before = learn(table, top, b"name", file(12))
    assert learn(table, top, b"name", directory(12)) is not before


def test_links_are_one_inode(table: InodeTable, top: Inode) -> None:
    one = learn(table, top, b"one", file(12))
    two = learn(table, top, b"two", file(12))
    assert one is two
    assert set(one.names()) == {(top, b"one"), (top, b"two")}


def test_a_moved_directory_has_its_new_name_only(table: InodeTable, top: Inode) -> None:
    moved = learn(table, top, b"before", directory(12))
    learn(table, top, b"after", directory(12))
    assert list(moved.names()) == [(top, b"after")]


def test_unknown_number_is_stale(table: InodeTable) -> None:
    with pytest.raises(OSError) as caught:
        table[DISK_TAG | 99]
    assert caught.value.errno == errno.ESTALE


def test_forgotten_when_all_lookups_are_taken_back(table: InodeTable, top: Inode) -> None:
    inode = learn(table, top, b"file", file(12))
    inode.lookups += 2
    assert table.forget(inode, 2) == []
    assert table.forget(inode, 1) == [inode]
    assert (len(table), top.children) == (0, 0)


def test_directories_stay_known_while_something_in_them_is(table: InodeTable, top: Inode) -> None:
    outer = learn(table, top, b"outer", directory(12))
    inner = learn(table, outer, b"inner", directory(13))
    deep = learn(table, inner, b"file", file(14))
    assert table.forget(outer, 1) == table.forget(inner, 1) == []
    assert set(table.forget(deep, 1)) == {outer, inner, deep}


@given(st.lists(st.tuples(st.sampled_from("lfud"), st.integers(0, 5), st.integers(0, 3)), max_size=60))
def test_nothing_is_left_when_everything_is_forgotten(steps: list[tuple[str, int, int]]) -> None:
    """Any order of lookups, forgets, removed names and moves ends in an empty table."""
    table, top = InodeTable(DEVICE), Inode(DISK_TAG | 2, directory(2))
    for step, number, name in steps:
        identity = directory(number + 10) if number < 2 else file(number + 10)
        parents = [inode for inode in table if inode.is_directory and inode.number != DISK_TAG | number + 10]
        parent = parents[name % len(parents)] if parents and number >= 2 else top
        known = table.known(identity)
        if step == "l":
            learn(table, parent, b"%d" % name, identity)
        elif known is not None and step == "f":
            table.forget(known, 1)
        elif known is not None and step == "u":
            for where in list(known.names())[:1]:
                table.remove_name(known, *where)
    for inode in list(table):
        table.forget(inode, inode.lookups)
    assert (len(table), top.children) == (0, 0)


def test_many_links_cost_nothing_per_lookup(table: InodeTable, top: Inode) -> None:
    """A name of a file with 50,000 links is found by hash: this ends."""
    for number in range(50_000):
        learn(table, top, b"%d" % number, file(12))
    inode = table[DISK_TAG | 12]
    for number in range(50_000):
        table.remove_name(inode, top, b"%d" % number)
    assert list(inode.names()) == []
