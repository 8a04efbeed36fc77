"""Where btrfs keeps live trees: open to all who could reach the workspace before, and to nobody else (spec 6.4).

A workspace moves out of the directories above it. If others cannot pass through those, they cannot pass through its
data root either: that is then one of its owner's own, ``<data root>/private-<uid>``, which is root's and which an ACL
lets that user alone pass through.
"""

import os
import struct
from pathlib import Path

from backend.checkpoints.errors import InternalError
from backend.checkpoints.identity import opened
from backend.durable import make_private, sync_directory

DATA_ROOT = "ws-ckpt-data"

_PRIVATE = "private-"
_ACL = "system.posix_acl_access"
_ACL_VERSION = struct.pack("<I", 2)
_ACL_ENTRY = struct.Struct("<HHI")
_NOBODY = 0xFFFFFFFF
_OWNER, _USER, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20


def data_root_for(path: Path, data_root: Path) -> Path:
    """The data root of a workspace at a real path (``OSError``)."""
    if all(above.stat().st_mode & 0o001 for above in path.parents):
        return data_root
    return data_root / f"{_PRIVATE}{path.stat().st_uid}"


def is_data_root(directory: Path) -> bool:
    """Whether a directory is called as one of ours is."""
    return DATA_ROOT in (directory.name, directory.parent.name if directory.name.startswith(_PRIVATE) else "")


def make_data_root(data_root: Path) -> None:
    """Makes it; a directory in which nobody but root makes anything (``InternalError``, ``OSError``)."""
    owner = data_root.name.removeprefix(_PRIVATE) if data_root.name.startswith(_PRIVATE) else None
    if owner is not None and not data_root.parent.exists():
        make_data_root(data_root.parent)
    if not data_root.exists():
        data_root.mkdir(mode=0o755 if owner is None else 0o700)
        sync_directory(data_root.parent)
    with opened(data_root) as fd:
        found = os.fstat(fd)
        if found.st_uid != 0 or found.st_mode & 0o022:
            raise InternalError(f"others than root may write in {data_root}")
        if owner is not None:
            os.setxattr(fd, _ACL, _passage_for(int(owner)))
    make_private(data_root / "snapshots")


def _passage_for(uid: int) -> bytes:
    """An ACL of which root has all rights, one user the right to pass, nobody else any."""
    entries = [(_OWNER, 7, _NOBODY), (_USER, 1, uid), (_GROUP, 0, _NOBODY), (_MASK, 1, _NOBODY), (_OTHER, 0, _NOBODY)]
    return _ACL_VERSION + b"".join(_ACL_ENTRY.pack(*entry) for entry in entries)
