"""A workspace whose directory above is somebody else's, who moves things in it at the worst moment (spec 6.4, 6.5).

Each test does between two calls of the daemon's what another user may do at any time.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from backend.checkpoints.errors import CheckpointError, InvalidPath
from backend.checkpoints.identity import opened, opened_in
from tests.checkpointing import scratch
from tests.crash.checkpoint_scenes import Place, place_on
from tests.people import ALICE, BOB
from tests.trees import describe


class Yard:
    """Bob's directory, with Alice's ``secrets`` in it and a workspace of Bob's that has a snapshot ``one``."""

    def __init__(self, base: Path, place: Place) -> None:
        self.above = base / "yard"
        for path, owner in ((self.above, BOB), (self.above / "secrets", ALICE), (self.above / "work", BOB)):
            path.mkdir()
            if path != self.above:
                (path / "file").write_text(str(owner.uid))
                os.chown(path / "file", owner.uid, owner.gid)
            os.chown(path, owner.uid, owner.gid)
        self.secrets, self.work = self.above / "secrets", self.above / "work"
        self.secrets.chmod(0o700)
        self.engine = place.engine()
        self.workspace = self.engine.init(str(self.work), BOB.uid)
        assert self.workspace.checkpoint("one", None, None, False)
        self.staged = self.above / f".{self.workspace.ws_id}.tmp"

    def exchange(self, one: Path, other: Path) -> None:
        """Two names change places."""
        aside = self.above / "aside"
        one.rename(aside)
        other.rename(one)
        aside.rename(other)


@pytest.fixture
def yard() -> Iterator[Yard]:
    with scratch() as base:
        yield Yard(base, Place(base / "state", base, "copy"))


def a_directory_of_bobs(yard: Yard) -> None:
    yard.staged.mkdir()
    os.chown(yard.staged, BOB.uid, BOB.gid)


def a_link(yard: Yard) -> None:
    yard.staged.symlink_to(yard.secrets)


def the_secrets(yard: Yard) -> None:
    yard.secrets.rename(yard.staged)


def a_directory_of_roots_with_something_in_it(yard: Yard) -> None:
    yard.staged.mkdir(0o700)
    (yard.staged / "file").touch()


@pytest.mark.parametrize("put", [a_directory_of_bobs, a_link, the_secrets, a_directory_of_roots_with_something_in_it])
def test_nothing_is_built_in_what_somebody_put_there(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, put: Callable[[Yard], None]
) -> None:
    """Between the making of the directory and the opening of it."""
    real = os.mkdir

    def mkdir(name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        real(name, mode, dir_fd=dir_fd)
        if name == yard.staged.name:
            yard.staged.rename(yard.above / "made")
            monkeypatch.undo()
            put(yard)

    monkeypatch.setattr(os, "mkdir", mkdir)
    before = describe(yard.work)
    with pytest.raises(CheckpointError):
        yard.workspace.rollback("one")
    assert describe(yard.work) == before
    assert [path.name for path in yard.above.rglob("file")].count("file") == (3 if "roots" in put.__name__ else 2)


def test_nothing_is_removed_that_takes_the_place_of_an_old_tree(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between looking which directory it is and opening it."""

    @contextmanager
    def opened_meanwhile(directory: int, name: str) -> Iterator[int]:
        with opened_in(directory, name) as found:
            if name == yard.staged.name and (yard.staged / "file").exists():
                monkeypatch.undo()
                yard.exchange(yard.staged, yard.secrets)
            yield found

    monkeypatch.setattr("backend.checkpoints.snapshots.beside.opened_in", opened_meanwhile)
    yard.workspace.rollback("one")
    assert (yard.staged / "file").read_text() == str(ALICE.uid)


class Once:
    """A call before the first of which something else happens."""

    def __init__(self, call: Callable[..., Any], first: Callable[[], None]) -> None:
        self._call = call
        self._first: Callable[[], None] | None = first

    def __call__(self, *arguments: Any) -> Any:
        first, self._first = self._first, None
        if first is not None:
            first()
        return self._call(*arguments)


def test_a_snapshot_is_taken_of_the_directory_that_was_looked_at(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Once(yard.workspace.watch.is_quiet, lambda: yard.exchange(yard.work, yard.secrets))
    monkeypatch.setattr(yard.workspace.watch, "is_quiet", exchange)
    with pytest.raises(InvalidPath, match="was replaced"):
        yard.workspace.checkpoint("two", None, None, False)
    assert yard.workspace.snapshots.ids() == {"one"}


def test_the_owner_is_that_of_the_directory_that_is_known(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bob's stands at the path of Alice's workspace when it is opened, hers when it is looked at again."""
    hers = yard.engine.init(str(yard.secrets), ALICE.uid)
    yard.exchange(yard.secrets, yard.work)

    @contextmanager
    def opened_meanwhile(path: Path) -> Iterator[int]:
        with opened(path) as found:
            yard.exchange(yard.secrets, yard.work)
            yield found

    monkeypatch.setattr("backend.checkpoints.workspace.opened", opened_meanwhile)
    assert hers.owner() == ALICE.uid


def test_nothing_is_given_away_that_takes_the_place_of_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """The link to the live tree becomes the workspace's owner's; what he puts there instead stays whose it is."""
    with place_on("btrfs") as place:
        yard = Yard(place.area, place)
        new = yard.above / "new"
        new.mkdir()
        os.chown(new, BOB.uid, BOB.gid)
        real = os.fsync

        def fsync(fd: int) -> None:
            real(fd)
            if new.is_symlink():
                monkeypatch.undo()
                yard.exchange(new, yard.secrets)

        monkeypatch.setattr(os, "fsync", fsync)
        with suppress(CheckpointError):
            yard.engine.init(str(new), BOB.uid)
        assert new.stat().st_uid == ALICE.uid
        assert (new / "file").read_text() == str(ALICE.uid)
