"""Spec 3.6: the launcher gives an agent its view, the peer's ids and nothing else, and ends all that it started."""

import contextlib
import errno
import gc
import os
import select
import shutil
import signal
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from ctxfs.agents import launcher as launching
from ctxfs.agents.launch import Identity, Launch, View, pack, socket_pair
from ctxfs.agents.mount_table import MountRow, parse_table
from ctxfs.agents.processes import Agent, AgentLost, Launcher
from tests.agents import TABLE, make_root, script
from tests.mounting import RunningMount, running_mount, wait_until
from tests.people import ALICE, Person, may_have_namespaces, own_proc

T = TypeVar("T")
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
IDENTITY = Identity(ALICE.uid, ALICE.gid, (4242, 4243))


class Bench:
    """A launcher, and a root for its agents."""

    def __init__(self, link: socket.socket, pid: int, mount: RunningMount, root: Path) -> None:
        self.link = link
        self.pid = pid
        self.mount = mount
        self.root = root
        self.launcher = Launcher(link)

    def view(self, root: str | None = "", rows: str = TABLE, *, own: bool = False) -> View:
        return View(str(self.root) if root == "" else root, str(self.mount.path), tuple(parse_table(rows)), own)

    def launch(self, *argv: str, cwd: str = "/", view: View | None = None, log: str | None = None) -> Launch:
        return Launch(IDENTITY, view or self.view(), cwd, argv, ENVIRONMENT["PATH"], "/", log)

    def says(self, body: str, *, cwd: str = "/", view: View | None = None, stdin: bytes = b"") -> str:
        """What a shell script prints when it is run as an agent; it must exit 0."""
        script(self.root, "says", body)
        status, output = trio.run(_run, self.launcher, self.launch("/agents/says", cwd=cwd, view=view), stdin)
        assert status == 0, output
        return output.decode()

    def refusal(self, launch: Launch) -> str:
        """With which errno a launch is refused."""
        with pytest.raises(OSError) as refused:
            trio.run(_run, self.launcher, launch, b"")
        assert refused.value.errno is not None
        return errno.errorcode[refused.value.errno]


async def _run(launcher: Launcher, launch: Launch, stdin: bytes) -> tuple[int, bytes]:
    agent = await launcher.prepare(launch)
    try:
        await agent.start(ENVIRONMENT)
        await agent.stdin.send_all(stdin)
        await agent.stdin.aclose()
        output = b"".join([data async for data in agent.stdout])
        return await agent.wait(), output
    finally:
        await agent.aclose()


@pytest.fixture(scope="module")
def served(fuse_device: None) -> Iterator[RunningMount]:
    with running_mount() as mount:
        yield mount


@pytest.fixture
def place(served: RunningMount) -> Iterator[Path]:
    """A directory of the host that others can reach."""
    path = Path(tempfile.mkdtemp(prefix="place-", dir=served.base))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def bench(served: RunningMount, place: Path) -> Iterator[Bench]:
    link, pid = launching.start()
    yield Bench(link, pid, served, make_root(place / "root"))
    link.close()
    wait_until(lambda: os.waitpid(pid, os.WNOHANG) != (0, 0), "the launcher's end")


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


async def _started(bench: Bench, body: str) -> Agent:
    """An agent that has said ``ready``."""
    script(bench.root, "says", body)
    agent = await bench.launcher.prepare(bench.launch("/agents/says"))
    await agent.start(ENVIRONMENT)
    assert await agent.stdout.receive_some() == b"ready\n"
    return agent


