"""The derived files of context/ against what the log says, made naively from what was appended (spec 1.7, 2.5, 2.6)."""

import dataclasses
import json
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.derived import FILES, MOST_ROWS, WANTED_BYTES, Derived, File, log_line, mtime
from backend.entries import NewCut, NewEntry, NewMark, NewMessage
from backend.errors import StoreFailed
from backend.lines import entry_of, foreign_fault, line_of, parse_line
from backend.memory import MemoryStore
from backend.rows import Append, Kind, Row, Session
from backend.transcript import entry_text

TEXTS = st.text(max_size=30) | st.sampled_from(["", "## 0 · user", "```\nopen", "<!--", "é\u2028\0\x1b", "x" * 5000])
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": TEXTS},
    optional={"name": TEXTS, "tool_calls": st.just([{"id": "c", "name": "Bash", "arguments": {"b": 1, "a": [2]}}])},
)
HEADERS = st.fixed_dictionaries({"provider": TEXTS}, optional={"tools": st.lists(TEXTS, max_size=2)})
ENTRIES: st.SearchStrategy[NewEntry] = st.one_of(
    st.builds(NewMessage, MESSAGES, st.none() | st.fixed_dictionaries({"turn": st.integers(0, 9)})),
    st.builds(NewMark, st.just("delta"), st.fixed_dictionaries({"run": st.just("r1"), "text": TEXTS})),
    st.builds(NewMark, st.just("request/context"), st.fixed_dictionaries({"model": TEXTS})),
    st.builds(NewMark, st.just("prompt"), st.fixed_dictionaries({"header": HEADERS})),
    st.builds(NewMark, st.just("prompt"), st.just({"header": "not one"})),
    st.builds(
        NewMark, st.just("error"), st.fixed_dictionaries({"run": st.just("r1"), "code": TEXTS, "message": TEXTS})
    ),
    st.builds(
        NewCut,
        st.fixed_dictionaries({"before": st.just(0), "summary": st.lists(MESSAGES, max_size=3), "reason": TEXTS}),
    ),
)
BATCHES = st.lists(st.lists(ENTRIES, min_size=1, max_size=40), max_size=6)


def as_json(value: object) -> bytes:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


@dataclasses.dataclass
class Log:
    """A session of a memory store, and all that was appended to it."""

    store: MemoryStore
    session: Session
    entries: list[NewEntry] = dataclasses.field(default_factory=list)

    def append(self, entries: list[NewEntry], *, time: int = 5) -> None:
        [result] = self.store.append([Append(self.session.id, list(map(line_of, entries)), time=time)])
        assert not isinstance(result, Exception)
        self.session = result.session
        self.entries += entries

    def rows(self, start: int, limit: int) -> list[Row]:
        return list(self.store.rows(self.session.id, start, limit))

    def derived(self) -> Derived:
        return Derived(self.rows, self.session.name)

    def branch(self, at: int) -> "Log":
        return Log(self.store, self.store.branch_session(self.session.id, at, "child"), self.entries[:at])


def new_log(clock: Any = lambda: 10**18) -> Log:
    store = MemoryStore(clock)
    store.add_space("home/1", 1, 1, 0o700)
    owner = store.add_owner("home/1", "agent", "a", 1, 1)
    return Log(store, store.create_session(owner.id, "one", 1))


def caught_up(derived: Derived, file: File, length: int) -> Derived:
    while derived.is_behind(file, length):
        derived.advance(file, length)
    return derived


def content(log: Log, derived: Derived, file: File) -> bytes | None:
    view = caught_up(derived, file, log.session.n).view(file)
    if view is None:
        return None
    whole = b"".join(view.read(0, view.size + 1))
    assert len(whole) == view.size
    return whole


def mtimes(log: Log, derived: Derived) -> dict[File, int]:
    """Of the files that are there."""
    views = {file: caught_up(derived, file, log.session.n).view(file) for file in FILES}
    return {file: mtime(file, view, log.session) for file, view in views.items() if view is not None}


def entry_json(n: int, entry: NewEntry, time: int = 5) -> dict[str, Any]:
    """An entry as the table of spec 2.1 has it."""
    match entry:
        case NewMessage(message, meta):
            return {"n": n, "time": time, "kind": "message", "message": message} | ({"meta": meta} if meta else {})
        case NewMark(name, data):
            return {"n": n, "time": time, "kind": "mark", "name": name, "data": data}
        case NewCut(data):
            return {"n": n, "time": time, "kind": "cut", "data": data}


