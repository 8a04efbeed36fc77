"""``mountctl mount``: returns when the mount answers, or says why not and has changed nothing (spec 4.6)."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ctxfs import mountpoint, mounts, probe
from ctxfs.daemon import Daemon
from ctxfs.health import examine
from ctxfs.plan import Plan, daemon_command
from ctxfs.runtime import RuntimeFiles
from tests.commands.conftest import Place
from tests.commands.stealing import steal_fuse_descriptor
from tests.mount.acting import message, new_session, write_once
from tests.mounting import PATIENCE_S, PROJECT, wait_until
from tests.own_mounts import in_own_mounts
from tests.people import outcome


def everything_below(base: Path) -> set[str]:
    """Every path below a directory, mounts not entered; runtime files left out."""
    return {
        os.path.join(directory, name)
        for directory, directories, names in os.walk(base)
        for name in (*directories, *names)
        if not f"{directory}/".startswith(f"{base}/run/") and name != "run"
    }


def mounts_below(base: Path) -> list[mounts.Mount]:
    return [mount for mount in mounts.mounts() if mount.mountpoint.startswith(f"{base}/")]


def test_the_mount_answers_when_mount_returns(place: Place) -> None:
    assert place.mount() == (0, "", "")
    assert "home" in os.listdir(place.mountpoint)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_it_makes_has_the_same_modes_under_every_umask(place: Place, umask: int) -> None:
    before = os.umask(umask)
    try:
        assert place.mount().code == 0
        assert place.umount().code == 0
    finally:
        os.umask(before)
    modes = {path: (place.base / path).stat().st_mode & 0o777 for path in ("ctx", "store", "store/ctxfs.db", "run")}
    assert modes == {"ctx": 0o755, "store": 0o700, "store/ctxfs.db": 0o600, "run": 0o755}


def test_sockets_and_log_are_root_s_alone(place: Place) -> None:
    place.mount()
    files = RuntimeFiles(place.runtime, str(place.mountpoint))
    assert [path.stat().st_mode & 0o777 for path in (files.socket, files.log, files.lock)] == [0o600] * 3


def parent_missing(place: Place) -> None:
    place.mountpoint = place.base / "no/such"


def mountpoint_is_a_file(place: Place) -> None:
    place.mountpoint.write_text("x")


def mountpoint_not_empty(place: Place) -> None:
    place.mountpoint.mkdir()
    (place.mountpoint / "x").touch()


def already_mounted(place: Place) -> None:
    place.mount()
    place.store = place.base / "other"


def store_in_use(place: Place) -> None:
    assert place.mount().code == 0
    place.mountpoint = place.base / "second"


def store_corrupt(place: Place) -> None:
    place.store.mkdir()
    (place.store / "ctxfs.db").write_bytes(b"this is no database, whatever its name says" * 100)


def store_read_only(place: Place) -> None:
    place.store.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", place.store], check=True)


def store_is_jsonl(place: Place) -> None:
    (place.store / "home").mkdir(parents=True)


def store_is_something_else(place: Place) -> None:
    place.store.mkdir()
    (place.store / "important.txt").touch()


@pytest.mark.parametrize(
    ("arrange", "code", "words", "options"),
    [
        (parent_missing, 3, "make its parent first", ()),
        (mountpoint_is_a_file, 3, "not a directory", ()),
        (mountpoint_not_empty, 4, "not empty", ()),
        (already_mounted, 5, "already mounted", ()),
        (store_in_use, 7, "", ()),
        (store_corrupt, 8, "", ()),
        (store_read_only, 9, "", ()),
        (store_is_jsonl, 10, "jsonl store", ("--format", "sqlite")),
        (store_is_something_else, 10, "not a ctxfs store", ()),
        (lambda place: None, 2, "mountctl: unknown mount option 'nofial'", ("-o", "nofial")),
        (lambda place: None, 2, "--hlep", ("--hlep",)),
        (lambda place: None, 2, "--format", ("--format", "xml")),
    ],
)
def test_a_refusal_has_its_code_says_why_and_changes_nothing(
    place: Place, arrange: Callable[[Place], None], code: int, words: str, options: tuple[str, ...]
) -> None:
    arrange(place)
    before = everything_below(place.base), mounts_below(place.base)
    ran = place.mount(*options)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("mountctl: ") and words in ran.err
    assert (everything_below(place.base), mounts_below(place.base)) == before


@pytest.mark.parametrize(
    ("mountpoint", "store", "words"),
    [
        ("ctx", "ctx/store", "would hide it"),
        ("ctx", "ctx", "would hide it"),
        ("link/ctx", "real/ctx/store", "would hide it"),
        ("store/ctx", "store", "would wait for itself"),
        ("store/home/ctx", "store", "would wait for itself"),
        ("real/ctx", "link", "would wait for itself"),
        ("link/ctx", "real", "would wait for itself"),
    ],
)
def test_a_store_and_a_mountpoint_are_not_in_each_other(place: Place, mountpoint: str, store: str, words: str) -> None:
    (place.base / "real").mkdir()
    (place.base / "link").symlink_to("real")
    place.mountpoint, place.store = place.base / mountpoint, place.base / store
    before = everything_below(place.base)
    ran = place.mount()
    assert (ran.code, ran.out) == (1, "") and words in ran.err
    assert everything_below(place.base) == before


def test_after_kill_9_mounting_again_works_without_help(place: Place) -> None:
    place.mount()
    place.kill()
    assert place.mount() == (0, "", "")
    assert "home" in os.listdir(place.mountpoint)
    assert len([mount for mount in mounts.mounts() if mount.mountpoint == str(place.mountpoint)]) == 1


def test_a_dead_daemon_s_connection_that_somebody_holds_open_is_aborted(place: Place) -> None:
    """Every look at such a mount hangs; nothing that mount does may look."""
    place.mount()
    held = steal_fuse_descriptor(place.daemon())
    try:
        daemon = place.kill()
        assert place.mount().code == 0
        assert place.daemon() != daemon
    finally:
        os.close(held)


@pytest.fixture
def foreign_dead_mount(place: Place) -> Iterator[mounts.Mount]:
    """A dead FUSE mount that no ctxfs made."""
    place.mountpoint.mkdir()
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.commands.foreign_mount", place.mountpoint], cwd=PROJECT, stdout=subprocess.PIPE
    )
    assert server.stdout is not None
    assert server.stdout.readline() == b"mounted\n"
    server.kill()
    server.wait()
    server.stdout.close()
    mount = place.mounted()
    assert mount is not None
    yield mount
    probe.umount(str(place.mountpoint), probe.MNT_DETACH)


def test_a_foreign_dead_mount_is_never_touched(place: Place, foreign_dead_mount: mounts.Mount) -> None:
    assert place.mount().code == 6
    assert place.umount().code == 69
    assert place.mounted() == foreign_dead_mount


def test_the_mountpoint_may_be_a_symlink(place: Place) -> None:
    place.mountpoint.mkdir()
    link = place.base / "link"
    link.symlink_to("ctx")
    assert place.mountctl("mount", str(link), "--store", str(place.store)).code == 0
    assert place.mounted() is not None
    assert place.mountctl("umount", str(link)).code == 0


def test_in_the_foreground_it_serves_until_it_is_told_to_stop(place: Place) -> None:
    command = [sys.executable, "-m", "mountctl.main", "mount", str(place.mountpoint), "--store", str(place.store), "-f"]
    with subprocess.Popen(command, cwd=PROJECT, env=place.environment, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        first = server.stderr.readline()
        try:
            assert "home" in os.listdir(place.mountpoint)
        finally:
            server.terminate()
        log = first + server.communicate(timeout=PATIENCE_S)[1]
    assert (server.returncode, place.mounted()) == (0, None)
    assert [line.split(": ", 1)[1].split(" ")[0] for line in log.splitlines()] == ["mounted", "stopping", "unmounted"]


@pytest.mark.parametrize("when", ["_mount", "_state", "start", "_unmount"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR2"])
def test_a_daemon_that_is_stopped_at_any_moment_leaves_no_mount_and_no_runtime_files(
    place: Place, name: str, when: str
) -> None:
    place.mountpoint.mkdir()
    plan = Plan(str(place.mountpoint), place.store, "sqlite", frozenset(), place.runtime)
    interpreter, option, _, *arguments = daemon_command(plan, 1)
    module = "tests.commands.impatient_daemon"
    if when == "_unmount":
        arguments[-2:] = []
    command = [interpreter, option, module, name, when, *arguments]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as daemon:
        if when == "_unmount":
            wait_until(place.mounted, "the mount")
            daemon.terminate()
        answer, log = daemon.communicate(timeout=PATIENCE_S)
    assert (daemon.returncode, answer, place.mounted()) == (0, "", None), log
    assert f"stopping on {name}" in log
    assert [path.suffix for path in place.runtime.iterdir()] == [".lock"]


def test_what_stops_a_starting_daemon_logs_nothing_where_it_may_interrupt_a_line_of_the_log(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """The log's stream takes no line within another, and an error there would be the end of the signal."""
    starting = Daemon(Plan(str(place.mountpoint), place.store, "sqlite", frozenset(), place.runtime))
    with caplog.at_level("INFO"):
        for number in (signal.SIGTERM, signal.SIGINT):
            starting.note(number)
    assert caplog.records == []


