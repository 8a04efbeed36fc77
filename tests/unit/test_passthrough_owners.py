"""Ordinary directories: whose they are is judged here too, whatever their modes say (spec 1.8)."""

import os
import stat
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyfuse3 import RequestContext

from ctxfs.files.passthrough import DiskOperations
from tests.unit.passthrough_disks import CALLER, error_of, run


class Inside:
    """A directory for everybody, below a root: with a file (one with two names, too) and an empty directory."""

    def __init__(self, base: Path, key: str = "home/1001/agent/a/data") -> None:
        self.operations = DiskOperations(base, as_root=True, invalidate=lambda _: None)
        self.root = self.operations.make_root(key, -1, -1, 0o777)
        self.path = base / key / "directory"
        self.path.mkdir()
        self.path.chmod(0o777)
        self.refresh()

    def refresh(self) -> None:
        """Makes again what may have been removed, and looks it up."""
        for name in os.listdir(self.path):
            (os.rmdir if (self.path / name).is_dir() else os.unlink)(self.path / name)
        (self.path / "file").touch()
        (self.path / "one").touch()
        os.link(self.path / "one", self.path / "two")
        (self.path / "empty").mkdir()
        self.directory = self._look_up(self.root, b"directory")
        self.file = self._look_up(self.directory, b"file")
        self.linked = self._look_up(self.directory, b"one")
        assert self._look_up(self.directory, b"two") == self.linked

    def _look_up(self, parent: int, name: bytes) -> int:
        return int(run(self.operations.lookup(parent, name, CALLER)).st_ino)


MINE = cast(RequestContext, SimpleNamespace(uid=1001, gid=1001, pid=0, umask=0o022))
ROOTS = cast(RequestContext, SimpleNamespace(uid=0, gid=0, pid=0, umask=0o022))
ANOTHERS = cast(RequestContext, SimpleNamespace(uid=1002, gid=1002, pid=0, umask=0o022))


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    inside = Inside(tmp_path / "disk")
    yield inside
    inside.operations.close()


# Each call that opens, or changes a name, in a directory that everybody may write to.
CHECKED: dict[str, Callable[[Inside, int, RequestContext], Coroutine[Any, Any, Any]]] = {
    "open": lambda at, _, who: at.operations.open(at.file, os.O_RDONLY, who),
    "open of a file with two names": lambda at, _, who: at.operations.open(at.linked, os.O_RDONLY, who),
    "opendir": lambda at, directory, who: at.operations.opendir(directory, who),
    "create": lambda at, directory, who: at.operations.create(directory, b"new", 0o600, os.O_WRONLY, who),
    "mkdir": lambda at, directory, who: at.operations.mkdir(directory, b"new", 0o700, who),
    "mknod": lambda at, directory, who: at.operations.mknod(directory, b"new", stat.S_IFIFO | 0o600, 0, who),
    "symlink": lambda at, directory, who: at.operations.symlink(directory, b"new", b"x", who),
    "link": lambda at, directory, who: at.operations.link(at.file, directory, b"new", who),
    "unlink": lambda at, directory, who: at.operations.unlink(directory, b"file", who),
    "rmdir": lambda at, directory, who: at.operations.rmdir(directory, b"empty", who),
    "rename": lambda at, directory, who: at.operations.rename(directory, b"file", directory, b"new", 0, who),
}


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
@pytest.mark.parametrize("what", CHECKED)
def test_a_home_is_its_uids_whatever_its_modes_say(inside: Inside, what: str) -> None:
    call = CHECKED[what]
    assert error_of(call(inside, inside.directory, ANOTHERS)) == "EACCES"
    assert error_of(call(inside, inside.directory, MINE)) == "ok"
    inside.refresh()
    assert error_of(call(inside, inside.directory, ROOTS)) == "ok"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
@pytest.mark.parametrize("what", CHECKED)
def test_shared_spaces_rely_on_the_kernels_check(tmp_path: Path, what: str) -> None:
    shared = Inside(tmp_path / "disk", "shared/team/data")
    assert error_of(CHECKED[what](shared, shared.directory, ANOTHERS)) == "ok"
    shared.operations.close()


def test_what_moved_to_another_home_is_that_ones(inside: Inside) -> None:
    bobs = inside.operations.make_root("home/1002/agent/b/data", -1, -1, 0o777)
    run(inside.operations.rename(inside.root, b"directory", bobs, b"directory", 0, ROOTS))
    assert error_of(inside.operations.open(inside.file, os.O_RDONLY, ANOTHERS)) == "ok"
    assert error_of(inside.operations.open(inside.file, os.O_RDONLY, MINE)) == "EACCES"


def test_a_descriptor_that_is_passed_on_keeps_working(inside: Inside) -> None:
    opened = run(inside.operations.open(inside.file, os.O_RDWR, MINE))
    assert run(inside.operations.write(opened.fh, 0, b"x")) == 1
    listing = run(inside.operations.opendir(inside.directory, MINE))
    run(inside.operations.releasedir(listing))
    run(inside.operations.release(opened.fh))
