"""Spec 3.6: what an agent is sent of its session; a run looks at what was appended since the one before."""

from collections.abc import Sequence
from unittest import mock

import pytest

from backend.lines import parse_line
from backend.projection import Lines
from backend.rows import Append, Line, Row, Session
from ctxfs.agents.mounted import sent
from tests.unit.world import ALICE, World

CUT = parse_line("events", b'{"type":"cut","before":0,"summary":[{"role":"user","content":"sum"}],"reason":"test"}')


def said(text: int | str) -> Line:
    return parse_line("messages", b'{"content":"%s","role":"user"}' % str(text).encode())


def new_session(world: World) -> int:
    owner = world.store.owner(f"home/{ALICE.uid}", "agent", "coder")
    assert owner is not None
    return world.store.create_session(owner.id, "s", ALICE.uid).id


def append(world: World, number: int, *lines: Line) -> Session:
    return world.does(world.core.commits.append(Append(number, lines))).session


def text(lines: Lines) -> bytes:
    return lines.read(0, lines.size)


def joined(lines: Sequence[Line]) -> bytes:
    return b"".join(line.raw + b"\n" for line in lines)


def test_a_second_run_looks_at_new_entries_only(world: World) -> None:
    number = new_session(world)
    before = [said(n) for n in range(1000)]
    rows, seen = world.store.rows, set[int]()

    def looked(session: int, start: int, limit: int) -> Sequence[Row]:
        found = rows(session, start, limit)
        seen.update(row.n for row in found)
        return found

    with mock.patch.object(world.store, "rows", looked):
        world.does(sent(world.core, append(world, number, *before)))
        seen.clear()
        lines = world.does(sent(world.core, append(world, number, said("new"))))
    assert seen == {1000}
    assert text(lines) == joined([*before, said("new")])


@pytest.mark.parametrize("known", ["known", "unknown"])
@pytest.mark.parametrize("later", [[said("later")], [CUT], [CUT, said("later")]], ids=["message", "cut", "both"])
def test_what_comes_after_the_start_of_a_run_is_not_sent(world: World, known: str, later: list[Line]) -> None:
    number = new_session(world)
    lines = [said(n) for n in range(300)]
    session = append(world, number, *lines)
    if known == "known":
        world.does(sent(world.core, session))
    append(world, number, *later)
    assert text(world.does(sent(world.core, session))) == joined(lines)


def test_what_is_being_sent_stays_as_it_was(world: World) -> None:
    number = new_session(world)
    lines = [said(n) for n in range(300)]
    being_sent = world.does(sent(world.core, append(world, number, *lines)))
    append(world, number, CUT, said("later"))
    assert text(being_sent) == joined(lines)
    assert text(world.does(sent(world.core, append(world, number, said("last"))))).count(b"\n") == 3
