"""``mountctl backup`` and ``restore``: whole, private and verified, or not at all (spec 4.6; field reports 5, 24)."""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ctxfs.stores import FORMATS
from tests.commands.conftest import Place, is_gone, stop
from tests.commands.running import Ran
from tests.crash.disks import MIB
from tests.mounting import PROJECT, wait_until

FILES = ("messages.jsonl", "events.jsonl", "latest.md", "state", "cwd", "meta.json", "created_at", "updated_at")


def sessions(place: Place) -> Path:
    return place.mountpoint / f"home/{os.geteuid()}/agent/a/session"


def say(place: Place, session: str, text: str) -> None:
    with (sessions(place) / session / "messages.jsonl").open("a") as file:
        file.write(f'{{"role":"user","content":"{text}"}}\n')


def filled(place: Place, form: str = "sqlite") -> None:
    """Mounted, with sessions in several states and ordinary files."""
    assert place.mount("--format", form).code == 0
    for name in ("one", "two", "old"):
        (sessions(place) / name).mkdir(parents=True)
        say(place, name, name)
    (sessions(place) / "one/cwd").write_text("/srv\n")
    (sessions(place) / "one/state").write_text("done\n")
    assert place.ctx("agent", "session", "archive", "a", "old").code == 0
    data = place.mountpoint / f"home/{os.geteuid()}/agent/a/data"
    (data / "dir").mkdir(mode=0o750)
    (data / "dir/file").write_text("data")
    (data / "dir/file").chmod(0o640)
    os.link(data / "dir/file", data / "hard")
    (data / "soft").symlink_to("dir/file")
    os.setxattr(data / "hard", "user.x", b"y")


def content(place: Place) -> dict[str, object]:
    """What a user sees, with what is to be the same after a restore."""
    home = place.mountpoint / f"home/{os.geteuid()}"
    seen: dict[str, object] = {}
    for session in [*(sessions(place).iterdir()), *(home / "archived_sessions/a").iterdir()]:
        for name in FILES:
            file = session / name
            if file.exists():
                seen[str(file)] = (file.read_bytes(), file.stat().st_mtime_ns)
    for name in ("index/list", "index/current"):
        file = sessions(place) / name
        seen[name] = file.read_bytes() if file.exists() else None
    for path in (home / "agent/a/data").rglob("*"):
        found = path.lstat()
        seen[str(path)] = (found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns, found.st_nlink)
    seen["xattr"] = os.getxattr(home / "agent/a/data/dir/file", "user.x")
    return seen


def backup(place: Place, *options: str, to: Path | None = None) -> Ran:
    return place.mountctl("backup", str(to or place.base / "copy"), "--store", str(place.store), *options)


def restore(place: Place) -> Ran:
    return place.mountctl("restore", str(place.base / "copy"), "--store", str(place.store))


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "unmounted"])
@pytest.mark.parametrize("form", FORMATS)
def test_what_was_there_is_there_again(place: Place, form: str, mounted: bool) -> None:
    filled(place, form)
    before = content(place)
    if not mounted:
        assert place.umount().code == 0
    ran = backup(place)
    assert (ran.code, ran.err) == (0, "")
    if mounted:
        assert place.umount().code == 0
    shutil.rmtree(place.store)
    assert restore(place).code == 0
    assert place.mount().code == 0
    assert content(place) == before
    say(place, "one", "more")
    assert place.ctx("doctor").code == 0


@pytest.mark.parametrize("mask", [0, 0o077])
def test_a_copy_is_for_its_owner_only_whatever_the_umask(place: Place, mask: int) -> None:
    filled(place)
    old = os.umask(mask)
    try:
        assert backup(place).code == 0
        assert place.umount().code == 0
        shutil.rmtree(place.store)
        assert restore(place).code == 0
    finally:
        os.umask(old)
    for directory in (place.base / "copy", place.store):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE((directory / "ctxfs.db").stat().st_mode) == 0o600


def test_a_directory_that_is_there_becomes_private(place: Place) -> None:
    filled(place)
    (place.base / "copy").mkdir(mode=0o755)
    assert backup(place).code == 0
    assert stat.S_IMODE((place.base / "copy").stat().st_mode) == 0o700


