"""Writing imported lines through ``agent/ctx.sock``: with their own times, one transaction a request (spec 1.9, 4.2).

Requests go ahead of their answers, so that the source is read while the daemon stores. Each says how many entries its
session has by then: after one was refused the others of that session are too, and nobody's lines come between.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from backend.transcripts.records import Converted
from mountctl.ctx_socket import CtxSocket, Refused, place
from mountctl.import_files import branch

MOST_LINES = 10_000
_AHEAD = 64


class SocketWriter:
    """Writes to the sessions of one agent, whose ``session/`` directory is ``directory``."""

    def __init__(self, connection: CtxSocket, agent: str, space: str | None, directory: str) -> None:
        self._connection = connection
        self._agent = agent
        self._place = place(space)
        self._directory = directory
        self._sent: deque[str] = deque()
        self._failed: dict[str, str] = {}

    def append(self, session: str, lines: Sequence[Converted], n: int | None) -> None:
        now = _first_time(lines) or round(time.time() * 1000)
        for start in range(0, len(lines), MOST_LINES):
            some = lines[start : start + MOST_LINES]
            entries = []
            for line in some:
                now = now if line.time is None else line.time
                entries.append((line.stream, now))
            known = {"created_at": entries[0][1]} if n is None else {}
            n = n or 0
            self._request(session, {"entries": entries, "expected_n": n, **known}, some)
            n += len(some)

    def branch(self, parent: str, child: str, at: int) -> None:
        self._wait(0)
        branch(f"{self._directory}/{parent}", child, at)

    def settle(self) -> Mapping[str, str]:
        self._wait(0)
        return self._failed

    def _request(self, session: str, fields: dict[str, Any], lines: Sequence[Converted]) -> None:
        request = {"op": "import", "agent": self._agent, "session": session, **self._place, **fields}
        self._connection.send(request, [line.raw for line in lines])
        self._sent.append(session)
        self._wait(_AHEAD)

    def _wait(self, most: int) -> None:
        """Takes answers until at most so many are missing."""
        while len(self._sent) > most:
            session = self._sent.popleft()
            try:
                self._connection.receive()
            except Refused as refusal:
                reason = (
                    "somebody else added to it meanwhile: import again" if refusal.code == "EAGAIN" else str(refusal)
                )
                self._failed.setdefault(session, reason)


def _first_time(lines: Sequence[Converted]) -> int | None:
    return next((line.time for line in lines if line.time is not None), None)
