"""Spec 3.6: the launcher gives an agent its view, the peer's ids and nothing else, and ends all that it started."""

import gc
import os
import shutil
import socket

import pytest
import trio

from ctxfs.agents import launcher as launching
from ctxfs.agents.mount_table import MountRow, parse_table
from ctxfs.agents.processes import Launcher
from tests.agents import TABLE, script
from tests.mount.launching import ENVIRONMENT, Bench, run_agent
from tests.people import ALICE, Person, may_have_namespaces, own_proc


def test_the_agent_is_the_peer(bench: Bench) -> None:
    assert bench.says("id -u; id -g; id -G").split("\n")[:3] == ["1001", "1001", "1001 4242 4243"]


def test_the_agent_gains_nothing_by_exec(bench: Bench) -> None:
    view = bench.view(rows=TABLE + "/proc\t/proc\trw\trbind\n")
    said = bench.says("grep -E '^(NoNewPrivs|CapEff|CapPrm|Uid|Gid|SigIgn|SigBlk)' /proc/self/status", view=view)
    status = dict(line.split(":\t") for line in said.splitlines())
    assert status["NoNewPrivs"] == "1"
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert status["Uid"].split() == ["1001"] * 4
    assert int(status["SigIgn"], 16) == int(status["SigBlk"], 16) == 0


def test_the_agent_leads_its_own_session_and_process_group(bench: Bench) -> None:
    assert (
        bench.says(
            "set -- $(ps -o pid=,pgid=,sid= -p $$ 2>/dev/null || cut -d' ' -f1,5,6 /proc/$$/stat); "
            "[ $1 = $2 ] && [ $2 = $3 ] && echo own",
            view=bench.view(rows=TABLE + "/proc\t/proc\tro\trbind\n"),
        )
        == "own\n"
    )


def test_the_view_is_the_root_with_the_table(bench: Bench) -> None:
    (bench.root / "here").touch()
    assert {"here", "usr", "agents", "ctx", "dev"} <= set(bench.says("ls /").split())
    assert "ro" in bench.says("touch /usr/x 2>/dev/null && echo rw || echo ro")
    assert bench.says("echo mine > /tmp/x; cat /tmp/x") == "mine\n"
    assert (bench.root / "tmp/x").stat().st_uid == ALICE.uid


def test_the_tree_and_three_devices_are_always_there(bench: Bench) -> None:
    said = bench.says(
        "echo x > /dev/null; head -c 3 /dev/zero | od -An -tx1; head -c 8 /dev/urandom | wc -c; ls /dev; ls /ctx"
    )
    assert said.split() == [
        "00",
        "00",
        "00",
        "8",
        "null",
        "urandom",
        "zero",
        "agent",
        "home",
        "model",
        "shared",
        "status",
    ]


def test_a_view_without_a_root_is_empty_and_gone_afterwards(bench: Bench) -> None:
    view = bench.view(
        root=None,
        rows=TABLE
        + f"{bench.root}/agents\t/agents\tro\n/usr/bin\t/bin\tro\n/usr/lib\t/lib\tro\n/usr/lib64\t/lib64\tro\n",
    )
    assert set(bench.says("ls /", view=view).split()) == {"agents", "bin", "ctx", "dev", "lib", "lib64", "usr"}


def test_nothing_of_the_daemon_reaches_the_agent(bench: Bench) -> None:
    view = bench.view(rows=TABLE + "/proc\t/proc\tro\trbind\n")
    assert bench.says("ls /proc/$$/fd", view=view).split() == ["0", "1", "10", "2"]  # 10 is the shell's own
    assert sorted(bench.says("env -u PWD -u OLDPWD -u _ env").split()) == ["PATH=/usr/bin:/bin"]


def test_the_launcher_holds_no_fuse_device(bench: Bench) -> None:
    links = [os.readlink(f"/proc/{bench.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{bench.pid}/fd")]
    assert "/dev/fuse" not in links


