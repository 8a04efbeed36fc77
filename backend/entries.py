"""The log's types (spec 2.1): header, head, entries, and entries that are not numbered yet.

Payloads (``message``, ``data``, ``meta``) are plain JSON values; lines and bytes live in ``backend.lines``.
"""

from typing import Any

import msgspec

FORMAT_VERSION = 1


class _Record(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A value of the log: immutable, JSON keys in camel case, absent optionals left out."""


class SessionHeader(_Record, frozen=True, kw_only=True):
    """What a session is, apart from its entries (spec 2.1). ``createdAt`` in ms since the epoch."""

    session_id: str
    format_version: int
    created_at: int
    delegation_depth: int
    parent: str | None = None
    at: int | None = None
    title: str | None = None
    origin: Any = None


class SessionHead(_Record, frozen=True):
    """A header and the number of entries (spec 2.9)."""

    header: SessionHeader
    length: int


class NewMessage(_Record, frozen=True, tag_field="kind", tag="message"):
    """A message to append; ``time`` in ms, the store's clock where it is absent."""

    message: dict[str, Any]
    meta: dict[str, Any] | None = None
    time: int | None = None


class NewMark(_Record, frozen=True, tag_field="kind", tag="mark"):
    """A mark to append."""

    name: str
    data: Any
    time: int | None = None


class NewCut(_Record, frozen=True, tag_field="kind", tag="cut"):
    """A cut to append; ``data``: ``{before, summary, reason, native?, meta?}`` (spec 2.4)."""

    data: dict[str, Any]
    time: int | None = None


class MessageEntry(_Record, frozen=True, tag_field="kind", tag="message"):
    """A stored message: entry ``n``, ms ``time``."""

    n: int
    time: int
    message: dict[str, Any]
    meta: dict[str, Any] | None = None


class MarkEntry(_Record, frozen=True, tag_field="kind", tag="mark"):
    """A stored mark."""

    n: int
    time: int
    name: str
    data: Any


class CutEntry(_Record, frozen=True, tag_field="kind", tag="cut"):
    """A stored cut."""

    n: int
    time: int
    data: dict[str, Any]


NewEntry = NewMessage | NewMark | NewCut
Entry = MessageEntry | MarkEntry | CutEntry
