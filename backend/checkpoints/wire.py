"""The ws-ckpt protocol, release 0.3.2: its messages, each described once, and frames (spec 6.1).

The order of fields and of the members of ``Request`` and ``Response`` is the wire's: nothing here may be moved.
Pure; ``ctxfs.checkpoints`` moves the bytes. Paths and ids are text: the protocol has no other names.
"""

import enum
from typing import Annotated, Any

import msgspec

from backend.checkpoints.bincode import F64, U32, U64, Checked, WireError, codec_of, decode, encode
from backend.checkpoints.times import parse_duration, parse_timestamp
from backend.strict_json import MAX_DEPTH, nests_deeper

DEFAULT_SOCKET = "/run/ws-ckpt/ws-ckpt.sock"
HEADER_BYTES = 4
MAX_FRAME = 16 << 20
MAX_ANSWER_ACCEPTED = 64 << 20

# Above these a client advises to clean up.
MANY_SNAPSHOTS = 1000
FULL_PERCENT = 90


def parse_metadata(text: str) -> Any:
    """The JSON value of a snapshot's metadata (``ValueError``)."""
    raw = text.encode()
    if nests_deeper(raw):
        raise ValueError(f"it nests deeper than {MAX_DEPTH}")
    try:
        return msgspec.json.decode(raw)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not JSON: {error}") from None


Metadata = Annotated[str, Checked(parse_metadata)]
Timestamp = Annotated[str, Checked(parse_timestamp)]
Duration = Annotated[str, Checked(parse_duration)]