@pytest.mark.parametrize("form", FORMATS)
def test_writers_go_on_and_what_was_written_before_is_in_the_copy_whole(place: Place, form: str) -> None:
    filled(place, form)
    ended = threading.Event()
    written: dict[str, int] = {}

    def write(session: str) -> None:
        while not ended.is_set():
            say(place, session, f"{session} {written[session]}")
            written[session] += 1

    names = [f"w{number}" for number in range(4)]
    for name in names:
        (sessions(place) / name).mkdir()
        written[name] = 0
    writers = [threading.Thread(target=write, args=(name,)) for name in names]
    for writer in writers:
        writer.start()
    try:
        wait_until(lambda: all(count > 20 for count in written.values()), "some lines of every writer")
        before = dict(written)
        assert backup(place).code == 0
        between = dict(written)
        wait_until(lambda: all(written[name] > between[name] + 5 for name in names), "lines after the copy")
    finally:
        ended.set()
        for writer in writers:
            writer.join()
    live = {name: (sessions(place) / name / "messages.jsonl").read_bytes() for name in names}
    assert place.umount().code == 0
    shutil.rmtree(place.store)
    assert restore(place).code == 0
    assert place.mount().code == 0
    for name in names:
        copied = (sessions(place) / name / "messages.jsonl").read_bytes()
        assert live[name].startswith(copied)
        assert before[name] <= copied.count(b"\n") <= between[name] + 1
    assert place.ctx("doctor").code == 0


def test_an_old_store_is_moved_aside_and_never_overwritten(place: Place) -> None:
    filled(place)
    assert backup(place).code == 0
    say(place, "one", "after the backup")
    newer = content(place)
    assert place.umount().code == 0
    assert restore(place).code == 0
    [aside] = place.base.glob("store.before-*")
    assert place.mount().code == 0
    assert content(place) != newer
    assert place.umount().code == 0
    shutil.rmtree(place.store)
    aside.rename(place.store)
    assert place.mount().code == 0
    assert content(place) == newer


def not_empty(place: Place) -> None:
    (place.base / "copy").mkdir()
    (place.base / "copy/something").write_text("mine")


def a_file(place: Place) -> None:
    (place.base / "copy").write_text("mine")


def unfinished(place: Place) -> None:
    (place.base / "copy/.ctxfs-incomplete").mkdir(parents=True)


def no_store(place: Place) -> None:
    place.umount()
    shutil.rmtree(place.store)


def no_parent(place: Place) -> None:
    (place.base / "copy").symlink_to(place.base / "nowhere/copy")


def in_the_store(place: Place) -> None:
    (place.base / "copy").symlink_to(place.store / "disk")


def on_the_mount(place: Place) -> None:
    (place.base / "copy").symlink_to(place.mountpoint / f"home/{os.geteuid()}/agent/a/data/copy")


def stopped(place: Place) -> None:
    stop(place.daemon())


def damaged(place: Place) -> None:
    place.umount()
    (place.store / "ctxfs.db").write_bytes(b"SQLite format 3\0" + b"x" * 5000)


