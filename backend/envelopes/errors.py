"""The ten errors of session control: their codes, message forms and hints (spec 5).

Clients act on the codes; nobody may add one. Texts are cut where they leave the process, not here.
"""

from __future__ import annotations

import os

from backend.errors import CtxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

# code: (form of the message, hint)
CODES = {
    "invalid_id": ("invalid session ID: {value}", "Use the canonical session UUID shown by session list."),
    "invalid_cursor": (
        "invalid session pagination cursor: {value}",
        "Refresh the session list and restart pagination.",
    ),
    "invalid_request": (
        "invalid session management request: {detail}",
        "Retry with a bounded request that follows the session protocol.",
    ),
    "not_found": ("session not found: {id}", "Refresh the session list and choose an existing entry."),
    "io": ("session {operation} failed for {path}: {reason}", "Check the session directory permissions and retry."),
    "corrupt": ("session {id} is corrupt: {detail}", "Clear the damaged session after confirming its ID."),
    "incompatible_version": (
        "session {id} uses unsupported schema version {version}",
        "Upgrade cosh-core or clear the incompatible session.",
    ),
    "scope_mismatch": (
        "session {id} belongs to {actual}, not {expected}",
        "Resume the session from its original workspace.",
    ),
    "conflict": ("session {id} changed concurrently", "Retry after the other session writer has completed."),
    "active_session": (
        "session {id} is protected",
        "Select another session before clearing this protected session.",
    ),
}


class EnvelopeError(CtxError):
    """A refusal or failure with one of the codes; ``parts`` are what its message form names."""

    def __init__(self, code: str, **parts: str | int) -> None:
        form, hint = CODES[code]
        super().__init__(form.format(**parts))
        self.code = code
        self.hint = hint
        self.parts = parts


def io_error(operation: str, path: str, error: OSError) -> EnvelopeError:
    """An ``io`` error as cosh-core words it."""
    reason = f"{error.strerror or error} (os error {error.errno})" if error.errno else str(error)
    return EnvelopeError("io", operation=operation, path=shown(path), reason=reason)


def shown(path: str) -> str:
    """A path as text that can be encoded."""
    return os.fsencode(path).decode("utf-8", "replace")


class io_errors:
    """Turns an ``OSError`` into the ``io`` error of that operation on that path."""

    __slots__ = ("_operation", "_path")

    def __init__(self, operation: str, path: str) -> None:
        self._operation = operation
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, OSError):
            raise io_error(self._operation, self._path, error) from error
