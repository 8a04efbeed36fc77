"""Errors of the store: small classes that carry an errno and, where a command ends by them, an exit code.

Nothing here maps errors to FUSE or prints them: ``ctxfs.boundary`` and ``mountctl`` do (design, Style).
"""

from __future__ import annotations

import errno

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


class CtxError(Exception):
    """Anything ctxfs refuses or fails at on purpose.

    ``errno`` is what a file operation answers; ``exit_code`` is what a command ends with (spec 4).
    The message says what happened and what to do next; it never quotes message contents.
    """

    errno: ClassVar[int] = errno.EIO
    exit_code: ClassVar[int] = 1


class InvalidValue(CtxError):
    """A value, name or line that breaks a rule of spec 1 (``EINVAL``)."""

    errno = errno.EINVAL


class LineTooLong(CtxError):
    """A line of more than 1 MiB (spec 1.5, ``EMSGSIZE``)."""

    errno = errno.EMSGSIZE


class ValueTooBig(CtxError):
    """A value over its limit (spec 1.4, ``EFBIG``)."""

    errno = errno.EFBIG


class Missing(CtxError):
    """A name that leads nowhere (``ENOENT``)."""

    errno = errno.ENOENT


class Exists(CtxError):
    """A name that is taken (``EEXIST``)."""

    errno = errno.EEXIST


class NotEmpty(CtxError):
    """A directory that still holds something (``ENOTEMPTY``)."""

    errno = errno.ENOTEMPTY


class Busy(CtxError):
    """An active, default or current session where that protects it (``EBUSY``, spec 1.4)."""

    errno = errno.EBUSY


class UnprovableHistory(CtxError):
    """An append to history that cannot be proven (spec 1.5, last point: ``EIO``)."""


class SessionArchived(CtxError):
    """An append to a session that was archived (``EROFS``, spec 1.8)."""

    errno = errno.EROFS


class StoreFull(CtxError):
    """The disk below the store is full (``ENOSPC``); nothing was stored."""

    errno = errno.ENOSPC


class StoreFailed(CtxError):
    """The disk or the database failed (``EIO``); nothing was stored."""


class OpenError(CtxError):
    """A store that cannot be opened; the subclasses carry the exit codes of spec 4.6."""


class StoreLocked(OpenError):
    """Another process has the store open."""

    exit_code = 7


class StoreCorrupt(OpenError):
    """The store's own files do not parse."""

    exit_code = 8


class StoreReadOnly(OpenError):
    """The store cannot be written."""

    errno = errno.EROFS
    exit_code = 9


class StoreDenied(OpenError):
    """The store is somebody else's (spec 4: exit code 13)."""

    errno = errno.EACCES
    exit_code = 13


class StoreFormat(OpenError):
    """The store is of another format, or of a version this program does not know."""

    exit_code = 10


class SessionError(CtxError):
    """Base of the log contract's errors (spec 2.9); raised itself for a bad payload or index."""

    errno = errno.EINVAL


class SessionConflictError(SessionError):
    """The stored log has moved: ``put`` expected ``expected_n`` entries and found ``actual_n``."""

    errno = errno.EAGAIN

    def __init__(self, session_id: str, expected_n: int, actual_n: int) -> None:
        super().__init__(f"session {session_id!r} has {actual_n} entries, not {expected_n}: reopen it")
        self.session_id = session_id
        self.expected_n = expected_n
        self.actual_n = actual_n


class SessionNotFoundError(SessionError):
    """No session of that id."""

    errno = errno.ENOENT

    def __init__(self, session_id: str) -> None:
        super().__init__(f"no session {session_id!r}")
        self.session_id = session_id


class SessionAlreadyExistsError(SessionError):
    """The id, or the name in that directory, is taken."""

    errno = errno.EEXIST

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id!r} exists")
        self.session_id = session_id


class BranchOutOfRange(SessionError):
    """A branch beyond its parent's end (``ERANGE``, spec 1.9)."""

    errno = errno.ERANGE


class NoPromptError(SessionError):
    """No request was recorded at that entry (spec 2.6)."""
