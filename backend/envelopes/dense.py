"""Messages, content blocks and tool calls of large sessions, many at a time (spec 5).

``sessions`` says what they are, and judges one by one whatever is not known here: what is, is right. Imported when the
first large session is read.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


class Text(msgspec.Struct, tag_field="type", tag="text", gc=False):
    """A content block."""

    text: str


class ToolResult(msgspec.Struct, tag_field="type", tag="tool_result", gc=False):
    """A content block."""

    tool_use_id: str
    content: str
    is_error: bool = False

    @property
    def text(self) -> str:
        """What it says."""
        return self.content


class Function(msgspec.Struct, gc=False):
    """What a tool call calls."""

    name: str
    arguments: str


class Call(msgspec.Struct, gc=False):
    """A tool call."""

    id: str
    type: str
    function: Function


class Message(msgspec.Struct, gc=False):
    """A message."""

    role: str
    content: str | list[Text | ToolResult]
    tool_call_id: str | None = None
    name: str | None = None
    tool_calls: list[Call] | None = None

    @property
    def texts(self) -> Iterable[str]:
        """What its content says, in order."""
        return (self.content,) if isinstance(self.content, str) else [block.text for block in self.content]


_decode_messages = msgspec.json.Decoder(list[Message]).decode
_decode_blocks = msgspec.json.Decoder(list[Text | ToolResult]).decode
_decode_calls = msgspec.json.Decoder(list[Call]).decode


def messages(run: bytes) -> list[Message] | None:
    """The messages of an array, None where it may hold something else."""
    return _known(_decode_messages, run)


def blocks(run: bytes) -> list[Text | ToolResult] | None:
    """The content blocks of an array, None where it may hold something else."""
    return _known(_decode_blocks, run)


def calls(run: bytes) -> list[Call] | None:
    """The tool calls of an array, None where it may hold something else."""
    return _known(_decode_calls, run)


def _known(decode: Callable[[bytes], T], run: bytes) -> T | None:
    try:
        return decode(run)
    except (msgspec.MsgspecError, RecursionError):
        return None
