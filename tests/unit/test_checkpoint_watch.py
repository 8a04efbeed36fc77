"""Whether somebody writes in a workspace, whatever is moved in it, out of it and into it (spec 6.5; notes 2.6)."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.checkpoints import identity, watch
from backend.checkpoints.watch import Watch

LONELY = 64_242
"""A uid of nobody."""


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PAUSE_S", 0.0)


@pytest.fixture(autouse=True)
def _own_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel grants of inotify is a user's, and this process's other tests or root's may have all of it."""
    monkeypatch.setattr(watch, "_armed", set())
    init = watch._libc.inotify_init1

    def as_somebody_else(flags: int) -> int:
        os.seteuid(LONELY)
        try:
            return int(init(flags))
        finally:
            os.seteuid(0)

    if os.geteuid() == 0:
        monkeypatch.setattr(watch._libc, "inotify_init1", as_somebody_else)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    below = tmp_path / "workspace/a/b"
    below.mkdir(parents=True)
    (tmp_path / "workspace/other").mkdir()
    return tmp_path / "workspace"


@pytest.fixture
def armed(root: Path) -> Iterator[Watch]:
    armed = Watch(root)
    armed.arm()
    yield armed
    armed.close()


def notices(armed: Watch, directory: Path) -> bool:
    """Whether a file that is being written in a directory is seen. Reads all events before and after."""
    armed.is_quiet()
    with (directory / "file").open("w") as file:
        file.write("x")
        file.flush()
        armed._drain()
        return armed._writing


def move(root: Path) -> Path:
    return (root / "a").rename(root / "moved") / "b"


def move_below_another(root: Path) -> Path:
    return (root / "a").rename(root / "other/a") / "b"


def swap(root: Path) -> Path:
    (root / "other").rename(root / "aside")
    (root / "a").rename(root / "other")
    (root / "aside").rename(root / "a")
    return root / "other/b"


def move_out_and_back(root: Path) -> Path:
    away = (root / "a").rename(root.parent / "away")
    return away.rename(root / "back") / "b"


def move_twice_while_nobody_looks(root: Path) -> Path:
    (root / "a/b").rename(root / "other/b")
    return (root / "other").rename(root / "moved") / "b"


def make(root: Path) -> Path:
    (root / "new/below").mkdir(parents=True)
    return root / "new/below"


@pytest.mark.parametrize(
    "change",
    [move, move_below_another, swap, move_out_and_back, move_twice_while_nobody_looks, make],
    ids=lambda change: change.__name__,
)
def test_writers_are_noticed_wherever_their_directory_went(
    armed: Watch, root: Path, change: Callable[[Path], Path]
) -> None:
    assert notices(armed, change(root))


def test_writers_in_what_was_moved_out_are_none_of_its_business(armed: Watch, root: Path) -> None:
    away = (root / "a").rename(root.parent / "away")
    assert not notices(armed, away)
    assert not notices(armed, away / "b")
    assert notices(armed, root / "other")


def test_a_directory_that_is_moved_all_the_time_is_looked_at_once(
    armed: Watch, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    really = identity.opened

    def counted(path: Path) -> object:
        nonlocal looks
        looks += 1
        return really(path)

    monkeypatch.setattr(watch, "opened", counted)
    for _ in range(500):
        (root / "a").rename(root / "moved")
        (root / "moved").rename(root / "a")
    armed.is_quiet()
    assert looks == 2
    assert notices(armed, root / "a/b")


def test_more_events_than_the_kernel_keeps(armed: Watch, root: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for number in range(limit):
        (root / "a/b").rename(root / "a/c") if number % 2 == 0 else (root / "a/c").rename(root / "a/b")
    armed._drain()
    assert armed._writing
    assert notices(armed, next((root / "a").iterdir()))
