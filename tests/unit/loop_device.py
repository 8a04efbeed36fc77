"""A device whose requests are bytes of a pipe, and workers that read them as pyfuse3's do."""

import os
from collections.abc import Callable

from ctxfs.loop import Loop


class Device:
    """Stands in for /dev/fuse: one byte is one request."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)

    def send(self, count: int = 1) -> None:
        os.write(self._write, b"x" * count)

    def receive(self) -> None:
        assert os.read(self.fd, 1) == b"x"

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._write)


def worker(
    loop: Loop, device: Device, requests: int, handle: Callable[[int], object], names: list[str] | None = None
) -> Callable[..., object]:
    """A pyfuse3 worker: reads under the lock, handles without it. Any number of them share ``requests``."""
    lock = loop.Lock()
    left = [requests]

    async def work(name: str) -> None:
        while True:
            async with lock:
                if not left[0]:
                    return
                await loop.wait_readable(device.fd)
                device.receive()
                left[0] -= 1
                number = requests - left[0]
            if names is not None:
                names.append(name)
            awaitable = handle(number)
            if awaitable is not None:
                await awaitable  # type: ignore[misc]

    return work
