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
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from backend.mountinfo import mounts
from backend.system_calls import AT_FDCWD, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, open_resolving
from ctxfs.agents.cwd import is_on_host
from ctxfs.agents.host_paths import CTX, context_is_attached, source_on_host
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
    MS_SLAVE,
    attach_mount,
    clone_mount,
    detach_mount,
    new_tmpfs,
    set_mount,
    unshare,
)
from ctxfs.agents.launch import Identity, View
from ctxfs.agents.mount_table import MountRow

DEVICES = ("null", "zero", "urandom")
_NEEDED = ("/proc", __file__, sys.prefix, sys.base_prefix)
"""Where a guardian looks on the host while its agent runs, beside the mount: processes, and its own interpreter."""

_ATTRIBUTES = {"noexec": MOUNT_ATTR_NOEXEC, "nosuid": MOUNT_ATTR_NOSUID, "nodev": MOUNT_ATTR_NODEV}


class BuiltView(NamedTuple):
    """A view that stands: a descriptor of its root, and CTX_ROOT in it.

    ``is_host``: its root is the host's, so nothing is to be chrooted to. ``on_host``: the cwd is something there.
    """

    root: int
    ctx: str
    is_host: bool
    on_host: bool


class Attachment(NamedTuple):
    """A mount that is attached nowhere yet, and where it belongs in the view."""

    mount: int
    target: str
    kind: int


def build(view: View, identity: Identity, cwd: str) -> BuiltView:
    """Takes the process into a mount namespace of its own that has the view (``OSError``: why there can be none).

    Everything of the host is looked up first: once the view is attached, a ``..`` on the host could lead into it.
    """
    is_host = view.root == "/"
    own_mounts = _enter_namespace()
    if not own_mounts and not (is_host and not view.rows):
        raise PermissionError(errno.EPERM, "no user namespace may be made here, so an agent's root must be /")
    host_root = _open_root(view, identity)
    with acting_as(identity):
        on_host = is_on_host(host_root, cwd)
    if not own_mounts:
        return BuiltView(host_root, view.mountpoint, True, on_host)
    ctx = CTX if context_is_attached(view) else view.mountpoint
    attachments = [_row_attachment(row, view, identity) for row in view.rows]
    if context_is_attached(view):
        tree = _own_copy(os.fsencode(view.mountpoint))
        attachments.insert(0, Attachment(tree, CTX, stat.S_IFDIR))
    devices = [clone_mount(f"/dev/{name}".encode(), 0) for name in DEVICES]
    root = host_root if is_host else _attach_root(view, host_root)
    _attach_devices(root, devices, identity)
    for attachment in attachments:
        with _explained(f"the mount on {attachment.target}"):
            _attach(root, attachment, identity)
    if not is_host:
        _let_go_of_the_host((view.mountpoint, *_NEEDED))
    return BuiltView(root, ctx, is_host, on_host)


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
    # Nothing that is attached here is seen on the host; what the host unmounts goes from here too, or it would live on.
    top = os.open("/", os.O_PATH | os.O_DIRECTORY)
    set_mount(top, 0, AT_RECURSIVE, propagation=MS_SLAVE)
    os.close(top)
    return True


def _let_go_of_the_host(needed: Sequence[str]) -> None:
    """Takes the host's mounts out of the namespace, but for those on the way to a needed path.

    A namespace keeps what is unmounted on the host: its daemon would not end, nor its disk be free, before the run.
    Mounts of an ordinary user's namespace cannot be taken out of it one by one.
    """
    for mount in mounts():
        if not any(f"{path}/".startswith(f"{mount.mountpoint.rstrip('/')}/") for path in needed):
            # What was below another is gone with it, and what is in the view is not at its path here.
            with contextlib.suppress(OSError):
                detach_mount(mount.mountpoint)


def _own_copy(path: bytes, directory: int = AT_FDCWD) -> int:
    """A copy of a mount and all below it, in which nothing appears that the host mounts later."""
    tree = clone_mount(path, AT_RECURSIVE, directory)
    set_mount(tree, 0, AT_RECURSIVE, propagation=MS_PRIVATE)
    return tree


def _open_root(view: View, identity: Identity) -> int:
    """The root as the host has it; for an empty view, the host's own."""
    flags = os.O_PATH | os.O_DIRECTORY
    if view.root is None:
        return os.open("/", flags)
    with _explained("the agent's root"):
        if not view.own:
            return _open_admins(view.root, flags, identity)
        with acting_as(identity):
            return os.open(view.root, flags)


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Errors say of what they are, as nobody asked for it by name."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{what}: {error.strerror}") from error


def _attach_root(view: View, host_root: int) -> int:
    """A copy of the root's mount: what is moved out of a mount is not reached through it any more, with ``..`` either.

    It is attached on top of the namespace's root, where no path of this process leads.
    """
    root = new_tmpfs("0755") if view.root is None else _own_copy(b"", host_root)
    top = os.open("/", os.O_PATH | os.O_DIRECTORY)
    attach_mount(root, top)
    os.close(top)
    return root


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


def _attach_devices(root: int, devices: Sequence[int], identity: Identity) -> None:
    """A small /dev, unless the view has the real devices already."""
    if all(_is_device(root, name) for name in DEVICES):
        return
    directory = new_tmpfs("0755")
    _attach(root, Attachment(directory, "/dev", stat.S_IFDIR), identity)
    for name, device in zip(DEVICES, devices, strict=True):
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666, dir_fd=directory))
        target = os.open(name, os.O_PATH, dir_fd=directory)
        attach_mount(device, target)
        os.close(target)


def _is_device(root: int, name: str) -> bool:
    try:
        descriptor = open_resolving(root, f"/dev/{name}".encode(), os.O_PATH, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS)
    except OSError:
        return False
    found, wanted = os.fstat(descriptor), os.stat(f"/dev/{name}")
    os.close(descriptor)
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == wanted.st_rdev


def _row_attachment(row: MountRow, view: View, identity: Identity) -> Attachment:
    with _explained(f"the mount of {row.source}"):
        opened = _open_admins(source_on_host(view, row.source), os.O_PATH, identity)
    recursive = AT_RECURSIVE if "rbind" in row.options else 0
    tree = clone_mount(b"", recursive, opened)
    kind = stat.S_IFMT(os.fstat(opened).st_mode)
    os.close(opened)
    attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (0 if row.writable else MOUNT_ATTR_RDONLY)
    for option in row.options:
        attributes |= _ATTRIBUTES.get(option, 0)
    if stat.S_ISCHR(kind):
        attributes &= ~MOUNT_ATTR_NODEV
    set_mount(tree, attributes, recursive, propagation=MS_PRIVATE)
    return Attachment(tree, row.target, stat.S_IFDIR if stat.S_ISDIR(kind) else stat.S_IFREG)


def _attach(root: int, attachment: Attachment, identity: Identity) -> None:
    """Attaches a mount at its path of the view; what is missing there is made."""
    opened = _open_target(root, attachment.target, identity, attachment.kind)
    try:
        attach_mount(attachment.mount, opened)
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