def test_stdin_and_stdout_are_the_daemons(bench: Bench) -> None:
    assert bench.says('read line; echo "got $line"', stdin=b"hello\n") == "got hello\n"


def test_the_cwd_is_the_agents(bench: Bench) -> None:
    assert bench.says("pwd", cwd="/work") == "/work\n"
    assert bench.says("pwd", cwd="/ctx/shared") == "/ctx/shared\n"


def test_a_mounted_directory_is_part_of_the_view(bench: Bench) -> None:
    outside = bench.root.parent / "project"
    outside.mkdir()
    (outside / "file").write_text("seen\n")
    view = bench.view(rows=TABLE + f"{outside}\t/workspace/project\tro\n")
    assert bench.says("cat file", cwd="/workspace/project", view=view) == "seen\n"


REFUSED = {
    "a host path": ({"cwd": "/etc"}, "EACCES"),
    "a cwd that is missing": ({"cwd": "/nowhere"}, "ENOENT"),
    "a file": ({"cwd": "/agents/says"}, "ENOTDIR"),
}


@pytest.mark.parametrize(("named", "expected"), REFUSED.values(), ids=list(REFUSED))
def test_a_cwd_is_judged_before_anything_runs(bench: Bench, named: dict[str, str], expected: str) -> None:
    script(bench.root, "says", "touch /tmp/ran")
    assert bench.refusal(bench.launch("/agents/says", **named)) == expected  # type: ignore[arg-type]
    assert not (bench.root / "tmp/ran").exists()


def test_an_executable_of_the_host_is_not_one_of_the_view(bench: Bench) -> None:
    assert bench.refusal(bench.launch("/nowhere")) == "ENOENT"
    assert bench.refusal(bench.launch("/usr/bin/env", view=bench.view(rows=""))) == "ENOENT"
    assert bench.refusal(bench.launch("/usr/share")) == "EACCES"


def test_a_script_whose_interpreter_is_missing_fails_at_the_start(bench: Bench) -> None:
    path = bench.root / "agents/broken"
    path.write_text("#!/nowhere\n")
    path.chmod(0o755)
    assert bench.refusal(bench.launch("/agents/broken")) == "ENOENT"


ROWS = {
    "a source that is missing": ("/nowhere\t/x\tro\n", "ENOENT"),
    "a target behind a link": ("/usr\t/bin/x\tro\n", "ELOOP"),
    "a target below a file": ("/usr\t/agents/says/x\tro\n", "ENOTDIR"),
}


@pytest.mark.parametrize(("rows", "expected"), ROWS.values(), ids=list(ROWS))
def test_a_row_that_cannot_be_attached_refuses_the_run(bench: Bench, rows: str, expected: str) -> None:
    script(bench.root, "says", "true")
    assert bench.refusal(bench.launch("/agents/says", view=bench.view(rows=TABLE + rows))) == expected


def test_a_link_in_an_admins_path_is_followed_with_the_peers_rights_only(bench: Bench) -> None:
    secret = bench.root.parent / "secret"
    (secret / "inner").mkdir(parents=True)
    secret.chmod(0o700)
    (bench.root.parent / "link").symlink_to(secret / "inner")
    script(bench.root, "says", "true")
    view = bench.view(rows=TABLE + f"{bench.root.parent}/link\t/x\tro\n")
    assert bench.refusal(bench.launch("/agents/says", view=view)) == "EACCES"
    assert bench.says("ls -d /x", view=bench.view(rows=TABLE + f"{secret}/inner\t/x\tro\n")) == "/x\n"