def test_a_signal_logs_what_every_thread_does_and_disturbs_nobody(place: Place) -> None:
    place.mount()
    daemon, log = place.daemon(), RuntimeFiles(place.runtime, str(place.mountpoint)).log
    messages = new_session(place.mountpoint) / "messages.jsonl"
    for number in range(100):
        os.kill(daemon, signal.SIGUSR1)
        write_once(messages, message(str(number)))
    assert messages.read_bytes() == b"".join(message(str(number)) for number in range(100))
    told = ("stack of thread MainThread: ", "stack of thread ctxfs-fuse: ")
    wait_until(lambda: all(stack in log.read_text() for stack in told), "the stacks in the log")
    assert place.umount().code == 0


def test_a_sys_that_cannot_be_written_keeps_nobody_from_mounting(place: Place) -> None:
    """As in a container: it mounts, and after a kill it cleans up and mounts again."""
    script = f"""
        set -eu
        mount -o remount,bind,ro /sys
        mountctl() {{ {sys.executable} -m mountctl.main "$@"; }}
        mountctl mount {place.mountpoint} --store {place.store}
        kill -KILL $(mountctl status --json | jq '.mounts[] | select(.mountpoint == "{place.mountpoint}") | .pid')
        until mountctl status | grep -q '^{place.mountpoint}  dead'; do sleep 0.1; done
        mountctl mount {place.mountpoint} --store {place.store}
        mountctl umount {place.mountpoint}
    """
    ran = subprocess.run(
        in_own_mounts(place.base, "sh", "-c", script),
        cwd=PROJECT,
        env={**place.environment, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_read_ahead_is_raised(place: Place) -> None:
    place.mount()
    mount = place.mounted()
    assert mount is not None
    major, minor = mount.device
    assert Path(f"/sys/class/bdi/{major}:{minor}/read_ahead_kb").read_text() == f"{mounts.READ_AHEAD_KB}\n"


@pytest.mark.parametrize("name", ["a\x0bb", "a\u2028b", "a\x85b", "a\rb"])
def test_no_name_of_another_s_mountpoint_is_in_the_way(place: Place, name: str) -> None:
    (place.base / name).mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place.base / name], check=True)
    assert place.mount().code == 0
    wait_until(lambda: f"{place.mountpoint}  ok" in place.mountctl("status").out, "an answer in time")
    assert place.umount().code == 0