def projection(entries: list[NewEntry]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for entry in entries:
        if isinstance(entry, NewMessage):
            messages.append(entry.message)
        elif isinstance(entry, NewCut):
            messages = list(entry.data["summary"])
    return messages


def request(entries: list[NewEntry]) -> bytes | None:
    prompts = [
        n
        for n, entry in enumerate(entries)
        if isinstance(entry, NewMark) and entry.name == "prompt" and entry.data["header"] != "not one"
    ]
    if not prompts:
        return None
    before = entries[: prompts[-1]]
    contexts = [e.data for e in before if isinstance(e, NewMark) and e.name == "request/context"]
    header = entries[prompts[-1]].data["header"]  # type: ignore[union-attr]
    context = contexts[-1] if contexts else None
    return as_json({"context": context, "header": header, "messages": projection(before)}) + b"\n"


def check(log: Log, derived: Derived) -> None:
    logged = [as_json(entry_json(n, entry)) + b"\n" for n, entry in enumerate(log.entries)]
    assert content(log, derived, "log.jsonl") == b"".join(logged)
    messages = b"".join(as_json(message) + b"\n" for message in projection(log.entries))
    assert content(log, derived, "messages.jsonl") == messages
    assert content(log, derived, "request.json") == request(log.entries)


@given(BATCHES, st.data())
def test_files_are_those_of_a_naive_rendering_after_each_append_and_in_a_branch(
    batches: list[list[NewEntry]], data: st.DataObject
) -> None:
    log = new_log()
    derived = log.derived()
    check(log, derived)
    for batch in batches:
        log.append(batch)
        check(log, derived)
        for file in FILES:
            assert content(log, derived, file) == content(log, log.derived(), file)
    child = log.branch(data.draw(st.integers(0, len(log.entries))))
    kept = child.derived()
    child.append([NewMessage({"role": "user", "content": "another way"})])
    check(child, kept)
    check(log, derived)


@given(BATCHES, st.data())
def test_any_range_is_that_of_the_whole(batches: list[list[NewEntry]], data: st.DataObject) -> None:
    log = new_log()
    for batch in batches:
        log.append(batch)
    derived = log.derived()
    for file in FILES:
        whole = content(log, derived, file)
        view = derived.view(file)
        if whole is None or view is None:
            continue
        offset, size = data.draw(st.integers(0, len(whole) + 2)), data.draw(st.integers(0, len(whole) + 2))
        assert b"".join(view.read(offset, size)) == whole[offset : offset + size]


@given(st.lists(st.tuples(st.lists(ENTRIES, min_size=1, max_size=3), st.integers(0, 10**18), st.integers(0, 10**20))))
def test_a_time_of_change_grows_with_every_change(
    batches: list[tuple[list[NewEntry], int, int]],
) -> None:
    """Whatever the clock and the times of entries do; and a view made anew says the same."""
    now = 10**18
    log = new_log(lambda: now)
    derived = log.derived()
    last: dict[File, tuple[bytes | None, int]] = {}
    for batch, now, time in batches:  # noqa: B007
        log.append(batch, time=time)
        for file in FILES:
            text, view = content(log, derived, file), derived.view(file)
            changed = mtime(file, view, log.session) if view else 0
            old_text, old_changed = last.get(file, (None, 0))
            assert changed > old_changed if text != old_text else changed >= old_changed
            fresh = log.derived()
            assert content(log, fresh, file) == text
            if view:
                again = fresh.view(file)
                assert again is not None
                assert mtime(file, again, log.session) == changed > 0
            last[file] = text, changed


def test_a_time_of_change_is_that_of_what_changed() -> None:
    now = 10**18
    log = new_log(lambda: now)
    log.append([NewMessage({"role": "user", "content": "a"}), NewMark("prompt", {"header": {}})], time=now // 10**6)
    derived = log.derived()
    before = mtimes(log, derived)
    assert all(0 <= changed - now < 10 for changed in before.values())
    now += 10**10
    log.append([NewMark("delta", {"run": "r1", "text": "x"})], time=now // 10**6)
    after = mtimes(log, derived)
    assert 0 <= after.pop("log.jsonl") - now < 10
    assert after == {file: changed for file, changed in before.items() if file != "log.jsonl"}


def test_a_request_keeps_what_was_sent_while_the_log_goes_on_and_is_cut() -> None:
    log = new_log()
    derived = log.derived()
    says = [NewMessage({"role": "user", "content": str(n)}) for n in range(100)]
    log.append([*says, NewMark("prompt", {"header": {"provider": "p"}}), *says])
    sent = content(log, derived, "request.json")
    assert sent is not None
    assert [message["content"] for message in json.loads(sent)["messages"]] == [str(n) for n in range(100)]
    log.append([NewCut({"before": 0, "summary": [], "reason": "r"}), *says])
    assert content(log, derived, "request.json") == sent


def test_what_a_reader_began_to_read_is_not_torn_by_a_cut() -> None:
    log = new_log()
    derived = log.derived()
    log.append([NewMessage({"role": "user", "content": "x" * 1000}) for _ in range(200)])
    whole = content(log, derived, "messages.jsonl")
    view = derived.view("messages.jsonl")
    assert view is not None and whole is not None
    pieces = view.read(0, len(whole))
    first = next(pieces)
    log.append([NewCut({"before": 0, "summary": [], "reason": "r"})])
    assert content(log, derived, "messages.jsonl") == b""
    assert first + b"".join(pieces) == whole


def test_a_line_from_outside_is_sent_as_it_came_and_logged_in_order() -> None:
    log = new_log()
    raw = b'{ "role":"user", "content":"\\u0061" }'
    [result] = log.store.append([Append(log.session.id, [parse_line("messages", raw)], time=7)])
    assert not isinstance(result, Exception)
    log.session = result.session
    assert content(log, log.derived(), "messages.jsonl") == raw + b"\n"
    logged = b'{"kind":"message","message":{"content":"a","role":"user"},"n":0,"time":7}\n'
    assert content(log, log.derived(), "log.jsonl") == logged


def test_lone_surrogates_and_huge_numbers_are_written_as_they_can_be() -> None:
    log = new_log()
    log.append([NewMark("note", {"text": "\ud800", "big": 2**70})])
    assert content(log, log.derived(), "log.jsonl") == (
        b'{"data":{"big":1180591620717411303424,"text":"\\ud800"},"kind":"mark","n":0,"name":"note","time":5}\n'
    )


def test_one_step_looks_at_few_entries_and_at_fewer_where_they_are_long() -> None:
    log = new_log()
    log.append([NewMessage({"role": "user", "content": ""})] * 500)
    log.append([NewMessage({"role": "user", "content": "x" * 20_000})] * 400)
    asked: list[int] = []

    def rows(start: int, limit: int) -> list[Row]:
        asked.append(limit)
        return log.rows(start, limit)

    caught_up(Derived(rows, "one"), "log.jsonl", log.session.n)
    assert max(asked) == MOST_ROWS
    assert max(asked[-20:]) * 20_000 < 3 * WANTED_BYTES


def test_what_is_remembered_is_a_few_bytes_an_entry() -> None:
    """8 MiB at 10⁶ entries, and no more while they are looked at."""
    length = 100_000

    def rows(start: int, limit: int) -> list[Row]:
        return [
            Row(n, 5, "message", "messages", b'{"role":"user","content":"hi"}') for n in range(start, start + limit)
        ]

    derived = Derived(rows, "one")
    tracemalloc.start()
    try:
        for file in FILES:
            caught_up(derived, file, length)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert derived.memory <= 8 * length
    assert peak <= 8.4 * length + 300_000


def test_after_an_append_nothing_old_is_looked_at() -> None:
    log = new_log()
    log.append([NewMessage({"role": "user", "content": "old"})] * 300)
    asked: list[int] = []

    def rows(start: int, limit: int) -> list[Row]:
        asked.append(start)
        return log.rows(start, limit)

    derived = Derived(rows, "one")
    for file in FILES:
        caught_up(derived, file, log.session.n)
    log.append([NewMessage({"role": "user", "content": "new"})])
    asked.clear()
    for file in FILES:
        caught_up(derived, file, log.session.n)
    assert asked == [300, 300, 300]
    asked.clear()
    view = derived.view("log.jsonl")
    assert view is not None
    assert b'"new"' in b"".join(view.read(view.size - 10, 10)) + b'"new"'
    assert all(start >= 288 for start in asked)


def test_a_log_that_is_shorter_than_it_says_is_no_loop() -> None:
    derived = Derived(lambda _start, _limit: [], "one")
    with pytest.raises(StoreFailed):
        caught_up(derived, "log.jsonl", 3)


def test_a_log_that_was_replaced_by_a_shorter_one_is_looked_at_anew() -> None:
    log = new_log()
    log.append([NewMessage({"role": "user", "content": "a"})] * 3)
    derived = Derived(partial(log.rows), "one")
    for file in FILES:
        caught_up(derived, file, 3)
        caught_up(derived, file, 1)
    view = derived.view("messages.jsonl")
    assert view is not None
    assert view.size == len(b'{"content":"a","role":"user"}\n')


def at_depth(frames: int, call: Callable[[], bytes]) -> bytes:
    """What ``call`` returns that many frames further down the stack."""
    return at_depth(frames - 1, call) if frames else call()


@pytest.mark.parametrize("depth", [898, 899, 900, 901, 950, 990, 993, 996, 2000])
def test_a_foreign_line_is_the_same_entry_however_deep_the_stack(depth: int) -> None:
    """Or its size would be one thing at a stat and another at a read."""
    raw = b'{"a":' * depth + b"1" + b"}" * depth
    kind: Kind = "mark" if foreign_fault(raw) else "message"
    row = Row(0, 5, kind, "messages", raw)
    assert (kind == "mark") == (depth > 900)
    for render in (log_line, lambda row: entry_text(entry_of(row))):
        assert render(row) == at_depth(40, partial(render, row))


@pytest.mark.parametrize("raw", [b"not JSON", b"\xff", b"[]"])
def test_a_malformed_foreign_line_is_a_mark_without_a_name(raw: bytes) -> None:
    logged = json.loads(log_line(Row(3, 5, "mark", "events", raw)))
    assert logged == {"n": 3, "time": 5, "kind": "mark", "name": "", "data": raw.decode(errors="replace")}
