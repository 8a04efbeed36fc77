"""Writing imported lines through ``agent/ctx.sock``: with their own times, many in a transaction (spec 1.9, 4.2).

Requests hold the lines of several sessions and go ahead of their answers, so that the source is read while the daemon
stores. Each says how many entries a session has by then: after lines of one were refused its others are too, and
nobody's lines come between.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from backend.transcripts.records import Converted
from mountctl.ctx_socket import CtxSocket, Refused, place
from mountctl.import_files import BATCH_BYTES, branch

MOST_LINES = 5_000
MOST_SESSIONS = 32
_AHEAD = 8


class SocketWriter:
    """Writes to the sessions of one agent, whose ``session/`` directory is ``directory``."""

    def __init__(self, connection: CtxSocket, agent: str, space: str | None, directory: str) -> None:
        self._connection = connection
        self._agent = agent
        self._place = place(space)
        self._directory = directory
        self._parts: list[dict[str, Any]] = []
        self._lines: list[bytes] = []
        self._size = 0
        self._sent: deque[list[str]] = deque()
        self._failed: dict[str, str] = {}

    def append(self, session: str, lines: Sequence[Converted], n: int | None) -> None:
        now = next((line.time for line in lines if line.time is not None), round(time.time() * 1000))
        part: dict[str, Any] | None = None
        for position, line in enumerate(lines, n or 0):
            size = len(line.raw) + 1
            if self._size + size > BATCH_BYTES or len(self._lines) >= MOST_LINES:
                self._send()
                part = None
            now = now if line.time is None else line.time
            if part is None:
                part = self._part(session, entries=[], expected_n=position)
                if position == 0 and n is None:
                    part["created_at"] = now
            part["entries"].append((line.stream, now))
            self._lines.append(line.raw)
            self._size += size

    def map(self, uuid: str, session: str) -> None:
        if self._parts and self._parts[-1]["session"] == session:
            self._parts[-1]["uuid"] = uuid
        else:
            self._part(session, entries=[], uuid=uuid)

    def branch(self, parent: str, child: str, at: int) -> None:
        self._settle()
        branch(f"{self._directory}/{parent}", child, at)

    def settle(self) -> Mapping[str, str]:
        self._settle()
        return self._failed

    def _part(self, session: str, **fields: Any) -> dict[str, Any]:
        """Adds a part to the request, after sending it if it has enough."""
        if len(self._parts) >= MOST_SESSIONS:
            self._send()
        part = {"session": session, **fields}
        self._parts.append(part)
        return part

    def _settle(self) -> None:
        self._send()
        self._wait(0)

    def _send(self) -> None:
        if not self._parts:
            return
        request = {"op": "import-many", "agent": self._agent, **self._place, "sessions": self._parts}
        self._connection.send(request, self._lines)
        self._sent.append([part["session"] for part in self._parts])
        self._parts, self._lines, self._size = [], [], 0
        self._wait(_AHEAD)

    def _wait(self, most: int) -> None:
        """Takes answers until at most so many are missing."""
        while len(self._sent) > most:
            sessions = self._sent.popleft()
            try:
                results = self._connection.receive()["sessions"]
            except Refused as refusal:
                results = [{"code": refusal.code, "message": str(refusal)}] * len(sessions)
            for session, result in zip(sessions, results, strict=True):
                if "code" in result:
                    self._failed.setdefault(session, _reason(result))


def _reason(refusal: Mapping[str, Any]) -> str:
    if refusal["code"] == "EAGAIN":
        return "somebody else added to it meanwhile: import again"
    return str(refusal["message"])
