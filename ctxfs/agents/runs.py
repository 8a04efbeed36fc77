"""All runs of a mount: which send becomes a run, waits for one, is a retry, or is refused (spec 3.3). Trio's thread.

What is decided of a session is decided behind its gate, by one send at a time; so of two sends with one new id one is
recorded, and the other finds it. The gate is open while a run works.
"""

import contextlib
import errno
import logging
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import trio
from pyfuse3 import FUSEError

from backend.errors import CtxError, InvalidValue, Missing
from backend.rows import Session
from backend.strict_json import compact
from ctxfs.agents import asks, entries, steps
from ctxfs.agents.asks import Ask, Begun, Key, LookUp
from ctxfs.agents.cosh import ADAPTER, CoshInvocation, active_id
from ctxfs.agents.history import Recorded
from ctxfs.agents.invocation import Invocation
from ctxfs.agents.ledger import Ledger, Place
from ctxfs.agents.listeners import Listener
from ctxfs.agents.preparing import Preparing
from ctxfs.agents.processes import Agent
from ctxfs.agents.run import Limits, Run

log = logging.getLogger("ctxfs.agents")

MAX_QUEUED = 100
_CLOSING_S = 2.0
_REFUSALS = (CtxError, FUSEError, OSError)


class Answer(NamedTuple):
    """What a send is answered with: the line of a start, or of a done; and then what ``run`` says from now on."""

    line: bytes
    run: Run | None = None


