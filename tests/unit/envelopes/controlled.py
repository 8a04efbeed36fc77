"""Session control and cosh's store, asked over what a test wrote."""

import json
from typing import Any

import pytest

from backend.envelopes import configuration
from backend.envelopes.control import answer
from backend.envelopes.errors import EnvelopeError
from backend.envelopes.store import SessionStore
from tests.cosh_store import CoshStore, session_id

MISSING = session_id(999)
MEBIBYTE = 1 << 20


def asked(store: CoshStore, action: str, **fields: Any) -> Any:
    """The data of an answer, or its error's code."""
    request = {"action": action, "workspace_scope": str(store.workspace), **fields}
    found = json.loads(answer(json.dumps(request).encode()).line)
    return found["data"] if found["ok"] else found["error"]["code"]


def listed(store: CoshStore, **fields: Any) -> list[tuple[str, str]]:
    return [(entry["session_id"], entry["health"]) for entry in asked(store, "list", **fields)["sessions"]]


def inspected(store: CoshStore, number: int) -> Any:
    found = asked(store, "inspect", session_id=session_id(number))
    return found if isinstance(found, str) else found["session"]


def opened(store: CoshStore, persist_dir: str = configuration.DEFAULT_PERSIST_DIR) -> SessionStore:
    return SessionStore(str(store.workspace), persist_dir)


def refusal(call: Any, *args: Any) -> str:
    """The code of the error that a call raises."""
    with pytest.raises(EnvelopeError) as refused:
        call(*args)
    return refused.value.code
