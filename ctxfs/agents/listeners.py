"""Who hears a run as it goes: each has what it has not yet taken, at most about 1 MiB (spec 3.2). On trio's thread."""

from collections import deque

import trio

MAX_BUFFERED = 1 << 20


class Listener:
    """The frames of one run for one connection. The speaker waits for whoever is behind, until it ``leave``s."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._size = 0
        self._over = False
        self.is_gone = False
        self._changed = trio.lowlevel.ParkingLot()

    async def hear(self, frame: bytes) -> None:
        """Takes a frame in, once there is room for it."""
        while self._size >= MAX_BUFFERED and not self.is_gone:
            await self._changed.park()
        self.add(frame)

    def add(self, frame: bytes) -> None:
        """Takes a frame in, whether or not there is room for it."""
        if not self.is_gone:
            self._frames.append(frame)
            self._size += len(frame)
            self._changed.unpark_all()

    def end(self) -> None:
        """Nothing follows."""
        self._over = True
        self._changed.unpark_all()

    def leave(self) -> None:
        """Nobody listens any more."""
        self.is_gone = True
        self._frames.clear()
        self._changed.unpark_all()

    async def take(self) -> list[bytes]:
        """All frames that are there, at least one; none at the end."""
        while not self._frames and not self._over:
            await self._changed.park()
        return self.heard()

    def heard(self) -> list[bytes]:
        """The frames that are there."""
        frames = list(self._frames)
        self._frames.clear()
        self._size = 0
        self._changed.unpark_all()
        return frames
