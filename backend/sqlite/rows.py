"""The rows of schema.sql as the structs of ``backend.rows``: column lists and the statements made of them.

Pure text and conversion: a struct's fields are a table's first columns, in order.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from backend.entries import SessionHeader
from backend.names import cwd_key
from backend.rows import ArchiveDirectory, Owner, Session, Space

T = TypeVar("T")

SPACE = f"SELECT {', '.join(Space.__struct_fields__)} FROM space"
OWNER = f"SELECT {', '.join(Owner.__struct_fields__)} FROM owner"
OWNER_BY_ID = f"{OWNER} WHERE id = ?"
DIRECTORY = f"SELECT {', '.join(ArchiveDirectory.__struct_fields__)} FROM archive_directory"
MAPPING = (
    "SELECT mapping.id, mapping.owner, kind, key, session.name, mapping.mtime"
    " FROM mapping JOIN session ON session.id = mapping.session"
)

_SESSION_FIELDS = tuple(field for field in Session.__struct_fields__ if field != "fault")
_EXTRA_FIELDS = ("listed", "cwd_key", "format_version", "delegation_depth", "title", "origin")
SESSION = f"SELECT {', '.join(_SESSION_FIELDS)} FROM session"
SESSION_BY_ID = f"{SESSION} WHERE id = ?"
SESSION_BY_NAME = f"{SESSION} WHERE owner = ? AND name = ? AND archive IS NULL"
SESSION_BY_SESSION_ID = f"{SESSION} WHERE session_id = ?"
_LIVE = "FROM session INDEXED BY session_page WHERE owner = ? AND archive IS NULL AND id > ? ORDER BY id LIMIT ?"
LIVE_SESSIONS = f"SELECT {', '.join(_SESSION_FIELDS)} {_LIVE}"
LISTING = f"SELECT id, name, uid, updated_at {_LIVE}"
LISTED = "FROM session INDEXED BY session_listed WHERE owner = ? AND archive IS NULL ORDER BY listed DESC"
TOP = f"SELECT id {LISTED} LIMIT 1"
ARCHIVED_SESSION = f"{SESSION} WHERE archive = ? AND name = ?"
ARCHIVED_SESSIONS = f"{SESSION} INDEXED BY session_archived_page WHERE archive = ? AND id > ? ORDER BY id LIMIT ?"
INSERT_SESSION = "INSERT INTO session ({}) VALUES ({})".format(
    ", ".join((*_SESSION_FIELDS, *_EXTRA_FIELDS)), ", ".join("?" * (len(_SESSION_FIELDS) + len(_EXTRA_FIELDS)))
)

# What an append may change; cwd and its index stay out of the common statement.
_APPENDED_FIELDS = (
    "updated_at",
    "n",
    "seq",
    "messages_size",
    "events_size",
    "latest_size",
    "latest_n",
    "state",
    "meta",
    "updated_mtime",
    "messages_mtime",
    "events_mtime",
    "latest_mtime",
    "state_mtime",
    "meta_mtime",
)
_SET_APPENDED = ", ".join(f"{field} = ?{number}" for number, field in enumerate(_APPENDED_FIELDS, 1))
_WHERE = f"WHERE id = ?{len(_APPENDED_FIELDS) + 1}"
UPDATE_SESSION = f"UPDATE session SET {_SET_APPENDED} {_WHERE}"
UPDATE_AND_LIST_SESSION = f"UPDATE session SET {_SET_APPENDED}, listed = ?{_APPENDED_FIELDS.index('seq') + 1} {_WHERE}"
appended: Callable[[Session], tuple[Any, ...]] = attrgetter(*_APPENDED_FIELDS, "id")
"""The values of both."""
UPDATE_CWD = "UPDATE session SET cwd = ?, cwd_seq = ?, cwd_mtime = ?, cwd_key = ? WHERE id = ?"
BEGIN_RUN = "INSERT OR REPLACE INTO live_run VALUES (?, ?)"

_HEADER = "session_id, format_version, created_at, delegation_depth, parent, at, title, origin"
HEADER = f"SELECT {_HEADER} FROM session"


def moved(session: Session) -> tuple[Any, ...]:
    """The values of ``UPDATE_CWD``."""
    return session.cwd, session.cwd_seq, session.cwd_mtime, cwd_key(session.cwd), session.id


def made(kind: Callable[..., T], row: Sequence[Any] | None) -> T | None:
    """The struct of a row, None for none."""
    return None if row is None else kind(*row)


def header(row: Any) -> SessionHeader:
    """The header of a row of ``HEADER``."""
    session_id, version, created_at, depth, parent, at, title, origin = row
    return SessionHeader(
        session_id=session_id,
        format_version=version,
        created_at=created_at,
        delegation_depth=depth,
        parent=parent,
        at=at,
        title=title,
        origin=None if origin is None else msgspec.json.decode(origin),
    )


def new_session(session: Session, cwd_key: str | None, header: SessionHeader) -> tuple[Any, ...]:
    """The values of ``INSERT_SESSION``: a new session comes to the top of index/list."""
    origin = None if header.origin is None else msgspec.json.encode(header.origin).decode()
    values = msgspec.structs.astuple(session)[: len(_SESSION_FIELDS)]
    return (*values, session.seq, cwd_key, header.format_version, header.delegation_depth, header.title, origin)
