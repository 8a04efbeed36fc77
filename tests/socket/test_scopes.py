"""Spec 3.1, 3.2, 3.5: whose sessions a peer reaches by a socket; shared, temp, and agents of one user."""

import json
import os
import shutil
import stat
from collections.abc import Iterator
from typing import Any

import pytest

from tests.mounting import wait_until
from tests.people import ALICE, BOB, ROOT, Person
from tests.socket.client import connected, request
from tests.socket.workshop import SAYS_HI, Bot, Workshop, lines, to_the_end, types

TEAM = 4300
ANN, BEN = Person(1003, 1003, (TEAM,)), Person(1004, 1004, (TEAM,))


@pytest.fixture(scope="module")
def team(workshop: Workshop) -> Iterator[str]:
    """A shared space of ANN and BEN."""
    space = workshop.mount.path / "shared/team"
    space.mkdir()
    shutil.chown(space, 0, TEAM)
    yield "team"


SHARED: dict[str, Any] = {"scope": "shared", "space": "team"}


def test_members_share_a_session(workshop: Workshop, team: str) -> None:
    bot = workshop.bot()
    first = bot.send("of ann", person=ANN, id="c1", **SHARED)
    assert types(first) == ["start", "message", "done"]
    assert first[0]["scope"] == "shared"
    session = workshop.mount.path / f"shared/team/agent/{bot.name}/session/default"
    assert stat.filemode(session.stat().st_mode) == "drwxrws---"
    assert (session.stat().st_uid, session.stat().st_gid) == (ANN.uid, TEAM)
    assert json.loads((session / "meta.json").read_text())["scope"] == "shared"
    assert types(bot.send("of ben", person=BEN, id="c2", **SHARED)) == ["start", "message", "done"]
    assert [message["content"] for message in lines(session / "messages.jsonl")][::2] == ["of ann", "of ben"]
    assert not (workshop.mount.path / f"home/1003/agent/{bot.name}").exists()


def test_who_is_no_member_is_refused(workshop: Workshop, team: str) -> None:
    bot = workshop.bot()
    assert bot.send(person=ALICE, **SHARED)[0]["code"] == "EACCES"
    assert bot.send(person=ANN, scope="shared", space="none")[0]["code"] == "ENOENT"
    assert bot.send(person=ANN, scope="shared", space="../home")[0]["code"] == "EINVAL"
    assert types(bot.send(person=ROOT, **SHARED)) == ["start", "message", "done"]


def test_across_uids_the_same_id_for_something_else_tells_nothing(workshop: Workshop, team: str) -> None:
    bot = workshop.bot()
    run = bot.send("secret of ann", person=ANN, id="c1", **SHARED)[0]["run"]
    [refusal] = bot.send("guess", person=BEN, id="c1", **SHARED)
    assert refusal["code"] == "EINVAL"
    assert run not in json.dumps(refusal)
    assert "secret" not in json.dumps(refusal)
    assert types(bot.send("secret of ann", person=BEN, id="c1", **SHARED)) == ["done"]


def test_an_agent_of_a_shared_session_is_who_sent(workshop: Workshop, team: str) -> None:
    bot = workshop.bot("id -u > /tmp/uid-$CTX_RUN\nid -G >> /tmp/uid-$CTX_RUN\n")
    run = bot.send(person=BEN, **SHARED)[0]["run"]
    assert (workshop.root / f"tmp/uid-{run}").read_text().split() == ["1004", "1004", str(TEAM)]


def test_a_temp_session_is_nowhere(workshop: Workshop) -> None:
    bot = workshop.bot("cat > /tmp/temp-$CTX_AGENT\n" + SAYS_HI.split("\n", 1)[1])
    before = os.listdir(workshop.mount.path / "home")
    with bot.talk() as client:
        for text in ("one", "two"):
            client.send(bot.sending(text, scope="temp"))
            start, message, done = to_the_end(client)
            assert (start["scope"], message["type"], done["status"]) == ("temp", "message", "ok")
        seen = json.loads((workshop.root / f"tmp/temp-{bot.name}").read_text())["messages"]
        assert [message["content"] for message in seen][::2] == ["one", "two"]
        assert not bot.home.exists()
        assert os.listdir(workshop.mount.path / "home") == before
    with bot.talk() as client:
        client.send(request("resume", scope="temp") + b"\n")
        assert client.frame()["code"] == "ENOENT"


def test_a_temp_run_is_cancelled_by_another_connection_of_its_user_only(workshop: Workshop) -> None:
    bot = workshop.bot("sleep 60\n")
    with bot.talk() as client, bot.talk() as mine, bot.talk(BOB) as anothers:
        client.send(bot.sending(id="c1", scope="temp"))
        run = client.frame()["run"]
        assert anothers.ask("cancel", id=run, scope="temp")["code"] == "ENOENT"
        assert mine.ask("cancel", id=run, scope="temp")["status"] == "cancelled"
        assert client.frame()["status"] == "cancelled"


def test_temp_sends_leave_nothing_in_the_daemon(workshop: Workshop) -> None:
    bot = Bot(workshop.mount, workshop.root, "echo")

    def held() -> int:
        return len(os.listdir(f"/proc/{workshop.mount.pid}/fd"))

    before = held()
    for _ in range(20):
        assert types(bot.send(scope="temp", session="t"))[-1] == "done"
    wait_until(lambda: held() <= before, "the closing of the connections")


def test_an_agent_of_one_user_is_that_users_and_roots(workshop: Workshop) -> None:
    bot = workshop.bot(owner=str(ALICE.uid))
    status = bot.path.lstat()
    assert (stat.filemode(status.st_mode), status.st_uid) == ("srw-------", ALICE.uid)
    assert types(bot.send()) == types(bot.send(person=ROOT)) == ["start", "message", "done"]
    with pytest.raises(PermissionError), connected(bot.path, BOB):
        pass
    bot.define(owner="\n")
    assert types(bot.send(person=BOB)) == ["start", "message", "done"]


def test_roots_sessions_are_its_own(workshop: Workshop) -> None:
    bot = workshop.bot()
    bot.send(person=ROOT, session="roots")
    assert (workshop.mount.path / f"home/0/agent/{bot.name}/session/roots").exists()
    assert not bot.home.exists()


def test_in_a_user_namespace_the_outer_uid_counts(workshop: Workshop) -> None:
    bot = workshop.bot()

    def talk() -> list[str]:
        with connected(bot.path) as client:
            client.send(bot.sending())
            return types(to_the_end(client))

    assert Person(1001, 1001, maps_to_root=True).does(talk) == ["start", "message", "done"]
    assert bot.session().stat().st_uid == 1001
