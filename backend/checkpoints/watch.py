"""Whether somebody is writing in a workspace, by inotify (spec 6.5; notes 2.6).

The kernel collects events; nobody reads them until a checkpoint asks, so a busy workspace costs the daemon nothing.
Every change sets the flag, every close of a file that was written clears it. Where the kernel's limits leave no room
for watches the tree itself is looked at. One thread at a time uses a watch.
"""

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import struct
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from backend.checkpoints.errors import InvalidPath
from backend.checkpoints.identity import opened
from backend.checkpoints.snapshots.walking import Cursor, TreeChanged, cursor_at, next_below, walk
from backend.system_calls import checked

PAUSE_S = 0.1

_IN_MODIFY, _IN_ATTRIB, _IN_CLOSE_WRITE = 0x02, 0x04, 0x08
_IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x40, 0x80, 0x100, 0x200
_IN_OVERFLOW, _IN_IGNORED = 0x4000, 0x8000
_IN_ONLYDIR, _IN_ISDIR = 0x01000000, 0x40000000
_CHANGES = _IN_MODIFY | _IN_ATTRIB | _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE
_NEW = _IN_CREATE | _IN_MOVED_TO
_EVENT = struct.Struct("iIII")
_BUFFER = 1 << 16

# What the kernel grants is for all of root's programs: half of it at most is ours, and an eighth of that a workspace's.
_SHARE, _WORKSPACES = 2, 8

_libc = ctypes.CDLL(None, use_errno=True)
_armed: set["Watch"] = set()


class Watch:
    """The writing flag of one workspace."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._inotify = -1
        self._paths: dict[int, tuple[str, ...]] = {}
        self._writing = True

    def close(self) -> None:
        if self._inotify >= 0:
            os.close(self._inotify)
        self._inotify = -1
        self._paths.clear()
        _armed.discard(self)

    def arm(self) -> None:
        """Watches the tree that is there now, as one in which nobody writes."""
        self.close()
        self._writing = False
        if len(_armed) >= _share_of("max_user_instances"):
            return
        try:
            self._inotify = checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
            with opened(self._root) as root:
                self._add(root, ())
            _armed.add(self)
        except (OSError, TreeChanged):
            self.close()

    def is_quiet(self) -> bool:
        """Whether nobody writes: at once if nobody did, else after looking for 0.2 s."""
        if self._inotify < 0:
            self.arm()
            self._writing = True
        if self._inotify < 0:
            return self._looks_quiet()
        self._drain()
        if not self._writing:
            return True
        time.sleep(PAUSE_S)
        self._drain()
        self._writing = False
        time.sleep(PAUSE_S)
        self._drain()
        return not self._writing

    def _looks_quiet(self) -> bool:
        try:
            seen = self._newest()
            if time.time_ns() - seen > 2 * PAUSE_S * 1e9:
                return True
            time.sleep(2 * PAUSE_S)
            return self._newest() == seen
        except TreeChanged:
            return False

    def _newest(self) -> int:
        """When the tree changed last, in ns since 1970."""
        with opened(self._root) as root:
            return max((entry.stat.st_ctime_ns for entry in walk(root)), default=0)

    def _add(self, directory: int, names: tuple[str, ...]) -> None:
        """Watches an open directory and all below it."""
        with cursor_at(directory) as cursor:
            waiting = [self._add_level(cursor, names)]
            while (name := next_below(cursor, waiting)) is not None:
                with contextlib.suppress(TreeChanged, InvalidPath):
                    cursor.down(name)
                    waiting.append(self._add_level(cursor, (*names, *cursor.names)))

    def _add_level(self, cursor: Cursor, names: tuple[str, ...]) -> list[str]:
        if len(self._paths) >= _share_of("max_user_watches") // _WORKSPACES:
            raise OSError(errno.ENOSPC, "too many directories to be watched")
        path = f"/proc/self/fd/{cursor.fd}".encode()
        mask = _CHANGES | _IN_CLOSE_WRITE | _IN_ONLYDIR
        self._paths[checked(_libc.inotify_add_watch(self._inotify, path, mask))] = names
        with os.scandir(cursor.fd) as found:
            return [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]

    def _drain(self) -> None:
        """Takes in the events there are; a directory is looked at once, however often it was moved meanwhile."""
        left, arrived = set[tuple[str, ...]](), set[tuple[str, ...]]()
        for wd, mask, name in self._events():
            if mask & _IN_OVERFLOW:
                self.arm()
                self._writing = True
                return
            if mask & _IN_IGNORED:
                self._paths.pop(wd, None)
                continue
            self._writing = not mask & _IN_CLOSE_WRITE
            if mask & _IN_ISDIR and wd in self._paths:
                path = (*self._paths[wd], name)
                if mask & _IN_MOVED_FROM:
                    left.add(path)
                elif mask & _NEW:
                    arrived.add(path)
        self._forget_below(left)
        for path in arrived:
            self._add_new(path)

    def _forget_below(self, left: set[tuple[str, ...]]) -> None:
        """What was moved away is no business of the workspace's, or arrives at another name."""
        if not left:
            return
        for wd, names in list(self._paths.items()):
            if any(names[:depth] in left for depth in range(1, len(names) + 1)):
                del self._paths[wd]
                _libc.inotify_rm_watch(self._inotify, wd)

    def _add_new(self, path: tuple[str, ...]) -> None:
        gone = contextlib.suppress(OSError, TreeChanged, InvalidPath)
        with gone, opened(self._root) as root, cursor_at(root) as cursor:
            for name in path:
                cursor.down(name)
            self._add(cursor.fd, path)

    def _events(self) -> Iterator[tuple[int, int, str]]:
        """The events that wait now: who goes on writing does not keep anybody reading."""
        waiting = _waiting(self._inotify)
        while waiting > 0:
            data = os.read(self._inotify, _BUFFER)
            waiting -= len(data)
            at = 0
            while at < len(data):
                wd, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                yield wd, mask, os.fsdecode(data[at : at + length].rstrip(b"\0"))
                at += length


def _waiting(inotify: int) -> int:
    """How many bytes can be read of it."""
    count = fcntl.ioctl(inotify, termios.FIONREAD, bytes(4))
    return int.from_bytes(count, sys.byteorder)


@functools.cache
def _share_of(limit: str) -> int:
    try:
        return int(Path(f"/proc/sys/fs/inotify/{limit}").read_text(encoding="ascii")) // _SHARE
    except (OSError, ValueError):
        return 0
