"""Processes that die in the middle of their work, without a chance to tidy up."""

import os
from collections.abc import Callable
from typing import Any

KILLED = 9
_CHANGING = ("pwrite", "ftruncate", "rename", "mkdir", "unlink", "utime", "rmdir")


def in_child(work: Callable[[], object]) -> int:
    """The exit code of a child that did ``work``."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_after_bytes(count: int) -> None:
    """From now on this process writes so many bytes, and is gone."""
    real, left = os.pwrite, [count]

    def write(descriptor: int, content: Any, offset: int) -> int:
        if len(content) > left[0]:
            real(descriptor, content[: left[0]], offset)
            os._exit(KILLED)
        left[0] -= len(content)
        return real(descriptor, content, offset)

    os.pwrite = write


def die_before_call(number: int) -> None:
    """From now on this process changes something so many times, and is gone."""
    left = [number]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if not left[0]:
                os._exit(KILLED)
            left[0] -= 1
            return real(*args, **named)

        return call

    for name in _CHANGING:
        setattr(os, name, counted(getattr(os, name)))
