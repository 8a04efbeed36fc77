"""Spec 3.3, Retry: the work is never run twice nor the message stored twice, whatever the client does."""

import json
import os
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.mounting import RunningMount, running_mount
from tests.people import ALICE, BOB
from tests.socket.client import connected, request
from tests.socket.workshop import SAYS_HI, Bot, Workshop, to_the_end, types

COUNTS = "umask 0\necho run >> /tmp/count-$CTX_AGENT\n" + SAYS_HI


def runs(bot: Bot) -> int:
    """How often the agent was run."""
    return len((bot.root / f"tmp/count-{bot.name}").read_text().splitlines())


def traces(bot: Bot) -> dict[str, tuple[bytes, int]]:
    """Every file of the agent's sessions: content and mtime."""
    files = [path for path in bot.home.rglob("session/**/*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_a_retry_of_a_finished_run_is_its_done_to_the_byte_and_nothing_changes(workshop: Workshop) -> None:
    bot = workshop.bot(COUNTS)
    bot.send(id="c1", cwd="/work")
    before = traces(bot)
    with bot.talk() as client:
        client.send(bot.sending(id="c1", cwd="/work"))
        [done] = to_the_end(client)
    assert (
        json.dumps(done, sort_keys=True, separators=(",", ":")).encode()
        in (bot.session() / "events.jsonl").read_bytes()
    )
    assert (traces(bot), runs(bot)) == (before, 1)


def test_the_effective_cwd_counts(workshop: Workshop) -> None:
    bot = workshop.bot(COUNTS, cwd="/work")
    bot.send(id="c1")
    assert types(bot.send(id="c1", cwd="/work")) == ["done"]
    bot.define(cwd="/tmp")
    assert bot.send(id="c1")[0]["code"] == "EINVAL"
    assert types(bot.send(id="c1", cwd="/work")) == ["done"]
    assert runs(bot) == 1


def test_a_retry_needs_no_cwd_and_no_executable_any_more(workshop: Workshop) -> None:
    bot = workshop.bot(COUNTS)
    place = workshop.root / "work/short-lived"
    place.mkdir()
    bot.send(id="c1", cwd="/work/short-lived")
    place.rmdir()
    bot.define(exec='["/nowhere"]')
    assert types(bot.send(id="c1", cwd="/work/short-lived")) == ["done"]


DIFFERENT: dict[str, dict[str, Any]] = {
    "input": {"input": "hello!"},
    "no input": {"input": ""},
    "cwd": {"cwd": "/work"},
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_the_same_id_for_something_else_is_refused_and_tells_nothing(workshop: Workshop, what: str) -> None:
    bot = workshop.bot(COUNTS)
    secret = bot.send("hello", id="c1")[0]["run"]
    before = traces(bot)
    [refusal] = bot.send(**{"input": "hello", "id": "c1", **DIFFERENT[what]})
    assert {**refusal, "message": ""} == {"code": "EINVAL", "id": "c1", "message": "", "type": "error"}
    assert "hello" not in refusal["message"]
    assert secret not in refusal["message"]
    assert (traces(bot), runs(bot)) == (before, 1)


def test_an_id_belongs_to_its_session_and_its_user(workshop: Workshop) -> None:
    bot = workshop.bot(COUNTS)
    assert types(bot.send(id="c1")) == types(bot.send("other", id="c1", session="two")) == ["start", "message", "done"]
    assert types(bot.send("mine", person=BOB, id="c1")) == ["start", "message", "done"]
    assert runs(bot) == 3


@pytest.mark.parametrize(("body", "status"), [("exit 3\n", "error"), ("sleep 60\n", "cancelled")])
def test_a_retry_of_a_run_that_failed_or_was_cancelled_is_that(workshop: Workshop, body: str, status: str) -> None:
    bot = workshop.bot(body)
    with bot.talk() as client:
        client.send(bot.sending(id="c1"))
        client.frame()
        if status == "cancelled":
            client.send(request("cancel", id="c1") + b"\n")
        assert to_the_end(client)[-1]["status"] == status
    [done] = bot.send(id="c1")
    assert done["status"] == status


def test_a_retry_of_a_live_run_is_its_start_and_what_follows(workshop: Workshop) -> None:
    bot = workshop.bot(
        "read -r line\nwhile [ ! -e /tmp/go-$CTX_AGENT ]; do sleep 0.02; done\n" + SAYS_HI.split("\n", 1)[1]
    )
    with bot.talk() as first, bot.talk() as second:
        first.send(bot.sending(id="c1"))
        start = first.frame()
        second.send(bot.sending(id="c1"))
        assert second.frame() == start
        (workshop.root / f"tmp/go-{bot.name}").touch()
        assert to_the_end(first) == to_the_end(second)
    assert bot.kinds()[0] == ["user", "assistant"]


def parallel(bot: Bot, sends: list[bytes]) -> list[list[dict[str, Any]]]:
    """The answers to sends that come at once, each on a connection of its own."""
    together = threading.Barrier(len(sends))
    with ExitStack() as stack:
        clients = [stack.enter_context(bot.talk()) for _ in sends]
        answers: list[list[dict[str, Any]]] = [[] for _ in sends]

        def send(number: int) -> None:
            together.wait()
            clients[number].send(sends[number])
            answers[number] = to_the_end(clients[number])

        threads = [threading.Thread(target=send, args=[number]) for number in range(len(sends))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return answers


def test_one_id_fifty_times_in_parallel_and_again_after_a_restart() -> None:
    """Field report 7."""
    with running_mount() as mount:
        bot = Workshop(mount).bot(COUNTS)
        answers = parallel(bot, 50 * [bot.sending(id="c1")])
        dones = {json.dumps(frames[-1]) for frames in answers}
        assert len(dones) == 1
        assert bot.kinds() == (["user", "assistant"], ["start", "state", "done", "state"])
        assert runs(bot) == 1
        before = traces(bot)
        mount.restart()
        again = parallel(bot, 50 * [bot.sending(id="c1")])
        assert {json.dumps(frame) for frames in again for frame in frames} == dones
        assert (traces(bot), runs(bot)) == (before, 1)


def test_different_ids_in_parallel_sessions_are_all_recorded_once(workshop: Workshop) -> None:
    bot = workshop.bot()
    sends = [bot.sending(f"input {number}", session=f"s{number}", id="c1") for number in range(12)]
    assert [frames[-1]["status"] for frames in parallel(bot, sends)] == ["ok"] * 12
    for number in range(12):
        messages, _ = bot.log(f"s{number}")
        assert [message["content"] for message in messages[:1]] == [f"input {number}"]
        assert len(messages) == 2


RUN = "ctx-00000000000000000000000000000000"


def start(run: str = RUN, **fields: Any) -> dict[str, Any]:
    return {"type": "start", "id": run, "run": run, "client_id": "c1", "scope": "private", "cwd": "/", **fields}


USER = {"role": "user", "content": "hello", "run": RUN}
DONE = {"type": "done", "run": RUN, "status": "ok"}

WRITTEN: dict[str, tuple[list[dict[str, Any]], str]] = {
    "a start and its message": ([USER, start()], "start"),
    "a whole run": ([USER, start(), DONE], "done"),
    "a whole run, the message last": ([start(), DONE, USER], "done"),
    "a done twice": ([USER, start(), DONE, DONE], "done"),
    "another message": ([{**USER, "content": "bye"}, start()], "EINVAL"),
    "two starts": ([USER, start(), start()], "EIO"),
    "two starts of two runs": ([USER, start(), start("ctx-1")], "EIO"),
    "a start without its message": ([start()], "EIO"),
    "two messages": ([USER, USER, start()], "EIO"),
    "two different dones": ([USER, start(), DONE, {**DONE, "status": "error"}], "EIO"),
    "a run without a start": ([USER, DONE], "new"),
}


@pytest.mark.parametrize("what", WRITTEN)
def test_history_that_was_written_by_file_counts_and_starts_nothing(workshop: Workshop, what: str) -> None:
    entries, expected = WRITTEN[what]
    bot = workshop.bot(COUNTS)
    ALICE.does(os.makedirs, bot.session())
    for entry in entries:
        file = "messages.jsonl" if "role" in entry else "events.jsonl"
        with (bot.session() / file).open("a") as log:
            log.write(json.dumps(entry) + "\n")
    before = traces(bot)
    frames = bot.send(id="c1") if expected not in ("start",) else first_frame(bot)
    answer = frames[0].get("code", frames[0]["type"])
    if expected == "new":
        assert types(frames) == ["start", "message", "done"]
        return
    assert answer == expected
    assert traces(bot) == before
    assert not (bot.root / f"tmp/count-{bot.name}").exists()


def first_frame(bot: Bot) -> list[dict[str, Any]]:
    """The only frame of an answer that ends with it, as the pong behind it shows."""
    with bot.talk() as client:
        client.send(bot.sending(id="c1") + request("ping") + b"\n")
        frame = client.frame()
        assert client.frame() == {"type": "pong"}
        return [frame]


def test_a_branch_replays_what_it_shares(workshop: Workshop) -> None:
    bot = workshop.bot(COUNTS)
    bot.send(id="c1")
    os.setxattr(bot.session(), "user.ctx.branch", b"child")
    assert types(bot.send(id="c1", session="child")) == ["done"]
    os.setxattr(bot.session(), "user.ctx.branch", b"early 2")
    assert types(first_frame_in(bot, "early")) == ["start"]
    assert runs(bot) == 1


def first_frame_in(bot: Bot, session: str) -> list[dict[str, Any]]:
    with bot.talk() as client:
        client.send(bot.sending(id="c1", session=session) + request("ping") + b"\n")
        frames = client.frames("pong")
    return frames[:-1]


def test_history_that_cannot_be_proven_is_left_alone(fuse_device: None, tmp_path: Path) -> None:
    with running_mount("jsonl") as mount:
        bot = Workshop(mount).bot(COUNTS)
        bot.send(id="c1")
        assert mount.stop() == 0
        [log] = mount.store.rglob("default/events.jsonl")
        with log.open("ab") as file:
            file.write(b'{"type":"don')
        mount.start()
        before = traces(bot)
        for id in ("c1", "c2"):
            assert bot.send(id=id)[0]["code"] == "EIO"
        assert (traces(bot), runs(bot)) == (before, 1)


@pytest.fixture(scope="module")
def jsonl(fuse_device: None) -> Any:
    with running_mount("jsonl") as mount:
        yield mount


def test_the_jsonl_store_replays_too(jsonl: RunningMount) -> None:
    bot = Workshop(jsonl).bot(COUNTS)
    first = bot.send(id="c1", session="s")
    jsonl.restart()
    assert bot.send(id="c1", session="s") == first[-1:]
    assert bot.send("x", id="c1", session="s")[0]["code"] == "EINVAL"
    assert (bot.session("index") / "current").read_text() == "s\n"
    assert runs(bot) == 1


def test_in_a_connection_a_temp_send_is_replayed_too(workshop: Workshop) -> None:
    bot = workshop.bot(COUNTS)
    with bot.talk() as client:
        client.send(bot.sending(id="c1", scope="temp"))
        done = to_the_end(client)[-1]
        client.send(bot.sending(id="c1", scope="temp"))
        assert to_the_end(client) == [done]
        client.send(bot.sending("x", id="c1", scope="temp"))
        assert client.frame()["code"] == "EINVAL"
    assert types(bot.send(id="c1", scope="temp")) == ["start", "message", "done"]
    assert runs(bot) == 2


def test_with_the_echo_it_is_the_same(workshop: Workshop) -> None:
    with connected(workshop.mount.path / "agent/echo.sock", ALICE) as client:
        for expected in (["start", "delta", "message", "done"], ["done"]):
            client.send(request("send", id="e1", input="x", session="retry") + b"\n")
            assert types(to_the_end(client)) == expected