def test_what_is_moved_out_of_the_root_leads_nowhere(bench: Bench) -> None:
    """A cwd that is renamed out of the root while the agent runs: ``..`` from there must not be the host."""
    (bench.root / "work/inner").mkdir()
    script(
        bench.root, "says", "echo ready; read go; ls .. 2>/dev/null; cat ../../../../etc/hostname 2>/dev/null; echo end"
    )

    async def main() -> bytes:
        agent = await bench.launcher.prepare(bench.launch("/agents/says", cwd="/work/inner"))
        await agent.start(ENVIRONMENT)
        assert await agent.stdout.receive_some() == b"ready\n"
        (bench.root / "work/inner").rename(bench.root.parent / "moved")
        await agent.stdin.send_all(b"go\n")
        output = b"".join([data async for data in agent.stdout])
        await agent.aclose()
        return output

    assert trio.run(main) == b"end\n"


def test_the_end_of_stderr_is_kept(bench: Bench) -> None:
    log = bench.mount.path / "home/1001/agent/noisy/log"
    ALICE.does(os.makedirs, log.parent)
    script(bench.root, "says", "yes 12345678 | head -c 99999 >&2; echo last >&2; exit 1")
    launch = bench.launch("/agents/says", log=f"{log}/run.log")
    assert trio.run(run_agent, bench.launcher, launch, b"")[0] == 1
    content = (log / "run.log").read_bytes()
    assert len(content) == 65536
    assert content.endswith(b"12345678\nlast\n")
    assert (log / "run.log").stat().st_uid == ALICE.uid


def test_rules_and_skills_are_gathered_from_the_root_down_to_the_cwd(bench: Bench) -> None:
    work = bench.root / "work/inner"
    work.mkdir()
    (bench.root / "AGENTS.md").write_text("top")
    (work / "AGENTS.md").write_text("below\n")
    skill = work / "skills/tidy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: tidy\ndescription: >\n  Puts things\n  away\n---\nbody\n")
    (bench.root / "work/AGENTS.md").symlink_to("/etc/passwd")
    os.mkfifo(work / "skills/FIFO")
    script(bench.root, "says", "true")

    async def main() -> dict[str, bytes]:
        agent = await bench.launcher.prepare(bench.launch("/agents/says", cwd="/work/inner"))
        await agent.aclose()
        return agent.snapshots

    assert trio.run(main) == {
        "AGENTS.md": b"top\nbelow\n",
        "SKILLS.md": b"- tidy: Puts things away (/work/inner/skills/tidy/SKILL.md)\n",
    }


def test_no_descriptor_is_left(bench: Bench) -> None:
    script(bench.root, "says", "echo x")
    gc.collect()  # what other tests left to the collector is not to be closed meanwhile
    before = len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{bench.pid}/fd"))
    for _ in range(20):
        bench.says("echo x")
        assert bench.refusal(bench.launch("/nowhere")) == "ENOENT"
    assert (len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{bench.pid}/fd"))) == before


def test_the_table_of_mounts_is_read_in_order() -> None:
    text = "/srv/a\t/a\tro\n\n/srv/b\t/b\trw\trbind,noexec\n"
    assert parse_table(text) == [MountRow("/srv/a", "/a", False), MountRow("/srv/b", "/b", True, ("rbind", "noexec"))]


@pytest.mark.skipif(not may_have_namespaces(), reason="no user namespace may be made here")
def test_in_an_ordinary_users_mount_nothing_is_switched(bench: Bench) -> None:
    """The launcher is that user's; the view is one in a user namespace."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        bench.link.close()
        try:
            Person(ALICE.uid, ALICE.gid, (4242,)).become()
            own_proc()
            launching.serve(theirs)
        finally:
            os._exit(0)
    theirs.close()
    shutil.chown(bench.root, ALICE.uid)
    bench.launcher = Launcher(ours)
    assert bench.says("id -u; cat /agents/says | head -1; ls -d /ctx/agent /dev/null").split() == [
        "1001",
        "#!/bin/sh",
        "/ctx/agent",
        "/dev/null",
    ]
    assert bench.refusal(bench.launch("/agents/says", cwd="/etc")) == "EACCES"
    ours.close()
    os.waitpid(pid, 0)
