"""Calls to the disk that fail: the n-th one, once or until it is mended, before it did what it should or after."""

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from backend import system_calls
from backend.checkpoints.snapshots import btrfs_calls

_CHANGES = ("rename", "replace", "mkdir", "rmdir", "unlink", "symlink", "link", "fsync", "chown", "fchown", "fchmod")
_LOOKS = ("open", "listdir", "readlink")


class Fault(NamedTuple):
    """``late``: the call has had its effect; ``stays``: all calls after it fail too."""

    late: bool
    stays: bool


class FailingCalls:
    """Counts calls while it is armed; ``reached`` says whether the one that was to fail was made."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.reached = False
        self._left: int | None = None
        self._fault = Fault(late=False, stays=False)
        for name in _CHANGES + _LOOKS:
            patch.setattr(os, name, self._raising(getattr(os, name), name in _CHANGES))
        for library, names in (
            (system_calls._libc, ("renameat2", "syncfs", "syscall")),
            (btrfs_calls._libc, ("ioctl",)),
        ):
            for name in names:
                patch.setattr(library, name, self._returning(getattr(library, name), name != "syscall"))

    @contextmanager
    def failing(self, number: int, fault: Fault) -> Iterator[None]:
        """The call of that number, from 1 on, fails with EIO."""
        self.reached, self._left, self._fault = False, number, fault
        try:
            yield
        finally:
            self._left = None

    def _fails(self) -> bool:
        if self._left is None:
            return False
        self._left -= 1
        fails = self._left == 0 or (self._left < 0 and self._fault.stays)
        self.reached = self.reached or fails
        return fails

    def _raising(self, real: Callable[..., Any], changes: bool) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if not self._fails():
                return real(*arguments, **named)
            if self._fault.late and changes:
                real(*arguments, **named)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        return call

    def _returning(self, real: Callable[..., int], changes: bool) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            if not self._fails():
                return real(*arguments)
            if self._fault.late and changes:
                real(*arguments)
            ctypes.set_errno(errno.EIO)
            return -1

        return call