def _is_running(marker: str) -> bool:
    """Whether a process has the marker in its command line."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{entry}/cmdline").read_bytes()
                if marker.encode() in command.split(b"\0"):
                    return True
    return False


ENDINGS: dict[str, Callable[[Agent], Awaitable[object]]] = {
    "SIGTERM": lambda agent: agent.signal(signal.SIGTERM),
    "SIGKILL": lambda agent: agent.signal(signal.SIGKILL),
    "the daemon's end": lambda agent: agent.aclose(),
}


@pytest.mark.parametrize("ending", list(ENDINGS))
def test_whatever_ends_it_all_its_processes_end(bench: Bench, ending: str) -> None:
    """Children, children of children, and those with a session of their own."""
    marker = f"9{os.getpid() % 100000}.5"
    body = (
        f"sleep {marker} & (setsid sleep {marker} &) ; (sleep {marker} & sleep {marker}) & echo ready; sleep {marker}"
    )

    async def main() -> None:
        agent = await _started(bench, body)
        assert _is_running(marker)
        await ENDINGS[ending](agent)
        with contextlib.suppress(AgentLost, trio.ClosedResourceError):
            # A shell that outlives its children by a moment says with a status above 128 what ended them.
            ended = await agent.wait()
            assert ended < 0 or ended > 128
        await agent.aclose()

    trio.run(main)
    wait_until(lambda: not _is_running(marker), "the end of all processes")


def test_what_an_agent_leaves_behind_ends_with_it(bench: Bench) -> None:
    marker = f"8{os.getpid() % 100000}.5"

    async def main() -> int:
        agent = await _started(bench, f"setsid sleep {marker} >/dev/null & echo ready; exit 3")
        status = await agent.wait()
        await agent.aclose()
        return status

    assert trio.run(main) == 3
    assert not _is_running(marker)


def test_an_agent_that_ignores_sigterm_is_killed(bench: Bench) -> None:
    async def main() -> int:
        agent = await _started(bench, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
        await agent.signal(signal.SIGTERM)
        await agent.signal(signal.SIGKILL)
        status = await agent.wait()
        await agent.aclose()
        return status

    assert trio.run(main) == -signal.SIGKILL


def test_an_agent_ends_when_the_daemon_is_gone(bench: Bench) -> None:
    """The launcher's end of the link, and each guardian's, closes with the daemon."""
    marker = f"7{os.getpid() % 100000}.5"
    script(bench.root, "says", f"echo ready; sleep {marker}")

    def daemon() -> None:
        async def main() -> None:
            agent = await bench.launcher.prepare(bench.launch("/agents/says"))
            await agent.start(ENVIRONMENT)
            await agent.stdout.receive_some()
            os.kill(os.getpid(), signal.SIGKILL)

        trio.run(main)

    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            daemon()
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    wait_until(lambda: not _is_running(marker), "the agent's end")


def launcher_with_stderr(file: Path) -> tuple[socket.socket, int]:
    own = os.dup(2)
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(descriptor, 2)
    try:
        return launching.start()
    finally:
        os.dup2(own, 2)
        for each in (own, descriptor):
            os.close(each)


@pytest.mark.parametrize("is_told", [False, True], ids=["before it is told anything", "with its reports unread"])
def test_a_guardian_whose_daemon_dies_ends_without_a_word(bench: Bench, place: Path, is_told: bool) -> None:
    script(bench.root, "says", "echo ready")
    link, pid = launcher_with_stderr(place / "stderr")
    ours, theirs = socket_pair()
    (stdin, to_guardian), (from_guardian, stdout) = os.pipe(), os.pipe()
    launching.hand_over(link, (theirs.fileno(), stdin, stdout))
    os.close(stdout)
    theirs.close()
    if is_told:
        ours.send(pack(bench.launch("/agents/says")))
        select.select([ours], [], [])
    ours.close()
    assert os.read(from_guardian, 1) == b"", "it is gone"
    link.close()
    wait_until(lambda: os.waitpid(pid, os.WNOHANG) != (0, 0), "the launcher's end")
    assert (place / "stderr").read_text() == ""
    for descriptor in (stdin, to_guardian, from_guardian):
        os.close(descriptor)


def test_the_end_of_stderr_is_kept(bench: Bench) -> None:
    log = bench.mount.path / "home/1001/agent/noisy/log"
    ALICE.does(os.makedirs, log.parent)
    script(bench.root, "says", "yes 12345678 | head -c 99999 >&2; echo last >&2; exit 1")
    launch = bench.launch("/agents/says", log=f"{log}/run.log")
    assert trio.run(_run, bench.launcher, launch, b"")[0] == 1
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
