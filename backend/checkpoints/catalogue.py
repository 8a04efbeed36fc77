"""What is known of a workspace and its snapshots, as its ``index.json`` keeps it (spec 6.3; notes 2.3). Pure.

Other daemons' files are read too: what only ours writes may be absent.
"""

from collections.abc import Collection
from typing import Any

import msgspec

from backend.checkpoints import wire
from backend.checkpoints.errors import InternalError, InvalidPath, SnapshotNotFound
from backend.checkpoints.identity import Identity
from backend.checkpoints.times import parse_timestamp
from backend.checkpoints.wire import SnapshotEntry, SnapshotMeta, Timestamp
from backend.strict_json import compact

MAX_ID_BYTES = 255


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot; ``metadata`` is any JSON value, ``missing``: it is not on disk (``ValueError``: no point in time)."""

    message: str | None = None
    metadata: Any = None
    pinned: bool = False
    created_at: Timestamp
    missing: bool = False

    def __post_init__(self) -> None:
        parse_timestamp(self.created_at)


class Catalogue(msgspec.Struct, kw_only=True):
    """A workspace's snapshots by id; ``identity`` and ``owner`` (a uid) of its directory when last seen.

    ``left`` is a directory beside it that could not be removed yet, though nobody needs it any more.
    ``backend`` and ``data_root`` are also in the state file, and here in case that is lost.
    """

    workspace_path: str
    snapshots: dict[str, Record] = {}
    identity: Identity | None = None
    owner: int = 0
    left: Identity | None = None
    backend: str | None = None
    data_root: str | None = None


def check_id(id: str) -> None:
    """``InvalidPath`` unless a snapshot may be called that (spec 6.4)."""
    try:
        length = len(id.encode())
    except UnicodeEncodeError:
        length = 0
    printable = all(ord(char) >= 32 and not 127 <= ord(char) < 160 for char in id)
    if not 1 <= length <= MAX_ID_BYTES or "/" in id or not printable or id.startswith((".", "-")):
        raise InvalidPath(
            f"bad snapshot id {id[:80]!r}: 1 to 255 bytes, no `/`, no control characters, no `.` or `-` at its start"
        )


def parse_metadata(text: str | None) -> Any:
    """The JSON value of a request's metadata (``InternalError``)."""
    if text is None:
        return None
    try:
        return wire.parse_metadata(text)
    except ValueError as error:
        raise InternalError(f"bad metadata: {error}") from None


def matches(ids: Collection[str], reference: str) -> list[str]:
    """The ids that ``reference`` may mean: it alone if it is one, else all that begin with it."""
    return [reference] if reference in ids else [id for id in ids if id.startswith(reference)]


def resolve(ids: Collection[str], reference: str) -> str:
    """The id that is ``reference``, or the only one that begins with it (``SnapshotNotFound``)."""
    found = matches(ids, reference)
    if not found:
        raise SnapshotNotFound(f"snapshot not found: {reference}")
    if len(found) > 1:
        raise SnapshotNotFound(f"ambiguous snapshot prefix '{reference}': {len(found)} matches")
    return found[0]


def by_age(snapshots: dict[str, Record]) -> list[tuple[str, Record]]:
    """All snapshots, oldest first."""
    return sorted(snapshots.items(), key=lambda item: (parse_timestamp(item[1].created_at), item[0]))


def entry_of(workspace: str, id: str, record: Record) -> SnapshotEntry:
    """A snapshot as a listing shows it."""
    metadata = None if record.metadata is None else compact(record.metadata).decode()
    meta = SnapshotMeta(record.message, metadata, record.pinned, record.created_at, record.missing)
    return SnapshotEntry(id, workspace, meta)
