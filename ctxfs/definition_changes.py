"""Tells who follows the definitions that they changed, and lets a writer wait until that was done. FUSE thread only.

What is defined has effects outside of the FUSE thread (its socket). So that a definition works as soon as the write
that completes it returns, its handler waits in ``followed``.
"""

from collections.abc import Callable

from ctxfs.loop import Future, Loop


class DefinitionChanges:
    """``follow`` sets who is told; until then, and after ``unfollow``, nobody is, and nobody waits.

    ``revision`` moves with each change.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._tell: Callable[[], None] | None = None
        self._waiting: list[Future[None]] = []
        self.revision = 0

    def follow(self, tell: Callable[[], None]) -> None:
        """``tell`` is called on the FUSE thread after each change, and must not wait."""
        self._tell = tell
        tell()

    def unfollow(self) -> None:
        self._tell = None
        self.done(self.waiting())

    def changed(self) -> None:
        """A definition was made, changed or removed."""
        self.revision += 1
        if self._tell is not None:
            self._tell()

    async def followed(self) -> None:
        """Returns once what changed has had its effects."""
        self.revision += 1
        if self._tell is not None:
            change: Future[None] = Future(self._loop)
            self._waiting.append(change)
            self._tell()
            await change

    def waiting(self) -> list[Future[None]]:
        """Who waits now; given to ``done`` once all that is defined now has its effects."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def done(self, waiting: list[Future[None]]) -> None:
        for change in waiting:
            change.set(None)
