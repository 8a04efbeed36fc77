"""Runs that died with the daemon that had begun them (spec 3.3): they are ended, once, when the mount starts again."""

import contextlib
import logging
from collections.abc import Sequence
from functools import partial

from pyfuse3 import FUSEError

from backend.entries import MarkEntry
from backend.errors import CtxError
from backend.lines import entry_of
from backend.rows import Line, RunLine, Session
from backend.store import FileStore
from ctxfs.agents import entries
from ctxfs.agents.ledger import Ledger

log = logging.getLogger("ctxfs.agents")

_LOOK_BACK = 1000


async def recover(ledger: Ledger) -> None:
    """Records error and done of every run that was live; what cannot be recorded is logged, and left."""
    try:
        live = await ledger.ask(lambda store: store.live_runs())
    except CtxError as error:
        log.warning("runs that died cannot be found: %s", error)
        return
    for session, run in live:
        try:
            lines = await ledger.run_lines(session, run)
            waiting = await ledger.ask(partial(_unfinished, session=session, lines=lines))
            if waiting is None:
                await ledger.ask(lambda store: store.forget_run(session))  # noqa: B023
            else:
                await ledger.end(session, partial(_ending, run=run, waiting=waiting), run)
        except (CtxError, FUSEError) as error:
            log.warning("a run that died cannot be ended: %s", error)


def _unfinished(store: FileStore, session: int, lines: Sequence[RunLine]) -> Sequence[str] | None:
    """The message ids that waited behind a run that never ended; None for one that did, or never began."""
    kinds = [line.kind for line in lines]
    if "start" not in kinds or "done" in kinds:
        return None
    row = store.session_by_id(session)
    waiting: dict[str, None] = {}
    for entry in map(entry_of, store.rows(session, max(0, (row.n if row else 0) - _LOOK_BACK), _LOOK_BACK)):
        if isinstance(entry, MarkEntry) and isinstance(entry.data, dict):
            with contextlib.suppress(KeyError):
                _follow(waiting, entry.name, entry.data["messageId"])
    return list(waiting)


def _follow(waiting: dict[str, None], name: str, message: str) -> None:
    if name == "agent/input-enqueued":
        waiting[message] = None
    elif name in ("agent/input-admitted", "agent/input-discarded"):
        waiting.pop(message, None)


def _ending(session: Session, run: str, waiting: Sequence[str]) -> Sequence[Line]:
    reason = "the daemon that ran this died"
    discarded = [
        entries.mark("agent/input-discarded", {"messageId": message, "reason": "EHOSTDOWN"}) for message in waiting
    ]
    error = entries.error(run, "EHOSTDOWN", reason)
    return [*discarded, error, entries.done(run, "error"), *entries.state(session, "error")]
