"""``mountctl umount``: success means unmounted and the daemon gone; it never hangs (spec 4.6; field reports 30, 32)."""

import errno
import io
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import msgspec
import pytest

from ctxfs import control, mountpoint, mounts, probe
from ctxfs.health import Health
from ctxfs.runtime import RuntimeFiles, start_time
from mountctl import cli
from mountctl import umount as umount_command
from mountctl.main import PROGRAM
from tests.commands.conftest import Place, is_gone, stop
from tests.commands.stealing import steal_fuse_descriptor
from tests.mounting import PATIENCE_S, PROJECT, umount, wait_until
from tests.people import ALICE

HOLD = {
    "cwd": "import os; os.chdir(sys.argv[1])",
    "fd": "file = open(sys.argv[1] + '/status')",
    "map": "import mmap; file = open(sys.argv[1] + '/status'); it = mmap.mmap(file.fileno(), 0, prot=1); file.close()",
    "root": "import os; os.chroot(sys.argv[1])",
}


@contextmanager
def holder(how: str, mountpoint: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that keeps the mount busy in one way."""
    program = f"import sys; {HOLD[how]}; sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read()"
    command = [sys.executable, "-S", "-c", program, str(mountpoint)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"
        yield process
        process.kill()


def test_success_means_unmounted_and_the_daemon_gone_and_mounting_again_works_at_once(place: Place) -> None:
    place.mount()
    daemon = place.daemon()
    assert place.umount() == (0, "", "")
    assert (place.mounted(), is_gone(daemon)) == (None, True)
    assert place.mount().code == 0


@pytest.mark.parametrize("options", [(), ("--lazy",)])
def test_a_daemon_whose_state_was_lost_is_waited_for_too(place: Place, options: tuple[str, ...]) -> None:
    place.mount()
    daemon, files = place.daemon(), RuntimeFiles(place.runtime, str(place.mountpoint))
    files.state.unlink()
    assert files.holder() == (daemon, start_time(daemon))
    assert place.umount(*options).code == 0
    assert (place.mounted(), is_gone(daemon), files.holder()) == (None, True, None)


@pytest.mark.parametrize("how", HOLD)
def test_a_busy_mount_names_its_holder_and_goes_on_working(place: Place, how: str) -> None:
    place.mount()
    with holder(how, place.mountpoint) as process:
        ran = place.umount()
        assert ran.code == 69
        assert f"pid {process.pid} (python" in ran.err and f"): {how}" in ran.err
        assert "home" in os.listdir(place.mountpoint)


@pytest.mark.parametrize("how", HOLD)
def test_lazily_it_ends_although_the_mount_is_in_use(place: Place, how: str) -> None:
    place.mount()
    daemon = place.daemon()
    with holder(how, place.mountpoint):
        assert place.umount("--lazy", "--timeout", "0") == (0, "", "")
        assert (place.mounted(), is_gone(daemon)) == (None, True)
        assert place.mount().code == 0


def test_a_lazy_umount_lets_users_finish(place: Place) -> None:
    place.mount()
    with (place.mountpoint / "status").open("rb") as file:
        leaving = subprocess.Popen(
            [sys.executable, "-m", "mountctl.main", "umount", str(place.mountpoint), "--lazy", "--timeout", "60"],
            env=place.environment,
        )
        wait_until(lambda: place.mounted() is None, "the unmount")
        assert b"state=ok" in file.read()
    assert leaving.wait(PATIENCE_S) == 0


def test_a_stopped_daemon_is_named_and_left_alone(place: Place) -> None:
    place.mount()
    daemon = place.daemon()
    stop(daemon)
    ran = place.umount()
    os.kill(daemon, signal.SIGCONT)
    assert ran.code == 69 and f"kill -CONT {daemon}" in ran.err
    assert "home" in os.listdir(place.mountpoint)


def test_a_stopped_daemon_cannot_keep_a_lazy_umount(place: Place) -> None:
    place.mount()
    daemon = place.daemon()
    stop(daemon)
    assert place.umount("--lazy", "--timeout", "0").code == 0
    assert (place.mounted(), is_gone(daemon)) == (None, True)


def test_a_dead_mount_is_cleaned_away(place: Place) -> None:
    place.mount()
    place.kill()
    assert place.umount() == (0, "", "")
    assert place.mounted() is None


def test_a_dead_mount_whose_connection_somebody_holds_is_cleaned_away(place: Place) -> None:
    place.mount()
    held = steal_fuse_descriptor(place.daemon())
    try:
        place.kill()
        assert place.umount() == (0, "", "")
        assert place.mounted() is None
    finally:
        os.close(held)


def test_what_is_not_mounted_cannot_be_unmounted(place: Place) -> None:
    ran = place.umount()
    assert ran.code == 1 and "is not mounted" in ran.err


def test_a_timeout_that_is_none_is_a_usage_error(place: Place) -> None:
    assert [place.umount("--timeout", text).code for text in ("-1", "soon")] == [2, 2]


def test_whoever_unmounts_what_it_stands_in_is_not_in_the_way(place: Place) -> None:
    place.mount()
    done = subprocess.run(
        [sys.executable, "-m", "mountctl.main", "umount", "."],
        cwd=place.mountpoint,
        env={**place.environment, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stderr, place.mounted()) == (0, "", None)


def test_somebody_else_is_told_whose_mount_it_is(place: Place) -> None:
    def unmount() -> tuple[int, str]:
        os.environ.update(place.environment)
        with redirect_stderr(io.StringIO()) as said:
            return cli.run("mountctl", PROGRAM, ["umount", str(place.mountpoint)]), said.getvalue()

    place.mount()
    place.base.chmod(0o755)
    files = RuntimeFiles(place.runtime, str(place.mountpoint))
    assert ALICE.does(unmount) == (13, f"mountctl: {place.mountpoint}: only root may unmount it\n")
    with pytest.raises(control.ControlDenied, match="only root and whoever mounted it may ask"):
        ALICE.does(control.ask, files.socket, "backup", PATIENCE_S)
    assert place.umount().code == 0


def test_a_bind_mount_that_keeps_the_daemon_is_named(place: Place) -> None:
    place.mount()
    bound = place.base / "jail"
    bound.mkdir()
    subprocess.run(["mount", "--bind", place.mountpoint, bound], check=True)
    daemon, ran = place.daemon(), place.umount("--timeout", "0")
    umount(bound)
    wait_until(lambda: is_gone(daemon), "the end of the daemon")
    assert ran.code == 69 and ran.err.endswith(f"it is still mounted on {bound}\n")


def test_another_file_system_is_left_alone(place: Place) -> None:
    place.mountpoint.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place.mountpoint], check=True)
    ran = place.umount()
    assert ran.code == 69 and "tmpfs" in ran.err
    assert place.mounted() is not None


def test_what_was_written_is_there_after_umount(place: Place) -> None:
    place.mount()
    session = place.mountpoint / "home/0/agent/a/session/s"
    (place.mountpoint / "home/0/agent/a").mkdir()
    session.mkdir()
    line = '{"role":"user","content":"kept"}\n'
    with (session / "messages.jsonl").open("a") as file:
        file.write(line)
    place.umount()
    place.mount()
    assert (session / "messages.jsonl").read_text() == line


def test_a_plain_umount_ends_the_daemon_too(place: Place) -> None:
    place.mount()
    daemon = place.daemon()
    umount(place.mountpoint)
    wait_until(lambda: is_gone(daemon), "the end of the daemon")
    assert place.mount().code == 0


def test_a_daemon_that_is_told_to_stop_ends_although_the_mount_is_in_use(place: Place) -> None:
    place.mount()
    daemon = place.daemon()
    with holder("cwd", place.mountpoint) as process:
        os.kill(daemon, signal.SIGTERM)
        wait_until(lambda: is_gone(daemon), "the end of the daemon")
        log = RuntimeFiles(place.runtime, str(place.mountpoint)).log.read_text()
    assert place.mounted() is None
    assert f"still used by pid {process.pid} (python" in log


def test_a_state_file_cannot_name_the_process_of_another_user(place: Place) -> None:
    place.mount()
    files = RuntimeFiles(place.runtime, str(place.mountpoint))
    state = files.read_state()
    assert state is not None
    with subprocess.Popen(["setpriv", "--reuid", "daemon", "--clear-groups", "sleep", "600"]) as stranger:
        wait_until(lambda: os.stat(f"/proc/{stranger.pid}").st_uid != 0, "the change of uid")
        files.write_state(msgspec.structs.replace(state, pid=stranger.pid, started=start_time(stranger.pid)))
        assert place.umount("--lazy", "--timeout", "0").code == 0
        assert stranger.poll() is None
        stranger.kill()
    wait_until(lambda: is_gone(state.pid), "the end of the daemon")


@pytest.mark.parametrize("flags", [0, probe.MNT_DETACH])
@pytest.mark.parametrize("error", [probe.HungError(), OSError(errno.EINVAL, "x"), PermissionError(errno.EPERM, "x")])
def test_a_mount_that_is_gone_was_unmounted_however_late_the_answer_came(
    place: Place, monkeypatch: pytest.MonkeyPatch, error: OSError, flags: int
) -> None:
    place.mountpoint.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "late-answer", place.mountpoint], check=True)
    mount = place.mounted()
    assert mount is not None

    def failing(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched, pytest.raises(type(error)):
        patched.setattr(probe, "umount", failing)
        mountpoint.unmount(mount, flags)

    def late(path: str, flags: int, timeout_s: float) -> None:
        really(path, flags, timeout_s)
        raise error

    really = probe.umount
    monkeypatch.setattr(probe, "umount", late)
    mountpoint.unmount(mount, flags)
    assert place.mounted() is None


@pytest.mark.parametrize("answer", [b"", b"{"])
def test_who_asks_a_daemon_that_another_unmount_ends_has_succeeded_too(place: Place, answer: bytes) -> None:
    """The mount goes while the daemon is asked to sync; it ends without an answer, or with half of one."""
    place.mount()
    daemon, files = place.daemon(), RuntimeFiles(place.runtime, str(place.mountpoint))
    status = msgspec.json.encode(control.ask(files.socket, "status", 60)) + b"\n"
    files.socket.unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(files.socket))
        listening.listen()
        command = [sys.executable, "-m", "mountctl.main", "umount", str(place.mountpoint)]
        with subprocess.Popen(command, env=place.environment, stderr=subprocess.PIPE, text=True) as asking:
            with listening.accept()[0] as asked:
                assert b"status" in asked.recv(100)
                asked.sendall(status)
            with listening.accept()[0] as asked:
                assert b"sync" in asked.recv(100)
                probe.umount(str(place.mountpoint))
                wait_until(lambda: is_gone(daemon), "the end of the daemon")
                asked.sendall(answer)
            assert asking.communicate(timeout=60)[1] == ""
    assert asking.returncode == 0


@pytest.fixture
def busy_at_first(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[mounts.Mount, list[int]]]:
    """A mount that is busy for three calls, and the flags of those that were made."""
    place.mountpoint.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "looked-at", place.mountpoint], check=True)
    mount, calls, really = place.mounted(), list[int](), probe.umount
    assert mount is not None

    def busy(path: str, flags: int, timeout_s: float) -> None:
        calls.append(flags)
        if len(calls) <= 3:
            raise OSError(errno.EBUSY, "busy")
        really(path, flags, timeout_s)

    with monkeypatch.context() as patched:
        patched.setattr(probe, "umount", busy)
        yield mount, calls


def test_who_merely_looks_at_a_mount_is_not_in_the_way(busy_at_first: tuple[mounts.Mount, list[int]]) -> None:
    """A monitor's statfs(2) is no use of it, and nobody is found who uses it."""
    mount, calls = busy_at_first
    mountpoint.unmount(mount)
    assert (len(calls), mounts.is_mounted(mount)) == (4, False)


def test_who_uses_a_mount_is_found_at_once(busy_at_first: tuple[mounts.Mount, list[int]]) -> None:
    mount, calls = busy_at_first
    with holder("cwd", Path(mount.mountpoint)), pytest.raises(OSError, match="busy"):
        mountpoint.unmount(mount)
    assert (len(calls), mounts.is_mounted(mount)) == (1, True)


def test_what_nobody_is_seen_to_use_is_not_looked_at_for_ever(
    busy_at_first: tuple[mounts.Mount, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mountpoint, "_GLANCES", 0)
    mount, calls = busy_at_first
    with pytest.raises(OSError, match="busy"):
        mountpoint.unmount(mount)
    assert (len(calls), mounts.is_mounted(mount)) == (1, True)


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--timeout", "1"), 69)])
def test_a_busy_daemon_has_the_time_that_an_unmount_has(
    place: Place, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], code: int
) -> None:
    place.mount()
    figures, answers = control.figures, probe.answers

    def figures_after_5_s(path: Path, timeout_s: float) -> control.Figures:
        if timeout_s < 5:
            raise control.ControlError("no answer")
        return figures(path, timeout_s)

    def answers_after_5_s(path: str, timeout_s: float) -> None:
        if timeout_s < 5:
            raise probe.HungError
        answers(path, timeout_s)

    monkeypatch.setattr(control, "figures", figures_after_5_s)
    monkeypatch.setattr(probe, "answers", answers_after_5_s)
    monkeypatch.setenv("CTXFS_RUNTIME_DIR", str(place.runtime))
    assert cli.run("mountctl", PROGRAM, ["umount", str(place.mountpoint), *options]) == code
    assert (place.mounted() is None) == (code == 0)


def test_a_mount_that_got_the_number_of_one_that_was_given_up_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old one ends at the very moment at which its patience is over."""
    place.mount()
    daemon, other, kill = place.daemon(), place.base / "other", umount_command._kill

    def kill_late(health: Health, connection: int | None) -> None:
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: is_gone(daemon), "the end of the daemon")
        assert place.mountctl("mount", str(other), "--store", str(place.base / "other-store")).code == 0
        monkeypatch.undo()
        kill(health, connection)

    monkeypatch.setenv("CTXFS_RUNTIME_DIR", str(place.runtime))
    monkeypatch.setattr(umount_command, "_ends_within", lambda *_: False)
    monkeypatch.setattr(umount_command, "_kill", kill_late)
    assert cli.run("mountctl", PROGRAM, ["umount", str(place.mountpoint), "--lazy", "--timeout", "0"]) == 0
    assert "home" in os.listdir(other)


def test_a_connection_is_given_up_by_its_handle_and_not_by_its_number(place: Place) -> None:
    place.mount()
    mount = place.mounted()
    assert mount is not None
    handle = probe.connection(mount.device[1])
    assert handle is not None
    probe.abort(handle)
    with pytest.raises(OSError, match=r"not connected|abort"):
        os.listdir(place.mountpoint)
    umount(place.mountpoint)
    wait_until(lambda: place.umount().code != 0, "its end")
    assert place.mount().code == 0
    probe.abort(handle)
    assert "home" in os.listdir(place.mountpoint)
    os.close(handle)
