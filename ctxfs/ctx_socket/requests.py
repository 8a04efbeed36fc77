"""The operations of ``agent/ctx.sock`` as they are sent (docs/ctx-socket.md)."""

from typing import Annotated, Any

import msgspec

from backend.rows import Stream

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]


class _Place(msgspec.Struct, frozen=True, kw_only=True, tag_field="op"):
    """Whose sessions: the peer's own home unless ``space`` names a shared one, or (uid 0) ``home`` another uid."""

    home: Count | None = None
    space: str | None = None


class Ping(_Place, frozen=True, tag="ping"):
    """Whether anybody answers."""


class Status(_Place, frozen=True, tag="status"):
    """Figures of the mount and of a place."""


class Sessions(_Place, frozen=True, kw_only=True, tag="sessions"):
    """The live sessions of an agent, and what their files say of them."""

    agent: str


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Entries with their own times for one session: for each ``[stream, ms]`` a line follows the request.

    ``created_at`` (ms), ``title`` and ``origin`` are those of the session if it is new. ``expected_n``: refuse
    (``EAGAIN``) unless the session has that many entries. ``uuid``: what by-uuid/ is to lead to the session.
    """

    session: str
    entries: list[tuple[Stream, Count]]
    expected_n: Count | None = None
    created_at: Count | None = None
    title: str | None = None
    origin: Any = None
    uuid: str | None = None


class Search(_Place, frozen=True, kw_only=True, tag="search"):
    """The newest entries of a place, or of one agent, that hold all words of ``text``.

    ``progress``: say now and then how far the index is.
    """

    text: str
    agent: str | None = None
    progress: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 50


class Import(Part, frozen=True, kw_only=True, tag_field="op", tag="import"):
    """A part for one session of an agent; ``home`` and ``space`` as in ``_Place``."""

    agent: str
    home: Count | None = None
    space: str | None = None


class ImportMany(_Place, frozen=True, kw_only=True, tag="import-many"):
    """Parts for several sessions of an agent; the lines of all follow, in order."""

    agent: str
    sessions: Annotated[list[Part], msgspec.Meta(max_length=64)]


class Doctor(_Place, frozen=True, kw_only=True, tag="doctor"):
    """What is wrong with the sessions of a place, of one agent, or with one session."""

    agent: str | None = None
    session: str | None = None


Request = Ping | Status | Sessions | Import | ImportMany | Search | Doctor
