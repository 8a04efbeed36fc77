"""Primary groups of users. The user database may be slow (LDAP), so a thread of its own asks it (spec 1.8)."""

import logging
import pwd
import threading
from collections.abc import Callable
from queue import SimpleQueue

from ctxfs.loop import Future, Loop

log = logging.getLogger("ctxfs")


def primary_group(uid: int) -> int:
    """The gid of ``uid``; the number itself where there is no such user."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except (KeyError, OverflowError):
        return uid


class Users:
    """A cache of primary groups that is filled before a home's inode is known to the kernel."""

    def __init__(self, loop: Loop, look_up: Callable[[int], int] = primary_group) -> None:
        self._loop = loop
        self._look_up = look_up
        self._groups: dict[int, int] = {}
        self._questions: SimpleQueue[tuple[int, Future[int]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._answer, name="ctxfs-users", daemon=True)
        self._thread.start()

    def group(self, uid: int) -> int:
        """The known group of ``uid``."""
        return self._groups.get(uid, uid)

    async def learn(self, uid: int) -> None:
        """Makes ``group(uid)`` right; await it on the loop's thread before the uid's home is shown."""
        if uid not in self._groups:
            answer: Future[int] = Future(self._loop)
            self._questions.put((uid, answer))
            group = await answer
            if group != uid:
                # The rest is the default; keeping it would let anybody fill the memory with numbers nobody has.
                self._groups[uid] = group

    def close(self) -> None:
        self._questions.put(None)
        self._thread.join()

    def _answer(self) -> None:
        while (question := self._questions.get()) is not None:
            uid, answer = question
            try:
                group = self._look_up(uid)
            except Exception:
                # A database that fails must neither end this thread nor keep anybody from a home.
                log.exception("no answer from the user database for uid %d", uid)
                group = uid
            self._loop.call_soon_threadsafe(lambda answer=answer, group=group: answer.set(group))  # type: ignore[misc]
