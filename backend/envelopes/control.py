"""``--session-control``: one JSON request in, one JSON answer out (spec 5).

``answer`` is the whole protocol over bytes; it never raises. Order of checks: the request, counts of ids, the store,
ids. Nothing of the file system is touched before the request is known to be one.
"""

from __future__ import annotations

from types import SimpleNamespace

from backend.envelopes.configuration import settings_for
from backend.envelopes.directories import checked_id
from backend.envelopes.errors import EnvelopeError, io_error
from backend.envelopes.stored import StoredSessions
from backend.envelopes.strict import MAX_U64, dumps, loads
from backend.envelopes.texts import bounded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from backend.envelopes.store import SessionStore

    Fields = dict[str, Any]

MAX_REQUEST = MAX_RESPONSE = 1 << 20
MAX_IDS = 128
MAX_PLAN = 4096
DEFAULT_LIMIT = 20
MAX_SHOWN_ID = 128

_MAX_MESSAGE = 2048


class Answer(SimpleNamespace):
    """The response line, and whether it says ``ok``; warnings are for stderr."""

    line: bytes
    ok: bool
    warnings: tuple[str, ...] = ()


def answer(raw: bytes) -> Answer:
    """Answers a request; one of more than 1 MiB may come cut to any length above that."""
    warnings: tuple[str, ...] = ()
    try:
        request = _request(raw)
        settings = settings_for(request["workspace_scope"])
        warnings = settings.warnings
        data = _handled(request, settings.persist_dir)
        response = {"ok": True, "data": {"action": request["action"], **data}}
    except EnvelopeError as error:
        response = {"ok": False, "error": shown_error(error)}
    line = _line(response)
    if len(line) > MAX_RESPONSE:
        response = {"ok": False, "error": _TOO_LONG}
        line = _line(response)
    return Answer(line=line, ok=bool(response["ok"]), warnings=warnings)


def unreadable(error: OSError) -> Answer:
    """What is answered where no request could be read."""
    failure = io_error("read session-control request", "<stdin>", error)
    return Answer(line=_line({"ok": False, "error": shown_error(failure)}), ok=False)


def shown_error(error: EnvelopeError) -> Fields:
    """An error as clients see it."""
    message = bounded(str(error), _MAX_MESSAGE)
    return {"code": error.code, "message": message, "recoverable": True, "hint": error.hint}


_TOO_LONG = {
    "code": "invalid_request",
    "message": "session-control response exceeded the protocol byte budget",
    "recoverable": True,
    "hint": "Retry with a smaller page or request batch.",
}


def _line(response: Fields) -> bytes:
    return dumps(response).encode() + b"\n"


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_texts(value: Any) -> bool:
    return type(value) is list and all(map(_is_text, value))


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_U64


class Field:
    """What a field of a request must be; ``default`` where it may be left out."""

    def __init__(self, holds: Callable[[Any], bool], kind: str, default: Any = ...) -> None:
        self.holds = holds
        self.kind = kind
        self.default = default


_SCOPE = Field(_is_text, "a string")
_ID = Field(_is_text, "a string")
_IDS = Field(_is_texts, "an array of strings")
_CURSOR = Field(lambda value: value is None or _is_text(value), "a string or null", None)
ACTIONS = {
    "list": {
        "workspace_scope": _SCOPE,
        "limit": Field(_is_count, "an integer of at least 0", DEFAULT_LIMIT),
        "cursor": _CURSOR,
        "all_workspaces": Field(lambda value: type(value) is bool, "a boolean", False),
    },
    "inspect": {"workspace_scope": _SCOPE, "session_id": _ID},
    "validate": {"workspace_scope": _SCOPE, "session_id": _ID},
    "prepare_clear_all": {
        "workspace_scope": _SCOPE,
        "protected_session_ids": _IDS,
        "limit": Field(lambda value: value is None or _is_count(value), "an integer of at least 0, or null", None),
        "cursor": _CURSOR,
    },
    "clear": {"workspace_scope": _SCOPE, "session_ids": _IDS, "protected_session_ids": _IDS},
}


