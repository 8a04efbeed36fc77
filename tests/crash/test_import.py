"""An import that ends anywhere is finished by the next one: all there, nothing twice (spec 4.2, import)."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.crash.disks import MIB, mount_on_disk, need_loop_devices
from tests.mounting import PROJECT, RunningMount, running_mount, wait_until

SESSIONS = 120


@pytest.fixture
def mount(fuse_device: None) -> Iterator[RunningMount]:
    with running_mount() as mounted:
        yield mounted


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    """Sessions of two turns, with a branch in each."""
    for number in range(SESSIONS):
        session = f"00000000-0000-4000-8000-{number:012}"
        lines = [("a", None), ("b", "a"), ("c", "b"), ("d", "b")]
        records = (
            {"type": "user", "sessionId": session, "uuid": uuid, "parentUuid": parent, "cwd": f"/w/{number % 7}"}
            | {"message": {"role": "user", "content": f"{uuid} of {number}"}}
            for uuid, parent in lines
        )
        (tmp_path / f"{session}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return tmp_path


def start(mount: RunningMount, projects: Path) -> subprocess.Popen[bytes]:
    command = ["agent", "import", "coder", "--json", "--from", "claude-code", str(projects)]
    return subprocess.Popen(
        [sys.executable, "-m", "mountctl.ctx", *command],
        cwd=PROJECT,
        env=mount.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def finish(mount: RunningMount, projects: Path, code: int = 0) -> Mapping[str, int]:
    with start(mount, projects) as process:
        out, _ = process.communicate()
    assert process.returncode == code
    counts: Mapping[str, int] = json.loads(out)
    return counts


def prompts(session: Path) -> list[str]:
    return [json.loads(line)["content"] for line in (session / "messages.jsonl").read_text().splitlines()]


def has_one(sessions: Path) -> bool:
    return (sessions / "index/list").exists() and (sessions / "index/list").stat().st_size > 0


@pytest.mark.parametrize("victim", ["client", "daemon"])
def test_an_import_that_was_killed_is_finished_by_the_next(mount: RunningMount, projects: Path, victim: str) -> None:
    sessions = mount.path / f"home/{os.geteuid()}/agent/coder/session"
    with start(mount, projects) as process:
        wait_until(lambda: has_one(sessions), "a session")
        if victim == "client":
            process.kill()
        else:
            mount.kill()
        process.communicate()
    assert process.returncode != 0
    if victim == "daemon":
        mount.unmount()
        mount.start()
    first, again = (finish(mount, projects) for _ in range(2))
    whole = 2 * SESSIONS
    assert (first["sessions"], first["left_out"]) == (whole, 0)
    assert (again["added"], again["present"]) == (0, first["added"] + first["present"])
    for number in range(SESSIONS):
        name = f"00000000-0000-4000-8000-{number:012}"
        assert prompts(sessions / name) == [f"{uuid} of {number}" for uuid in "abc"]
        assert (sessions / "index/by-uuid" / name).read_text() == f"{name}\n"
    branches = [name for name in (sessions / "index/list").read_text().split() if "+" in name]
    assert len(branches) == SESSIONS
    for name in branches:
        assert [prompt.split()[0] for prompt in prompts(sessions / name)] == ["a", "b", "d"]


def test_a_full_disk_leaves_sessions_out_and_room_lets_them_in(projects: Path) -> None:
    need_loop_devices()
    for source in projects.iterdir():
        source.write_text(source.read_text().replace('"content": "a', '"content": "a' + "x" * 60_000))
    with mount_on_disk(8 * MIB) as (mount, _):
        mount.allow("ENOSPC|full")
        sessions = mount.path / f"home/{os.geteuid()}/agent/coder/session"
        ballast = mount.store / "disk/ballast"
        ballast.write_bytes(bytes(4 * MIB))
        assert finish(mount, projects, code=1)["left_out"] > 0
        ballast.unlink()
        kept = [source for source in projects.iterdir() if not (sessions / source.stem).exists()]
        for source in kept[20:]:
            source.unlink()
        assert finish(mount, projects)["left_out"] == 0
        assert finish(mount, projects)["added"] == 0
        for source in projects.iterdir():
            assert len(prompts(sessions / source.stem)) == 3
