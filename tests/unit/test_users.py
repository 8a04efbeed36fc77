"""Primary groups: asked on a thread of its own, remembered where they tell anything, never in anybody's way."""

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

from ctxfs.loop import Loop
from ctxfs.users import DEFAULT_S, DEFAULTS, Users, primary_group


def learn(look_up: Callable[[int], int], *uids: int) -> Users:
    loop = Loop()
    users = Users(loop, look_up)

    async def main() -> None:
        for uid in uids:
            await users.learn(uid)

    loop.run(main)
    users.close()
    return users


def test_the_database_is_asked_once_for_a_user_and_not_on_the_loops_thread() -> None:
    asked: list[tuple[int, str]] = []

    def look_up(uid: int) -> int:
        asked.append((uid, threading.current_thread().name))
        return 100

    users = learn(look_up, 7, 7)
    assert asked == [(7, "ctxfs-users")]
    assert users.group(7) == 100


def test_a_uid_without_an_account_has_its_number() -> None:
    assert learn(lambda uid: uid, 5050).group(5050) == 5050


class Database:
    """Answers with what it is told, and takes notes."""

    def __init__(self, **groups: int) -> None:
        self.groups = {int(name[1:]): group for name, group in groups.items()}
        self.asked: list[int] = []
        self.now = 0.0

    def look_up(self, uid: int) -> int:
        self.asked.append(uid)
        return self.groups.get(uid, uid)

    @contextlib.contextmanager
    def users(self) -> Iterator[Callable[..., Users]]:
        """Learns uids, one after the other."""
        loop = Loop()
        users = Users(loop, self.look_up, lambda: self.now)

        async def main(uids: tuple[int, ...]) -> None:
            for uid in uids:
                await users.learn(uid)

        def learn(*uids: int) -> Users:
            loop.run(lambda: main(uids))
            return users

        yield learn
        users.close()


def test_that_a_uid_has_its_number_is_remembered_for_some_minutes() -> None:
    database = Database()
    with database.users() as learn:
        learn(7, 7)
        assert database.asked == [7]
        database.now += DEFAULT_S + 1
        database.groups[7] = 100
        assert learn(7, 7).group(7) == 100
        database.now += DEFAULT_S + 1
        learn(7)
    assert database.asked == [7, 7]


def test_numbers_that_nobody_has_take_bounded_memory_and_nothing_from_who_has_a_group() -> None:
    database = Database(u7=100)
    with database.users() as learn:
        users = learn(7, 8, *range(10_000, 10_000 + DEFAULTS))
        assert len(users._defaults) == DEFAULTS
        database.asked.clear()
        assert learn(7, 10_001).group(7) == 100
        assert database.asked == []
        learn(8)
    assert database.asked == [8]


def test_who_asks_for_the_same_at_the_same_time_shares_one_look_up() -> None:
    database = Database(u7=100)
    loop = Loop()
    users = Users(loop, database.look_up)

    async def main() -> None:
        for _ in range(5):
            loop.start(users.learn(7))

    loop.run(main)
    users.close()
    assert database.asked == [7]


def test_before_it_is_known_a_group_is_the_number() -> None:
    assert learn(lambda _: 100).group(8) == 8


@pytest.mark.parametrize("error", [OSError("no answer"), ValueError(), RuntimeError()])
def test_a_database_that_fails_gives_the_number_and_is_asked_again(error: Exception) -> None:
    answers: Iterator[Exception | int] = iter((error, 100))

    def look_up(uid: int) -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    users = learn(look_up, 7)
    assert users.group(7) == 7
    loop = Loop()
    users = Users(loop, look_up)
    loop.run(lambda: users.learn(7))
    users.close()
    assert users.group(7) == 100


@pytest.mark.parametrize(("uid", "group"), [(0, 0), (4294967294, 4294967294), (1 << 40, 1 << 40)])
def test_the_real_database_answers_for_any_number(uid: int, group: int) -> None:
    assert primary_group(uid) == group
