"""Cases of the log: projection, invariants, branches, put, requests, digests and marks; scripts are next door."""

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
import trio

from backend.digest import canonical_header, prompt_digest
from backend.entries import Entry, SessionHeader
from backend.errors import SessionError
from backend.invariants import Fault, check_invariants
from backend.projection import Projection, project
from backend.sessions import Branched, SessionHandle, Sessions
from backend.store import Store
from tests.cases.log_scripts import check_script
from tests.cases.log_terms import build, described, error_of, header_options, new_entries, opened, outcome
from tests.cases.rows import Mismatch, expect

BRANCHED: Final = "chatluna/session-branch"


def check_row(row: dict[str, Any], store: str) -> None:
    """Raises unless the product does as ``row`` expects; ``store`` is where a row names none."""
    check = _CHECKS.get(row["kind"])
    if check is None:
        raise Mismatch(f"no such kind of case: {row['kind']!r}")
    trio.run(check, build(row["input"]), row["expect"], store)


async def stored(store: Store, header: dict[str, Any], entries: list[Any]) -> SessionHandle:
    """A session with that header and these entries, opened."""
    described_header = {"formatVersion": 1, "createdAt": 1, "delegationDepth": 0, **header}
    await store.create(msgspec.convert(described_header, SessionHeader), new_entries(entries))
    return await Sessions(store).open(header["sessionId"])


async def _projection(given: Any, expected: Any, kind: str) -> None:
    async with opened(kind) as place:
        handle = await stored(place.store, {"sessionId": "s"}, given["entries"])
        expect("entryCount", handle.length, expected["entryCount"])
        expect("messages", list(handle.messages()), expected["messages"])
        expect("projection", list(project(new_entries(given["entries"]))), expected["messages"])
        projection = _projection_of(place.store, "s")
        projection.advance(handle.length)
        expect("lastCut", projection.last_cut, expected["lastCut"])
        _expect_lines(projection, expected["messages"])


async def _projection_steps(given: Any, expected: Any, kind: str) -> None:
    async with opened(kind) as place:
        await stored(place.store, {"sessionId": "s"}, [])
        projection = _projection_of(place.store, "s")
        length = 0
        for batch, messages in zip(given["appends"], expected["messagesAfterEach"], strict=True):
            await place.store.put("s", length, new_entries(batch))
            length += len(batch)
            projection.advance(length)
            expect("messages", list(projection.messages()), messages)
            expect("computed anew", list((await Sessions(place.store).open("s")).messages()), messages)
            _expect_lines(projection, messages)


def _projection_of(store: Store, session_id: str) -> Projection:
    row = store.find(session_id)
    assert row is not None
    return Projection(lambda start, limit: store.rows(row.id, start, limit))


def _expect_lines(projection: Projection, messages: list[Any]) -> None:
    """The projection as a file holds the same messages, wherever it is read."""
    content = projection.read(0, projection.size)
    expect("size", len(content), projection.size)
    expect("lines", [json.loads(line) for line in content.split(b"\n")[:-1]], messages)
    step = 1 + projection.size // 9
    parts = [projection.read(offset, step) for offset in range(0, projection.size + step, step)]
    if b"".join(parts) != content:
        raise Mismatch("the lines differ where they are read in parts")


async def _invariants(given: Any, expected: Any, kind: str) -> None:
    _expect_faults(check_invariants(given["entries"]), expected)
    try:
        entries = [msgspec.convert(entry, Entry) for entry in given["entries"]]
    except msgspec.ValidationError:
        return
    _expect_faults(check_invariants(entries), expected)


def _expect_faults(faults: Sequence[Fault], expected: Any) -> None:
    first = {"index": faults[0].index, "rule": faults[0].rule} if faults else None
    expect("ok", not faults, expected["ok"])
    expect("first", first, expected["first"])
    expect("rules", sorted({fault.rule for fault in faults}), sorted(expected["rules"]))


async def _branch(given: Any, expected: Any, kind: str) -> None:
    await _child(given, expected, kind, lambda sessions, options: sessions.branch(**options))


async def _create_from_parent(given: Any, expected: Any, kind: str) -> None:
    def create(sessions: Sessions, options: dict[str, Any]) -> Awaitable[SessionHandle]:
        return sessions.create(parent=options.pop("session_id"), **options)

    await _child(given, expected, kind, create)


