"""The one place where exceptions become errnos; none can leave a handler (design, Architecture 5).

In pyfuse3 an exception other than FUSEError that leaves a handler ends the mount for everyone. A FUSEError
passes, our own errors and OSError carry their errno, anything else is logged with its stack, counted, and EIO.
"""

import errno
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pyfuse3
from pyfuse3 import FUSEError

from backend.errors import CtxError, StoreFailed, StoreFull, UnprovableHistory
from ctxfs.disk_health import DiskHealth
from ctxfs.statistics import Statistics

log = logging.getLogger("ctxfs")

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])

# pyfuse3's own methods that are no requests.
_NOT_REQUESTS = frozenset(("init", "stacktrace"))
_NOT_ANSWERED = frozenset(("forget",))
_QUIET = (errno.ENOENT, errno.ENODATA, errno.EOPNOTSUPP)


def errno_of(error: BaseException) -> int:
    """What a file operation that ended in ``error`` answers."""
    if isinstance(error, CtxError | FUSEError):
        return error.errno
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    return errno.EIO


def guarded(operation: str, handler: Handler, statistics: Statistics, health: DiskHealth) -> Handler:
    """``handler``, but it raises nothing but FUSEError and counts what it answers."""
    requests = statistics.requests

    @functools.wraps(handler)
    async def guard(*args: Any) -> Any:
        requests[operation] += 1
        try:
            return await handler(*args)
        except FUSEError as error:
            statistics.refused(error.errno)
            raise
        except (CtxError, OSError) as error:
            number = errno_of(error)
            if isinstance(error, (StoreFull, StoreFailed)):
                health.failed(error)
            _explain(operation, error, number)
            statistics.refused(number)
            raise FUSEError(number) from None
        except Exception as error:
            statistics.failed(operation, error)
            log.exception("internal error in %s", operation)
            raise FUSEError(errno.EIO) from None

    return guard  # type: ignore[return-value]


def guarded_silently(operation: str, handler: Handler, statistics: Statistics) -> Handler:
    """``handler`` of a request without an answer: it raises nothing at all (pyfuse3 does not catch even FUSEError)."""

    @functools.wraps(handler)
    async def guard(*args: Any) -> None:
        statistics.requests[operation] += 1
        try:
            await handler(*args)
        except Exception as error:
            statistics.failed(operation, error)
            log.exception("internal error in %s", operation)

    return guard  # type: ignore[return-value]


def _explain(operation: str, error: BaseException, number: int) -> None:
    """One line on why; our messages never quote contents, the system's name only the errno."""
    if number in _QUIET:
        return
    reason = str(error) if isinstance(error, CtxError) else errno.errorcode.get(number, str(number))
    level = logging.ERROR if isinstance(error, (StoreFull, StoreFailed, UnprovableHistory)) else logging.INFO
    log.log(level, "%s refused: %s", operation, reason)


def guard_operations(operations: pyfuse3.Operations, statistics: Statistics, health: DiskHealth) -> None:
    """Wraps every handler of ``operations``, those it inherits too."""
    for name in dir(pyfuse3.Operations):
        if name.startswith("_") or name in _NOT_REQUESTS or not callable(handler := getattr(operations, name)):
            continue
        if name in _NOT_ANSWERED:
            setattr(operations, name, guarded_silently(name, handler, statistics))
        else:
            setattr(operations, name, guarded(name, handler, statistics, health))
