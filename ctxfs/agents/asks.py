"""What a send was found to mean, and the lines by which it begins (spec 3.3). Pure."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from backend.errors import CtxError
from backend.rows import Line, Session
from ctxfs.agents import entries
from ctxfs.agents.definition import Definition
from ctxfs.agents.history import Recorded, Wanted
from ctxfs.agents.ledger import Ledger, LinesOf, Place
from ctxfs.agents.preparing import Order
from ctxfs.agents.requests import Send
from ctxfs.sockets.connection import Peer

Key = tuple[Ledger, str, str, str, str]


class Ask(NamedTuple):
    """A send with what it was found to mean. ``has_home``: the peer has directories of this agent's."""

    request: Send
    ledger: Ledger
    place: Place
    peer: Peer
    definition: Definition
    wanted: Wanted
    has_home: bool

    @property
    def key(self) -> Key:
        """The session, whether or not it is there yet."""
        return self.ledger, self.place.space, *self.place.key

    def order(self, run: str) -> Order:
        """What is to be prepared for it."""
        return Order(self.definition, self.place, self.peer, self.wanted.cwd, run, self.has_home)


class Looked(NamedTuple):
    """What a send means, and what is recorded of it; ``begun`` where that was recorded by this look."""

    ask: Ask
    recorded: Recorded | None
    begun: "Begun | None" = None


class Begun(NamedTuple):
    """A run that is recorded: its session then, why that may not be on disk (None if it is), its start."""

    session: Session
    failure: CtxError | None
    start: Line


LookUp = Callable[[str | None], Awaitable[Looked]]
"""Looks a send up; given a run, begins it where nothing is recorded and nothing is to be prepared."""


def beginning(ask: Ask, run_id: str, start: Line, *, waited: bool = False) -> LinesOf:
    """The lines of a send that is recorded, all in one transaction."""

    def lines(session: Session) -> Sequence[Line]:
        model = ask.definition.model
        admitted = {"messageId": ask.request.id, "n": session.n + 1}
        return [
            *([entries.mark("agent/input-admitted", admitted)] if waited else []),
            entries.user_message(run_id, ask.request.input),
            start,
            *entries.state(session, "active"),
            *entries.meta(session, client=ask.request.client, model=model, scope=ask.place.scope),
        ]

    return lines


def start_line(ask: Ask, run_id: str) -> Line:
    """The start of a send's run."""
    return entries.start(run_id, ask.request.id, ask.place.scope, ask.wanted.cwd)
