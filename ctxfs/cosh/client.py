"""A trio client of session control, cosh-core's or ours (spec 5.1).

Every operation is one process and has one deadline. What core refuses is ``ControlError`` with core's code; what is
wrong with core, or between, has the code ``transport``. Nothing that core says is believed before it has its form.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from backend.envelopes.control import DEFAULT_LIMIT, MAX_IDS, MAX_PLAN, MAX_SHOWN_ID
from backend.envelopes.texts import bounded
from backend.errors import CtxError
from ctxfs.cosh.exchange import ExchangeFailed, exchange

DEADLINE_S = 10.0
TRANSPORT = "transport"

_MAX_SHOWN = 500

T = TypeVar("T")


class ControlError(CtxError):
    """What core answered instead, or ``transport``."""

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


class Summary(msgspec.Struct, frozen=True):
    """A session as core lists it; times in ms since 1970."""

    session_id: str
    workspace_scope: str
    created_at_ms: int
    updated_at_ms: int
    message_count: int
    health: str
    model: str | None = None
    first_prompt: str | None = None
    schema_version: int | None = None


class CoreError(msgspec.Struct, frozen=True):
    """An error on the wire."""

    code: str
    message: str
    hint: str | None = None


class Skipped(msgspec.Struct, frozen=True):
    """An id that was not cleared, and why."""

    session_id: str
    error: CoreError


class Page(msgspec.Struct, frozen=True):
    """Summaries, and where the next page begins."""

    sessions: tuple[Summary, ...]
    next_cursor: str | None = None


class ClearPlan(msgspec.Struct, frozen=True):
    """Exactly what clearing would remove, and what stays because it is protected."""

    session_ids: tuple[str, ...]
    protected_session_ids: tuple[str, ...]


class Cleared(msgspec.Struct, frozen=True):
    """What became of each id of a plan; ``error`` is why some are unknown or were not attempted."""

    deleted: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    unknown_session_ids: tuple[str, ...] = ()
    unattempted_session_ids: tuple[str, ...] = ()
    error: CoreError | None = None


class _One(msgspec.Struct, frozen=True):
    session: Summary


class _PlanPage(msgspec.Struct, frozen=True):
    session_ids: tuple[str, ...]
    protected_session_ids: tuple[str, ...]
    next_cursor: str | None = None


class _Batch(msgspec.Struct, frozen=True):
    deleted: tuple[str, ...]
    skipped: tuple[Skipped, ...]


class _Response(msgspec.Struct, frozen=True):
    ok: bool
    data: dict[str, Any] | None = None
    error: CoreError | None = None


_decode = msgspec.json.Decoder(_Response).decode


class SessionControlClient:
    """Asks ``argv`` about the sessions of workspaces; ``deadline`` in seconds, for each operation."""

    def __init__(self, argv: Sequence[str], deadline: float = DEADLINE_S) -> None:
        self.argv = tuple(argv)
        self._deadline = deadline

    async def list(
        self, workspace: str, limit: int = DEFAULT_LIMIT, cursor: str | None = None, *, all_workspaces: bool = False
    ) -> Page:
        """A page of sessions, newest first."""
        fields = {"limit": limit, "cursor": cursor, "all_workspaces": all_workspaces}
        return await self._ask(Page, "list", workspace, fields)

    async def inspect(self, workspace: str, session_id: str) -> Summary:
        """A session, whatever its health."""
        return (await self._ask(_One, "inspect", workspace, {"session_id": session_id})).session

    async def validate(self, workspace: str, session_id: str) -> Summary:
        """A session that can be resumed."""
        return (await self._ask(_One, "validate", workspace, {"session_id": session_id})).session

    async def plan_clear_all(self, workspace: str, protected: Sequence[str] = ()) -> ClearPlan:
        """Everything that clearing would remove, page by page."""
        fields = {"protected_session_ids": _bounded(protected), "limit": MAX_PLAN}
        cursor = ""
        ids: list[str] = []
        kept: list[str] = []
        while True:
            page = await self._ask(_PlanPage, "prepare_clear_all", workspace, {**fields, "cursor": cursor or None})
            ids += page.session_ids
            kept += page.protected_session_ids
            if page.next_cursor is None:
                return ClearPlan(tuple(ids), tuple(kept))
            if page.next_cursor <= cursor:
                raise ControlError(TRANSPORT, f"{self.argv[0]}: the cursor of its plan does not grow")
            cursor = page.next_cursor

    async def clear(self, workspace: str, ids: Sequence[str], protected: Sequence[str] = ()) -> Cleared:
        """Clears ids in batches; a batch that fails ends it, and takes nothing back of those before."""
        kept = _bounded(protected)
        deleted: list[str] = []
        skipped: list[Skipped] = []
        for start in range(0, len(ids), MAX_IDS):
            batch = list(ids[start : start + MAX_IDS])
            try:
                done = await self._clear(workspace, batch, kept)
            except ControlError as error:
                failure = CoreError(error.code, str(error), error.hint)
                left = tuple(ids[start + MAX_IDS :])
                return Cleared(tuple(deleted), tuple(skipped), tuple(batch), left, failure)
            deleted += done.deleted
            skipped += done.skipped
        return Cleared(tuple(deleted), tuple(skipped))

    async def _clear(self, workspace: str, batch: Sequence[str], protected: Sequence[str]) -> _Batch:
        fields = {"session_ids": batch, "protected_session_ids": protected}
        done = await self._ask(_Batch, "clear", workspace, fields)
        answered = {*done.deleted, *(entry.session_id for entry in done.skipped)}
        if answered != {id if id in answered else bounded(id, MAX_SHOWN_ID) for id in batch}:  # as core shows bad ones
            raise ControlError(TRANSPORT, f"{self.argv[0]}: it answered for other sessions than it was asked to clear")
        return done

    async def _ask(self, kind: type[T], action: str, workspace: str, fields: dict[str, Any]) -> T:
        request = msgspec.json.encode({"action": action, "workspace_scope": workspace, **fields})
        try:
            found = await exchange(self.argv, request, self._deadline)
            response = _decode(found.stdout)
            if not response.ok and response.error is not None:
                raise ControlError(response.error.code, response.error.message, response.error.hint)
            data = response.data or {}
            if data.get("action") != action or found.code != 0:
                raise ControlError(TRANSPORT, f"{self.argv[0]} did not answer {action} (exit code {found.code})")
            return msgspec.convert(data, kind)
        except ExchangeFailed as error:
            raise ControlError(TRANSPORT, str(error)) from None
        except (msgspec.MsgspecError, RecursionError) as error:
            said = found.stderr.decode("utf-8", "replace").strip()[:_MAX_SHOWN]
            words = f"{self.argv[0]} gave no answer of the protocol: {error}"
            raise ControlError(TRANSPORT, f"{words}: {said}" if said else words) from None


def _bounded(protected: Sequence[str]) -> Sequence[str]:
    if len(protected) > MAX_IDS:
        raise ControlError("invalid_request", f"{len(protected)} protected sessions; at most {MAX_IDS} are allowed")
    return list(protected)
