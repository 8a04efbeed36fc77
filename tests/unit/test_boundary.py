"""The boundary: what leaves a handler is a FUSEError with the right errno, and it is counted."""

import errno
import logging
from typing import Any

import pyfuse3
import pytest
import trio
from pyfuse3 import FUSEError

from backend import errors
from ctxfs.boundary import errno_of, guard_operations, guarded, guarded_silently
from ctxfs.disk_health import DiskHealth
from ctxfs.statistics import Statistics


@pytest.fixture
def statistics() -> Statistics:
    return Statistics()


@pytest.fixture
def health() -> DiskHealth:
    return DiskHealth(lambda: None)


def answer_of(error: BaseException, statistics: Statistics, health: DiskHealth) -> int:
    """The errno that a handler answers which raises ``error``."""

    async def handler() -> None:
        raise error

    with pytest.raises(FUSEError) as caught:
        trio.run(guarded("open", handler, statistics, health))
    return int(caught.value.errno)


OURS = [error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, errors.CtxError)]


@pytest.mark.parametrize("error", OURS, ids=lambda error: error.__name__)
def test_our_errors_carry_their_errno(error: type[errors.CtxError], statistics: Statistics, health: DiskHealth) -> None:
    made = error.__new__(error)
    Exception.__init__(made, "why")
    assert answer_of(made, statistics, health) == error.errno
    assert statistics.errors == {errno.errorcode[error.errno]: 1}
    assert statistics.internal == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG])
def test_errors_of_the_system_pass(number: int, statistics: Statistics, health: DiskHealth) -> None:
    assert answer_of(OSError(number, "x"), statistics, health) == number


@pytest.mark.parametrize(
    "error", [RuntimeError("x"), KeyError("k"), AssertionError(), MemoryError(), RecursionError(), OSError("no number")]
)
def test_anything_else_is_eio_logged_with_its_stack_and_counted(
    error: Exception, statistics: Statistics, health: DiskHealth, caplog: pytest.LogCaptureFixture
) -> None:
    assert answer_of(error, statistics, health) == errno.EIO
    assert statistics.errors["EIO"] == 1
    if not isinstance(error, OSError):
        assert statistics.internal == 1
        assert statistics.last_error == f"open: {type(error).__name__}"
        assert caplog.records[-1].exc_info is not None


def test_a_fuse_error_passes_as_it_is(statistics: Statistics, health: DiskHealth) -> None:
    assert answer_of(FUSEError(errno.EXDEV), statistics, health) == errno.EXDEV
    assert statistics.errors == {"EXDEV": 1}


def test_what_is_returned_passes_and_requests_are_counted(statistics: Statistics, health: DiskHealth) -> None:
    async def handler(one: int, two: int) -> tuple[int, int]:
        return one, two

    guard: Any = guarded("read", handler, statistics, health)

    async def call() -> tuple[int, int]:
        result: tuple[int, int] = await guard(1, 2)
        return result

    assert trio.run(call) == (1, 2)
    assert (statistics.requests, statistics.errors) == ({"read": 1}, {})


@pytest.mark.parametrize("error", [FUSEError(errno.ENOENT), RuntimeError("x"), OSError(errno.EIO, "x")])
def test_a_request_without_an_answer_raises_nothing(error: Exception, statistics: Statistics) -> None:
    async def handler() -> None:
        raise error

    trio.run(guarded_silently("forget", handler, statistics))
    assert statistics.requests == {"forget": 1}
    assert statistics.internal == 1


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (errors.StoreFull("/s/home/1001/agent/secret: no room"), "disk full"),
        (errors.StoreFailed("/s/home/1001/agent/secret: Input/output error"), "disk failed"),
    ],
)
def test_a_full_or_failing_store_shows_in_health_without_names_until_something_is_stored(
    statistics: Statistics, error: errors.CtxError, failure: str
) -> None:
    changes: list[str] = []
    health = DiskHealth(lambda: changes.append("changed"))
    since = health.changed_ns
    answer_of(error, statistics, health)
    answer_of(error, statistics, health)
    assert health.failure == failure
    assert changes == ["changed"]
    assert health.changed_ns > since
    answer_of(errors.InvalidValue("no"), statistics, health)
    assert health.failure == failure
    health.recovered()
    health.recovered()
    assert health.failure is None
    assert changes == ["changed"] * 2


def test_what_a_user_wrote_is_never_logged(
    statistics: Statistics, health: DiskHealth, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answer_of(OSError(errno.EIO, "x", "/home/1001/secret"), statistics, health)
    assert "secret" not in caplog.text
    assert "EIO" in caplog.text


def test_every_handler_is_guarded_the_inherited_ones_too(statistics: Statistics, health: DiskHealth) -> None:
    class Broken(pyfuse3.Operations):
        async def getattr(self, inode: int, ctx: Any) -> Any:
            raise RuntimeError

    operations = Broken()
    guard_operations(operations, statistics, health)
    for name, arguments in (("getattr", (1, None)), ("readlink", (1, None)), ("poll", (1, 1, None, None))):
        with pytest.raises(FUSEError):
            trio.run(getattr(operations, name), *arguments)
    trio.run(operations.forget, [(1, 1)])
    assert statistics.requests == {"getattr": 1, "readlink": 1, "poll": 1, "forget": 1}


def test_an_error_without_a_number_is_eio() -> None:
    assert errno_of(OSError("no number")) == errno.EIO
    assert errno_of(RuntimeError()) == errno.EIO
