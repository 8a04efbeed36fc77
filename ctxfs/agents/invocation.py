"""What an agent is given: its environment, and one JSON line on stdin (spec 3.6). On trio's thread."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial

import trio

from backend.errors import CtxError
from backend.rows import Session
from backend.store import FileStore
from backend.strict_json import compact
from ctxfs.agents.ledger import Ledger

SCHEMA = "ctx.agent-invocation/v1"
_CHUNK = 256 << 10


class Invocation:
    """One run's. The messages are those of ``session`` as it is here, the input being the last of them."""

    def __init__(self, run: str, input: str, session: Session, name: str, ledger: Ledger) -> None:
        self.run = run
        self.input = input
        self.environment: Mapping[str, str] = {}
        self._session = session
        self._name = name
        self._ledger = ledger

    def frames(self, line: bytes) -> Sequence[bytes]:
        """A line that the agent printed, as an agent's lines: itself."""
        return (line,)

    async def settle(self) -> str | None:
        """Nothing is kept of it, and an agent that exits well has ended well."""
        return None

    async def feed(self, stdin: trio.abc.SendStream) -> None:
        """Writes the line, as fast as the agent takes it, and closes stdin; an agent need not read it."""
        try:
            async with stdin:
                async for piece in self._pieces():
                    await stdin.send_all(piece)
        except (trio.BrokenResourceError, trio.ClosedResourceError, CtxError):
            # Who does not read, or whose session is gone, has no use for the rest.
            return

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        yield b'{"input":%b,"messages":[' % compact(self.input)
        async for piece in self._messages():
            yield piece
        last = {"run": self.run, "schema": SCHEMA, "session": self._name}
        yield b"]," + compact(last)[1:] + b"\n"

    async def _messages(self) -> AsyncGenerator[bytes, None]:
        """The projection's lines with commas between them, a piece at a time."""
        lines = await self._ledger.sent(self._session)

        def read(offset: int, _: FileStore) -> bytes:
            return lines.read(offset, _CHUNK)

        for offset in range(0, lines.size, _CHUNK):
            piece = await self._ledger.ask(partial(read, offset))
            # No line holds a raw newline; the last one's is no separator.
            text = piece.replace(b"\n", b",")
            yield text[:-1] if offset + len(piece) == lines.size else text
