"""Full text over the sessions of an owner, on every store: what is found, what is not, and that no order of events,
crash or damage of the index changes the answer (spec 4.1; field reports 9, 14)."""

import contextlib
import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.errors import InvalidValue
from backend.memory import MemoryStore
from backend.rows import Append, Line, Owner, Session
from backend.search import verify
from backend.search.index import IndexDamaged, SearchIndex
from backend.search.query import expression
from backend.search.search import Found, search
from backend.search.snippets import MAX_LENGTH
from backend.search.update import Progress, update
from backend.store import Store
from tests.contract.harness import Harness, event, line, say

T = TypeVar("T")


class Searched:
    """A store's sessions and an index of one owner."""

    def __init__(self, store: Store, owner: Owner, path: Path) -> None:
        self.store = store
        self.owner = owner
        self.path = path
        self.index = SearchIndex(path)
        self.asked = 0

    def ask(self, work: Callable[[Store], T]) -> T:
        self.asked += 1
        return work(self.store)

    def update(self, *, thorough: bool = False) -> None:
        update(self.index, self.owner.id, self.ask, self.store.sync, thorough=thorough)

    def find(self, text: str, limit: int = 1000) -> list[Found]:
        self.update()
        return search(self.index, self.ask, expression(text), limit)

    def places(self, text: str) -> list[tuple[str, int]]:
        """Sessions and numbers of the hits."""
        return [(one.session, one.n) for one in self.find(text)]

    def again(self) -> "Searched":
        """The same sessions with an index that is made now."""
        return Searched(self.store, self.owner, self.path.with_name(f"{self.path.name}-{os.urandom(4).hex()}"))


@pytest.fixture
def found(at: Harness, tmp_path: Path) -> Iterator[Searched]:
    searched = Searched(at.store, at.owner, tmp_path / "search/1.sqlite")
    yield searched
    searched.index.close()


def call(name: str, **arguments: object) -> Line:
    return event("tool_call", run="r", id="c1", name=name, arguments=arguments)


def test_the_newest_comes_first_by_the_entries_times(at: Harness, found: Searched) -> None:
    one, two = at.session("one"), at.session("two")
    at.append(one, say("apple pie"), say("no fruit"), say("apple tart"), time=[3000, 3500, 1000])
    at.append(two, say("an Apple"), time=2000)
    hits = found.find("apple")
    assert [(hit.session, hit.n, hit.time) for hit in hits] == [("one", 0, 3000), ("two", 0, 2000), ("one", 2, 1000)]
    assert [hit.snippet for hit in hits] == ["apple pie", "an Apple", "apple tart"]
    assert found.find("apple", limit=2) == hits[:2]


MATCHES = [
    ("two words", "words two", True),
    ("two words", "two", True),
    ("two words", "two other", False),
    ("two words here", '"two words"', True),
    ("two words here", '"words two"', False),
    ("two words", '"two words', True),
    ("Über die Straße", "uber", True),
    ("ΑΘΗΝΑ", "αθηνα", True),
    ("我爱北京天安门", "北京", True),
    ("我爱北京天安门", "京北", False),
    ("カタカナとひらがな", "ひらがな", True),
    ("said NOT this", "NOT", True),
    ("a AND b", "AND", True),
    ("x OR y", "x AND y", False),
    ("path/to/file.py", "file.py", True),
    ("snake_case_name", "snake_case_name", True),
    ("col:umn", "col:umn", True),
    ("star*", "sta*", False),
    ("don't", "don't", True),
    ("C++ code", "C++", True),
    ("ends", "end", False),
    ("👍 great", "great 👍", True),
    ("123 456", "456", True),
    ("one\ttwo", "one\x00two", True),
    (" ".join("ab" * 100), " ".join("ba" * 200), True),
]


@pytest.mark.parametrize(("text", "query", "matches"), MATCHES)
def test_what_words_and_phrases_find(at: Harness, found: Searched, text: str, query: str, matches: bool) -> None:
    at.append(at.session("one"), say(text))
    assert found.places(query) == ([("one", 0)] if matches else [])


@pytest.mark.parametrize("query", ["", " ", '""', "*", "👍", '"', "-", "\x1f", "x" * 2000])
def test_a_query_without_a_word_is_refused(query: str) -> None:
    with pytest.raises(InvalidValue):
        expression(query)


def test_a_word_that_is_given_twice_is_looked_for_once() -> None:
    assert expression('a b a "b" "a b"') == expression('a b "a b"')


