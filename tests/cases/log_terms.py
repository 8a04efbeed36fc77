"""The words of log cases: inputs as Python values, stores to run on, and answers as the rows name them."""

import math
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from backend.entries import Entry, NewEntry, SessionHeader
from backend.errors import (
    BranchOutOfRange,
    NoPromptError,
    SessionAlreadyExistsError,
    SessionConflictError,
    SessionError,
    SessionNotFoundError,
)
from backend.jsonl import JsonlStore
from backend.memory import MemoryStore
from backend.sqlite import SqliteStore
from backend.store import Store

_CODES: list[tuple[type[Exception], str]] = [
    (SessionAlreadyExistsError, "exists"),
    (SessionNotFoundError, "not-found"),
    (SessionConflictError, "conflict"),
    (BranchOutOfRange, "range"),
    (NoPromptError, "no-prompt"),
    (SessionError, "invalid"),
]


def build(value: Any) -> Any:
    """The Python value that an input stands for: ``{"$special": name}`` is one that JSON cannot carry."""
    if isinstance(value, dict) and set(value) == {"$special"}:
        return _special(value["$special"])
    if isinstance(value, dict):
        return {key: build(item) for key, item in value.items()}
    return list(map(build, value)) if isinstance(value, list) else value


def _special(name: str) -> Any:
    cycle: list[Any] = []
    cycle.append(cycle)
    return {
        "nan": math.nan,
        "inf": math.inf,
        "-inf": -math.inf,
        "cycle": cycle,
        "bytes": b"bytes",
        "function": build,
        "set": {1},
    }[name]


@asynccontextmanager
async def opened(kind: str) -> AsyncIterator["Place"]:
    """A fresh store of a kind."""
    with tempfile.TemporaryDirectory(prefix="ctxfs-cases-") as directory:
        place = Place(kind, f"{directory}/store")
        await place.open()
        try:
            yield place
        finally:
            place.store.close()


class Place:
    """A store that can be closed and opened again."""

    store: Store

    def __init__(self, kind: str, directory: str) -> None:
        self._kind = kind
        self._directory = directory

    async def open(self) -> None:
        match self._kind:
            case "sqlite":
                self.store = await SqliteStore.open(self._directory)
            case "jsonl":
                self.store = await JsonlStore.open(self._directory)
            case _:
                self.store = MemoryStore()

    async def reopen(self) -> None:
        self.store.close()
        await self.open()


def new_entries(entries: list[Any]) -> list[NewEntry]:
    return [msgspec.convert(entry, NewEntry) for entry in entries]


def described(entry: Entry | SessionHeader) -> Any:
    """An entry or a header as JSON."""
    return msgspec.to_builtins(entry)


def error_of(error: SessionError) -> dict[str, Any]:
    """An error as the rows name it."""
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    if isinstance(error, SessionConflictError):
        return {
            "error": code,
            "sessionId": error.session_id,
            "expectedN": error.expected_n,
            "actualN": error.actual_n,
        }
    return {"error": code}


async def outcome(call: Awaitable[Any]) -> dict[str, Any]:
    """What a call answers, as the rows name it."""
    try:
        return {"value": await call}
    except SessionError as error:
        return error_of(error)


def header_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options of create and branch as our calls name them."""
    return {re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), key): value for key, value in options.items()}
