"""Binding a Unix socket on our own mount without keeping the mount busy (spec 3.1). Worker threads only.

A bound socket holds the mount it was bound through, and the daemon's own would make a plain umount fail. So each is
bound through a copy of the mount that is attached nowhere: for root a detached clone (open_tree(2)), for others, who
may not make one, the copy that a user namespace of a child has. Both are gone but for the socket's hold on them;
clients find the socket by its inode, through whatever mount of it they see.

Every call here waits for the FUSE thread, so none may hold the GIL. Also run as a script, by
that child: it then has the standard library only.
"""

import ctypes
import os
import socket
import subprocess
import sys

_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_BACKLOG = 1024
_TIMEOUT_S = 20.0
_NO_NAMESPACE = 3  # how the child ends without one


def listen(directory: str, name: str) -> socket.socket:
    """A socket that listens as ``name`` in a directory of the mount; its mode is the tree's affair (``OSError``)."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.geteuid() == 0:
            _bind_through_clone(listener, directory, name)
        else:
            _bind_in_child(listener, directory, name)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _bind_through_clone(listener: socket.socket, directory: str, name: str) -> None:
    from backend.system_calls import OPEN_TREE_CLONE, open_tree

    tree = open_tree(directory, OPEN_TREE_CLONE)
    try:
        _bind_below(listener, tree, name)
    finally:
        os.close(tree)


def _bind_below(listener: socket.socket, directory: int, name: str) -> None:
    """By a name that fits into an address (107 bytes), however long the path is."""
    listener.bind(f"/proc/self/fd/{directory}/{name}")


def _bind_in_child(listener: socket.socket, directory: str, name: str) -> None:
    descriptor = listener.fileno()
    child = subprocess.run(
        [sys.executable, "-I", "-S", __file__, str(descriptor), directory, name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(descriptor,),
        timeout=_TIMEOUT_S,
        check=False,
    )
    if child.returncode != 0:
        number = int(child.stderr or b"5")
        namespace = " (its user may make no user namespace)" if child.returncode == _NO_NAMESPACE else ""
        raise OSError(number, os.strerror(number) + namespace, directory)


def _main(descriptor: str, directory: str, name: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS) != 0:
        sys.stderr.write(str(ctypes.get_errno()))
        sys.exit(_NO_NAMESPACE)
    opened = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    with socket.socket(fileno=int(descriptor)) as listener:
        _bind_below(listener, opened, name)


if __name__ == "__main__":
    try:
        _main(*sys.argv[1:])
    except OSError as error:
        sys.stderr.write(str(error.errno or 5))
        sys.exit(1)
