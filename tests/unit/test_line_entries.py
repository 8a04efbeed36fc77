"""A line ⇄ an entry: the two directions of spec 2.1 are inverse."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.entries import CutEntry, Entry, MarkEntry, MessageEntry, NewCut, NewEntry, NewMark, NewMessage
from backend.errors import CtxError, LineTooLong, SessionError
from backend.line_shapes import EVENTS
from backend.lines import entry_of, foreign_fault, foreign_line, line_of, parse_line
from backend.rows import Line, Row, Stream

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4))
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)
MESSAGES = st.builds(
    NewMessage,
    st.builds(
        lambda rest, role: {key: value for key, value in rest.items() if key != "meta"} | {"role": role},
        OBJECTS,
        st.text(),
    ),
    st.none() | OBJECTS,
)
MARKS = st.builds(NewMark, st.text() | st.sampled_from(sorted(EVENTS)), JSON | OBJECTS)
CUTS = st.builds(NewCut, OBJECTS.filter(lambda data: "type" not in data))
ENTRIES: st.SearchStrategy[NewEntry] = MESSAGES | MARKS | CUTS


def row(line: Line) -> Row:
    return Row(4, 5, line.kind, line.stream, line.raw)


def numbered(entry: NewEntry) -> Entry:
    match entry:
        case NewMessage(message, meta):
            return MessageEntry(4, 5, message, meta)
        case NewMark(name, data):
            return MarkEntry(4, 5, name, data)
        case NewCut(data):
            return CutEntry(4, 5, data)


def as_new(entry: Entry) -> NewEntry:
    match entry:
        case MessageEntry(message=message, meta=meta):
            return NewMessage(message, meta)
        case MarkEntry(name=name, data=data):
            return NewMark(name, data)
        case CutEntry(data=data):
            return NewCut(data)


@given(ENTRIES)
def test_an_entry_comes_back_from_its_line(entry: NewEntry) -> None:
    assert entry_of(row(line_of(entry))) == numbered(entry)


@given(ENTRIES)
def test_a_line_comes_back_from_its_entry(entry: NewEntry) -> None:
    line = line_of(entry)
    assert line_of(as_new(entry_of(row(line)))) == line


@given(ENTRIES)
def test_a_line_made_here_reads_like_one_that_was_found(entry: NewEntry) -> None:
    line = line_of(entry)
    assert foreign_fault(line.raw) is None
    assert foreign_line(line.stream, line.raw) == line


@pytest.mark.parametrize(
    ("entry", "raw"),
    [
        (NewMessage({"role": "user", "content": "é"}, {"turn": 1}), '{"content":"é","meta":{"turn":1},"role":"user"}'),
        (NewMark("delta", {"text": "x", "run": "r"}), '{"run":"r","text":"x","type":"delta"}'),
        (NewMark("delta", {"text": 1}), '{"data":{"text":1},"name":"delta","type":"mark"}'),
        (NewMark("turn-skip", {"reason": "x"}), '{"data":{"reason":"x"},"name":"turn-skip","type":"mark"}'),
        (NewMark("cut", {"reason": "x"}), '{"data":{"reason":"x"},"name":"cut","type":"mark"}'),
        (NewMark("state", {"from": "idle", "state": "done"}), '{"from":"idle","state":"done","type":"state"}'),
        (NewCut({"before": 1, "summary": [], "reason": "r"}), '{"before":1,"reason":"r","summary":[],"type":"cut"}'),
        (NewMessage({"role": "user", "content": "\0\ud800\x7f"}), '{"content":"\\u0000\\ud800\x7f","role":"user"}'),
    ],
)
def test_the_line_of_an_entry(entry: NewEntry, raw: str) -> None:
    line = line_of(entry)
    assert line.raw.decode() == raw
    assert entry_of(row(line)) == numbered(entry)


def test_an_event_s_mark_changes_what_the_event_would() -> None:
    assert line_of(NewMark("state", {"from": "idle", "state": "done"})).state == "done"
    assert line_of(NewMark("state", {"from": "idle", "state": "odd"})).state is None
    assert line_of(NewMark("cwd", {"cwd": "/w"})).cwd == "/w"


CYCLE: list[Any] = []
CYCLE.append(CYCLE)
DEEP: Any = "x"
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), b"x", {1}, (1,), {1: 2}, {None: 1}, object(), CYCLE, DEEP, "\ud83d\ude00", 10**5000],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_carry_is_refused(value: Any) -> None:
    for entry in (NewMessage({"role": "user", "v": value}), NewMark("m", value), NewCut({"v": value})):
        with pytest.raises(SessionError):
            line_of(entry)


@pytest.mark.parametrize(
    "entry",
    [
        NewMessage({"content": "no role"}),
        NewMessage({"role": None}),
        NewMessage("text"),  # type: ignore[arg-type]
        NewMessage({"role": "user", "meta": {}}),
        NewMessage({"role": "user"}, []),  # type: ignore[arg-type]
        NewMark(1, {}),  # type: ignore[arg-type]
        NewCut([]),  # type: ignore[arg-type]
        NewCut({"type": "cut"}),
    ],
)
def test_what_no_line_can_say_is_refused(entry: NewEntry) -> None:
    with pytest.raises(SessionError):
        line_of(entry)


def test_an_entry_has_at_most_16_mebibytes() -> None:
    assert line_of(NewMark("m", "x" * (2 << 20)))
    with pytest.raises(LineTooLong):
        line_of(NewMark("m", "x" * (16 << 20)))


def test_a_malformed_foreign_line_is_a_mark_without_a_name() -> None:
    line = foreign_line("messages", b"gar\xffbage")
    assert entry_of(row(line)) == MarkEntry(4, 5, "", "gar\ufffdbage")


@given(
    st.sampled_from(["messages", "events"]), st.binary() | st.text().map(str.encode) | OBJECTS.map(repr).map(str.encode)
)
def test_parsing_fails_only_as_it_says(stream: Stream, raw: bytes) -> None:
    try:
        parse_line(stream, raw)
    except CtxError as error:
        assert str(error)
