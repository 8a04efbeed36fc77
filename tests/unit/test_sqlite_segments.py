"""The packed form of a log's rows: packing, joining, cutting and scanning lose nothing (schema.sql, segment)."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from backend.rows import Kind, Line, Row, Stream
from backend.sqlite import segments
from backend.sqlite.segments import BEGINNING, Checkpoint, Part
from tests.contract.harness import raws

KINDS: st.SearchStrategy[Kind] = st.sampled_from(["message", "mark", "cut"])
STREAMS: st.SearchStrategy[Stream] = st.sampled_from(["messages", "events"])
SET = st.sampled_from([None, "x"])
LINES = st.builds(
    Line,
    stream=STREAMS,
    raw=st.binary(min_size=1, max_size=8).filter(lambda raw: b"\n" not in raw),
    kind=KINDS,
    key=st.just("k"),
    latest_size=st.sampled_from([None, 7]),
    state=SET,
    cwd=SET,
    meta=SET,
)
BATCHES = st.lists(st.lists(LINES, min_size=1, max_size=5), min_size=1, max_size=5)


def packed(lines: list[Line], messages: int = 0, events: int = 0) -> Part:
    return segments.pack(lines, range(len(lines)), messages, events)


def expected(lines: list[Line]) -> list[Row]:
    return [Row(n, n, line.kind, line.stream, line.raw) for n, line in enumerate(lines)]


def counted(lines: list[Line]) -> Checkpoint:
    """The checkpoint behind ``lines``, by looking at each of them."""

    def last(value: str) -> int | None:
        return max((n for n, line in enumerate(lines) if getattr(line, value) is not None), default=None)

    messages, events = (len(raws([line for line in lines if line.stream == s])) for s in ("messages", "events"))
    return Checkpoint(len(lines), messages, events, last("latest_size"), last("state"), last("cwd"), last("meta"))


@given(st.lists(LINES, max_size=12))
def test_a_row_holds_its_lines(lines: list[Line]) -> None:
    part = packed(lines)

    assert list(segments.unpack(part, 0, 0, len(lines))) == expected(lines)
    assert part.size == segments.packed_size(lines)
    assert segments.after(BEGINNING, part.outline) == counted(lines)


@given(BATCHES)
def test_joined_rows_are_the_row_of_all_lines(batches: list[list[Line]]) -> None:
    lines = [line for batch in batches for line in batch]
    times = iter(range(len(lines)))
    parts = [segments.pack(batch, [next(times) for _ in batch]) for batch in batches]

    assert segments.join(parts) == packed(lines)


@given(st.lists(LINES, max_size=8), st.lists(LINES, max_size=8))
def test_an_extended_row_is_the_row_of_all_lines(first: list[Line], second: list[Line]) -> None:
    held = packed(first)
    added = segments.pack(second, range(len(first), len(first) + len(second)), len(held.messages), len(held.events))

    assert Part(*(a + b for a, b in zip(held, added, strict=True))) == packed(first + second)


@given(st.lists(LINES, min_size=1, max_size=12), st.data())
def test_a_prefix_is_the_row_of_its_lines(lines: list[Line], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(lines)))

    assert segments.prefix(packed(lines), count) == packed(lines[:count])


@given(st.lists(LINES, max_size=12), st.integers(0, 100), st.integers(0, 120), st.integers(0, 120))
def test_unpack_cuts_bounds_to_the_row(lines: list[Line], first: int, start: int, stop: int) -> None:
    rows = [Row(first + n, n, line.kind, line.stream, line.raw) for n, line in enumerate(lines)]

    assert list(segments.unpack(packed(lines), first, start, stop)) == [row for row in rows if start <= row.n < stop]


@given(st.lists(st.integers(1, segments.WINDOW * 2), max_size=20))
def test_only_rows_that_fit_together_are_joined(weights: list[int]) -> None:
    runs = list(segments.joinable(weights))

    assert all(run.stop - run.start > 1 and sum(weights[run]) <= segments.WINDOW for run in runs)
    assert all(a.stop <= b.start for a, b in pairwise(runs))


@given(st.lists(LINES, min_size=1, max_size=12))
def test_an_outline_says_when_each_entry_was_and_what_those_before_it_are(lines: list[Line]) -> None:
    part = packed(lines)
    for row in expected(lines):
        assert segments.time_of(part.outline, row.n) == row.time
        assert segments.begun(part.outline, row.n) == packed(lines[: row.n]).outline
