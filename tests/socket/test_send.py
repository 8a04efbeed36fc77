"""Spec 3.2, 3.3, 3.6: a send, from the frame to the log; agents are real executables, run as uid 1001 below a root."""

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.mounting import wait_until
from tests.people import ALICE, Person, chroot_with
from tests.socket.client import connected, request
from tests.socket.workshop import SAYS_HI, Bot, Workshop, lines, to_the_end, types

RUN = re.compile(r"ctx-[0-9a-f]{32}")
PRINTS = "read -r line\nprintf '%s\\n' "


def prints(*frames: dict[str, Any]) -> str:
    """A script that prints frames and ends."""
    return "read -r line\n" + "".join(f"printf '%s\\n' '{json.dumps(frame)}'\n" for frame in frames)


def test_a_send_is_started_answered_and_done(workshop: Workshop) -> None:
    bot = workshop.bot()
    start, message, done = bot.send(id="c1")
    run = start["run"]
    assert RUN.fullmatch(run)
    assert start == {"client_id": "c1", "cwd": "/", "id": run, "run": run, "scope": "private", "type": "start"}
    said = {"content": [{"text": "hi", "type": "text"}], "role": "assistant", "run": run}
    assert message == {**said, "type": "message"}
    assert done == {"run": run, "status": "ok", "type": "done"}
    assert bot.log() == (
        [{"content": "hello", "role": "user", "run": run}, said],
        [
            start,
            {"from": "idle", "state": "active", "type": "state"},
            done,
            {"from": "active", "state": "done", "type": "state"},
        ],
    )


def test_its_lines_are_compact_and_sorted_to_the_byte(workshop: Workshop) -> None:
    bot = workshop.bot()
    run = bot.send("grüße")[0]["run"]
    user, _ = (bot.session() / "messages.jsonl").read_bytes().splitlines()
    assert user == f'{{"content":"grüße","role":"user","run":"{run}"}}'.encode()


def test_the_files_of_the_session_say_it(workshop: Workshop) -> None:
    bot = workshop.bot(model="acme/big")
    bot.send(session="work", cwd="/work", client="editor")
    session, index = bot.session("work"), bot.session("index")
    said = {name: (session / name).read_text() for name in ("state", "cwd", "latest.md", "meta.json")}
    meta = '{"client":"editor","model":"acme/big","scope":"private"}\n'
    assert said == {"state": "done\n", "cwd": "/work\n", "latest.md": "hi\n", "meta.json": meta}
    assert (index / "current").read_text() == (index / "list").read_text() == "work\n"
    assert [key.read_text() for key in (index / "by-cwd").iterdir()] == ["work\n"]
    for name, listed in (("default", "default\nwork\n"), ("work", "work\ndefault\n"), ("default", "default\nwork\n")):
        before = (index / "current").stat().st_mtime_ns
        bot.send(session=name)
        assert (index / "current").read_text() == f"{name}\n"
        assert (index / "list").read_text() == listed
        assert (index / "current").stat().st_mtime_ns > before


def test_meta_is_recorded_where_it_differs(workshop: Workshop) -> None:
    bot = workshop.bot()
    for client in ("editor", "editor", None, "shell"):
        bot.send(client=client)
    assert bot.kinds()[1].count("meta") == 2
    (bot.session() / "meta.json").write_text('{"client":"shell","mine":1}\n')
    bot.send()
    assert json.loads((bot.session() / "meta.json").read_text()) == {"client": "shell", "mine": 1, "scope": "private"}


def test_all_is_the_users_own(workshop: Workshop) -> None:
    bot = workshop.bot()
    bot.send()
    for path in (bot.home, *bot.home.rglob("*")):
        status = path.lstat()
        assert (status.st_uid, status.st_gid) == (1001, 1001), path
        assert not stat.S_IMODE(status.st_mode) & 0o077, path


