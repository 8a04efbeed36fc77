"""Frames: one JSON object a line, at most 1 MiB with its newline (spec 3.2). Pure."""

import errno
from typing import Any, TypeVar

import msgspec

from backend.errors import InvalidValue, LineTooLong
from backend.strict_json import MAX_LINE, compact, strict_object
from ctxfs.boundary import errno_of

MAX_FRAME = 1 << 20
MAX_LINE_FRAME = MAX_LINE + 1  # a line of a log, where a request says that lines follow

T = TypeVar("T")


class FrameTooLong(LineTooLong):
    """A line of more than 1 MiB with its newline (``EMSGSIZE``); all of it was passed over."""


class Lines:
    """Bytes → lines, never holding more than ``limit`` bytes of one."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._held = bytearray()
        self._searched = 0
        self._skipping = False

    @property
    def room(self) -> int:
        """So many more bytes may be fed."""
        return self._limit - len(self._held)

    def first(self) -> bytes | None:
        """What ``take`` would return next, left where it is; None also where it would raise."""
        end = -1 if self._skipping else self._held.find(b"\n")
        return None if end < 0 else bytes(self._held[:end])

    def feed(self, data: bytes) -> None:
        self._held += data

    def take(self) -> bytes | None:
        """The next line without its newline, None until more is fed; ``FrameTooLong`` at the end of such a line."""
        end = self._held.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._held)
            if self._searched >= self._limit:
                self._skipping = True
                self._drop(self._searched)
            return None
        return self._cut(end, end + 1)

    def end(self) -> bytes | None:
        """After all was fed and taken: what came after the last newline, None for nothing (``FrameTooLong``).

        Some clients send no newline after their last request; of a request that was cut off, no beginning is JSON.
        """
        size = len(self._held)
        return self._cut(size, size) or None

    def _cut(self, end: int, next: int) -> bytes:
        line = bytes(self._held[:end])
        self._drop(next)
        if self._skipping:
            self._skipping = False
            raise FrameTooLong("a frame has more than 1 MiB")
        return line

    def _drop(self, count: int) -> None:
        del self._held[:count]
        self._searched = 0


def decode(request: bytes, type: Any) -> Any:
    """A request as one of the msgspec structs in ``type``, unknown fields ignored (``InvalidValue``).

    Strict as lines are (spec 1.5, Common): no repeated keys, no NUL, no lone surrogates. A line may end in CR LF.
    """
    try:
        return msgspec.convert(strict_object(request.removesuffix(b"\r")), type)
    except msgspec.ValidationError as error:
        raise InvalidValue(str(error)) from None


def encode(frame: object) -> bytes:
    """A frame as it travels, keys sorted, with its newline; ``frame``: a JSON value, or a msgspec struct."""
    return compact(frame) + b"\n"


def error_frame(error: BaseException, **known: str) -> dict[str, Any]:
    """``{"code", "message", "type": "error"}`` and what is ``known`` of the request (``run``, ``id``)."""
    number = errno_of(error)
    return {
        "code": errno.errorcode.get(number, "EIO"),
        "message": getattr(error, "strerror", None) or str(error) or type(error).__name__,
        "type": "error",
        **known,
    }
