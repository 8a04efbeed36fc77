"""Cases of the log that are scripts: operations on a service, and what each answers."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import trio

from backend.sessions import SessionHandle, Sessions
from backend.store import Store
from tests.cases.log_terms import Place, described, header_options, new_entries, opened, outcome
from tests.cases.rows import Mismatch, expect

_DONE = "done"
"""What an operation answers that has no value of its own."""


async def check_script(given: Any, expected: Any, kind: str) -> None:
    async with AsyncExitStack() as stack:
        named = given.get("store", "any")
        script = Script(await stack.enter_async_context(opened(kind if named == "any" else named)))
        for number, (op, result) in enumerate(zip(given["ops"], expected["results"], strict=True)):
            expect(f"op {number} ({op['op']})", _as_expected(op, await script.run(op), result), result)


def _as_expected(op: dict[str, Any], found: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """An answer without what the row leaves open: keys of a header it does not name, and the order of lists."""
    if op["op"] == "parallel" and "value" in found:
        parts = zip(op["ops"], found["value"], expected["value"], strict=True)
        return {"value": [_as_expected(*part) for part in parts]}
    value = found.get("value")
    if op["op"] == "header" and isinstance(value, dict):
        return {"value": {key: value[key] for key in expected["value"] if key in value}}
    if op["op"] in ("list", "storeList") and isinstance(value, list) and sorted(value) == sorted(expected["value"]):
        return expected
    return found


class Script:
    """The services and handles of a script that is running."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._services = {"": Sessions(place.store)}
        self._handles: dict[str, SessionHandle] = {}

    async def run(self, op: dict[str, Any]) -> dict[str, Any]:
        return _named(await outcome(self.start(op)))

    def start(self, op: dict[str, Any]) -> Awaitable[Any]:
        """Makes a call; what a handle queues has its place when this returns."""
        call = _CALLS.get(op["op"])
        if call is None:
            raise Mismatch(f"no such operation: {op['op']!r}")
        return call(self, op)

    def on(self, op: dict[str, Any]) -> SessionHandle:
        return self._handles[op["on"]]

    def service(self, op: dict[str, Any]) -> Sessions:
        return self._services[op.get("conn", "")]

    @property
    def store(self) -> Store:
        return self._place.store

    async def bind(self, op: dict[str, Any], opening: Awaitable[SessionHandle]) -> str:
        self._handles[op["as"]] = await opening
        return _DONE

    async def parallel(self, op: dict[str, Any]) -> list[Any]:
        calls = [self.start(part) for part in op["ops"]]
        results: list[Any] = [None] * len(calls)

        async def finish(at: int, call: Awaitable[Any]) -> None:
            results[at] = _named(await outcome(call))

        async with trio.open_nursery() as nursery:
            for at, call in enumerate(calls):
                nursery.start_soon(finish, at, call)
        return results

    async def reopen_store(self, op: dict[str, Any]) -> str:
        await self._place.reopen()
        self._services = {"": Sessions(self.store)}
        return _DONE

    async def second_connection(self, op: dict[str, Any]) -> str:
        """A store is one process's alone: who else writes to it is another service on the same store."""
        self._services[op["as"]] = Sessions(self.store)
        return _DONE

    async def head(self, op: dict[str, Any]) -> Any:
        head = await self.service(op).head(op["id"])
        return None if head is None else {"sessionId": head.header.session_id, "length": head.length}

    async def ids(self, op: dict[str, Any]) -> list[str]:
        return [header.session_id for header in await self.service(op).list()]

    async def store_ids(self, op: dict[str, Any]) -> list[str]:
        found = await self.store.list(parent=op.get("parent"), limit=op.get("limit"))
        return [header.session_id for header in found]

    async def count(self, op: dict[str, Any]) -> int:
        return len(await self.store_ids(op))

    async def store_read_ns(self, op: dict[str, Any]) -> list[int]:
        return [entry.n for entry in await self.store.read(op["id"], op.get("from", 0))]

    async def write_then_mutate_input(self, op: dict[str, Any]) -> str:
        entries = new_entries(op["entries"])
        call = self.on(op).write(entries)
        _overwrite(entries, op["set"])
        await call
        _overwrite(entries, op["set"])
        return _DONE

    async def messages_then_mutate_result(self, op: dict[str, Any]) -> str:
        for message in self.on(op).messages():
            message["content"] = op["set"]
        return _DONE


def _overwrite(entries: list[Any], content: Any) -> None:
    for entry in entries:
        entry.message["content"] = content


def _named(answer: dict[str, Any]) -> dict[str, Any]:
    return {"ok": True} if answer.get("value") == _DONE else answer


async def _done(call: Awaitable[Any]) -> str:
    await call
    return _DONE


async def _at_once(value: Any) -> Any:
    return value


def _draft(script: Script, op: dict[str, Any]) -> Awaitable[Any]:
    script.on(op).set_draft(op["message"])
    return _at_once(_DONE)


def _made(call: Callable[[SessionHandle, dict[str, Any]], Awaitable[Any]]) -> Callable[[Script, Any], Awaitable[Any]]:
    return lambda script, op: _done(call(script.on(op), op))


def _shown(look: Callable[[SessionHandle, dict[str, Any]], Any]) -> Callable[[Script, Any], Awaitable[Any]]:
    async def show(script: Script, op: dict[str, Any]) -> Any:
        return look(script.on(op), op)

    return show


def _options(op: dict[str, Any]) -> dict[str, Any]:
    return header_options(op.get("options", {}))


_CALLS: dict[str, Callable[[Script, dict[str, Any]], Awaitable[Any]]] = {
    "open": lambda script, op: script.bind(op, script.service(op).open(op["id"])),
    "create": lambda script, op: script.bind(op, script.service(op).create(op.get("id"), **_options(op))),
    "branch": lambda script, op: script.bind(op, script.service(op).branch(op["id"], op["at"], **_options(op))),
    "head": Script.head,
    "list": Script.ids,
    "delete": lambda script, op: script.service(op).delete(op["id"]),
    "define": lambda script, op: _done(script.service(op).define(op["name"], op["schema"])),
    "releaseIfEphemeral": lambda script, op: _done(script.service(op).release_if_ephemeral(op["id"])),
    "write": _made(lambda handle, op: handle.write(op["entries"])),
    "commit": _made(lambda handle, op: handle.commit(op["message"])),
    "mark": _made(lambda handle, op: handle.mark(op["name"], op["data"])),
    "compact": _made(lambda handle, op: handle.compact(op["data"])),
    "setDraft": _draft,
    "header": _shown(lambda handle, op: described(handle.header)),
    "draft": _shown(lambda handle, op: handle.draft),
    "length": _shown(lambda handle, op: handle.length),
    "messages": _shown(lambda handle, op: list(handle.messages())),
    "ns": _shown(lambda handle, op: [entry.n for entry in handle.entries()]),
    "kinds": _shown(lambda handle, op: [described(entry)["kind"] for entry in handle.entries()]),
    "metaAt": _shown(lambda handle, op: described(handle.entries()[op["n"]]).get("meta")),
    "parallel": Script.parallel,
    "reopenStore": Script.reopen_store,
    "secondConnection": Script.second_connection,
    "storeList": Script.store_ids,
    "storeListCount": Script.count,
    "storeReadNs": Script.store_read_ns,
    "writeThenMutateInput": Script.write_then_mutate_input,
    "messagesThenMutateResult": Script.messages_then_mutate_result,
}