def test_the_agent_gets_the_conversation_on_stdin(workshop: Workshop) -> None:
    bot = workshop.bot("read -r line\nprintf '%s' \"$line\" > /tmp/stdin\n" + SAYS_HI.split("\n", 1)[1])
    bot.send("one")
    start, *_ = bot.send("two")
    invocation = json.loads((workshop.root / "tmp/stdin").read_text())
    messages = invocation.pop("messages")
    expected = {"schema": "ctx.agent-invocation/v1", "run": start["run"], "session": "default", "input": "two"}
    assert invocation == expected
    assert messages == lines(bot.session() / "messages.jsonl")[:-1]


def test_a_long_conversation_is_streamed_to_the_agent(workshop: Workshop) -> None:
    bot = workshop.bot("cat > /tmp/long\n")
    bot.send("first")
    text = "x" * 1000
    with (bot.session() / "messages.jsonl").open("a") as file:
        for n in range(3000):
            file.write(json.dumps({"role": "user", "content": f"{n} {text}"}) + "\n")
    bot.send("last")
    messages = json.loads((workshop.root / "tmp/long").read_text())["messages"]
    assert len(messages) == 3002
    assert [messages[n]["content"].split(" ")[0] for n in (0, 1, 3000, 3001)] == ["first", "0", "2999", "last"]


def test_an_agent_need_not_read_its_stdin(workshop: Workshop) -> None:
    bot = workshop.bot("exec <&-\n" + SAYS_HI.split("\n", 1)[1])
    assert types(bot.send("x" * 200_000)) == ["start", "message", "done"]


def test_the_environment_is_nothing_else(workshop: Workshop) -> None:
    bot = workshop.bot("env -u PWD -u _ -u OLDPWD -u SHLVL > /tmp/env\nid > /tmp/id\npwd > /tmp/pwd\n")
    start, done = bot.send(session="s1", cwd="/work")
    environment = dict(line.split("=", 1) for line in (workshop.root / "tmp/env").read_text().splitlines())
    assert done["status"] == "ok"
    assert environment == {
        "CTX_ROOT": "/ctx",
        "CTX_HOME": "/ctx/home/1001",
        "CTX_AGENT": bot.name,
        "CTX_SESSION": "s1",
        "CTX_RUN": start["run"],
        "HOME": "/",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
    }
    assert (workshop.root / "tmp/id").read_text().startswith("uid=1001 gid=1001")
    assert (workshop.root / "tmp/pwd").read_text() == "/work\n"


def test_what_it_does_is_entries_as_it_happens(workshop: Workshop) -> None:
    call = {"type": "tool_call", "id": "t1", "name": "fs.read", "arguments": {"path": "x"}}
    result = {"type": "tool_result", "tool_call_id": "t1", "content": "file"}
    usage = {"type": "usage", "input_tokens": 3, "output_tokens": 4}
    final = {"type": "message", "role": "assistant", "content": "done it", "meta": {"finish": "stop"}}
    bot = workshop.bot(prints({"type": "delta", "text": "let me see"}, call, result, usage, final))
    frames = bot.send()
    assert types(frames) == ["start", "delta", "message", "tool_call", "message", "usage", "message", "done"]
    assert bot.kinds() == (
        ["user", "assistant", "tool", "assistant"],
        ["start", "state", "tool_call", "usage", "done", "state"],
    )
    assert bot.log()[0][-1]["meta"] == {"finish": "stop"}


def test_deltas_are_streamed_before_the_run_ends(workshop: Workshop) -> None:
    os.mkfifo(workshop.root / "tmp/gate")
    (workshop.root / "tmp/gate").chmod(0o666)
    bot = workshop.bot('echo \'{"type":"delta","text":"so far"}\'\nread -r go < /tmp/gate\n')
    with bot.talk() as client:
        client.send(bot.sending())
        assert types([client.frame(), client.frame()]) == ["start", "delta"]
        assert (bot.session() / "state").read_text() == "active\n"
        (workshop.root / "tmp/gate").write_text("go\n")
        message, done = to_the_end(client)
    assert message["content"] == [{"text": "so far", "type": "text"}]
    assert done["status"] == "ok"


