"""kill -9 of the daemon between any two steps of a send, restart, retry: one user message, one start, one outcome."""

from collections.abc import Iterator

import pytest

from ctxfs.stores import Format
from tests.mounting import PATIENCE_S, RunningMount, running_mount
from tests.people import ALICE
from tests.socket.client import connected, request
from tests.socket.workshop import Workshop, to_the_end

BODY = """read -r line
umask 0
echo run >> /tmp/count-$CTX_AGENT
echo '{"type":"tool_call","id":"t1","name":"x","arguments":{}}'
echo '{"type":"message","role":"assistant","content":"hi"}'
"""
BEFORE = ("prepared", "opened")
"""So early that nothing is recorded: the retry is the first send."""
RECORDED = ("recorded", "durable", "started", "output", "recorded output", "ended")
"""The run is lost with the daemon, and never run again."""
ENDED = ("end recorded", "end durable")


@pytest.fixture(scope="module", params=["sqlite", "jsonl"])
def workshop(request: pytest.FixtureRequest, fuse_device: None) -> Iterator[Workshop]:
    form: Format = request.param
    with running_mount(form, module="tests.stepping_daemon") as mount:
        yield Workshop(mount)


def die_at(mount: RunningMount, step: str) -> None:
    (mount.base / "step").write_text(step)


def start_again(mount: RunningMount) -> None:
    assert mount.process is not None
    mount.process.wait(PATIENCE_S)
    (mount.base / "step").unlink()
    mount.unmount()
    mount.start()


@pytest.mark.parametrize("step", [*BEFORE, *RECORDED, *ENDED])
def test_whenever_the_daemon_dies_a_retry_finds_or_does_it_once(workshop: Workshop, step: str) -> None:
    bot = workshop.bot(BODY)
    die_at(workshop.mount, step)
    with bot.talk() as client:
        client.send(bot.sending(id="c1"))
        heard = to_the_end(client)
    assert not any(frame["type"] == "done" for frame in heard)
    start_again(workshop.mount)

    [*_, done] = bot.send(id="c1")
    messages, events = bot.log()
    assert [message["role"] for message in messages].count("user") == 1
    assert [event["type"] for event in events].count("start") == 1
    assert [event for event in events if event["type"] == "done"] == [done]
    assert done["status"] == ("error" if step in RECORDED else "ok")
    if done["status"] == "error":
        assert [event["code"] for event in events if event["type"] == "error"] == ["EHOSTDOWN"]
    count = bot.root / f"tmp/count-{bot.name}"
    assert (count.read_text() if count.exists() else "") in ("run\n", "" if step in RECORDED else "run\n")
    starts = [frame for frame in heard if frame["type"] == "start"]
    assert starts in ([], [event for event in events if event["type"] == "start"])

    assert bot.send(id="c1") == [done]
    assert bot.log() == (messages, events)
    assert bot.send(id="c2")[-1]["status"] == "ok"


@pytest.mark.parametrize("step", [*BEFORE, "recorded", "durable", "ended", *ENDED])
def test_so_it_is_with_the_echo(workshop: Workshop, step: str) -> None:
    die_at(workshop.mount, step)
    session = f"s-{step.replace(' ', '-')}"
    path = workshop.mount.path / "agent/echo.sock"
    with connected(path, ALICE) as client:
        client.send(request("send", id="c1", input="hello", session=session) + b"\n")
        assert not any(frame["type"] == "done" for frame in to_the_end(client))
    start_again(workshop.mount)
    with connected(path, ALICE) as client:
        client.send(request("send", id="c1", input="hello", session=session) + b"\n")
        assert to_the_end(client)[-1]["type"] == "done"
    messages = (workshop.mount.path / f"home/1001/agent/echo/session/{session}/messages.jsonl").read_text()
    assert messages.count('"role":"user"') == 1
