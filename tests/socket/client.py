"""A client of a socket on a mount: sends bytes, reads frames."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from tests.mounting import PATIENCE_S
from tests.people import Person


class Client:
    """One connection, of ``person`` where that is given."""

    def __init__(self, path: Path, person: Person | None = None) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(PATIENCE_S)
        try:
            with person.acting() if person else nullcontext():
                self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise
        self._file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> dict[str, Any]:
        """The next frame; an empty one at the end of the stream."""
        return json.loads(self.line() or b"{}")  # type: ignore[no-any-return]

    def line(self) -> bytes:
        """The next frame as it came, with its newline."""
        line = self._file.readline()
        assert line == b"" or line.endswith(b"\n")
        return line

    def frames(self, *last: str) -> list[dict[str, Any]]:
        """The frames up to one of these types, or the end of the stream."""
        found = []
        while frame := self.frame():
            found.append(frame)
            if frame["type"] in last:
                break
        return found

    def ask(self, operation: str, *lines: bytes, **fields: Any) -> dict[str, Any]:
        """The answer to one request; ``lines`` follow it."""
        self.send(b"".join(line + b"\n" for line in (request(operation, **fields), *lines)))
        return self.frame()

    def close(self) -> None:
        self._file.close()
        self.socket.close()


def request(operation: str, **fields: Any) -> bytes:
    """One request without its newline."""
    return json.dumps({"op": operation, **fields}).encode()


@contextmanager
def connected(path: Path, person: Person | None = None) -> Iterator[Client]:
    """A client while the body runs."""
    client = Client(path, person)
    try:
        yield client
    finally:
        client.close()


def answer(path: Path, operation: str, *lines: bytes, **fields: Any) -> dict[str, Any]:
    """The first frame that answers one request on a connection of its own."""
    with connected(path) as client:
        return client.ask(operation, *lines, **fields)