def test_what_of_an_entry_is_searched(at: Harness, found: Searched) -> None:
    message = {"role": "tool", "content": [{"type": "tool_result", "tool_call_id": "c", "content": "alpha"}]}
    lines = [
        say("plain"),
        line("messages", message),
        line("messages", {"role": "assistant", "content": [{"type": "thinking", "thinking": "beta"}]}),
        call("grep", pattern="gamma", paths=["delta", {"deep": "epsilon"}]),
        event("error", run="r", code="EIO", message="zeta"),
        event("cut", before=0, summary=[{"role": "user", "content": "eta"}], reason="r"),
        event("delta", run="r", text="theta"),
    ]
    at.append(at.session("one"), *lines)
    words = ("plain", "alpha", "beta", "gamma", "epsilon", "zeta", "eta", "theta", "grep", "pattern", "user")
    assert [found.places(word) for word in words] == [
        [("one", number)] if number is not None else [] for number in (0, 1, 2, 3, 3, 4, 5, None, 3, None, None)
    ]


def test_appends_are_found_at_once_and_cost_what_is_new(at: Harness, found: Searched) -> None:
    sessions = [at.session(f"s{number}") for number in range(50)]
    for session in sessions:
        at.append(session, *(say(f"word {number}") for number in range(20)))
    found.update()
    before = found.asked
    at.append(sessions[-1], say("needle"))
    assert found.places("needle") == [("s49", 20)]
    assert found.asked - before <= 5
    at.append(sessions[3], say("needle"))
    assert len(found.places("needle")) == 2
    assert found.asked - before <= 12


def test_an_update_says_how_far_it_is_and_what_is_wrong_is_found_wherever_it_is(
    at: Harness, found: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "AT_ONCE", 10)
    one, two = at.session("one"), at.session("two")
    at.append(one, *[say(f"word{n}") for n in range(35)])
    at.append(two, say("x"))
    progress = Progress()
    update(found.index, at.owner.id, found.ask, at.store.sync, thorough=True, progress=progress)
    assert (progress.done, progress.of) == (36, 36)

    def wrong(session: Session) -> list[str]:
        reasons: list[str] = []
        following: int | None = 0
        while following is not None:
            reason, following = verify.drift(found.index, session.id, following, found.ask)
            reasons += [reason] if reason else []
        return reasons

    assert wrong(one) == wrong(two) == []
    found.index._connection.execute("DELETE FROM entry WHERE session = ? AND n IN (12, 13, 34)", (one.id,))
    found.index._connection.execute("INSERT INTO entry VALUES (99, ?, 77, 5)", (two.id,))
    assert wrong(one) == ["entry 12 is not in the search index, or with another time"]
    assert wrong(two) == ["the search index has entries that are none"]


def test_a_session_that_is_gone_is_not_found(at: Harness, found: Searched) -> None:
    keep, shelf, bin = at.session("keep"), at.session("shelf"), at.session("bin")
    for session in (keep, shelf, bin):
        at.append(session, say("wanted"))
    assert len(found.places("wanted")) == 3
    at.store.archive_session(shelf.id, at.archive().id)
    assert set(found.places("wanted")) == {("keep", 0), ("bin", 0)}
    at.store.delete_session(bin.id)
    assert found.places("wanted") == [("keep", 0)]
    at.append(at.session("bin"), say("other"))
    assert (found.places("wanted"), found.places("other")) == ([("keep", 0)], [("bin", 0)])


def test_nothing_of_a_deleted_session_stays_in_the_file(at: Harness, found: Searched) -> None:
    at.session("current")
    gone = at.session("gone")
    at.append(gone, say("xyzzyplugh"))
    found.update()
    found.index.close()
    assert b"xyzzyplugh" in found.path.read_bytes()
    found.index = SearchIndex(found.path)
    at.store.delete_session(gone.id)
    assert found.places("xyzzyplugh") == []
    found.index.close()
    assert b"xyzzyplugh" not in found.path.read_bytes()
    found.index = SearchIndex(found.path)


def test_a_branch_shares_its_parents_hits_until_the_parent_goes(at: Harness, found: Searched) -> None:
    at.session("current")
    parent = at.session("parent")
    at.append(parent, say("shared"), say("shared"), say("later"))
    child = at.store.branch_session(parent.id, 2, "child")
    at.append(child, say("own"))
    assert set(found.places("shared")) == {("parent", 0), ("parent", 1)}
    assert (found.places("own"), found.places("later")) == ([("child", 2)], [("parent", 2)])
    at.store.archive_session(parent.id, at.archive().id)
    assert set(found.places("shared")) == {("child", 0), ("child", 1)}
    assert (found.places("own"), found.places("later")) == ([("child", 2)], [])


def test_another_owners_sessions_are_not_in_it(at: Harness, found: Searched, tmp_path: Path) -> None:
    other = at.store.add_owner("home/1000", "agent", "other", 1000, 1000)
    at.append(at.session("mine"), say("word"))
    at.append(at.session("theirs", other), say("word"))
    assert found.places("word") == [("mine", 0)]


