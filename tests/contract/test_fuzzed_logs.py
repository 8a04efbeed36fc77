"""Any log on any store: its files and its entries say the same, in both directions (spec 2.1, 1.3)."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.entries import NewEntry
from backend.lines import entry_of, foreign_line, line_of
from backend.projection import Projection, project
from backend.rows import Row
from tests.contract.harness import Harness, header, wait
from tests.unit.test_line_entries import ENTRIES, as_new


@pytest.mark.parametrize("kind", ["sqlite", "memory", "jsonl"])
@settings(max_examples=30)
@given(batches=st.lists(st.lists(ENTRIES, max_size=5), max_size=5))
def test_files_and_entries_are_inverse(kind: str, batches: list[list[NewEntry]]) -> None:
    with TemporaryDirectory() as directory:
        at = Harness(kind, Path(directory))
        wait(at.store.create, header("s"), batches[0] if batches else [])
        for batch in batches[1:]:
            wait(at.store.put, "s", at.store.find("s").n, batch)  # type: ignore[union-attr]
        check(at, [entry for batch in batches for entry in batch])
        at.store.close()


def check(at: Harness, entries: Sequence[NewEntry]) -> None:
    session = at.store.find("s")
    assert session is not None and session.n == len(entries)
    read = wait(at.store.read, "s")
    assert list(map(as_new, read)) == list(map(as_new, map(entry_of, at.store.rows(session.id))))
    files = {stream: at.stream(session, stream).split(b"\n") for stream in ("messages", "events")}
    for n, entry in enumerate(read):
        line = line_of(as_new(entry))
        raw = files[line.stream].pop(0)
        assert (raw, foreign_line(line.stream, raw).kind) == (line.raw, line.kind)
        assert entry_of(Row(n, entry.time, line.kind, line.stream, raw)) == entry
    assert list(files.values()) == [[b""], [b""]]
    projection = Projection(lambda start, limit: at.store.rows(session.id, start, limit))
    projection.advance(session.n)
    assert list(projection.messages()) == list(project([as_new(entry) for entry in read]))
