"""Errors of workspace checkpoints: one class for each code of the protocol (spec 6.2), and the client's own.

The daemon raises them and answers them; the client raises them again with the daemon's text.
"""

import errno
from typing import ClassVar

from backend.checkpoints.wire import Error, ErrorCode
from backend.errors import CtxError


class CheckpointError(CtxError):
    """Anything the daemon refuses or fails at; ``code`` is what it answers."""

    code: ClassVar[ErrorCode] = ErrorCode.InternalError


class WorkspaceNotFound(CheckpointError):
    """No workspace of that id or path that the asker may use."""

    errno = errno.ENOENT
    code = ErrorCode.WorkspaceNotFound


class SnapshotNotFound(CheckpointError):
    """No snapshot of that id, several that begin with it, or one that is missing from the disk."""

    errno = errno.ENOENT
    code = ErrorCode.SnapshotNotFound


class AlreadyInitialized(CheckpointError):
    """Only other daemons answer it."""

    errno = errno.EEXIST
    code = ErrorCode.AlreadyInitialized


class BtrfsError(CheckpointError):
    """Only other daemons answer it."""

    code = ErrorCode.BtrfsError


class IoError(CheckpointError):
    """Only other daemons answer it."""

    code = ErrorCode.IoError


class InvalidPath(CheckpointError):
    """A path that cannot be a workspace or is no longer the one that was registered, or a bad id."""

    errno = errno.EINVAL
    code = ErrorCode.InvalidPath


class NotTheirs(InvalidPath):
    """A path that is not the asker's directory, or nothing at all: who asks is not to learn which."""


class ConfirmationRequired(CheckpointError):
    """The snapshot is pinned."""

    errno = errno.EPERM
    code = ErrorCode.ConfirmationRequired


class InternalError(CheckpointError):
    """The back end failed, or a request that means nothing."""


class SnapshotAlreadyExists(CheckpointError):
    """The workspace has a snapshot of that id."""

    errno = errno.EEXIST
    code = ErrorCode.SnapshotAlreadyExists


class WriteLockConflict(CheckpointError):
    """Somebody is writing in the workspace."""

    errno = errno.EBUSY
    code = ErrorCode.WriteLockConflict


class DiskSpaceInsufficient(CheckpointError):
    """A disk is full; nothing was changed."""

    errno = errno.ENOSPC
    code = ErrorCode.DiskSpaceInsufficient


class DaemonRunning(CtxError):
    """Another daemon has the state directory, or the socket."""


class DaemonUnavailable(CheckpointError):
    """Nobody answers on the socket."""

    errno = errno.ECONNREFUSED
    exit_code = 69


class DaemonTimeout(DaemonUnavailable):
    """The daemon did not answer in time; what was asked may still be done."""

    errno = errno.ETIMEDOUT


class ProtocolError(CheckpointError):
    """What came back is no answer of this protocol."""

    errno = errno.EPROTO


_BY_CODE: dict[ErrorCode, type[CheckpointError]] = {
    kind.code: kind
    for kind in (
        WorkspaceNotFound,
        SnapshotNotFound,
        AlreadyInitialized,
        BtrfsError,
        IoError,
        InvalidPath,
        ConfirmationRequired,
        InternalError,
        SnapshotAlreadyExists,
        WriteLockConflict,
        DiskSpaceInsufficient,
    )
}


def error_of(answer: Error) -> CheckpointError:
    """What an answer says, as the exception of its code."""
    return _BY_CODE[answer.code](answer.message)
