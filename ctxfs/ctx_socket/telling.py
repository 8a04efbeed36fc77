"""Tells a client how far long work is: a ``progress`` frame now and then, which holds nothing that others need."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import trio

from ctxfs.sockets.connection import Connection

T = TypeVar("T")

PROGRESS_S = 0.5


class Telling:
    """For one request; ``figures`` are asked when there is time for a frame."""

    def __init__(self, connection: Connection, figures: Callable[[], Mapping[str, int]]) -> None:
        self._connection = connection
        self._figures = figures
        self._next = trio.current_time() + PROGRESS_S

    async def during(self, work: Callable[[], Awaitable[T]]) -> T:
        """What ``work`` returns or raises; it must send nothing itself."""
        over = trio.Event()
        results: list[T] = []
        errors: list[Exception] = []

        async def run() -> None:
            try:
                results.append(await work())
            except Exception as error:
                errors.append(error)
            over.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            try:
                await self._until(over)
            except Exception as error:
                # The client is gone: nobody wants the rest.
                errors.append(error)
                nursery.cancel_scope.cancel()
        if errors:
            raise errors[0]
        return results[0]

    async def _until(self, over: trio.Event) -> None:
        while not over.is_set():
            with trio.move_on_at(self._next):
                await over.wait()
                return
            await self._connection.send({"type": "progress", **self._figures()})
            self._next = trio.current_time() + PROGRESS_S
