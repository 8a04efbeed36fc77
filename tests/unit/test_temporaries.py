"""Temporaries without a mount (spec 1.4): whose they are, when they go, and the memory they may take."""

import errno
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyfuse3 import FUSEError

from ctxfs.budget import TOTAL_LIMIT, USER_LIMIT, Budget
from ctxfs.files.handles import Opening
from ctxfs.files.temporaries import IDLE_LIMIT_NS, USER_COUNT_LIMIT, Temporaries, TemporaryHandle
from ctxfs.inodes import Kind, Node, inode_of

HERE, THERE = 1, 2
ALICE, BOB = 1001, 1002
TARGET = Node(Kind.STATE, 7)


class Clock:
    """A time that only moves when it is told to, ns."""

    def __init__(self) -> None:
        self.now = 10**18

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def budget() -> Budget:
    return Budget()


@pytest.fixture
def temporaries(budget: Budget, clock: Clock) -> Temporaries:
    return Temporaries(budget, clock)


def refused(number: int, action: Callable[[], object]) -> None:
    with pytest.raises(FUSEError) as caught:
        action()
    assert caught.value.errno == number


def room(budget: Budget, uid: int) -> int:
    """Bytes that this uid may still take."""
    low, high = 0, USER_LIMIT + 1
    while high - low > 1:
        middle = (low + high) // 2
        try:
            budget.resize(uid, 0, middle)
        except FUSEError:
            high = middle
        else:
            budget.resize(uid, middle, 0)
            low = middle
    return low


def test_the_key_is_directory_uid_and_name(temporaries: Temporaries) -> None:
    keys = [(HERE, ALICE, "a"), (THERE, ALICE, "a"), (HERE, BOB, "a"), (HERE, ALICE, "b")]
    made = [temporaries.create(directory, uid, uid, name) for directory, uid, name in keys]
    assert [temporaries.find(*key) for key in keys] == made
    assert len({temporary.node.id for temporary in made}) == len(keys)


@pytest.mark.parametrize("name", ["1", "4913", "0"])
def test_all_digits_are_refused(temporaries: Temporaries, name: str) -> None:
    refused(errno.EACCES, lambda: temporaries.create(HERE, ALICE, ALICE, name))
    other = temporaries.create(HERE, ALICE, ALICE, "other")
    refused(errno.EACCES, lambda: temporaries.rename(other, name))
    assert temporaries.find(HERE, ALICE, "other") is other


def test_it_goes_an_hour_after_its_last_use(temporaries: Temporaries, clock: Clock) -> None:
    temporaries.create(HERE, ALICE, ALICE, "a")
    for _ in range(3):
        clock.now += IDLE_LIMIT_NS
        assert temporaries.find(HERE, ALICE, "a") is not None
    clock.now += IDLE_LIMIT_NS + 1
    assert temporaries.find(HERE, ALICE, "a") is None


def test_an_open_one_does_not_go(temporaries: Temporaries, clock: Clock) -> None:
    temporary = temporaries.create(HERE, ALICE, ALICE, "a")
    temporary.handles += 1
    clock.now += 2 * IDLE_LIMIT_NS
    assert temporaries.find(HERE, ALICE, "a") is temporary


def test_what_is_idle_gives_its_memory_back_when_another_is_made(
    temporaries: Temporaries, budget: Budget, clock: Clock
) -> None:
    temporaries.resize(temporaries.create(HERE, ALICE, ALICE, "a"), USER_LIMIT)
    clock.now += IDLE_LIMIT_NS + 1
    temporaries.resize(temporaries.create(HERE, ALICE, ALICE, "b"), USER_LIMIT)
    assert room(budget, ALICE) == 0


def test_mtimes_only_grow_whatever_the_clock_does(temporaries: Temporaries, clock: Clock) -> None:
    temporary = temporaries.create(HERE, ALICE, ALICE, "a")
    seen = [temporary.mtime]
    for step in (0, -5, 10, 0):
        clock.now += step
        temporaries.resize(temporary, 1)
        seen.append(temporary.mtime)
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("end", ["unlink", "become", "replaced"])
def test_its_memory_is_free_when_nothing_can_reach_it(temporaries: Temporaries, budget: Budget, end: str) -> None:
    temporary = temporaries.create(HERE, ALICE, ALICE, "a")
    temporaries.resize(temporary, 1000)
    temporary.lookups = temporary.handles = 1
    if end == "unlink":
        temporaries.unlink(temporary)
    elif end == "become":
        temporaries.become(temporary, TARGET)
    else:
        temporaries.rename(temporaries.create(HERE, ALICE, ALICE, "b"), "a")
    assert room(budget, ALICE) == USER_LIMIT - 1000
    temporary.handles = 0
    temporaries.settle(temporary)
    assert room(budget, ALICE) == USER_LIMIT, "the kernel forgets when it likes"
    assert temporary.is_gone
    temporary.lookups = 0
    temporaries.settle(temporary)
    assert room(budget, ALICE) == USER_LIMIT
    refused(errno.ENOENT, lambda: temporaries.get(temporary.node.id))


