"""Doctor finds nothing in what a store made, whatever was done to it, and what is wrong elsewhere (spec 2.7, 4.1)."""

import random
from collections.abc import Callable
from typing import TypeVar

import msgspec
import pytest

from backend.asking import Ask
from backend.doctor.owners import check_owner
from backend.doctor.sessions import MOST, check_session, facts_of
from backend.lines import meta_line, state_line
from backend.rows import Session
from backend.store import Store
from tests.contract.harness import Harness, cd, event, say

T = TypeVar("T")


def asking(store: Store) -> Ask:
    def ask(work: Callable[[Store], T]) -> T:
        return work(store)

    return ask


def reasons(at: Harness, session: Session) -> list[str]:
    looked = check_session(asking(at.store), session, "s", facts_of("sqlite"))
    return [fault.reason for fault in looked.faults]


def test_what_a_store_made_is_sound_whatever_was_done(at: Harness) -> None:
    choices = random.Random(7)
    sessions = [at.session("first")]
    archived: list[Session] = []
    lines = [say("x"), say("y", "assistant"), cd("/a"), cd("/b"), state_line("idle", "done")]
    lines += [
        event("delta", run="r", text="t"),
        meta_line({"client": "c", "scope": "private"}),
        event("cut", before=0, summary=[], reason="r"),
    ]
    for step in range(150):
        session = choices.choice(sessions)
        match choices.randrange(7):
            case 0 | 1 | 2:
                at.append(session, *(choices.choice(lines) for _ in range(choices.randrange(1, 9))))
            case 3:
                sessions.append(at.session(f"s{step}"))
            case 4:
                sessions.append(at.store.branch_session(session.id, choices.randint(0, at.now(session).n), f"b{step}"))
            case 5 if session.name != "first" and at.now(session).state != "active":
                at.store.archive_session(session.id, at.archive().id)
                sessions.remove(session)
                archived.append(session)
            case 6 if session.name != "first" and step % 3 == 0:
                at.store.delete_session(session.id)
                sessions.remove(session)
    for session in (*sessions, *archived):
        assert reasons(at, at.now(session)) == [], session.name
    assert check_owner(asking(at.store), at.owner.id, "index") == []


DRIFT = [
    ("state", "active", ["state is 'active', but the log says 'idle'"]),
    ("cwd", "/x" * 100, ["cwd is something, but the log says '/'"]),
    ("latest_n", None, ["latest_n is None, but the log says 2"]),
    ("updated_at", 5, ["updated_at is 5, but the log says 1700000000000"]),
]


@pytest.mark.parametrize(("name", "value", "expected"), DRIFT)
def test_a_row_that_does_not_follow_from_its_log_is_told_from_one_that_does(
    at: Harness, name: str, value: object, expected: list[str]
) -> None:
    session = at.session("one")
    at.append(session, say("a"), say("b"), say("c", "assistant"), time=1_700_000_000_000)
    assert reasons(at, msgspec.structs.replace(at.now(session), **{name: value})) == expected


def test_a_session_that_grows_meanwhile_is_judged_as_it_was(at: Harness) -> None:
    session = at.session("one")
    at.append(session, say("a"), cd("/a"))
    then = at.now(session)
    at.append(session, say("b", "assistant"), cd("/b"))
    assert reasons(at, then) == []


def test_faults_are_many_but_not_endless(at: Harness) -> None:
    session = msgspec.structs.replace(at.session("one"), fault="somehow", messages_size=3 * MOST)

    class Blank:
        """A store whose files are blank lines."""

        def read_stream(self, _session: int, _stream: str, offset: int, size: int) -> bytes:
            return b"\n" * min(size, 3 * MOST - offset)

    looked = check_session(lambda work: work(Blank()), session, "s", facts_of("sqlite"))
    assert len(looked.faults) == MOST + 1
    assert looked.faults[MOST].reason == f"there is more; no more than {MOST} faults are shown"
    assert (looked.faults[6].line, looked.faults[6].offset) == (7, 6)
