"""The operations of ``agent/ctx.sock`` as they are sent (docs/ctx-socket.md)."""

from typing import Annotated, Any

import msgspec

from backend.store import Stream

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]


class _Place(msgspec.Struct, frozen=True, kw_only=True, tag_field="op"):
    """Whose sessions: the peer's own home unless ``space`` names a shared one, or (uid 0) ``home`` another uid."""

    home: Count | None = None
    space: str | None = None


class Ping(_Place, frozen=True, tag="ping"):
    """Whether anybody answers."""


class Status(_Place, frozen=True, tag="status"):
    """Figures of the mount and of a place."""


class Import(_Place, frozen=True, kw_only=True, tag="import"):
    """Entries with their own times. As many lines follow as ``entries`` has, each ``[stream, ms]`` of one of them.

    ``created_at`` (ms), ``title`` and ``origin`` are those of the session if it is new. ``expected_n``: refuse
    (``EAGAIN``) unless the session has that many entries.
    """

    agent: str
    session: str
    entries: list[tuple[Stream, Count]]
    expected_n: Count | None = None
    created_at: Count | None = None
    title: str | None = None
    origin: Any = None


class Search(_Place, frozen=True, kw_only=True, tag="search"):
    """The newest entries of a place, or of one agent, that hold all words of ``text``."""

    text: str
    agent: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 50


Request = Ping | Status | Import | Search