def test_a_mark_of_the_configuration_may_be_written_and_is_judged(place: Place) -> None:
    file = place.base / "config/ctxfs/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[marks."demo/seen"]\npage = "number"\n')
    assert place.mountctl("config", "check").code == 0
    assert f"marks.demo/seen\tpage: number\t{file}:1\t" in place.mountctl("config", "show").out
    assert place.mount().code == 0
    session = place.mountpoint / "home/0/agent/a/session/s"
    session.parent.parent.mkdir()
    session.mkdir()
    events = session / "events.jsonl"

    def write(name: str, data: str) -> str:
        return outcome(write_once, events, f'{{"type":"mark","name":"{name}","data":{data}}}\n'.encode())

    assert write("demo/seen", '{"page":4}') == "ok"
    assert write("demo/seen", '{"page":"4"}') == write("demo/seen", "{}") == write("demo/other", "{}") == "EINVAL"
    assert events.read_text() == '{"type":"mark","name":"demo/seen","data":{"page":4}}\n'


def test_who_finds_a_dead_mount_that_another_has_replaced_leaves_the_new_one_alone(place: Place) -> None:
    """Both had found it dead; the new one is at the same place, of the same store, and may have the same numbers."""
    place.mount()
    mount = place.mounted()
    assert mount is not None
    place.kill()
    found = examine(mount, place.runtime)
    assert found.state == "dead"
    assert place.mount().code == 0
    mountpoint.remove_dead(found)
    assert "home" in os.listdir(place.mountpoint)
    assert place.umount().code == 0
