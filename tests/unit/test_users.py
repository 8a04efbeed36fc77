"""Primary groups: asked on a thread of its own, remembered where they tell anything, never in anybody's way."""

import threading
from collections.abc import Callable, Iterator

import pytest

from ctxfs.loop import Loop
from ctxfs.users import Users, primary_group


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


def test_a_uid_without_an_account_has_its_number_and_takes_no_memory() -> None:
    users = learn(lambda uid: uid, *range(5000, 5100))
    assert users.group(5050) == 5050
    assert users._groups == {}


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