def test_the_end_of_stderr_is_in_the_agents_log_directory(workshop: Workshop) -> None:
    bot = workshop.bot("echo oops >&2\n")
    start, *_ = bot.send()
    log = bot.home / "log" / f"{start['run']}.log"
    assert log.read_text() == "oops\n"
    assert (log.stat().st_uid, stat.S_IMODE(log.stat().st_mode)) == (1001, 0o600)


def test_rules_and_skills_are_recorded_as_snapshots(workshop: Workshop) -> None:
    rules = workshop.root / "work/AGENTS.md"
    rules.write_text("be brief\n")
    bot = workshop.bot()
    bot.send(cwd="/work")
    assert (bot.session() / "AGENTS.md").read_text() == "be brief\n"
    assert not (bot.session() / "SKILLS.md").exists()
    rules.unlink()
    bot.send(cwd="/work")
    assert not (bot.session() / "AGENTS.md").exists()


def test_the_peers_own_root_is_the_default(workshop: Workshop) -> None:
    bot = workshop.bot(root=False)
    assert bot.send()[0]["code"] == "ENOENT", "its root is empty"
    ALICE.does(os.makedirs, bot.home)
    bot.define(
        exec='["/usr/bin/printf","%s\\\\n","{\\"type\\":\\"delta\\",\\"text\\":\\"x\\"}"]',
        mount="/usr\t/usr\tro\n/usr/lib\t/lib\tro\n/usr/lib64\t/lib64\tro\n",
    )
    assert types(bot.send()) == ["start", "delta", "message", "done"]
    assert {path.name for path in (bot.home / "root").iterdir()} >= {"ctx", "dev", "usr"}


CWDS = {
    "/work": "ok",
    "/nowhere": "ENOENT",
    "/etc": "EACCES",
    "/agents/file": "ENOTDIR",
    "/sealed": "EACCES",
    "/up": "EACCES",
    "/absolute": "EACCES",
    "work": "EINVAL",
    "/work/": "EINVAL",
    "/work/../work": "EINVAL",
    "//work": "EINVAL",
    "/a\tb": "EINVAL",
    "": "EINVAL",
}


