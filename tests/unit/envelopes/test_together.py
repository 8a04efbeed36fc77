"""Calls side by side (spec 5): their order, how many there are at once, and what they raise."""

import _thread
import threading
from typing import NoReturn

import pytest

from backend.envelopes.together import together

LIMIT_S = 60


@pytest.mark.parametrize("at_once", [1, 2, 8, 100])
@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_results_are_in_the_order_of_the_items(count: int, at_once: int) -> None:
    assert together(str, range(count), at_once) == [str(number) for number in range(count)]


def test_as_many_as_asked_for_run_at_once_and_no_more() -> None:
    barrier, running, most = threading.Barrier(4), set[int](), list[int]()

    def call(number: int) -> None:
        running.add(number)
        barrier.wait(LIMIT_S)  # passed only by four
        most.append(len(running))
        barrier.wait(LIMIT_S)
        running.discard(number)

    together(call, range(16), 4)
    assert max(most) == 4


def test_one_item_is_done_in_the_thread_that_asks() -> None:
    assert together(lambda _: _thread.get_ident(), ["one"], 8) == [_thread.get_ident()]


@pytest.mark.parametrize("at_once", [1, 4])
def test_what_a_call_raises_is_raised_when_all_have_ended(at_once: int) -> None:
    ended = list[int]()

    def call(number: int) -> None:
        if number == 0:
            raise KeyError(number)
        ended.append(number)

    with pytest.raises(KeyError):
        together(call, range(100), at_once)
    assert len(ended) == (99 if at_once > 1 else 0)


def test_where_there_can_be_no_more_threads_the_calls_are_made_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refused)
    assert together(str, range(3), 8) == ["0", "1", "2"]
