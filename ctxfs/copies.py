"""The copy of its store that a daemon makes for ``mountctl backup`` (spec 4.6): at most one at a time.

``backup`` on the control socket begins one, or waits a little for its end: whoever wants it asks again and again, so
nobody waits for long on a daemon that was stopped. The copy is made in a thread of its own, beside the FUSE thread, and
given up when the daemon is to end; what it leaves then is for whoever asked to remove.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import trio

from backend.errors import Busy, CtxError, InvalidValue, StoreFailed
from backend.store import DiskStore
from ctxfs.bridge import Bridge

WAIT_S = 0.5

log = logging.getLogger("ctxfs.daemon")


class _Copy:
    """One that is being made; ``failure`` is what ended it before its time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.bytes = 0
        self.ended = trio.Event()
        self.failure: Exception | None = None


class Copies:
    """Of one mount's store; ``stopping`` is set when the daemon is to end."""

    def __init__(self, store: DiskStore, bridge: Bridge, nursery: trio.Nursery, stopping: trio.Event) -> None:
        self._store = store
        self._bridge = bridge
        self._nursery = nursery
        self._stopping = stopping
        self._copy: _Copy | None = None

    async def answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """``{done, bytes}``; raises what ended the copy, ``Busy`` where another one is being made."""
        copy = self._copy_into(request.get("path"))
        with trio.move_on_after(WAIT_S):
            await copy.ended.wait()
        if copy.ended.is_set():
            self._copy = None
            if copy.failure is not None:
                raise copy.failure
        return {"done": copy.ended.is_set(), "bytes": copy.bytes}

    def _copy_into(self, path: object) -> _Copy:
        if not isinstance(path, str) or not path.startswith("/"):
            raise InvalidValue("path must be the absolute path of an empty directory")
        copy = self._copy
        if copy is not None and copy.path != path and not copy.ended.is_set():
            raise Busy("another copy is being made: wait for its end")
        if copy is None or copy.path != path:
            copy = self._copy = _Copy(path)
            self._nursery.start_soon(self._make, copy)
        return copy

    async def _make(self, copy: _Copy) -> None:
        log.info("copying the store to %s", copy.path)
        try:
            await trio.to_thread.run_sync(self._in_thread, copy)
        except (CtxError, OSError) as error:
            log.info("the copy to %s was given up: %s", copy.path, error)
            copy.failure = error
        except Exception as error:
            log.exception("internal error in a copy")
            copy.failure = StoreFailed(f"internal error: {type(error).__name__}")
        copy.ended.set()

    def _in_thread(self, copy: _Copy) -> None:
        def proceed(size: int) -> None:
            if self._stopping.is_set():
                raise StoreFailed("the daemon is stopping")
            copy.bytes += size

        def in_turn(work: Callable[[], None]) -> None:
            trio.from_thread.run(self._bridge.run, lambda _: work())

        self._store.copy(Path(copy.path), in_turn, proceed)
