"""Where a workspace's sessions lie: the storage root, its scope directory, and a legacy directory (spec 5).

Paths only, and the questions to the file system that they take. Symbolic links are resolved once, here; whoever opens
a path afterwards follows none (``directories``).
"""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

from backend.envelopes.configuration import DEFAULT_PERSIST_DIR
from backend.envelopes.errors import EnvelopeError, io_error

try:  # as ``random`` does: hashlib loads OpenSSL, a tenth of the time that an answer takes
    from _sha256 import sha256  # type: ignore[import-not-found]
except ImportError:
    from hashlib import sha256

SCOPE_DIGITS = 24

HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


class Places(SimpleNamespace):
    """``workspace`` is canonical; ``legacy`` a directory in it that may hold its oldest sessions."""

    workspace: str
    root: str
    scope: str
    legacy: str | None


def places_of(workspace: str, persist_dir: str) -> Places:
    """The places of a workspace; ``io`` where it is no directory, ``invalid_request`` where it is not UTF-8."""
    canonical = _canonical(workspace)
    root = _resolved_once(_expanded(persist_dir, canonical))
    scope = f"{root.rstrip('/')}/{scope_of(canonical)}"
    return Places(workspace=canonical, root=root, scope=scope, legacy=_legacy(persist_dir, canonical, root))


def scope_of(workspace: str) -> str:
    """The name of a canonical workspace's scope directory."""
    digits: str = sha256(workspace.encode()).hexdigest()
    return digits[:SCOPE_DIGITS]


def is_scope(name: str) -> bool:
    """Whether a directory of the root is some workspace's."""
    return len(name) == SCOPE_DIGITS and HEX_DIGITS.issuperset(name)


def _canonical(workspace: str) -> str:
    try:
        if not workspace:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        path = os.path.realpath(workspace, strict=True)
    except (OSError, ValueError) as error:
        failure = error if isinstance(error, OSError) else OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        raise io_error("resolve workspace", workspace, failure) from error
    try:
        path.encode()
    except UnicodeEncodeError:
        detail = "canonical workspace path is not valid UTF-8"
        raise EnvelopeError("invalid_request", detail=detail) from None
    if not os.path.isdir(path):
        raise io_error("open canonical workspace", path, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)))
    return path


def _expanded(persist_dir: str, workspace: str) -> str:
    if persist_dir == "~" or persist_dir.startswith("~/"):
        return os.path.expanduser(persist_dir)
    return os.path.join(workspace, persist_dir)


def _resolved_once(path: str) -> str:
    """The longest existing prefix without symbolic links, and what follows as it is."""
    prefix, rest = path, list[str]()
    while True:
        try:
            return os.path.join(os.path.realpath(prefix, strict=True), *reversed(rest))
        except OSError:
            prefix, name = os.path.split(prefix.rstrip("/"))
            if name in ("", ".."):
                return os.path.abspath(path)
            if name != ".":
                rest.append(name)


def _legacy(persist_dir: str, workspace: str, root: str) -> str | None:
    """Only a directory that is provably the workspace's own."""
    if persist_dir == DEFAULT_PERSIST_DIR:
        candidate = f"{workspace}/sessions"
    elif persist_dir.startswith(("/", "~/")) or persist_dir == "~" or ".." in persist_dir.split("/"):
        return None
    else:
        candidate = root
    found = os.path.realpath(candidate)
    inside = found == workspace or found.startswith(f"{workspace.rstrip('/')}/")
    return found if inside and os.path.isdir(found) else None