class _Message(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    """What crosses the wire: immutable, fields in the wire's order."""


class Init(_Message, frozen=True):
    """Put a directory under protection."""

    workspace: str


class Checkpoint(_Message, frozen=True):
    """Take a snapshot; ``metadata`` is JSON text."""

    workspace: str
    id: str
    message: str | None = None
    metadata: str | None = None
    pin: bool = False


class Rollback(_Message, frozen=True):
    """Make the workspace what the snapshot ``to`` (an id or a unique prefix) holds."""

    workspace: str
    to: str


class Delete(_Message, frozen=True):
    """Delete a snapshot; without ``workspace`` wherever it is, if that is one place."""

    workspace: str | None
    snapshot: str
    force: bool = False


class List(_Message, frozen=True):
    """List the snapshots of one workspace, or of all; ``format`` is not looked at."""

    workspace: str | None = None
    format: str | None = None


class Diff(_Message, frozen=True):
    """What changed between two snapshots."""

    workspace: str
    from_: str
    to: str


class Status(_Message, frozen=True):
    """The daemon, and one workspace or all."""

    workspace: str | None = None


class Cleanup(_Message, frozen=True):
    """Delete the oldest snapshots that are not pinned, but for ``keep`` (None: 20)."""

    workspace: str
    keep: U32 | None = None


class Config(_Message, frozen=True):
    """Ask for the running configuration."""


class ReloadConfig(_Message, frozen=True):
    """Read the configuration file again."""


class Recover(_Message, frozen=True):
    """Make the workspace an ordinary directory again and forget its snapshots."""

    workspace: str


class HealthAdvisory(_Message, frozen=True):
    """Ask how full things are."""


class ErrorCode(enum.Enum):
    """Why a request failed; the order is the wire's."""

    WorkspaceNotFound = "WorkspaceNotFound"
    SnapshotNotFound = "SnapshotNotFound"
    AlreadyInitialized = "AlreadyInitialized"
    BtrfsError = "BtrfsError"
    IoError = "IoError"
    InvalidPath = "InvalidPath"
    ConfirmationRequired = "ConfirmationRequired"
    InternalError = "InternalError"
    SnapshotAlreadyExists = "SnapshotAlreadyExists"
    WriteLockConflict = "WriteLockConflict"
    DiskSpaceInsufficient = "DiskSpaceInsufficient"


class ChangeType(enum.Enum):
    """How a path differs; the order is the wire's."""

    Added = "Added"
    Modified = "Modified"
    Deleted = "Deleted"
    Renamed = "Renamed"


class SnapshotMeta(_Message, frozen=True):
    """``metadata`` is compact JSON text; ``missing``: the record is there, the snapshot is not."""

    message: str | None
    metadata: Metadata | None
    pinned: bool
    created_at: Timestamp
    missing: bool


class SnapshotEntry(_Message, frozen=True):
    """A line of a listing; ``workspace`` is its registered path."""

    id: str
    workspace: str
    meta: SnapshotMeta


class DiffEntry(_Message, frozen=True):
    """A path below the workspace, and what became of it."""

    path: str
    change_type: ChangeType
    detail: str | None = None


class WorkspaceInfo(_Message, frozen=True):
    """A workspace; ``snapshot_count`` counts missing ones too."""

    ws_id: str
    path: str
    snapshot_count: U32


class StatusReport(_Message, frozen=True):
    """The daemon's uptime, the asker's workspaces, and how full the snapshots' file system is (0: unknown)."""

    uptime_secs: U64
    workspaces: tuple[WorkspaceInfo, ...]
    fs_total_bytes: U64
    fs_used_bytes: U64


class Count(_Message, frozen=True, rename={"count": "Count"}):
    """Keep this many snapshots."""

    count: U32


class Age(_Message, frozen=True, rename={"age": "Age"}):
    """Keep snapshots younger than this, as in ``30d``."""

    age: Duration


Retention = Count | Age


class ConfigReport(_Message, frozen=True):
    """The running configuration; ``img_size`` in GB, ``img_max_percent`` 0–100."""

    mount_path: str
    socket_path: str
    log_level: str
    auto_cleanup: bool
    auto_cleanup_keep: Retention
    auto_cleanup_interval_secs: U64
    health_check_interval_secs: U64
    img_size: U64
    img_max_percent: F64


class InitOk(_Message, frozen=True):
    """The workspace's id."""

    ws_id: str


class CheckpointOk(_Message, frozen=True):
    """The snapshot was taken."""

    snapshot_id: str


class RollbackOk(_Message, frozen=True):
    """``from`` is the workspace's id, ``to`` the snapshot that was meant."""

    from_: str
    to: str


class DeleteOk(_Message, frozen=True):
    """The snapshot that was meant."""

    target: str


class Error(_Message, frozen=True):
    """The request failed."""

    code: ErrorCode
    message: str


class ListOk(_Message, frozen=True):
    """Snapshots, oldest first."""

    snapshots: tuple[SnapshotEntry, ...]


class DiffOk(_Message, frozen=True):
    """One entry a path."""

    changes: tuple[DiffEntry, ...]


class StatusOk(_Message, frozen=True):
    """Answers ``Status``."""

    report: StatusReport


class CleanupOk(_Message, frozen=True):
    """What was deleted, oldest first."""

    removed: tuple[str, ...]


class ConfigOk(_Message, frozen=True):
    """Answers ``Config``."""

    config: ConfigReport


class ReloadConfigOk(_Message, frozen=True):
    """The file's values hold now."""


class CheckpointSkipped(_Message, frozen=True):
    """There was nothing to take a snapshot of."""

    reason: str


class RecoverOk(_Message, frozen=True):
    """The registered path, which is an ordinary directory again."""

    workspace: str


class HealthAdvisoryOk(_Message, frozen=True):
    """How many workspaces have too many snapshots, and how full their file system is (0: unknown)."""

    over_limit_workspace_count: U32
    fs_total_bytes: U64
    fs_used_bytes: U64


Request = (
    Init
    | Checkpoint
    | Rollback
    | Delete
    | List
    | Diff
    | Status
    | Cleanup
    | Config
    | ReloadConfig
    | Recover
    | HealthAdvisory
)
Response = (
    InitOk
    | CheckpointOk
    | RollbackOk
    | DeleteOk
    | Error
    | ListOk
    | DiffOk
    | StatusOk
    | CleanupOk
    | ConfigOk
    | ReloadConfigOk
    | CheckpointSkipped
    | RecoverOk
    | HealthAdvisoryOk
)

_request, _response = codec_of(Request), codec_of(Response)


class FrameTooLarge(WireError):
    """More bytes than a frame may have."""


def encode_request(request: Request) -> bytes:
    """The payload of a request (``WireError``)."""
    return encode(_request, request)


def decode_request(payload: bytes) -> Request:
    """The request of a payload; what follows it is not looked at (``WireError``)."""
    request: Request = decode(_request, payload)
    return request


def encode_response(response: Response) -> bytes:
    """The payload of a response (``WireError``)."""
    return encode(_response, response)


def decode_response(payload: bytes) -> Response:
    """The response of a payload; what follows it is not looked at (``WireError``)."""
    response: Response = decode(_response, payload)
    return response


def frame(payload: bytes) -> bytes:
    """A payload behind its length (``FrameTooLarge``)."""
    if len(payload) > MAX_FRAME:
        raise FrameTooLarge(f"Frame too large: {len(payload)} bytes (max {MAX_FRAME})")
    return len(payload).to_bytes(HEADER_BYTES, "little") + payload


def payload_length(header: bytes, limit: int = MAX_FRAME) -> int:
    """The length that a frame's first bytes announce (``FrameTooLarge``: over ``limit``)."""
    length = int.from_bytes(header, "little")
    if length > limit:
        raise FrameTooLarge(f"Frame too large: {length} bytes (max {limit})")
    return length