def test_an_alias_lives_until_it_is_forgotten(temporaries: Temporaries) -> None:
    temporary = temporaries.create(HERE, ALICE, ALICE, "a")
    temporary.lookups = 1
    temporaries.become(temporary, TARGET)
    assert temporaries.find(HERE, ALICE, "a") is None
    assert temporaries.get(temporary.node.id).target == TARGET
    temporary.lookups = 0
    temporaries.settle(temporary)
    refused(errno.ENOENT, lambda: temporaries.get(temporary.node.id))


def test_a_rename_replaces_another_temporary(temporaries: Temporaries) -> None:
    one, two = (temporaries.create(HERE, ALICE, ALICE, name) for name in ("one", "two"))
    temporaries.rename(one, "two")
    assert temporaries.find(HERE, ALICE, "two") is one
    assert temporaries.find(HERE, ALICE, "one") is None
    assert two.key is None
    temporaries.rename(one, "two")
    assert temporaries.find(HERE, ALICE, "two") is one


def test_the_budget_of_a_uid_is_its_own(budget: Budget) -> None:
    budget.resize(ALICE, 0, USER_LIMIT)
    refused(errno.ENOSPC, lambda: budget.resize(ALICE, 0, 1))
    budget.resize(BOB, 0, USER_LIMIT)
    budget.resize(ALICE, USER_LIMIT, USER_LIMIT - 1)
    budget.resize(ALICE, 0, 1)


def test_the_budget_of_all_together(budget: Budget) -> None:
    users = TOTAL_LIMIT // USER_LIMIT
    for uid in range(users):
        budget.resize(uid, 0, USER_LIMIT)
    refused(errno.ENOSPC, lambda: budget.resize(users, 0, 1))
    budget.resize(0, USER_LIMIT, 0)
    budget.resize(users, 0, USER_LIMIT)


def test_a_refused_growth_takes_nothing(temporaries: Temporaries, budget: Budget) -> None:
    temporary = temporaries.create(HERE, ALICE, ALICE, "a")
    temporaries.resize(temporary, 10)
    refused(errno.ENOSPC, lambda: temporaries.resize(temporary, USER_LIMIT + 1))
    assert len(temporary.content) == 10
    assert room(budget, ALICE) == USER_LIMIT - 10


def test_their_number_is_bounded_for_each_user(temporaries: Temporaries) -> None:
    kept = [temporaries.create(HERE, ALICE, ALICE, f"t{number}") for number in range(USER_COUNT_LIMIT)]
    refused(errno.ENOSPC, lambda: temporaries.create(HERE, ALICE, ALICE, "more"))
    temporaries.create(HERE, BOB, BOB, "more")
    temporaries.unlink(kept[0])
    temporaries.create(HERE, ALICE, ALICE, "more")


def test_an_open_one_does_not_hide_idle_ones_from_expiry(temporaries: Temporaries, clock: Clock) -> None:
    temporaries.create(HERE, ALICE, ALICE, "open").handles = 1
    idle = temporaries.create(HERE, ALICE, ALICE, "idle")
    clock.now += IDLE_LIMIT_NS + 1
    temporaries.create(HERE, ALICE, ALICE, "new")
    refused(errno.ENOENT, lambda: temporaries.get(idle.node.id))


def test_the_hour_begins_when_the_last_descriptor_is_closed(temporaries: Temporaries, clock: Clock) -> None:
    temporary = temporaries.create(HERE, ALICE, ALICE, "a")
    core: Any = SimpleNamespace(temporaries=temporaries)
    content: Any = None
    handle = TemporaryHandle(Opening(core, content, inode_of(temporary.node), temporary.node, ALICE, os.O_RDWR))
    clock.now += 2 * IDLE_LIMIT_NS
    handle.release()
    clock.now += IDLE_LIMIT_NS
    assert temporaries.find(HERE, ALICE, "a") is temporary
