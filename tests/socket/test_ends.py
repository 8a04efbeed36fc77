"""Specs 3.3 and 3.6: how runs end, whatever an agent does, and whoever leaves."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxfs.agents.settings import Settings
from tests.mounting import PATIENCE_S, running_mount, umount, wait_until
from tests.people import ALICE, BOB
from tests.socket.client import request
from tests.socket.workshop import Workshop, to_the_end, types

DELTA = 'printf \'%s\\n\' \'{"type":"delta","text":"so far"}\'\n'
PARTIAL = [{"type": "text", "text": "so far"}]


def failure(frames: list[dict[str, Any]]) -> str:
    """The code of a run that failed; its error comes before its done."""
    start, *_, error, done = frames
    assert start["type"] == "start"
    assert (error["type"], done["type"], done["status"]) == ("error", "done", "error")
    assert error["run"] == done["run"] == start["run"]
    return str(error["code"])


MISBEHAVING = {
    "garbage": ("echo 'no JSON'\n", "EIO"),
    "binary garbage": ("head -c 1000 /dev/urandom\n", "EIO"),
    "a line of more than 256 KiB": ("head -c 300000 /dev/zero | tr '\\0' x\necho\n", "EMSGSIZE"),
    "a flood without a newline": ("cat /dev/zero | tr '\\0' x\n", "EMSGSIZE"),
    "exit 1": ("exit 1\n", "EIO"),
    "exit 1 after a message": (DELTA + "exit 1\n", "EIO"),
    "a signal": ("kill -SEGV $$\n", "EIO"),
    "an error of its own": ('echo \'{"type":"error","code":"ENOSYS","message":"no"}\'\nsleep 60\n', "ENOSYS"),
    "a start": ('echo \'{"type":"start"}\'\n', "EIO"),
    "a done": ('echo \'{"type":"done","status":"ok"}\'\n', "EIO"),
    "another run's frame": ('echo \'{"type":"delta","text":"x","run":"ctx-1"}\'\n', "EIO"),
    "a result without a call": ('echo \'{"type":"tool_result","tool_call_id":"x","content":"y"}\'\n', "EIO"),
    "an interpreter that is missing": (None, "ENOENT"),
}


@pytest.mark.parametrize("what", MISBEHAVING)
def test_a_run_whose_agent_misbehaves_fails_and_the_next_one_is_run(workshop: Workshop, what: str) -> None:
    body, code = MISBEHAVING[what]
    bot = workshop.bot(body or "")
    if body is None:
        (workshop.root / f"agents/{bot.name}").write_text("#!/nowhere\n")
    assert failure(bot.send(id="c1")) == code
    assert (bot.session() / "state").read_text() == "error\n"
    assert bot.kinds()[1] == ["start", "state", "error", "done", "state"]
    bot.does("read -r line\n")
    assert types(bot.send()) == ["start", "done"]
    assert (bot.session() / "state").read_text() == "done\n"


def test_what_a_failed_run_had_said_is_kept_as_partial(workshop: Workshop) -> None:
    bot = workshop.bot(DELTA + "exit 1\n")
    run = bot.send()[0]["run"]
    assert bot.log()[0][-1] == {"content": PARTIAL, "partial": True, "role": "assistant", "run": run}


@pytest.mark.parametrize("by", ["run", "client id"])
def test_a_run_is_cancelled(workshop: Workshop, by: str) -> None:
    bot = workshop.bot(DELTA + "sleep 60\n")
    with bot.talk() as client, bot.talk() as other:
        client.send(bot.sending(id="c1"))
        run = client.frame()["run"]
        client.frame()
        done = other.ask("cancel", id=run if by == "run" else "c1")
        assert done == {"run": run, "status": "cancelled", "type": "done"}
        assert to_the_end(client) == [done]
    messages, events = bot.log()
    assert messages[-1] == {"content": PARTIAL, "partial": True, "role": "assistant", "run": run}
    assert [event["type"] for event in events] == ["start", "state", "done", "state"]
    assert (bot.session() / "state").read_text() == "done\n"


def test_a_run_is_cancelled_on_the_connection_that_hears_it(workshop: Workshop) -> None:
    bot = workshop.bot("sleep 60\n")
    with bot.talk() as client:
        client.send(bot.sending(id="c1"))
        client.frame()
        client.send(request("cancel", id="c1") + b"\n" + request("ping") + b"\n")
        done, again, pong = client.frame(), client.frame(), client.frame()
    assert done == again
    assert (done["status"], pong["type"]) == ("cancelled", "pong")


def test_two_who_cancel_at_once_are_told_the_same(workshop: Workshop) -> None:
    bot = workshop.bot("trap '' TERM\n" + DELTA + "while :; do sleep 0.05; done\n")
    with bot.talk() as client, bot.talk() as one, bot.talk() as two:
        client.send(bot.sending(id="c1"))
        assert types([client.frame(), client.frame()]) == ["start", "delta"]
        for other in (one, two):
            other.send(request("cancel", id="c1") + b"\n")
        dones = [one.frame(), two.frame(), *to_the_end(client)]
    assert dones == [{"run": dones[0]["run"], "status": "cancelled", "type": "done"}] * 3
    assert bot.kinds()[1] == ["start", "state", "done", "state"]


def archive(session: Path) -> None:
    archived = session.parents[3] / "archived_sessions" / session.parents[1].name
    archived.mkdir(parents=True, exist_ok=True)
    session.rename(archived / session.name)


PUT_ASIDE: dict[str, tuple[Callable[[Path], object], str]] = {
    "archived": (archive, "EBUSY"),
    "deleted": (lambda session: os.setxattr(session, "user.ctx.delete", session.name.encode()), "EBUSY"),
    "renamed": (lambda session: session.rename(session.with_name("other")), "EPERM"),
    "removed": (Path.rmdir, "ENOTEMPTY"),
}


@pytest.mark.parametrize("what", PUT_ASIDE)
def test_a_session_is_not_put_aside_while_its_run_is_live_whatever_its_state_says(
    workshop: Workshop, what: str
) -> None:
    put_aside, refusal = PUT_ASIDE[what]
    bot = workshop.bot(
        "[ $CTX_SESSION = work ] || exit 0\n" + DELTA + "until [ -e /tmp/go-$CTX_AGENT ]; do sleep 0.05; done\n"
    )
    bot.send(session="first")  # the current one, which is protected anyhow
    with bot.talk() as client:
        client.send(bot.sending(id="c1", session="work"))
        assert types([client.frame(), client.frame()]) == ["start", "delta"]
        ALICE.does((bot.session("work") / "state").write_text, "done\n")
        assert ALICE.outcome(put_aside, bot.session("work")) == refusal
        (bot.root / f"tmp/go-{bot.name}").touch()
        assert to_the_end(client)[-1]["status"] == "ok"
    assert bot.kinds("work")[1].count("done") == 1


NOT_ACTIVE: dict[str, dict[str, Any]] = {
    "an id that never was": {"id": "c9"},
    "one that is done": {"id": "c1"},
    "one of another session": {"id": "live"},
}


@pytest.mark.parametrize("what", NOT_ACTIVE)
def test_what_is_not_active_is_not_cancelled(workshop: Workshop, what: str) -> None:
    bot = workshop.bot("[ $CTX_SESSION = default ] || sleep 60\n")
    bot.send(id="c1")
    with bot.talk() as client, bot.talk() as other:
        client.send(bot.sending(id="live", session="two"))
        client.frame()
        before = (bot.session() / "events.jsonl").read_bytes()
        assert other.ask("cancel", **NOT_ACTIVE[what])["code"] == "ENOENT"
        assert (bot.session() / "events.jsonl").read_bytes() == before
        assert other.ask("cancel", id="live", session="two")["status"] == "cancelled"


def test_nobody_cancels_the_run_of_another(workshop: Workshop) -> None:
    bot = workshop.bot("sleep 60\n")
    with bot.talk() as client, bot.talk(BOB) as other:
        client.send(bot.sending(id="c1"))
        run = client.frame()["run"]
        assert other.ask("cancel", id=run)["code"] == other.ask("cancel", id="c1")["code"] == "ENOENT"
        client.send(request("cancel", id="c1") + b"\n")
        assert client.frame()["status"] == "cancelled"


def is_running(marker: str) -> bool:
    return subprocess.run(["pgrep", "-f", f"sleep {marker}"], capture_output=True, check=False).returncode == 0


STUBBORN = {
    "ignores SIGTERM": "trap '' TERM\n" + DELTA + "sleep MARKER & while :; do sleep 0.05; done\n",
    "forks": 'sleep MARKER &\n(setsid sleep MARKER &)\necho \'{"type":"delta","text":"x"}\'\nsleep MARKER\n',
    "writes on": 'sleep MARKER & while :; do echo \'{"type":"delta","text":"x"}\'; sleep 0.01; done\n',
}


@pytest.mark.parametrize("what", STUBBORN)
def test_a_cancelled_run_leaves_no_process_and_no_late_output(workshop: Workshop, what: str) -> None:
    marker = f"6{os.getpid() % 10000}.{list(STUBBORN).index(what)}5"
    bot = workshop.bot(STUBBORN[what].replace("MARKER", marker))
    with bot.talk() as client:
        client.send(bot.sending(id="c1"))
        assert types([client.frame(), client.frame()]) == ["start", "delta"]
        client.send(request("cancel", id="c1") + b"\n")
        frames = to_the_end(client)
    assert frames[-1]["status"] == "cancelled"
    assert not is_running(marker)
    events = (bot.session() / "events.jsonl").read_bytes()
    assert types(bot.send(id="c1")) == ["done"]
    assert (bot.session() / "events.jsonl").read_bytes() == events


def test_what_an_agent_leaves_behind_says_nothing_more_and_delays_nothing(workshop: Workshop) -> None:
    bot = workshop.bot("(setsid sh -c 'sleep 600; echo garbage' &)\n" + DELTA)
    assert types(bot.send()) == ["start", "delta", "message", "done"]


def test_an_agent_that_closes_its_output_ends_when_it_exits(workshop: Workshop) -> None:
    bot = workshop.bot(DELTA + "exec >&-\nsleep 0.2\nexit 4\n")
    assert failure(bot.send()) == "EIO"


@pytest.mark.parametrize("way", ["closes", "is killed"])
def test_a_run_goes_on_when_its_client_is_gone(workshop: Workshop, way: str) -> None:
    bot = workshop.bot("while [ ! -e /tmp/on-$CTX_AGENT ]; do sleep 0.02; done\n" + DELTA)
    if way == "closes":
        with bot.talk() as client:
            client.send(bot.sending(id="c1"))
            client.frame()
    else:
        sent = Path(workshop.root / f"tmp/sent-{bot.name}")

        def talk() -> None:
            with bot.talk() as client:
                client.send(bot.sending(id="c1"))
                client.frame()
                sent.touch()
                time.sleep(60)

        pid = os.fork()
        if pid == 0:
            try:
                talk()
            finally:
                os._exit(1)
        wait_until(sent.exists, "the send")
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    (workshop.root / f"tmp/on-{bot.name}").touch()
    wait_until(lambda: (bot.session() / "state").read_text() == "done\n", "the end of the run")
    assert bot.kinds() == (["user", "assistant"], ["start", "state", "done", "state"])
    assert types(bot.send(id="c1")) == ["done"]


def test_a_temp_run_ends_with_its_client(workshop: Workshop) -> None:
    marker = f"5{os.getpid() % 10000}.5"
    bot = workshop.bot(f"sleep {marker}\n")
    with bot.talk() as client:
        client.send(bot.sending(id="c1", scope="temp"))
        client.frame()
        wait_until(lambda: is_running(marker), "the agent")
    wait_until(lambda: not is_running(marker), "the agent's end")
    assert not bot.home.exists()


def test_a_client_that_does_not_read_is_waited_for(workshop: Workshop) -> None:
    """Back-pressure: the agent blocks, nothing is lost, and the daemon holds about a mebibyte."""
    line = json.dumps({"type": "reasoning_delta", "text": "x" * 1000})
    bot = workshop.bot(
        f"n=0\nwhile [ $n -lt 4000 ]; do echo '{line}'; n=$((n+1)); echo $n > /tmp/printed-$CTX_AGENT; done\nexit 1\n"
    )
    printed = workshop.root / f"tmp/printed-{bot.name}"
    with bot.talk() as client:
        client.send(bot.sending())
        wait_until(printed.exists, "the first line")
        seen = -1
        while (now := int(printed.read_text() or 0)) != seen:
            seen = now
            time.sleep(0.3)
        assert seen < 3000
        frames = to_the_end(client)
    assert types(frames).count("reasoning_delta") == 4000
    assert frames[-1]["status"] == "error"


def test_a_run_has_so_much_time(fuse_device: None) -> None:
    with running_mount(agents=Settings(wall_s=1)) as mount:
        assert failure(Workshop(mount).bot(DELTA + "sleep 60\n").send()) == "ETIMEDOUT"


def test_a_run_may_print_so_much(fuse_device: None) -> None:
    with running_mount(agents=Settings(output_bytes=100_000)) as mount:
        assert failure(Workshop(mount).bot('yes \'{"type":"delta","text":"x"}\'\n').send()) == "EMSGSIZE"


def test_a_run_that_the_daemon_takes_along_is_recorded_as_that(fuse_device: None) -> None:
    with running_mount() as mount:
        bot = Workshop(mount).bot(DELTA + "sleep 60\n")
        with bot.talk() as client:
            client.send(bot.sending(id="c1"))
            client.frame()
            client.frame()
            mount.restart()
        assert bot.kinds() == (["user", "assistant"], ["start", "state", "error", "done", "state"])
        assert bot.log()[1][2]["code"] == "EHOSTDOWN"
        assert types(bot.send(id="c1")) == ["done"]


def test_a_run_that_died_with_the_daemon_is_ended_at_the_next_start(fuse_device: None) -> None:
    with running_mount() as mount:
        bot = Workshop(mount).bot("sleep 60\n")
        with bot.talk() as client:
            client.send(bot.sending(id="c1"))
            client.frame()
            mount.kill()
        mount.unmount()
        mount.start()
        assert bot.kinds()[1] == ["start", "state", "error", "done", "state"]
        assert bot.log()[1][2]["code"] == "EHOSTDOWN"
        assert (bot.session() / "state").read_text() == "error\n"
        assert bot.send(id="c1")[0]["status"] == "error"
        bot.does("read -r line\n")
        assert types(bot.send(id="c2")) == ["start", "done"]


def test_an_unmount_ends_what_runs(fuse_device: None) -> None:
    marker = f"4{os.getpid() % 10000}.5"
    with running_mount() as mount:
        bot = Workshop(mount).bot(f"sleep {marker}\n")
        with bot.talk() as client:
            client.send(bot.sending(id="c1"))
            client.frame()
            wait_until(lambda: is_running(marker), "the agent")
        umount(mount.path)
        assert mount.process is not None
        assert mount.process.wait(PATIENCE_S) == 0
        assert not is_running(marker)
        mount.start()
        assert bot.log()[1][2]["code"] == "EHOSTDOWN"


@pytest.mark.parametrize("operation", ["resume", "send"])
def test_a_forced_unmount_ends_the_daemon_whatever_it_was_asked(fuse_device: None, operation: str) -> None:
    """It ends the FUSE connection first, while clients are there."""
    with running_mount() as mount:
        bot = Workshop(mount).bot("[ $CTX_SESSION = default ] || sleep 60\n")
        bot.send(id="c1")
        with bot.talk() as client:
            follow = request("resume", follow=True) + b"\n"
            client.send(follow if operation == "resume" else bot.sending(id="c2", session="two"))
            client.frame()
            umount(mount.path, "-f")
            assert mount.process is not None
            assert mount.process.wait(PATIENCE_S) == 0
        mount.start()
        assert types(bot.send(id="c1")) == ["done"]


def test_runs_leave_no_descriptor_and_no_process(workshop: Workshop) -> None:
    bot = workshop.bot(DELTA)

    def held() -> tuple[int, int]:
        children = subprocess.run(["pgrep", "-P", str(workshop.mount.pid)], capture_output=True, check=False).stdout
        [launcher] = children.split()
        guardians = subprocess.run(["pgrep", "-P", launcher], capture_output=True, check=False).stdout.split()
        return len(os.listdir(f"/proc/{workshop.mount.pid}/fd")), len(guardians)

    bot.send()
    wait_until(lambda: held()[1] == 0, "the guardian's end")
    before = held()
    for number in range(10):
        assert bot.send()[-1]["status"] == "ok"
        assert bot.send(cwd="/nowhere")[0]["code"] == "ENOENT"
        assert bot.send(session=f"s{number}", scope="temp")[-1]["status"] == "ok"
    wait_until(lambda: held() <= before, "the closing of all descriptors")