class Waiting:
    """A send that waits for its turn."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.listeners: list[Listener] = []
        self._decided = trio.Event()
        self._answer: Answer | None = None
        self._refusal: Exception | None = None

    def admit(self, answer: Answer) -> None:
        self._answer = answer
        self._decided.set()

    def refuse(self, refusal: Exception) -> None:
        self._refusal = refusal
        self._decided.set()

    async def answer(self) -> Answer:
        """Once it was decided (raises why it was refused)."""
        await self._decided.wait()
        if self._answer is None:
            raise self._refusal or OSError(errno.EIO, "the turn never came")
        return self._answer


class Runs:
    """Those of one mount."""

    def __init__(self, preparing: Preparing) -> None:
        self._preparing = preparing
        self._live: dict[Key, Run] = {}
        self._queues: dict[Key, deque[Waiting]] = {}
        self._gates: dict[Key, tuple[trio.Lock, int]] = {}
        self._nursery: trio.Nursery | None = None

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None, None]:
        """Sends are taken inside; what still runs at the end is ended, and recorded as that."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    yield
                finally:
                    nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLOSING_S):
                await self._discard_all()

    # what clients ask

    async def send(self, key: Key, look_up: LookUp, listener: Listener) -> Answer:
        """Records a send and starts its run, or finds what was recorded of it before (raises why it is refused).

        ``look_up`` is called behind the gate. ``listener`` hears the run from then on; the caller has it ``leave``.
        """
        async with self._gate(key):
            run_id = _new_id()
            # Whatever becomes of the connection, a run that is recorded is started.
            with trio.CancelScope(shield=True):
                ask, recorded, begun = await look_up(None if self._is_busy(key) else run_id)
                if begun is not None:
                    return await self._start(ask, run_id, begun, None, None, [listener])
            answer = None if recorded is None else await self._replay(ask, recorded)
            if answer is not None:
                if answer.run is not None:
                    answer.run.add(listener)
                return answer
            waiting = self._find_waiting(ask)
            if waiting is None:
                if not self._is_busy(ask.key):
                    return await self._begin(ask, run_id, [listener])
                waiting = await self._enqueue(ask)
            waiting.listeners.append(listener)
        return await waiting.answer()

    async def cancel(self, key: Key, id: str) -> bytes:
        """Ends a run, by its own id or the client's: its done (``Missing``: nothing active has that id)."""
        run = self._live.get(key)
        if run is not None and id in (run.id, run.client_id):
            return await self.end(run)
        for waiting in self._queues.get(key, ()):
            if waiting.ask.request.id == id:
                return await self._discard(waiting)
        raise Missing("nothing active has this id")

    async def cancel_temp(self, place: Place, id: str) -> bytes:
        """As ``cancel``, of the temp runs of that peer, whichever connection they belong to."""
        for run in self._live.values():
            if run.place == place and id in (run.id, run.client_id):
                return await self.end(run)
        raise Missing("nothing active has this id")

    async def end(self, run: Run) -> bytes:
        """Ends a run: its done, once that is on disk."""
        run.cancel()
        await run.over.wait()
        if run.done is None:
            raise OSError(errno.EIO, "the end of the run could not be recorded")
        return run.done

    def of(self, ledger: Ledger) -> Sequence[Run]:
        """The live runs that are recorded there."""
        return [run for key, run in self._live.items() if key[0] is ledger]

    # decisions, behind the gate

    async def _replay(self, ask: Ask, recorded: Recorded) -> Answer:
        """The answer to a retry."""
        run = self._live.get(ask.key)
        if run is not None and run.id == recorded.run:
            if recorded.done is None:
                return Answer(recorded.start, run)
            # It is recorded, and not known to be on disk.
            await run.over.wait()
        if recorded.done is None:
            # A run that ended just now has its done by a second look.
            recorded = await ask.ledger.find_recorded(ask.place, ask.request.id, ask.wanted) or recorded
        return Answer(recorded.start if recorded.done is None else recorded.done)

    def _find_waiting(self, ask: Ask) -> Waiting | None:
        for waiting in self._queues.get(ask.key, ()):
            if waiting.ask.request.id == ask.request.id:
                if waiting.ask.wanted != ask.wanted:
                    raise InvalidValue("this id waits in this session for something else: choose another")
                return waiting
        return None

    def _is_busy(self, key: Key) -> bool:
        return key in self._live or bool(self._queues.get(key))

    def _busy(self, key: Key) -> BlockingIOError:
        run = self._live.get(key)
        active = "another send" if run is None else f"run {run.id}"
        return BlockingIOError(errno.EAGAIN, f"{active} is active in this session: wait for it, cancel it, or queue")

    async def _enqueue(self, ask: Ask) -> Waiting:
        if not ask.request.queue or len(self._queues.get(ask.key, ())) >= MAX_QUEUED:
            raise self._busy(ask.key)
        agent = await self._prepare(ask, "")
        if agent is not None:
            await agent.aclose()
        data = {
            "messageId": ask.request.id,
            "message": {"content": ask.request.input, "role": "user"},
            "target": "next-turn",
            "wakeup": True,
            "enqueuedAt": time.time_ns() // 1_000_000,
        }
        waiting = Waiting(ask)
        with trio.CancelScope(shield=True):
            session = await ask.ledger.open(ask.place)
            await self._mark(ask, session, "agent/input-enqueued", data)
            self._queues.setdefault(ask.key, deque()).append(waiting)
        if ask.key not in self._live:
            # The run that it was to wait for has ended meanwhile, and found nobody waiting.
            self._start_next(ask.key)
        return waiting

    async def _discard(self, waiting: Waiting) -> bytes:
        """Takes a send out of its queue: the done that it has instead of a run's."""
        ask = waiting.ask
        self._queues[ask.key].remove(waiting)
        done = compact({"id": ask.request.id, "status": "cancelled", "type": "done"})
        with trio.CancelScope(shield=True):
            await self._record_discarded(ask, "cancelled")
        waiting.admit(Answer(done))
        return done

    async def _discard_all(self) -> None:
        """What still waits when the mount ends never gets its turn."""
        for queue in self._queues.values():
            for waiting in queue:
                with contextlib.suppress(*_REFUSALS):
                    await self._record_discarded(waiting.ask, "EHOSTDOWN")

    async def _record_discarded(self, ask: Ask, reason: str) -> None:
        session = await ask.ledger.find(ask.place)
        if session is not None:
            await self._mark(ask, session, "agent/input-discarded", {"messageId": ask.request.id, "reason": reason})

    async def _mark(self, ask: Ask, session: Session, name: str, data: dict[str, Any]) -> None:
        line = entries.mark(name, data)
        await ask.ledger.append(session.id, lambda _: [line])

    async def _begin(self, ask: Ask, run_id: str, listeners: Sequence[Listener], *, waited: bool = False) -> Answer:
        turn = await self._turn(ask)
        if turn is not None:
            argv = (*ask.definition.argv, *turn.options)
            ask = ask._replace(definition=ask.definition._replace(argv=argv))
        agent = await self._prepare(ask, run_id)
        if agent is not None and not ask.has_home and ask.place.scope == "private" and ask.place.kind == "agent":
            # The peer's first: judged in an empty root; now its own is made.
            await agent.aclose()
            await ask.ledger.open(ask.place)
            ask = ask._replace(has_home=True)
            agent = await self._prepare(ask, run_id)
        steps.reached("prepared")
        try:
            with trio.CancelScope(shield=True):
                start = asks.start_line(ask, run_id)
                lines_of = asks.beginning(ask, run_id, start, waited=waited)
                session, failure = await ask.ledger.begin(ask.place, lines_of, run_id, ask.definition.number)
                begun = Begun(session, failure, start)
                answer = await self._start(ask, run_id, begun, agent, turn, listeners)
        except BaseException:
            if agent is not None:
                await agent.aclose()
            raise
        return answer

    async def _turn(self, ask: Ask) -> CoshInvocation | None:
        """What is said to an agent that is a cosh-core; None for others."""
        if ask.definition.adapter != ADAPTER:
            return None
        active = await active_id(ask.ledger, ask.place)
        return CoshInvocation(ask.request.input, ask.place, ask.ledger, active)

    async def _prepare(self, ask: Ask, run_id: str) -> Agent | None:
        return await self._preparing.prepare(ask.order(run_id))

    async def _start(
        self,
        ask: Ask,
        run_id: str,
        begun: Begun,
        agent: Agent | None,
        turn: CoshInvocation | None,
        listeners: Sequence[Listener],
    ) -> Answer:
        """Starts a run that is recorded."""
        session, failure, start = begun
        run = Run(run_id, ask.request.id, ask.place, ask.ledger, session, start.raw)
        for listener in listeners:
            run.add(listener)
        self._live[ask.key] = run
        assert self._nursery is not None, "working() comes first"
        if failure is not None:
            self._nursery.start_soon(self._fail, ask.key, run, agent, failure)
            raise failure
        steps.reached("durable")
        invocation = turn or Invocation(run_id, ask.request.input, session, ask.place.session, ask.ledger)
        if agent is not None:
            invocation.environment = self._preparing.environment(ask.order(run_id), agent)
            # Snapshots are for people, and the run is more than they are.
            with contextlib.suppress(*_REFUSALS):
                await ask.ledger.put_snapshots(session.id, agent.snapshots)
        self._nursery.start_soon(self._work, ask.key, run, agent, invocation)
        return Answer(start.raw, run)

    # runs, outside of the gate

    async def _work(self, key: Key, run: Run, agent: Agent | None, invocation: Invocation | CoshInvocation) -> None:
        settings = self._preparing.settings
        with self._ending(key):
            await run.work(agent, invocation, Limits(settings.wall_s, settings.output_bytes))

    async def _fail(self, key: Key, run: Run, agent: Agent | None, error: Exception) -> None:
        """A run whose start may not be on disk: it is not worked on."""
        with self._ending(key):
            await run.fail(agent, error)

    @contextlib.contextmanager
    def _ending(self, key: Key) -> Iterator[None]:
        """A run is over at the end of the block; a bug in it is that run's, not everybody's."""
        try:
            yield
        except Exception:
            log.exception("internal error at the end of a run")
        finally:
            run = self._live.pop(key)
            if run.done is None:
                run.ledger.ended(run.id)
            if key in self._queues:
                self._start_next(key)

    def _start_next(self, key: Key) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(self._admit_next, key)

    async def _admit_next(self, key: Key) -> None:
        async with self._gate(key):
            # At the mount's end nobody gets a turn.
            await trio.lowlevel.checkpoint_if_cancelled()
            queue = self._queues.get(key)
            while queue and key not in self._live:
                waiting = queue.popleft()
                try:
                    waiting.admit(await self._begin(waiting.ask, _new_id(), waiting.listeners, waited=True))
                except Exception as refusal:
                    if not isinstance(refusal, _REFUSALS):
                        log.exception("internal error where a send got its turn")
                    waiting.refuse(refusal)
                    with contextlib.suppress(*_REFUSALS):
                        await self._record_discarded(waiting.ask, str(refusal) or type(refusal).__name__)
                except BaseException:
                    # It is among what waits when the mount ends.
                    queue.appendleft(waiting)
                    waiting.refuse(OSError(errno.EHOSTDOWN, "the daemon was stopped"))
                    raise
            if not queue:
                self._queues.pop(key, None)

    @asynccontextmanager
    async def _gate(self, key: Key) -> AsyncGenerator[None, None]:
        lock, users = self._gates.get(key, (trio.Lock(), 0))
        self._gates[key] = lock, users + 1
        try:
            try:
                # Free, it is taken without a turn of the others.
                lock.acquire_nowait()
            except trio.WouldBlock:
                await lock.acquire()
            try:
                yield
            finally:
                lock.release()
        finally:
            lock, users = self._gates[key]
            if users == 1:
                del self._gates[key]
            else:
                self._gates[key] = lock, users - 1


def _new_id() -> str:
    return f"ctx-{os.urandom(16).hex()}"
