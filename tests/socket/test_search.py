"""``search``: one's own sessions and nobody else's, whatever becomes of the index (spec 4.1, 1.9)."""

import itertools
import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.mounting import RunningMount, running_mount
from tests.people import ALICE, BOB, ROOT, Person
from tests.socket.client import connected

_agents = itertools.count(1)


def hits(path: Path, text: str, **fields: Any) -> list[tuple[str, str, int]]:
    """Agent, session and number of each."""
    found = []
    with connected(path) as client:
        frame = client.ask("search", text=text, **fields)
        while frame["type"] == "hit":
            found.append((frame["agent"], frame["session"], frame["n"]))
            frame = client.frame()
    assert frame == {"type": "end", "hits": len(found)}, frame
    return found


def code(path: Path, text: str, **fields: Any) -> str:
    with connected(path) as client:
        return str(client.ask("search", text=text, **fields).get("code"))


def say(session: Path, *texts: str) -> None:
    session.mkdir(parents=True, exist_ok=True)
    with (session / "messages.jsonl").open("a") as file:
        for text in texts:
            file.write(json.dumps({"role": "user", "content": text}) + "\n")


def agent_of(mount: RunningMount, person: Person) -> Path:
    path = mount.path / f"home/{person.uid}/agent/a{next(_agents)}"
    person.does(path.mkdir)
    return path


def test_a_home_is_searched_by_its_user_alone(served: RunningMount, ctx_sock: Path) -> None:
    alices, bobs = agent_of(served, ALICE), agent_of(served, BOB)
    ALICE.does(say, alices / "session/s", "secretword of alice")
    BOB.does(say, bobs / "session/s", "secretword of bob")
    assert ALICE.does(hits, ctx_sock, "secretword") == [(alices.name, "s", 0)]
    assert BOB.does(hits, ctx_sock, "secretword") == [(bobs.name, "s", 0)]
    assert hits(ctx_sock, "secretword") == []
    assert hits(ctx_sock, "secretword", home=ALICE.uid) == [(alices.name, "s", 0)]
    assert BOB.does(code, ctx_sock, "secretword", home=ALICE.uid) == "EACCES"
    assert BOB.does(code, ctx_sock, "secretword", agent=alices.name) == "ENOENT"


def test_a_shared_space_is_searched_by_its_members(served: RunningMount, ctx_sock: Path) -> None:
    space = served.path / "shared/team"
    space.mkdir()
    os.chown(space, 0, 2000)
    member = Person(1001, 1001, (2000,))
    member.does((space / "agent/coder").mkdir)
    member.does(say, space / "agent/coder/session/s", "sharedword")
    assert member.does(hits, ctx_sock, "sharedword", space="team") == [("coder", "s", 0)]
    assert member.does(hits, ctx_sock, "sharedword") == []
    assert Person(1002, 2000).does(hits, ctx_sock, "sharedword", space="team") == [("coder", "s", 0)]
    assert BOB.does(code, ctx_sock, "sharedword", space="team") == "EACCES"
    assert BOB.does(code, ctx_sock, "sharedword", space="nowhere") == "ENOENT"


def test_models_and_agents_are_searched_together_and_apart(served: RunningMount, ctx_sock: Path) -> None:
    agent = agent_of(served, ALICE)
    model = served.path / "home/1001/model/acme"
    ALICE.does(model.mkdir)
    ALICE.does((model / "m.d").mkdir)
    ALICE.does(say, model / "m.d/session/s", "bothword")
    ALICE.does(say, agent / "session/s", "bothword")
    assert set(ALICE.does(hits, ctx_sock, "bothword")) == {(agent.name, "s", 0), ("model:acme/m", "s", 0)}
    assert ALICE.does(hits, ctx_sock, "bothword", agent="model:acme/m") == [("model:acme/m", "s", 0)]
    assert ALICE.does(hits, ctx_sock, "bothword", agent=agent.name) == [(agent.name, "s", 0)]
    assert len(ALICE.does(hits, ctx_sock, "bothword", limit=1)) == 1


def test_the_index_is_roots_alone(served: RunningMount, ctx_sock: Path) -> None:
    agent = agent_of(served, ALICE)
    ALICE.does(say, agent / "session/s", "word")
    ALICE.does(hits, ctx_sock, "word")
    directory = served.store / "search"
    files = list(directory.iterdir())
    assert files
    assert {stat.filemode(path.stat().st_mode) for path in files} == {"-rw-------"}
    assert stat.filemode(directory.stat().st_mode) == "drwx------"


DAMAGE: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "garbage": lambda path: path.write_bytes(b"x" * 9000),
    "cut short": lambda path: os.truncate(path, 5000),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_an_index_that_is_damaged_meanwhile_is_made_anew(
    served: RunningMount, ctx_sock: Path, damage: Callable[[Path], object]
) -> None:
    agent = agent_of(served, ROOT)
    say(agent / "session/s", *(f"word{number} x" for number in range(300)))
    before = hits(ctx_sock, "x", agent=agent.name)
    for path in (served.store / "search").glob("*.sqlite"):
        damage(path)
    assert hits(ctx_sock, "x", agent=agent.name) == before
    assert len(before) == 50


@pytest.mark.parametrize("form", ["sqlite", "jsonl"])
def test_it_answers_the_same_after_a_kill_and_without_its_index(fuse_device: None, form: Any, tmp_path: Path) -> None:
    with running_mount(form) as mount:
        path, agent = mount.path / "agent/ctx.sock", agent_of(mount, ROOT)
        say(agent / "session/s", "one word", "other", "another word")
        expected = hits(path, "word")
        assert len(expected) == 2
        say(agent / "session/t", "word again")
        mount.kill()
        mount.unmount()
        mount.start()
        assert hits(path, "word") == [(agent.name, "t", 0), *expected]
        mount.stop()
        for file in mount.store.glob("**/search/*"):
            file.unlink()
        mount.start()
        assert hits(path, "word") == [(agent.name, "t", 0), *expected]


def test_many_search_and_write_at_once(served: RunningMount, ctx_sock: Path) -> None:
    """What was answered before a search began is found by it."""
    agents = [agent_of(served, ROOT) for _ in range(3)]
    failures: list[str] = []

    def work(agent: Path) -> None:
        for number in range(15):
            say(agent / "session/s", f"busy{agent.name} number{number}")
            if len(hits(ctx_sock, f"busy{agent.name}", agent=agent.name)) != number + 1:
                failures.append(f"{agent.name} {number}")

    threads = [threading.Thread(target=work, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


HOSTILE = (
    *('plain"', '"', "a OR", "NEAR(plain words)", "content:plain", "^plain", "{x} :", "-plain", "plain*"),
    *("'; DROP TABLE text", "\\", "(" * 500, '"' * 501, "*" * 1000),
)


def test_hostile_queries_are_words_or_refused(served: RunningMount, ctx_sock: Path) -> None:
    agent = agent_of(served, ROOT)
    say(agent / "session/s", "plain words AND more NEAR things")
    for text in HOSTILE:
        found = code(ctx_sock, text, agent=agent.name)
        assert found in ("None", "EINVAL"), text
    assert code(ctx_sock, "x" * 1025) == "EINVAL"
    assert hits(ctx_sock, "AND NEAR", agent=agent.name) == [(agent.name, "s", 0)]
