"""The image: built and run by what ``CTXFS_CONTAINER_TOOL`` names, a program with two commands.

``build DOCKERFILE CONTEXT TAG`` and ``run TAG [OPTIONS of podman run --] COMMAND…`` (with /dev/fuse and SYS_ADMIN).
"""

import os
import subprocess

import pytest

from tests.mounting import PROJECT

TOOL = os.environ.get("CTXFS_CONTAINER_TOOL", "")
TAG = "ctxfs-test"
pytestmark = [
    pytest.mark.skipif(not TOOL, reason="CTXFS_CONTAINER_TOOL names no program that builds and runs images"),
    pytest.mark.limit(900),
]


@pytest.fixture(scope="module")
def image() -> str:
    subprocess.run([TOOL, "build", str(PROJECT / "docker/Dockerfile"), str(PROJECT), TAG], check=True)
    return TAG


def in_container(image: str, script: str) -> str:
    command = [TOOL, "run", image, "--entrypoint", "sh", "--", "-euc", script]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


WAIT = 'until mountctl status --json | grep -q \'"state": "ok"\'; do sleep 0.1; done'
SESSION = "/ctx/home/0/agent/a/session/s"


def test_what_was_written_is_there_after_a_stop_and_a_start(image: str) -> None:
    """The daemon ends by itself, with status 0 and its mount gone."""
    out = in_container(
        image,
        f"""
        mountctl mount --foreground /ctx & daemon=$!
        {WAIT}
        mkdir -p {SESSION}
        echo '{{"role":"user","content":"hello"}}' >> {SESSION}/messages.jsonl
        kill -TERM $daemon
        wait $daemon
        ! grep -q fuse.ctxfs /proc/self/mountinfo
        mountctl mount --foreground /ctx & daemon=$!
        {WAIT}
        cat {SESSION}/messages.jsonl
        kill -TERM $daemon
        wait $daemon
        """,
    )
    assert out == '{"role":"user","content":"hello"}\n'


def test_the_daemon_as_first_process_ends_on_sigterm(image: str) -> None:
    in_container(
        image,
        f"""
        unshare --pid --fork --mount-proc sh -c 'exec mountctl mount --foreground /ctx' & first=$!
        {WAIT}
        kill -TERM $(pgrep -P $first 2>/dev/null || cat /proc/$first/task/$first/children)
        wait $first
        """,
    )