def other_version(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE state SET format = 99")


def overwritten(path: Path, start: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "none": Path.touch,
    "removed": Path.unlink,
    "emptied": lambda path: os.truncate(path, 0),
    "half of it": lambda path: os.truncate(path, path.stat().st_size // 2),
    "garbage": lambda path: path.write_bytes(b"garbage" * 1000),
    "a page of zeros": lambda path: overwritten(path, 4096, bytes(4096)),
    "another version": other_version,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_index_is_made_anew(at: Harness, found: Searched, damage: Callable[[Path], object]) -> None:
    for number in range(5):
        at.append(at.session(f"s{number}"), *(say(f"word{n} common") for n in range(100)))
    expected = found.find("common")
    found.index.close()
    damage(found.path)
    found.index = SearchIndex(found.path)
    try:
        hits = found.find("common")
    except IndexDamaged:
        found.index.clear()
        hits = found.find("common")
    assert hits == expected


def test_an_index_that_stopped_anywhere_goes_on(at: Harness, found: Searched) -> None:
    """As a daemon that is killed: what was committed stays, the rest comes with the next search."""
    for number in range(10):
        at.append(at.session(f"s{number}"), *(say(f"word{n}") for n in range(50)))
    expected = found.again().find("word7")
    for stop in range(1, 40, 3):
        broken = found.again()
        broken.index.add = stopping(broken.index.add, stop % 3)  # type: ignore[method-assign]
        asked = 0

        def ask(work: Callable[[Store], T], broken: Searched = broken, stop: int = stop) -> T:
            nonlocal asked
            asked += 1
            if asked > stop:
                raise KeyboardInterrupt
            return work(broken.store)

        with contextlib.suppress(KeyboardInterrupt):
            update(broken.index, broken.owner.id, ask, broken.store.sync, thorough=False)
        broken.index.close()
        broken.index = SearchIndex(broken.path)
        assert broken.find("word7") == expected
        broken.index.close()


def stopping(function: Callable[..., None], after: int) -> Callable[..., None]:
    calls = 0

    def call(*args: object) -> None:
        nonlocal calls
        calls += 1
        if calls > after:
            raise KeyboardInterrupt
        function(*args)

    return call


def test_words_of_entries_that_never_were_are_not_hits(at: Harness, found: Searched) -> None:
    """A log that was cut short by a power failure, and went on otherwise."""
    session = at.session("one")
    at.append(session, say("real"), say("lost"))
    found.update()
    found.index.close()
    with contextlib.closing(sqlite3.connect(found.path, isolation_level=None)) as connection:
        for id, n in ((3, 1), (4, 9)):
            connection.execute("INSERT INTO text (rowid, content) VALUES (?, 'phantom')", (id,))
            connection.execute("INSERT INTO entry VALUES (?, ?, ?, 5)", (id, session.id, n))
    found.index = SearchIndex(found.path)
    assert found.places("phantom") == []
    assert found.places("real") == [("one", 0)]


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)
QUERIES = st.text(max_size=60)


@given(text=TEXTS, query=QUERIES)
@settings(max_examples=100)
def test_no_text_and_no_query_breaks_it(tmp_path_factory: pytest.TempPathFactory, text: str, query: str) -> None:
    store = MemoryStore()
    store.add_space("home/1", 1, 1, 0o700)
    owner = store.add_owner("home/1", "agent", "a", 1, 1)
    session = store.create_session(owner.id, "s", 1)
    store.append([Append(session.id, [say(text)])])
    searched = Searched(store, owner, tmp_path_factory.mktemp("search") / "x.sqlite")
    try:
        for wanted in (query, text):
            try:
                hits = searched.find(wanted)
            except InvalidValue:
                continue
            assert all(len(hit.snippet) <= MAX_LENGTH and "\n" not in hit.snippet for hit in hits)
    finally:
        searched.index.close()


def test_any_order_of_events_ends_in_the_same_answer(at: Harness, found: Searched) -> None:
    """Field report 14: an index that followed everything answers as one that is made at the end."""
    choices = random.Random(14)
    sessions: list[Session] = [at.session("first")]
    for step in range(120):
        session = choices.choice(sessions)
        match choices.randrange(8):
            case 0 | 1 | 2:
                at.append(
                    session, *(say(f"common w{step} {choices.randrange(5)}") for _ in range(choices.randrange(1, 30)))
                )
            case 3:
                sessions.append(at.session(f"s{step}"))
            case 4:
                n = at.now(session).n
                sessions.append(at.store.branch_session(session.id, choices.randint(0, n), f"b{step}"))
            case 5 if session.name != "first":
                at.store.archive_session(session.id, at.archive().id)
                sessions.remove(session)
            case 6 if session.name != "first" and step % 3 == 0:
                at.store.delete_session(session.id)
                sessions.remove(session)
            case _:
                found.update(thorough=choices.random() < 0.2)
    fresh = found.again()
    for word in ("common", "w7", "w60", '"common w100"', "3"):
        assert found.find(word) == fresh.find(word)
    fresh.index.close()
