"""An agent's view: its root and what is attached in it, in a mount namespace of the calling process (spec 3.4, 3.6).

Everything is attached by descriptor, on targets that were resolved below the root without following links, so what a
user changes meanwhile is never mounted over. What a view lacks to hang something on (an empty directory or file) is
made with the peer's rights, else with the launcher's: the root is the peer's or an admin's.

For an ordinary user's mount the namespace is one in a user namespace; where there may be none, an agent runs on the
host (root ``/``, no rows), or not at all.
"""

import contextlib
import errno
import os
import stat
from typing import NamedTuple

from backend.system_calls import RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, open_resolving
from ctxfs.agents.identity import acting_as
from ctxfs.agents.kernel_calls import (
    AT_RECURSIVE,
    CLONE_NEWNS,
    CLONE_NEWUSER,
    MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NOEXEC,
    MOUNT_ATTR_NOSUID,
    MOUNT_ATTR_RDONLY,
    MS_PRIVATE,
    attach_mount,
    clone_mount,
    new_tmpfs,
    set_mount,
    unshare,
)
from ctxfs.agents.launch import Identity, View
from ctxfs.agents.mount_table import MountRow

CTX = "/ctx"
DEVICES = ("null", "zero", "urandom")
_ATTRIBUTES = {"noexec": MOUNT_ATTR_NOEXEC, "nosuid": MOUNT_ATTR_NOSUID, "nodev": MOUNT_ATTR_NODEV}


class BuiltView(NamedTuple):
    """A view that stands: descriptors of its root and of the same directory as the host has it; CTX_ROOT in it.

    ``is_host``: its root is the host's, so nothing is to be chrooted to.
    """

    root: int
    host_root: int
    ctx: str
    is_host: bool


def build(view: View, identity: Identity) -> BuiltView:
    """Takes the process into a mount namespace of its own that has the view (``OSError``: why there can be none)."""
    is_host = view.root == "/"
    if not _enter_namespace():
        if not is_host or view.rows:
            raise PermissionError(errno.EPERM, "no user namespace may be made here, so an agent's root must be /")
        return BuiltView(*_host(), view.mountpoint, True)
    if is_host:
        root, host_root = _host()
    else:
        root, host_root = _own_root(view, identity)
    ctx = _attach_ctx(root, view, identity, is_host)
    _attach_devices(root, identity)
    for row in view.rows:
        _attach_row(root, row, view, identity)
    return BuiltView(root, host_root, ctx, is_host)


def _host() -> tuple[int, int]:
    return os.open("/", os.O_PATH | os.O_DIRECTORY), os.open("/", os.O_PATH | os.O_DIRECTORY)