async def _child(
    given: Any, expected: Any, kind: str, make: Callable[[Sessions, dict[str, Any]], Awaitable[SessionHandle]]
) -> None:
    async with opened(kind) as place:
        parent = given["parent"]["header"]["sessionId"]
        handle = await stored(place.store, given["parent"]["header"], given["parent"]["entries"])
        sessions = Sessions(place.store)
        events: list[Branched] = []
        sessions.on(BRANCHED, events.append)
        identity = {"id": given["id"]} if "id" in given else {}
        chosen = {"session_id": parent, "at": given["at"], **identity, **header_options(given["options"])}
        made = await outcome(make(sessions, chosen))
        if "error" in expected:
            return expect("error", made, {"error": expected["error"]})
        child = await Sessions(place.store).open(made["value"].header.session_id)
        _expect_child(described(child.header), child, expected)
        _expect_event(events, child.id, expected)
        expect("parentEntryCount", len((await Sessions(place.store).open(parent)).entries()), handle.length)
        return expect("parentEntryCount", handle.length, expected.get("parentEntryCount", handle.length))


def _expect_child(header: dict[str, Any], child: SessionHandle, expected: Any) -> None:
    expect("header", {key: header.get(key) for key in expected["header"]}, expected["header"])
    expect("absent", [key for key in expected.get("absent", []) if key in header], [])
    expect("entries", list(map(described, child.entries())), expected["entries"])
    expect("messages", list(child.messages()), expected["messages"])
    if not re.search(expected.get("sessionIdPattern", ""), child.id):
        raise Mismatch(f"the id is {child.id!r}")


def _expect_event(events: list[Branched], child: str, expected: Any) -> None:
    if "event" in expected:
        found = [{"name": BRANCHED, **event} for event in events]
        expect("events", found, [{"name": BRANCHED, "session": child, **expected["event"]}])


async def _put(given: Any, expected: Any, kind: str) -> None:
    async with opened(kind) as place:
        id = given["sessionId"]
        await stored(place.store, {"sessionId": id}, given["initialEntries"])
        results = [await _put_once(place.store, id, call) for call in given["calls"]]
        expect("results", results, expected["results"])
        entries = await place.store.read(id)
        expect("finalEntries", list(map(described, entries)), expected["finalEntries"])


async def _put_once(store: Store, id: str, call: Any) -> dict[str, Any]:
    made = await outcome(store.put(id, call["expectedN"], new_entries(call["entries"])))
    head = await store.head(id)
    assert head is not None
    return made if "error" in made else {"ok": True, "length": head.length}


async def _reconstruct(given: Any, expected: Any, kind: str) -> None:
    async with opened(kind) as place:
        handle = await stored(place.store, {"sessionId": "s"}, given["entries"])
        try:
            request: dict[str, Any] = {**handle.reconstruct_request(given["atN"])}
        except SessionError as error:
            return expect("request", error_of(error), expected)
        return expect("request", {**request, "messages": list(request["messages"])}, expected)


async def _digest_relation(given: Any, expected: Any, kind: str) -> None:
    expect("equal", prompt_digest(given["a"]) == prompt_digest(given["b"]), expected["equal"])


async def _digest_value(given: Any, expected: Any, kind: str) -> None:
    expect("canonical", canonical_header(given["header"]).decode(), expected["canonical"])
    expect("sha256", prompt_digest(given["header"]), expected["sha256"])


async def _mark_schema(given: Any, expected: Any, kind: str) -> None:
    async with opened(kind) as place:
        handle = await Sessions(place.store).open("s")
        made = await outcome(handle.mark(given["name"], given["data"]))
        expect("valid", "error" not in made, expected["valid"])


_CHECKS: dict[str, Callable[[Any, Any, str], Awaitable[None]]] = {
    "projection": _projection,
    "projection_steps": _projection_steps,
    "invariants": _invariants,
    "branch": _branch,
    "create_from_parent": _create_from_parent,
    "put": _put,
    "reconstruct": _reconstruct,
    "digest_relation": _digest_relation,
    "digest_value": _digest_value,
    "mark_schema": _mark_schema,
    "script": check_script,
}
