"""Field report 5, of runs: a disk that is full fails them by that, tears nothing, and their ends are recorded later."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.disks import MIB, mount_on_disk, need_loop_devices
from tests.mounting import wait_until
from tests.socket.workshop import SAYS_HI, Bot, Workshop, lines, to_the_end

CALL = '{"type":"tool_call","id":"t%d","name":"x","arguments":{"x":"%s"}}'
FLOODS = f"""read -r line
text=$(head -c 60000 /dev/zero | tr '\\0' a)
for number in $(seq 1000); do
    printf '{CALL}\\n' $number $text
done
"""
SAYS_MUCH = """read -r line
until [ -e /tmp/go ]; do sleep 0.02; done
printf '{"type":"message","role":"assistant","content":"%s"}\\n' $(head -c 250000 /dev/zero | tr '\\0' a)
"""


@pytest.fixture
def small(fuse_device: None) -> Iterator[Workshop]:
    """Agents of a mount whose store is on a disk of 16 MiB."""
    need_loop_devices()
    with mount_on_disk(16 * MIB) as (mount, _):
        mount.allow("ENOSPC|full")
        yield Workshop(mount)


def ballast(workshop: Workshop) -> Path:
    return workshop.mount.store / "ballast"


def fill(workshop: Workshop) -> None:
    with ballast(workshop).open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


def state(bot: Bot) -> str:
    return (bot.session() / "state").read_text().strip()


def test_a_run_that_fills_the_disk_fails_by_that_and_what_was_heard_is_stored(small: Workshop) -> None:
    ballast(small).write_bytes(b"\0" * MIB)
    bot = small.bot(FLOODS)
    _, *heard, error = [frame for frame in bot.send(id="c1") if frame["type"] != "done"]
    assert error["code"] == "ENOSPC"
    ballast(small).unlink()
    wait_until(lambda: state(bot) == "error", "the end of the run")
    events = lines(bot.session() / "events.jsonl")
    assert [event for event in events if event["type"] == "tool_call"] == heard
    assert [event["type"] for event in events[-3:]] == ["error", "done", "state"]
    assert bot.send(id="c1") == [events[-2]]
    bot.does(SAYS_HI)
    assert bot.send(id="c2")[-1]["status"] == "ok"


def test_a_send_to_a_full_disk_is_refused_and_is_a_new_one_when_there_is_room(small: Workshop) -> None:
    bot = small.bot()
    bot.send(id="c0")
    before = bot.log()
    fill(small)
    for _ in range(3):
        [refusal] = bot.send("x" * 250_000, id="c1")
        assert (refusal["code"], refusal["id"]) == ("ENOSPC", "c1")
    assert "state=failing" in (small.mount.path / "status").read_text()
    assert bot.log() == before
    ballast(small).unlink()
    assert bot.send("x" * 250_000, id="c1")[-1]["status"] == "ok"
    assert bot.kinds()[0] == ["user", "assistant"] * 2
    assert "state=ok" in (small.mount.path / "status").read_text()


def test_an_end_that_does_not_fit_is_recorded_when_there_is_room(small: Workshop) -> None:
    bot = small.bot(SAYS_MUCH)
    with bot.talk() as client, bot.talk() as other:
        client.send(bot.sending(id="c1"))
        start = client.frame()
        fill(small)
        (bot.root / "tmp/go").touch()
        _, refusal = to_the_end(client)
        assert (refusal["code"], refusal["run"]) == ("ENOSPC", start["run"])
        assert client.frame() == {}, "there is no done: it is not recorded"
        assert state(bot) == "active"
        assert bot.send(id="c2")[0]["code"] == "EAGAIN"
        other.send(bot.sending(id="c1"))
        assert other.frame() == start
        ballast(small).unlink()
        wait_until(lambda: state(bot) == "done", "the end of the run")
    [done] = bot.send(id="c1")
    assert (done["run"], done["status"]) == (start["run"], "ok")
    assert bot.kinds() == (["user", "assistant"], ["start", "state", "done", "state"])
