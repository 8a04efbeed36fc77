"""What tests of handles write and read (spec 2.7)."""

from collections.abc import Sequence
from typing import Any

from backend.entries import NewMessage
from backend.sessions import SessionHandle, Sessions
from tests.contract.harness import wait

CUT = {"before": 0, "summary": [], "reason": "manual"}
PROMPT = {"header": {"provider": "p", "model": "m"}, "turn": 0, "step": 0, "reason": "r", "sources": []}


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def says(*texts: str) -> list[NewMessage]:
    return [NewMessage(said(text)) for text in texts]


def texts(messages: Sequence[Any]) -> list[str]:
    return [message["content"] for message in messages]


def opened(sessions: Sessions, id: str, *texts: str) -> SessionHandle:
    """A handle, and messages written through it."""
    handle = wait(sessions.open, id)
    wait(handle.write, says(*texts))
    return handle