def _request(raw: bytes) -> Fields:
    """The fields of a request, with defaults for those left out; ``invalid_request``."""
    if len(raw) > MAX_REQUEST:
        raise _invalid(f"session-control request exceeds the {MAX_REQUEST} byte limit")
    try:
        request = _checked(loads(raw, tuple))
    except ValueError as error:
        raise _invalid(f"invalid session-control request: {error}") from None
    for name in ("session_ids", "protected_session_ids"):
        if len(request.get(name, ())) > MAX_IDS:
            raise _invalid(f"{name} contains {len(request[name])} IDs; at most {MAX_IDS} are allowed")
    return request


def _checked(pairs: Any) -> Fields:
    if type(pairs) is not tuple:
        raise ValueError("expected an object")
    request = dict(pairs)
    if len(request) < len(pairs):
        raise ValueError("duplicate field")
    if "action" not in request:
        raise ValueError("missing field `action`")
    action = request["action"]
    if type(action) is not str or action not in ACTIONS:
        known = ", ".join(f"`{name}`" for name in ACTIONS)
        raise ValueError(f"unknown action, expected one of {known}")
    found: Fields = {"action": action}
    for name, field in ACTIONS[action].items():
        value = request.get(name, field.default)
        if value is ...:
            raise ValueError(f"missing field `{name}`")
        if not field.holds(value):
            raise ValueError(f"invalid type: `{name}` must be {field.kind}")
        found[name] = value
    return found


def _invalid(detail: str) -> EnvelopeError:
    return EnvelopeError("invalid_request", detail=detail)


def _handled(request: Fields, persist_dir: str) -> Fields:
    place = (request["workspace_scope"], persist_dir)
    if request["action"] in _OF_FILES:
        with StoredSessions(*place) as stored:
            return _OF_FILES[request["action"]](stored, request)
    from backend.envelopes.store import SessionStore

    with SessionStore(*place) as store:
        return _OF_CONTENTS[request["action"]](store, request)


def _list(store: SessionStore, request: Fields) -> Fields:
    page = store.page_of_all if request["all_workspaces"] else store.page
    sessions, cursor = page(request["limit"], request["cursor"])
    return {"sessions": sessions, "next_cursor": cursor}


def _inspect(store: SessionStore, request: Fields) -> Fields:
    return {"session": store.inspect(request["session_id"])}


def _validate(store: SessionStore, request: Fields) -> Fields:
    return {"session": store.load(request["session_id"]).summary()}


def _prepare_clear_all(store: StoredSessions, request: Fields) -> Fields:
    protected = set(map(checked_id, request["protected_session_ids"]))
    ids = store.ids()
    if request["limit"] is None and len(ids) > MAX_PLAN:
        raise _invalid(f"prepare_clear_all requires pagination above {MAX_PLAN} stored IDs")
    after = "" if request["cursor"] is None else _position(request["cursor"])
    limit = MAX_PLAN if request["limit"] is None else min(max(request["limit"], 1), MAX_PLAN)
    left = [id for id in ids if id > after]
    page = left[:limit]
    return {
        "session_ids": [id for id in page if id not in protected],
        "protected_session_ids": [id for id in page if id in protected],
        "next_cursor": page[-1] if len(left) > limit else None,
    }


def _position(cursor: str) -> str:
    try:
        return checked_id(cursor)
    except EnvelopeError:
        raise EnvelopeError("invalid_cursor", value=cursor) from None


def _clear(store: StoredSessions, request: Fields) -> Fields:
    protected = set(map(checked_id, request["protected_session_ids"]))
    ids: list[str] = request["session_ids"]
    deleted: list[str] = []
    skipped: list[Fields] = []
    for id, error in zip(ids, store.clear_each(ids, protected), strict=True):
        if error is None:
            deleted.append(id)
        else:
            skipped.append({"session_id": bounded(id, MAX_SHOWN_ID), "error": shown_error(error)})
    return {"deleted": deleted, "skipped": skipped}


_OF_FILES: dict[str, Callable[[StoredSessions, Fields], Fields]] = {
    "prepare_clear_all": _prepare_clear_all,
    "clear": _clear,
}
_OF_CONTENTS: dict[str, Callable[[SessionStore, Fields], Fields]] = {
    "list": _list,
    "inspect": _inspect,
    "validate": _validate,
}
