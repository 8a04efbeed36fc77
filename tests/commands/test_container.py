"""The image: built and run by what ``CTXFS_CONTAINER_TOOL`` names, a program with two commands.

``build DOCKERFILE CONTEXT TAG`` and ``run TAG [OPTIONS of podman run --] COMMAND…`` (with /dev/fuse and SYS_ADMIN).
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import PROJECT, wait_until

# Taken out, as the commands that other tests run would refuse it as a setting that they do not know.
TOOL = os.environ.pop("CTXFS_CONTAINER_TOOL", "")
TAG = "ctxfs-test"
TIMEOUT_S = 120.0
pytestmark = [
    pytest.mark.skipif(not TOOL, reason="CTXFS_CONTAINER_TOOL names no program that builds and runs images"),
    pytest.mark.limit(1800),
]


@pytest.fixture(scope="module")
def image() -> str:
    subprocess.run([TOOL, "build", str(PROJECT / "docker/Dockerfile"), str(PROJECT), TAG], check=True)
    return TAG


def in_container(image: str, script: str) -> str:
    """What a script in a container of its own printed; it must succeed."""
    command = [TOOL, "run", image, "--entrypoint", "sh", "--", "-euc", f"{FUNCTIONS}\n{script}"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


FUNCTIONS = """
# healthy PID: waits until the health check of the image passes, or that daemon is gone
healthy() { until mountctl status --json | grep -q '"state": "ok"'; do kill -0 "$1"; sleep 0.1; done; }
ended() { kill -TERM "$1"; wait "$1"; ! grep fuse.ctxfs /proc/self/mountinfo; }
"""
LINE = '{"role":"user","content":"hello"}'


def test_what_was_written_is_there_after_a_stop_a_start_a_kill_and_a_start(image: str) -> None:
    """The daemon ends by itself, with status 0 and its mount gone; what a kill left is cleaned away."""
    out = in_container(
        image,
        f"""
        session=/ctx/home/0/agent/a/session/s
        mountctl mount --foreground /ctx & daemon=$!
        healthy $daemon
        mkdir -p $session
        echo '{LINE}' >> $session/messages.jsonl
        ended $daemon
        mountctl mount --foreground /ctx & daemon=$!
        healthy $daemon
        cat $session/messages.jsonl
        kill -KILL $daemon
        wait $daemon || true
        mountctl status >/dev/null && exit 1
        mountctl mount --foreground /ctx & daemon=$!
        healthy $daemon
        cat $session/messages.jsonl
        ended $daemon
        """,
    )
    assert out == f"{LINE}\n" * 2


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A directory of the host that containers can be given."""
    yield tmp_path
    assert not [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(tmp_path) in line]


def test_the_daemon_is_the_first_process_and_ends_by_a_stop_with_its_mount(image: str, volume: Path) -> None:
    """As ``docker run`` starts it; the signal is that of ``docker stop``. Its health is asked for by its metrics."""
    figures = volume / "metrics.sock"
    command = [TOOL, "run", image, "--volume", f"{volume}:/volume", "--", "/ctx", "--metrics", "/volume/metrics.sock"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as container:
        try:
            wait_until(lambda: figures.exists() or container.poll() is not None, "the mount", TIMEOUT_S)
            assert container.poll() is None
            container.send_signal(signal.SIGTERM)
            _, log = container.communicate(timeout=TIMEOUT_S)
        finally:
            container.kill()
    assert container.returncode == 0, log
    assert "stopping on SIGTERM" in log and "unmounted /ctx" in log
    assert "pid 1)" in log
    assert not figures.exists()


def test_a_shared_volume_shows_the_mount_and_an_agent_s_shows_its_own_home_only(image: str) -> None:
    """What compose.yaml describes: here the container is the host, and those two are mount namespaces of it."""
    out = in_container(
        image,
        f"""
        mkdir -p /srv/ctx/mnt && mount --bind /srv/ctx /srv/ctx && mount --make-shared /srv/ctx
        unshare --mount --propagation unchanged mountctl mount --foreground /srv/ctx/mnt & daemon=$!
        healthy $daemon
        mkdir -p /srv/ctx/mnt/home/1001/agent/other
        mkdir -p /agent /old && mount --rbind / /agent && mount --make-rprivate /agent && umount -R /agent/srv/ctx
        mkdir -p /agent/ctx/home/1000 && mount --bind /srv/ctx/mnt/home/1000 /agent/ctx/home/1000
        chroot --userspec 1000:1000 /agent sh -euc '
            session=/ctx/home/1000/agent/a/session/s
            mkdir -p $session
            echo "$1" >> $session/messages.jsonl
            cat $session/messages.jsonl
            ls /ctx /ctx/home
        ' sh '{LINE}'
        umount /agent/ctx/home/1000
        ended $daemon
        """,
    )
    assert out == f"{LINE}\n/ctx:\nhome\n\n/ctx/home:\n1000\n"