@pytest.mark.parametrize("cwd", CWDS)
@pytest.mark.parametrize("kind", ["script", "echo"])
def test_a_cwd_is_judged_before_anything_is_recorded(workshop: Workshop, cwd: str, kind: str) -> None:
    root = workshop.root
    (root / "agents/file").touch()
    (root / "sealed").mkdir(mode=0o700, exist_ok=True)
    for name, target in (("up", "../../../../etc"), ("absolute", "/etc")):
        if not (root / name).is_symlink():
            (root / name).symlink_to(target)
    bot = workshop.bot()
    if kind == "echo":
        bot = Bot(workshop.mount, root, "echo")
        bot.definition.mkdir(exist_ok=True)
        bot.define(root=str(root))
    frames = bot.send(cwd=cwd, session=f"s{len(cwd)}")
    assert frames[-1].get("code", frames[-1].get("status")) == CWDS[cwd], frames
    assert bot.session(f"s{len(cwd)}").exists() == (CWDS[cwd] == "ok")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no id": ({"id": None}, "EINVAL"),
    "an id with a slash": ({"id": "a/b"}, "EINVAL"),
    "an id of 65 bytes": ({"id": "x" * 65}, "EINVAL"),
    "an id that ends in .sock": ({"id": "x.sock"}, "EINVAL"),
    "no input": ({"input": None}, "EINVAL"),
    "an input that is no string": ({"input": ["x"]}, "EINVAL"),
    "a NUL": ({"input": "a\0b"}, "EINVAL"),
    "an input of 256 KiB and a byte": ({"input": "x" * ((256 << 10) + 1)}, "EMSGSIZE"),
    "a session called index": ({"session": "index"}, "EINVAL"),
    "a session with a dot first": ({"session": "../x"}, "EINVAL"),
    "another scope": ({"scope": "public"}, "EINVAL"),
    "shared without a space": ({"scope": "shared"}, "EINVAL"),
    "private with a space": ({"space": "team"}, "EINVAL"),
    "a client of 257 bytes": ({"client": "x" * 257}, "EINVAL"),
    "queue that is no boolean": ({"queue": 1}, "EINVAL"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_send_is_refused(workshop: Workshop, name: str) -> None:
    fields, code = BAD[name]
    bot = workshop.bot()
    [refusal] = bot.send(**{"id": "c1", **fields})
    assert refusal["code"] == code
    assert not bot.home.exists()


def test_an_input_may_have_256_kib_and_be_empty(workshop: Workshop) -> None:
    bot = workshop.bot()
    assert types(bot.send("x" * (256 << 10))) == ["start", "message", "done"]
    assert types(bot.send("")) == ["start", "message", "done"]


def test_unknown_fields_are_ignored(workshop: Workshop) -> None:
    assert types(workshop.bot().send(colour="red")) == ["start", "message", "done"]


def test_without_an_executable_there_is_nothing_to_send_to(workshop: Workshop) -> None:
    bot = workshop.bot()
    bot.define(exec='["/agents/none"]')
    [refusal] = bot.send(id="c1")
    assert {key: refusal[key] for key in ("type", "code", "id")} == {"type": "error", "code": "ENOENT", "id": "c1"}
    assert not bot.session().exists()


def test_a_connection_takes_one_request_after_another(workshop: Workshop) -> None:
    bot = workshop.bot()
    with bot.talk() as client:
        client.send(bot.sending() + request("ping") + b"\n" + bot.sending())
        frames = [*to_the_end(client), client.frame(), *to_the_end(client)]
    assert types(frames) == ["start", "message", "done", "pong", "start", "message", "done"]


def test_a_client_that_ends_its_side_still_hears_all(workshop: Workshop) -> None:
    bot = workshop.bot("read -r line\nsleep 0.2\n" + SAYS_HI.split("\n", 1)[1])
    with bot.talk() as client:
        client.send(bot.sending())
        client.socket.shutdown(1)
        assert types(client.frames()) == ["start", "message", "done"]


def test_a_client_in_a_chroot_talks_to_its_agent(workshop: Workshop, tmp_path: Path) -> None:
    bot = workshop.bot()

    def talk() -> list[str]:
        with connected(Path(f"/ctx/agent/{bot.name}.sock")) as client:
            client.send(bot.sending(id="from-the-chroot"))
            return types(to_the_end(client))

    with chroot_with(workshop.mount.path, tmp_path / "root") as root:
        assert Person(1001, 1001, root=root).does(talk) == ["start", "message", "done"]
    assert bot.log()[1][0]["client_id"] == "from-the-chroot"


def test_a_model_has_sessions_of_its_own(workshop: Workshop) -> None:
    model = workshop.model()
    assert types(model.send()) == ["start", "message", "done"]
    assert model.session().parent.parent.name == f"{model.name}.d"
    assert model.kinds()[0] == ["user", "assistant"]


def test_the_echo_is_there_without_being_defined(workshop: Workshop) -> None:
    with connected(workshop.mount.path / "agent/echo.sock", ALICE) as client:
        client.send(request("send", id="c1", input="hello you", session="plain") + b"\n")
        assert types(to_the_end(client)) == ["start", "delta", "message", "done"]
    assert (workshop.mount.path / "home/1001/agent/echo/session/plain/latest.md").read_text() == "hello you\n"


def test_a_definition_works_as_soon_as_it_is_written_and_not_any_more_once_it_is_gone(workshop: Workshop) -> None:
    bot = workshop.bot()
    assert bot.send()[-1]["status"] == "ok"
    bot.definition.rmdir()
    wait_until(lambda: not bot.path.exists(), "the socket's end")
    assert bot.session().exists()
