"""What the daemon tells the service manager that started it: ready, stopping, alive (sd_notify(3), spec 4.6).

Without ``NOTIFY_SOCKET`` in the environment nothing is told. Main thread only.
"""

import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Mapping

import trio


class ServiceManager:
    """``watchdog_s``: how often it wants to hear that the daemon lives; None where it does not."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog_s: float | None = None
        if environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            with contextlib.suppress(KeyError, ValueError):
                self.watchdog_s = int(environment["WATCHDOG_USEC"]) / 1_000_000 or None

    def ready(self, mountpoint: str) -> None:
        self._tell(f"READY=1\nSTATUS=serving {mountpoint}\nMAINPID={os.getpid()}")

    def stopping(self) -> None:
        self._tell("STOPPING=1\nSTATUS=unmounting")

    async def watch(self, answers: Callable[[], Awaitable[bool]]) -> None:
        """Tells that the daemon is alive for as long as it ``answers``; ends at once where nobody wants to know."""
        if self.watchdog_s is None:
            return
        while True:
            if await answers():
                self._tell("WATCHDOG=1")
            await trio.sleep(self.watchdog_s / 3)

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        # A manager that does not listen must not end the mount.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.setblocking(False)
            manager.sendto(state.encode(), self._address)
