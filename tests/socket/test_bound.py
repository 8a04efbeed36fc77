"""A socket is bound on the mount itself (spec 3.1): reached from anywhere, made by nobody else, in nobody's way."""

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ctxfs import mounts
from tests.mounting import PATIENCE_S, PROJECT, RunningMount, running_mount, umount, wait_until
from tests.own_mounts import in_own_mounts
from tests.people import ALICE, BOB, ROOT, Person, chroot_with, outcome
from tests.socket.client import answer, connected

PONG = {"type": "pong"}


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))


def test_it_is_a_socket_of_everybody_that_is_listed(served: RunningMount, ctx_sock: Path) -> None:
    status = ctx_sock.lstat()
    assert stat.filemode(status.st_mode) == "srw-rw-rw-"
    assert (status.st_uid, status.st_gid, status.st_size) == (0, 0, 0)
    assert sorted(os.listdir(served.path / "agent")) == ["ctx.sock", "echo.sock"]


@pytest.mark.parametrize("person", [ROOT, ALICE, BOB, Person(1001, 1001, maps_to_root=True)])
def test_everybody_may_ask(ctx_sock: Path, person: Person) -> None:
    assert person.does(answer, ctx_sock, "ping") == PONG


def test_a_client_that_sees_nothing_but_a_bind_mount_may_ask(served: RunningMount, tmp_path: Path) -> None:
    with chroot_with(served.path, tmp_path / "root") as root:
        shut_in = Person(1001, 1001, root=root)
        assert shut_in.does(answer, Path("/ctx/agent/ctx.sock"), "ping") == PONG
        Path("/proc/sys/vm/drop_caches").write_text("2")
        assert shut_in.does(answer, Path("/ctx/agent/ctx.sock"), "ping") == PONG


def test_it_is_found_after_the_kernel_dropped_its_caches(ctx_sock: Path) -> None:
    before = ctx_sock.lstat()
    Path("/proc/sys/vm/drop_caches").write_text("2")
    assert ctx_sock.lstat() == before
    assert answer(ctx_sock, "ping") == PONG


@pytest.mark.parametrize("name", ["agent/other.sock", "agent/ctx.sock", "agent/ctx.d", "model/a.sock", "x.sock"])
def test_nobody_else_binds_one_there(served: RunningMount, name: str) -> None:
    refusal = outcome(bind, served.path / name)
    assert refusal in ("EPERM", "EADDRINUSE")
    assert (served.path / name).exists() == (name == "agent/ctx.sock")
    assert ALICE.outcome(bind, served.path / name) in ("EACCES", "EADDRINUSE")


@pytest.mark.parametrize("change", [os.unlink, lambda path: os.chmod(path, 0o600), lambda path: os.truncate(path, 0)])
def test_it_cannot_be_changed_or_removed(ctx_sock: Path, change: object) -> None:
    assert outcome(change, ctx_sock) in ("EPERM", "EINVAL", "ENXIO")  # type: ignore[arg-type]
    assert outcome(os.rename, ctx_sock, ctx_sock.with_name("other.sock")) == "EPERM"
    assert outcome(os.open, ctx_sock, os.O_RDWR) == "ENXIO"
    assert answer(ctx_sock, "ping") == PONG


def test_a_plain_umount_succeeds_while_a_client_is_connected(mount: RunningMount) -> None:
    with connected(mount.path / "agent/ctx.sock") as client:
        assert client.ask("ping") == PONG
        umount(mount.path)
        assert client.frame() == {}
        assert mount.process is not None
        assert mount.process.wait(PATIENCE_S) == 0


def test_who_holds_a_file_keeps_the_mount_and_its_sockets(mount: RunningMount) -> None:
    status = mount.path / "status"
    with status.open(), connected(mount.path / "agent/ctx.sock") as client:
        busy = subprocess.run(["umount", mount.path], capture_output=True, check=False)
        assert busy.returncode != 0
        assert [how for pid, _, how in mounts.holders(mount.mount.device) if pid != os.getpid()] == []
        assert client.ask("ping") == PONG


def test_a_lazy_umount_closes_the_sockets_and_ends_with_its_last_holder(mount: RunningMount) -> None:
    with connected(mount.path / "agent/ctx.sock") as client:
        with (mount.path / "status").open() as held:
            subprocess.run(["umount", "-l", mount.path], check=True)
            assert client.frame() == {}
            held.read()
        assert mount.process is not None
        assert mount.process.wait(PATIENCE_S) == 0


def test_a_daemon_that_stops_lets_its_clients_go(mount: RunningMount) -> None:
    with connected(mount.path / "agent/ctx.sock") as client:
        assert client.ask("ping") == PONG
        assert mount.stop() == 0
        assert client.frame() == {}


def test_after_a_kill_the_next_mount_has_its_own(fuse_device: None) -> None:
    with running_mount() as mount:
        path = mount.path / "agent/ctx.sock"
        with connected(path) as client:
            client.ask("ping")
            mount.kill()
            assert client.frame() == {}
        assert outcome(answer, path, "ping") in ("ENOTCONN", "ECONNREFUSED", "ECONNABORTED")
        mount.unmount()
        mount.start()
        assert sorted(os.listdir(mount.path / "agent")) == ["ctx.sock", "echo.sock"]
        assert answer(path, "ping") == PONG


def test_descriptors_and_threads_are_given_back(served: RunningMount, ctx_sock: Path) -> None:
    def held() -> tuple[int, int]:
        return len(os.listdir(f"/proc/{served.pid}/fd")), len(os.listdir(f"/proc/{served.pid}/task"))

    answer(ctx_sock, "ping")
    before = held()
    for _ in range(50):
        assert answer(ctx_sock, "ping") == PONG
    wait_until(lambda: held() <= before, "the closing of all connections")


BIND = """
import sys
from ctxfs.sockets.binding import listen
try:
    listen(sys.argv[1], "x.sock")
except OSError as error:
    print(error.strerror)
"""

# In a chroot the kernel lets nobody make a user namespace.
SHUT_IN = """
set -e
mkdir "$BASE/root"
mount --rbind / "$BASE/root"
exec chroot "$BASE/root" setpriv --reuid 1001 --regid 1001 --clear-groups \\
    --inh-caps=+dac_read_search --ambient-caps=+dac_read_search "$PYTHON" -c "$BIND" "$BASE"
"""


def test_a_user_who_may_make_no_namespace_is_told_so(tmp_path: Path) -> None:
    environment = {"BASE": str(tmp_path), "PYTHON": sys.executable, "BIND": BIND, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        in_own_mounts(tmp_path, "sh", "-c", SHUT_IN),
        cwd=PROJECT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.stdout, done.stderr) == ("Operation not permitted (its user may make no user namespace)\n", "")
