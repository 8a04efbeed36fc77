"""The adapter ``cosh``: a headless cosh-core as an agent (spec 5.2, 3.6). On trio's thread.

Its session's UUID is what by-uuid/ leads to the session with; a run resumes it and keeps what it has become, before
anybody hears that the run is done. The rules are ``ctxfs.cosh.resume``'s, the frames ``ctxfs.cosh.headless``'s.
"""

from collections.abc import Mapping, Sequence

import trio

from backend.store import FileStore
from backend.strict_json import compact
from ctxfs.agents.ledger import Ledger, Place
from ctxfs.agents.output import BadOutput
from ctxfs.cosh.headless import Turn
from ctxfs.cosh.resume import ResumeState

ADAPTER = "cosh"

_PAGE = 1000


class CoshInvocation:
    """One turn of a session with cosh-core; what ``ctxfs.agents.invocation.Invocation`` is to other agents."""

    def __init__(self, input: str, place: Place, ledger: Ledger, active_id: str | None) -> None:
        self.input = input
        self.environment: Mapping[str, str] = {}
        self._turn = Turn(ResumeState(place.session, active_id))
        self._place = place
        self._ledger = ledger
        self._resumed = active_id
        self._outbox, self._to_send = trio.open_memory_channel[bytes](max_buffer_size=float("inf"))

    @property
    def options(self) -> tuple[str, ...]:
        """What is added to the agent's command line."""
        return self._turn.options

    async def feed(self, stdin: trio.abc.SendStream) -> None:
        """Says what core is to do, answers what it asks, and ends it once it has its result."""
        try:
            async with stdin, self._to_send:
                await stdin.send_all(self._turn.opening(self.input))
                async for reply in self._to_send:
                    await stdin.send_all(reply)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    def frames(self, line: bytes) -> Sequence[bytes]:
        """A line of core as an agent's lines (``BadOutput``)."""
        try:
            taken = self._turn.take(line)
        except ValueError as error:
            raise BadOutput(f"cosh-core printed what is no message of it: {error}") from None
        for reply in taken.replies:
            self._outbox.send_nowait(reply)
        if self._turn.is_over:
            self._outbox.close()
        return [compact(frame) for frame in taken.frames]

    async def settle(self) -> str | None:
        """Keeps what the session has become; why core has failed even where it exits well."""
        if not self._turn.is_over:
            self._turn.cancelled()
        active = self._turn.active_id
        if active != self._resumed:
            with trio.CancelScope(shield=True):
                await self._ledger.lead(self._place, self._resumed, active)
        return None if self._turn.is_over else "cosh-core ended without a result"


async def active_id(ledger: Ledger, place: Place) -> str | None:
    """The UUID that leads to a session; of several the one that came last."""

    def find(store: FileStore) -> str | None:
        owner = store.owner(place.space, place.kind, place.name)
        found, after = None, 0
        while owner is not None and (page := store.mappings(owner.id, "by-uuid", after, _PAGE)):
            found = next((mapping.key for mapping in reversed(page) if mapping.session == place.session), found)
            after = page[-1].id
        return found

    return await ledger.ask(find)
