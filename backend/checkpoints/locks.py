"""A lock that many readers or one writer hold, in the order in which they came; trio, one thread (notes 2.15)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class ReadWriteLock:
    """Who waits for it keeps those out that come later, so that no writer starves."""

    def __init__(self) -> None:
        self._entrance = trio.Lock()
        self._readers = self._writers = 0
        self._empty = trio.Event()

    @property
    def is_writing(self) -> bool:
        """Whether somebody writes or waits to."""
        return self._writers > 0

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        async with self._entrance:
            self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self._empty.set()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        self._writers += 1
        try:
            async with self._entrance:
                while self._readers:
                    self._empty = trio.Event()
                    await self._empty.wait()
                yield
        finally:
            self._writers -= 1