def _enter_namespace() -> bool:
    """Whether the process has mounts of its own now."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        unshare(CLONE_NEWNS)
    else:
        try:
            unshare(CLONE_NEWUSER | CLONE_NEWNS)
        except PermissionError:
            return False
        for file, text in (
            ("setgroups", b"deny"),
            ("uid_map", b"%d %d 1" % (uid, uid)),
            ("gid_map", b"%d %d 1" % (gid, gid)),
        ):
            with open(f"/proc/self/{file}", "wb") as map_file:
                map_file.write(text)
    top = os.open("/", os.O_PATH | os.O_DIRECTORY)
    set_mount(top, 0, AT_RECURSIVE, propagation=MS_PRIVATE)
    os.close(top)
    return True


def _own_root(view: View, identity: Identity) -> tuple[int, int]:
    """A copy of the root's mount: what is moved out of a mount is not reached through it any more, with ``..`` either.

    It is attached on the top of the namespace, where no path of this process leads.
    """
    if view.root is None:
        root, host_root = new_tmpfs("0755"), os.open("/", os.O_PATH | os.O_DIRECTORY)
    else:
        host_root = _open_root(view.root, view.own, identity)
        root = clone_mount(b"", AT_RECURSIVE, host_root)
    top = os.open("/", os.O_PATH | os.O_DIRECTORY)
    attach_mount(root, top)
    os.close(top)
    return root, host_root


def _open_root(path: str, own: bool, identity: Identity) -> int:
    if own:
        with acting_as(identity):
            return os.open(path, os.O_PATH | os.O_DIRECTORY)
    return _open_admins(path, os.O_PATH | os.O_DIRECTORY, identity)


def _open_admins(path: str, flags: int, identity: Identity) -> int:
    """A path of the host that an admin named: with the launcher's rights, but links in it with the peer's only."""
    top = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        return open_resolving(top, os.fsencode(path), flags, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        with acting_as(identity):
            return open_resolving(top, os.fsencode(path), flags, RESOLVE_NO_MAGICLINKS)
    finally:
        os.close(top)


def _attach_ctx(root: int, view: View, identity: Identity, is_host: bool) -> str:
    """Attaches the tree at /ctx; what CTX_ROOT is. On the host it is where it is, unless there is a directory /ctx."""
    if is_host and (view.mountpoint == CTX or not os.path.isdir(CTX)):
        return view.mountpoint
    tree = clone_mount(os.fsencode(view.mountpoint), AT_RECURSIVE)
    _attach(root, tree, CTX, identity, stat.S_IFDIR)
    return CTX


def _attach_devices(root: int, identity: Identity) -> None:
    """A small /dev, unless the view has the real devices already."""
    if all(_is_device(root, name) for name in DEVICES):
        return
    directory = new_tmpfs("0755")
    _attach(root, directory, "/dev", identity, stat.S_IFDIR)
    for name in DEVICES:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666, dir_fd=directory))
        target = os.open(name, os.O_PATH, dir_fd=directory)
        device = clone_mount(f"/dev/{name}".encode(), 0)
        attach_mount(device, target)
        os.close(target)
        os.close(device)
    os.close(directory)


def _is_device(root: int, name: str) -> bool:
    try:
        descriptor = open_resolving(root, f"/dev/{name}".encode(), os.O_PATH, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS)
    except OSError:
        return False
    found, wanted = os.fstat(descriptor), os.stat(f"/dev/{name}")
    os.close(descriptor)
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == wanted.st_rdev


def _attach_row(root: int, row: MountRow, view: View, identity: Identity) -> None:
    source = row.source
    if source == CTX or source.startswith(f"{CTX}/"):
        source = view.mountpoint + source.removeprefix(CTX)
    opened = _open_admins(source, os.O_PATH, identity)
    recursive = AT_RECURSIVE if "rbind" in row.options else 0
    tree = clone_mount(b"", recursive, opened)
    kind = stat.S_IFMT(os.fstat(opened).st_mode)
    os.close(opened)
    attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (0 if row.writable else MOUNT_ATTR_RDONLY)
    for option in row.options:
        attributes |= _ATTRIBUTES.get(option, 0)
    if stat.S_ISCHR(kind):
        attributes &= ~MOUNT_ATTR_NODEV
    set_mount(tree, attributes, recursive)
    _attach(root, tree, row.target, identity, stat.S_IFDIR if stat.S_ISDIR(kind) else stat.S_IFREG)


def _attach(root: int, mount: int, target: str, identity: Identity, kind: int) -> None:
    """Attaches ``mount`` at a path of the view; what is missing there is made."""
    opened = _open_target(root, target, identity, kind)
    try:
        attach_mount(mount, opened)
    finally:
        os.close(opened)


def _open_target(root: int, target: str, identity: Identity, kind: int) -> int:
    parts = target[1:].split("/")
    for depth in range(1, len(parts) + 1):
        last = depth == len(parts)
        _make(root, "/".join(parts[:depth]), identity, kind if last else stat.S_IFDIR)
    return _open_below(root, target)


def _open_below(root: int, path: str) -> int:
    return open_resolving(root, os.fsencode(path), os.O_PATH, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS)


def _make(root: int, path: str, identity: Identity, kind: int) -> None:
    """An empty directory or file at ``path`` (relative to the root), unless something is there."""
    with contextlib.suppress(FileNotFoundError):
        os.close(_open_below(root, path))
        return
    parent, _, name = path.rpartition("/")
    directory = _open_below(root, parent or "/")
    try:
        with acting_as(identity):
            _make_in(directory, name, kind)
    except PermissionError:
        _make_in(directory, name, kind)
    finally:
        os.close(directory)


def _make_in(directory: int, name: str, kind: int) -> None:
    with contextlib.suppress(FileExistsError):
        if kind == stat.S_IFDIR:
            os.mkdir(name, 0o755, dir_fd=directory)
        else:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
            os.close(os.open(name, flags, 0o644, dir_fd=directory))
