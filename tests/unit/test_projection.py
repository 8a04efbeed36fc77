"""The projection (spec 2.5): always what a fresh computation gives, at the price of what is new."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.entries import NewCut, NewEntry, NewMark, NewMessage
from backend.lines import foreign_line, line_of
from backend.projection import Projection, project
from backend.rows import Row


class Log:
    """Rows that say what was read of them."""

    def __init__(self, entries: Sequence[NewEntry] = ()) -> None:
        self.rows: list[Row] = []
        self.read: list[int] = []
        self.append(*entries)

    def append(self, *entries: NewEntry) -> None:
        for line in map(line_of, entries):
            self.rows.append(Row(len(self.rows), 0, line.kind, line.stream, line.raw))

    def foreign(self, stream: Any, raw: bytes) -> None:
        line = foreign_line(stream, raw)
        self.rows.append(Row(len(self.rows), 0, line.kind, line.stream, line.raw))

    def __call__(self, start: int, limit: int) -> Sequence[Row]:
        page = self.rows[start : start + limit]
        self.read += [row.n for row in page]
        return page


def say(text: str, meta: dict[str, Any] | None = None) -> NewMessage:
    return NewMessage({"role": "user", "content": text}, meta)


def cut(*texts: str) -> NewCut:
    return NewCut({"before": 0, "summary": [say(text).message for text in texts], "reason": "r"})


MARK = NewMark("m", {})

entries = st.lists(
    st.one_of(
        st.builds(say, st.text(max_size=5), st.none() | st.just({"turn": 1})),
        st.just(MARK),
        st.lists(st.text(max_size=3), max_size=3).map(lambda texts: cut(*texts)),
    ),
    max_size=40,
)


def naive(log: Sequence[NewEntry]) -> list[Any]:
    messages: list[Any] = []
    for entry in log:
        if isinstance(entry, NewCut):
            messages = list(entry.data["summary"])
        elif isinstance(entry, NewMessage):
            messages.append(entry.message)
    return messages


def lines(content: bytes) -> list[Any]:
    return [json.loads(line) for line in content.split(b"\n")[:-1]]


@given(batches=st.lists(entries, max_size=6))
def test_any_log_in_any_batches_is_a_fresh_computation(batches: list[list[NewEntry]]) -> None:
    log, so_far, given_out = Log(), [], []
    projection = Projection(log)
    for batch in batches:
        log.append(*batch)
        so_far += batch
        projection.advance(len(log.rows))
        given_out.append((projection.messages(), naive(so_far)))
        assert lines(projection.read(0, projection.size)) == naive(so_far) == list(project(so_far))
    for sequence, messages in given_out:
        assert list(sequence) == messages
        assert list(sequence[1:-1]) == messages[1:-1]
        assert list(sequence[::-2]) == messages[::-2]
        assert [sequence[at] for at in range(-len(messages), 0)] == messages


@given(log=entries, offset=st.integers(0, 3000), size=st.integers(0, 3000))
def test_any_range_of_the_lines_is_that_of_all_lines(log: list[NewEntry], offset: int, size: int) -> None:
    projection = Projection(Log(log))
    projection.advance(len(log))
    whole = projection.read(0, projection.size)
    assert len(whole) == projection.size
    assert projection.read(offset, size) == whole[offset : offset + size]


def test_each_entry_is_looked_at_once_and_what_is_asked_for_is_read() -> None:
    log = Log([say(str(n)) for n in range(3000)])
    projection = Projection(log)
    projection.advance(3000)
    log.read.clear()
    log.append(say("new"))
    projection.advance(3001)
    messages = projection.messages()
    assert (log.read, len(messages)) == ([3000], 3001)
    assert [message["content"] for message in messages[-3:]] == ["2998", "2999", "new"]
    assert log.read == [3000, 2998, 2999, 3000]
    log.read.clear()
    projection.read(projection.size - 10, 10)
    assert min(log.read) >= 3001 - 16 - 1


@pytest.mark.parametrize("length", [0, 1, 255, 256, 257, 299])
def test_nothing_beyond_the_length_is_seen(length: int) -> None:
    projection = Projection(Log([say(str(n)) for n in range(300)]))
    for step in (length // 2, length, length // 3):
        projection.advance(step)
    assert [message["content"] for message in projection.messages()] == list(map(str, range(length)))


def test_a_cut_costs_no_look_at_what_is_before_it() -> None:
    log = Log([say("x")] * 500)
    projection = Projection(log)
    projection.advance(500)
    before = projection.messages()
    log.read.clear()
    log.append(cut("S"), say("after"))
    projection.advance(502)
    assert log.read == [500, 501]
    assert [message["content"] for message in projection.messages()] == ["S", "after"]
    assert projection.last_cut == 500
    assert len(before) == len(list(before)) == 500


def test_messages_far_apart_are_read_without_what_is_between() -> None:
    log = Log([say("a"), *[MARK] * 1000, say("b"), MARK, say("c")])
    projection = Projection(log)
    projection.advance(len(log.rows))
    log.read.clear()
    assert [message["content"] for message in projection.messages()] == ["a", "b", "c"]
    assert log.read == [0, 1001, 1002, 1003]


def test_items_are_decoded_for_each_who_asks() -> None:
    log = Log([cut("S"), say("x")])
    projection = Projection(log)
    projection.advance(2)
    messages = projection.messages()
    for message in messages:
        message["content"] = "changed"
    assert [message["content"] for message in messages] == ["S", "x"]


def test_a_sequence_cannot_be_changed_and_equals_a_list() -> None:
    messages: Any = project([say("x"), say("y")])
    assert messages == [say("x").message, say("y").message]
    assert messages != [say("x").message]
    assert messages != "xy"
    for at in (2, -3):
        with pytest.raises(IndexError):
            messages[at]
    with pytest.raises(TypeError):
        messages[0] = "z"


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b'{"role": "user",  "content": "as it is"}', b'{"role": "user",  "content": "as it is"}'),
        (b'{"role": "user", "content": "x", "meta": {"turn": 1}}', b'{"content":"x","role":"user"}'),
        (b'{"role": "user", "content": "x", "m\\u0065ta": {"turn": 1}}', b'{"content":"x","role":"user"}'),
        (b'{"role": "user", "content": "\\"meta\\" \\u0041"}', b'{"role": "user", "content": "\\"meta\\" \\u0041"}'),
        (b'{"role": "user", "meta": "not an object"}', b'{"role": "user", "meta": "not an object"}'),
    ],
)
def test_lines_keep_their_bytes_but_for_meta(raw: bytes, line: bytes) -> None:
    log = Log()
    log.foreign("messages", raw)
    projection = Projection(log)
    projection.advance(1)
    assert projection.read(0, 1000) == line + b"\n"
    assert list(projection.messages()) == lines(line + b"\n")


@pytest.mark.parametrize("raw", [b'{"type":"cut"}', b'{"type":"cut","summary":7}', b'{"type":"cut","summary":[]}'])
def test_a_foreign_cut_without_a_summary_leaves_nothing_before_it(raw: bytes) -> None:
    log = Log([say("before")])
    log.foreign("events", raw)
    log.append(say("after"))
    projection = Projection(log)
    projection.advance(3)
    assert [message["content"] for message in projection.messages()] == ["after"]


def test_a_malformed_foreign_line_is_no_message() -> None:
    log = Log()
    log.foreign("messages", b"not JSON")
    projection = Projection(log)
    projection.advance(1)
    assert len(projection.messages()) == projection.size == 0


def test_a_million_messages_are_held_in_8_mib() -> None:
    row = Log([say("x")]).rows[0]
    projection = Projection(
        lambda start, limit: [Row(start + k, 0, "message", "messages", row.raw) for k in range(limit)]
    )
    projection.advance(1_000_000)
    held = sum(sys.getsizeof(value) for value in vars(projection).values())
    assert held < 8 << 20
    assert len(projection.messages()) == 1_000_000