REFUSALS = {
    "not empty": (not_empty, 69, "not empty"),
    "a copy that was not finished": (unfinished, 69, "not finished"),
    "a file": (a_file, 69, "no directory"),
    "no store": (no_store, 69, "no store"),
    "no parent": (no_parent, 69, "make it first"),
    "in the store": (in_the_store, 69, "lie in each other"),
    "on the mount": (on_the_mount, 69, "ctxfs mount"),
    "a stopped daemon": (stopped, 69, "does not answer"),
    "a damaged store": (damaged, 10, "another program"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_is_refused_and_nothing_is_left(place: Place, case: str) -> None:
    spoil, code, reason = REFUSALS[case]
    filled(place)
    spoil(place)
    before = set(os.listdir(place.base / "copy")) if (place.base / "copy").is_dir() else None
    ran = backup(place)
    assert (ran.code, ran.out, reason in ran.err) == (code, "", True), ran
    assert (set(os.listdir(place.base / "copy")) if (place.base / "copy").is_dir() else None) == before


@pytest.mark.parametrize("command", ["mount", "doctor", "backup", "restore"])
def test_a_copy_that_is_not_finished_is_no_store(place: Place, command: str) -> None:
    filled(place)
    assert backup(place).code == 0
    assert place.umount().code == 0
    (place.base / "copy").rename(place.base / "backup")
    shutil.rmtree(place.store)
    (place.store / ".ctxfs-incomplete/disk").mkdir(parents=True)
    where = {"mount": place.mountpoint, "backup": place.base / "copy", "restore": place.base / "backup"}
    arguments = [str(where[command])] if command in where else []
    ran = place.mountctl(command, *arguments, "--store", str(place.store))
    assert (ran.code, ran.out, "not finished" in ran.err, "move the directory away" in ran.err) == (8, "", True, True)
    assert [str(path.relative_to(place.store)) for path in place.store.rglob("*")] == [
        ".ctxfs-incomplete",
        ".ctxfs-incomplete/disk",
    ]
    assert not (place.base / "copy").exists()


def test_a_mounted_store_is_not_replaced(place: Place) -> None:
    filled(place)
    assert backup(place).code == 0
    before = content(place)
    ran = restore(place)
    assert (ran.code, "mounted on" in ran.err) == (69, True)
    assert content(place) == before


def flip_a_page(copy: Path) -> None:
    with (copy / "ctxfs.db").open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xff" * 4096)


def cut_short(copy: Path) -> None:
    os.truncate(copy / "ctxfs.db", 8192)


def empty(copy: Path) -> None:
    shutil.rmtree(copy)
    copy.mkdir()


@pytest.mark.parametrize("spoil", [flip_a_page, cut_short, empty])
def test_a_bad_backup_is_refused_and_the_store_stays(place: Place, spoil: Callable[[Path], None]) -> None:
    filled(place)
    assert backup(place).code == 0
    before = content(place)
    assert place.umount().code == 0
    spoil(place.base / "copy")
    assert restore(place).code in (8, 69)
    assert sorted(path.name for path in place.base.iterdir() if path.name.startswith("store")) == ["store"]
    assert place.mount().code == 0
    assert content(place) == before


@contextlib.contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", directory], check=True)


@pytest.mark.parametrize("big", ["session", "file"])
def test_a_full_disk_leaves_nothing_and_the_mount_works(place: Place, big: str) -> None:
    filled(place)
    if big == "session":
        for _ in range(8):
            say(place, "two", "x" * (MIB // 2))
    else:
        (place.mountpoint / f"home/{os.geteuid()}/agent/a/data/big").write_bytes(b"x" * 2 * MIB)
    copy = place.base / "copy"
    copy.mkdir()
    with small_disk(copy):
        ran = backup(place)
        assert (ran.code in (1, 69), "full" in ran.err or "No space" in ran.err) == (True, True), ran
        assert os.listdir(copy) == []
    say(place, "one", "still works")
    assert backup(place).code == 0


def test_a_daemon_that_ends_gives_the_copy_up(place: Place) -> None:
    filled(place)
    data = place.mountpoint / f"home/{os.geteuid()}/agent/a/data"
    for number in range(2):
        with (data / f"big{number}").open("wb") as file:
            for _ in range(24):
                file.write(os.urandom(MIB) * 8)
    daemon = place.daemon()
    command = [sys.executable, "-m", "mountctl.main", "backup", str(place.base / "copy"), "--store", str(place.store)]
    environment = {**place.environment, "PYTHONPATH": str(PROJECT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, cwd="/") as client:
        staging = place.base / "copy/.ctxfs-incomplete"
        wait_until(lambda: (staging / "disk").exists() or client.poll() is not None, "the copy")
        os.kill(daemon, signal.SIGTERM)
        wait_until(lambda: is_gone(daemon), "the end of the daemon")
        _, err = client.communicate()
    assert client.returncode in (1, 69), err
    assert not (place.base / "copy").exists()
