"""One run, from its recorded start to its recorded done (spec 3.3, 3.6). On trio's thread."""

import contextlib
import errno
import logging
import math
import signal
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import trio
from pyfuse3 import FUSEError

from backend.errors import CtxError, StoreFailed, StoreFull
from backend.rows import Line, Session
from backend.strict_json import compact
from ctxfs.agents import entries, steps
from ctxfs.agents.cosh import CoshInvocation
from ctxfs.agents.invocation import Invocation
from ctxfs.agents.ledger import Ledger, Place
from ctxfs.agents.listeners import Listener
from ctxfs.agents.output import MAX_LINE, AgentError, BadOutput, Output, Taken
from ctxfs.agents.processes import Agent
from ctxfs.sockets.frames import error_frame

log = logging.getLogger("ctxfs.agents")

CANCEL_GRACE_S = 0.25
END_TIMEOUT_S = 5.0
SETTLE_AGAIN_S = 1.0


class Outcome(NamedTuple):
    """How a run ended: ``ok``, ``error`` with the event that says why, ``cancelled``."""

    status: str
    error: Line | None = None


class Limits(NamedTuple):
    """Of one run: seconds of wall time (0: none), bytes of output."""

    wall_s: int
    output_bytes: int


class Run:
    """``start`` is its recorded line. ``done`` is that of its end, once it is on disk, and ``over`` is set then."""

    def __init__(self, id: str, client_id: str, place: Place, ledger: Ledger, session: Session, start: bytes) -> None:
        self.id = id
        self.client_id = client_id
        self.place = place
        self.start = start
        self.done: bytes | None = None
        self.over = trio.Event()
        self.session = session
        self.ledger = ledger
        self._output = Output(id)
        self._listeners: list[Listener] = []
        self._scope = trio.CancelScope()
        self._cancelled = False
        self._ending = False
        self._is_recorded = False

    # who listens, and who ends it

    def add(self, listener: Listener) -> None:
        """It hears every frame from now on, until it leaves."""
        self._listeners.append(listener)
        if self.over.is_set():
            listener.end()

    def cancel(self) -> None:
        """Ends it, unless it is ending by itself."""
        if not self._ending:
            self._cancelled = True
            self._scope.cancel()

    # its work

    async def work(self, agent: Agent | None, invocation: Invocation | CoshInvocation, limits: Limits) -> None:
        """Runs the agent (None: the echo) to the end, and records it."""
        try:
            try:
                outcome = await self._performed(agent, invocation, limits)
                outcome = await self._settled(invocation, outcome)
            except Exception as bug:
                log.exception("internal error in a run")
                outcome = self._failed("EIO", f"internal error: {type(bug).__name__}")
            except BaseException:
                await self._conclude(agent, self._failed("EHOSTDOWN", "the daemon was stopped"))
                raise
            await self._conclude(agent, outcome)
        finally:
            self._end_listeners()

    async def fail(self, agent: Agent | None, error: Exception) -> None:
        """Records that it failed before it began."""
        try:
            await self._conclude(agent, self._failed_by(error))
        finally:
            self._end_listeners()

    def _end_listeners(self) -> None:
        self.over.set()
        for listener in self._listeners:
            listener.end()

    async def _performed(self, agent: Agent | None, invocation: Invocation | CoshInvocation, limits: Limits) -> Outcome:
        outcome = Outcome("cancelled")
        self._scope.deadline = trio.current_time() + (limits.wall_s or math.inf)
        with self._scope:
            outcome = await (
                self._echo(invocation.input) if agent is None else self._converse(agent, invocation, limits)
            )
        if self._scope.cancelled_caught and not self._cancelled:
            outcome = self._failed("ETIMEDOUT", f"the run took more than {limits.wall_s} s")
        return outcome

    async def _settled(self, invocation: Invocation | CoshInvocation, outcome: Outcome) -> Outcome:
        """Lets the invocation keep what it has to before anybody hears of the end; that may be why the run failed."""
        try:
            fault = await invocation.settle()
        except (CtxError, FUSEError, OSError) as error:
            return self._failed_by(error)
        if outcome.status == "ok" and fault is not None:
            return self._failed("EIO", fault)
        return outcome

    async def _conclude(self, agent: Agent | None, outcome: Outcome) -> None:
        self._ending = True
        if agent is not None:
            with trio.CancelScope(shield=True):
                await _end(agent)
        steps.reached("ended")
        await self._settle(outcome)

    async def _echo(self, text: str) -> Outcome:
        message = {"content": [{"text": text, "type": "text"}], "role": "assistant", "type": "message"}
        for frame in ({"text": text, "type": "delta"}, message):
            if failure := await self._judged(partial(self._tell_frame, frame)):
                return failure
        return Outcome("ok")

    async def _converse(self, agent: Agent, invocation: Invocation | CoshInvocation, limits: Limits) -> Outcome:
        try:
            await agent.start(invocation.environment)
        except OSError as error:
            return self._failed_by(error)
        steps.reached("started")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(invocation.feed, agent.stdin)
            outcome = await self._read(agent, invocation, limits.output_bytes)
            nursery.cancel_scope.cancel()
        return outcome

    async def _read(self, agent: Agent, invocation: Invocation | CoshInvocation, limit: int) -> Outcome:
        """Takes the agent's output in, to its end; then how it exited decides."""
        rest, size, tell = b"", 0, partial(self._tell_line, invocation)
        async for chunk in agent.stdout:
            steps.reached("output")
            size += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if failure := await self._judged(partial(tell, line)):
                    return failure
            if len(rest) > MAX_LINE or size > limit:
                return self._failed("EMSGSIZE", "the agent printed more than it may")
        if rest and (failure := await self._judged(partial(tell, rest))):
            return failure
        try:
            status = await agent.wait()
        except OSError as error:
            return self._failed_by(error)
        if status == 0:
            return Outcome("ok")
        how = f"exited with status {status}" if status > 0 else f"was ended by {_signal_name(-status)}"
        return self._failed("EIO", f"the agent {how}")

    async def _tell_line(self, invocation: Invocation | CoshInvocation, line: bytes) -> None:
        if len(line) > MAX_LINE:
            raise BadOutput("the agent printed a line of more than 256 KiB", "EMSGSIZE")
        for frame in invocation.frames(line):
            await self._tell(self._output.take(frame))

    async def _tell_frame(self, frame: dict[str, Any]) -> None:
        await self._tell(self._output.take_object(frame))

    async def _judged(self, tell: Callable[[], Awaitable[None]]) -> Outcome | None:
        """Records and tells some output; how the run failed, if it did by that."""
        try:
            await tell()
        except AgentError as error:
            return Outcome("error", error.line)
        except BadOutput as error:
            return self._failed(error.code, error.message)
        except (CtxError, FUSEError, OSError) as error:
            return self._failed_by(error)
        return None

    async def _tell(self, taken: Taken) -> None:
        if taken.entries:
            await self.ledger.append(self.session.id, lambda _: taken.entries)
            steps.reached("recorded output")
        for frame in taken.frames:
            await self._broadcast(frame)

    async def _broadcast(self, frame: bytes) -> None:
        self._listeners = [listener for listener in self._listeners if not listener.is_gone]
        for listener in self._listeners:
            await listener.hear(frame)

    def _failed(self, code: str, message: str) -> Outcome:
        return Outcome("error", entries.error(self.id, code, message))

    def _failed_by(self, error: BaseException) -> Outcome:
        frame = error_frame(error)
        return self._failed(frame["code"], frame["message"])

    # its end

    async def _settle(self, outcome: Outcome) -> None:
        """Records the end in one transaction, and tells it once that is on disk; a disk that is full is waited for."""
        taken = self._output.finish() if outcome.status == "ok" else Taken(self._output.abandon())
        done = entries.done(self.id, outcome.status)
        ending = [*taken.entries, *([outcome.error] if outcome.error else []), done]
        while refusal := await self._record_end(ending, "error" if outcome.status == "error" else "done"):
            self._tell_last(compact(error_frame(refusal, run=self.id, id=self.client_id)))
            for listener in self._listeners:
                listener.end()
            if not isinstance(refusal, StoreFull | StoreFailed):
                return
            await trio.sleep(SETTLE_AGAIN_S)
        self.done = done.raw
        self._tell_last(*([outcome.error.raw] if outcome.error else []), *taken.frames, done.raw)

    async def _record_end(self, ending: Sequence[Line], state: str) -> Exception | None:
        """Why it could not be recorded, None if it is and on disk."""

        def lines(session: Session) -> Sequence[Line]:
            return [*ending, *entries.state(session, state)]

        with trio.CancelScope(shield=True, deadline=trio.current_time() + END_TIMEOUT_S):
            try:
                if self._is_recorded:
                    await self.ledger.sync()
                else:
                    _, failure = await self.ledger.end(self.session.id, lines, self.id)
                    self._is_recorded = True
                    if failure is not None:
                        return failure
                steps.reached("end durable")
            except (CtxError, FUSEError) as error:
                return error
            return None
        return OSError(errno.EIO, "the mount is gone")

    def _tell_last(self, *frames: bytes) -> None:
        """The end waits for no listener: they are few frames, and the session is free now."""
        for listener in self._listeners:
            for frame in frames:
                listener.add(frame)


async def _end(agent: Agent) -> None:
    """SIGTERM, SIGKILL soon after; returns when all its processes are gone, and takes nothing more from it."""
    try:
        for number, patience_s in ((signal.SIGTERM, CANCEL_GRACE_S), (signal.SIGKILL, END_TIMEOUT_S)):
            await agent.signal(number)
            with contextlib.suppress(OSError), trio.move_on_after(patience_s):
                await agent.wait()
                return
    finally:
        await agent.aclose()


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
