"""Primary groups of users. The user database may be slow (LDAP), so a thread of its own asks it (spec 1.8)."""

import functools
import logging
import pwd
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from queue import SimpleQueue

from ctxfs.loop import Future, Loop

log = logging.getLogger("ctxfs")

DEFAULTS = 4096
DEFAULT_S = 300.0


def primary_group(uid: int) -> int:
    """The gid of ``uid``; the number itself where there is no such user."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except (KeyError, OverflowError):
        return uid


class Users:
    """Primary groups, known before a home's inode is known to the kernel.

    Groups that are not the number itself are kept: there are as many as accounts. That a number has no other is kept
    for a while, and of the last few thousand only, for anybody may ask for any number.
    """

    def __init__(
        self,
        loop: Loop,
        look_up: Callable[[int], int] = primary_group,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop = loop
        self._look_up = look_up
        self._clock = clock
        self._groups: dict[int, int] = {}
        self._defaults: OrderedDict[int, float] = OrderedDict()
        self._asked: dict[int, Future[None]] = {}
        self._questions: SimpleQueue[int | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._answer, name="ctxfs-users", daemon=True)
        self._thread.start()

    def group(self, uid: int) -> int:
        """The known group of ``uid``."""
        return self._groups.get(uid, uid)

    async def learn(self, uid: int) -> None:
        """Makes ``group(uid)`` right; await it on the loop's thread before the uid's home is shown."""
        if uid in self._groups or self._defaults.get(uid, 0.0) > self._clock():
            return
        if uid not in self._asked:
            self._asked[uid] = Future(self._loop)
            self._questions.put(uid)
        await self._asked[uid]

    def close(self) -> None:
        self._questions.put(None)
        self._thread.join()

    def _answer(self) -> None:
        while (uid := self._questions.get()) is not None:
            try:
                group: int | None = self._look_up(uid)
            except Exception:
                # A database that fails must neither end this thread nor keep anybody from a home.
                log.exception("no answer from the user database for uid %d", uid)
                group = None
            self._loop.call_soon_threadsafe(functools.partial(self._learned, uid, group))

    def _learned(self, uid: int, group: int | None) -> None:
        if group == uid:
            self._defaults[uid] = self._clock() + DEFAULT_S
            self._defaults.move_to_end(uid)
            if len(self._defaults) > DEFAULTS:
                self._defaults.popitem(last=False)
        elif group is not None:
            self._groups[uid] = group
        self._asked.pop(uid).set(None)
