"""The kernel keeps names and attributes for an hour: of whatever a change moves in the tree, it is told (design)."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from ctxfs.inodes import ROOT_INODE
from tests.unit.world import ALICE, Caller, World

ROOT: Any = Caller(0, 0)
UUID = "0f1e2d3c-4b5a-4697-8877-665544332211"

HOME = "home/1001"
AGENT = f"{HOME}/agent/coder"
SESSIONS = f"{AGENT}/session"
INDEX = f"{SESSIONS}/index"
ARCHIVE = f"{HOME}/archived_sessions/coder"


# What a setattr that gives a file to another group changes.
GROUP: Any = SimpleNamespace(
    update_gid=True, update_uid=False, update_mode=False, update_size=False, update_mtime=False, update_atime=False
)


class Seen(NamedTuple):
    """What a process sees of a file."""

    inode: int
    mode: int
    owner: tuple[int, int]
    size: int
    mtime: int
    content: bytes


class Paths:
    """The files of a world by their paths; whatever is looked up stays known to the kernel."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.does = world.does
        self.operations = world.operations

    def inode(self, path: str) -> int:
        inode = ROOT_INODE
        for name in path.split("/") if path else ():
            inode = int(self.does(self.operations.lookup(inode, name.encode(), ROOT)).st_ino)
        return inode

    def place(self, path: str) -> tuple[int, bytes]:
        parent, _, name = path.rpartition("/")
        return self.inode(parent), name.encode()

    def mkdir(self, path: str, who: Any = ALICE) -> None:
        self.does(self.operations.mkdir(*self.place(path), 0o755, who))

    def rmdir(self, path: str, who: Any = ALICE) -> None:
        self.does(self.operations.rmdir(*self.place(path), who))

    def unlink(self, path: str) -> None:
        self.does(self.operations.unlink(*self.place(path), ALICE))

    def rename(self, old: str, new: str) -> None:
        self.does(self.operations.rename(*self.place(old), *self.place(new), 0, ALICE))

    def command(self, path: str, name: str, value: str) -> None:
        self.does(self.operations.setxattr(self.inode(path), f"user.ctx.{name}".encode(), value.encode(), ALICE))

    def give(self, path: str, gid: int) -> None:
        inode = self.inode(path)
        attributes = self.does(self.operations.getattr(inode, ROOT))
        attributes.st_gid = gid
        self.does(self.operations.setattr(inode, attributes, GROUP, None, ROOT))

    def write(self, path: str, data: bytes) -> None:
        """Opens, or makes, writes once, closes."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        info, _ = self.does(self.operations.create(*self.place(path), 0o600, flags, ALICE))
        self.does(_awaited(self.operations.write(info.fh, 0, data)))
        self.does(_awaited(self.operations.flush(info.fh)))
        self.does(self.operations.release(info.fh))

    def save(self, path: str, data: bytes) -> None:
        """By a temporary that is renamed onto it."""
        self.write(f"{path}.tmp~", data)
        self.rename(f"{path}.tmp~", path)

    def all(self) -> dict[str, Seen]:
        """Every file of the tree, ordinary directories left out."""
        return dict(self._below("", ROOT_INODE))

    def _below(self, path: str, inode: int) -> Iterator[tuple[str, Seen]]:
        for name in self.world.names(inode):
            child = f"{path}/{name}".removeprefix("/")
            seen = self._seen(int(self.does(self.operations.lookup(inode, name.encode(), ROOT)).st_ino))
            yield child, seen
            if stat.S_ISDIR(seen.mode):
                yield from self._below(child, seen.inode)

    def _seen(self, inode: int) -> Seen:
        found = self.does(self.operations.getattr(inode, ROOT))
        content = b"" if stat.S_ISDIR(found.st_mode) else self._content(inode)
        assert len(content) == found.st_size
        return Seen(inode, found.st_mode, (found.st_uid, found.st_gid), found.st_size, found.st_mtime_ns, content)

    def _content(self, inode: int) -> bytes:
        info = self.does(self.operations.open(inode, os.O_RDONLY, ROOT))
        content: bytes = self.does(_awaited(self.operations.read(info.fh, 0, 1 << 20)))
        self.does(self.operations.release(info.fh))
        return content


async def _awaited(answer: Any) -> Any:
    return await answer


def event(path: str, text: str) -> Callable[[Paths], None]:
    return lambda tree: tree.write(path, text.encode() + b"\n")


SAID = b'{"role":"assistant","content":"x"}\n'
START = '{"type":"start","run":"r","id":"r","client_id":"c","scope":"private","cwd":"%s"}'

# What each change does, and the name that the kernel itself drops because it asked for it to go.
CHANGES: dict[str, tuple[Callable[[Paths], None], str | None]] = {
    "message": (event(f"{SESSIONS}/one/messages.jsonl", '{"role":"assistant","content":"x"}'), None),
    "event": (event(f"{SESSIONS}/one/events.jsonl", '{"type":"delta","run":"r","text":"x"}'), None),
    "state": (lambda tree: tree.write(f"{SESSIONS}/one/state", b"done\n"), None),
    "a new cwd": (lambda tree: tree.write(f"{SESSIONS}/one/cwd", b"/new\n"), None),
    "a cwd that another had": (event(f"{SESSIONS}/two/events.jsonl", START % "/srv"), None),
    "a cwd that nobody has any more": (event(f"{SESSIONS}/three/events.jsonl", START % "/new"), None),
    "meta": (lambda tree: tree.write(f"{SESSIONS}/one/meta.json", b'{"client":"x","scope":"private"}\n'), None),
    "current": (lambda tree: tree.write(f"{INDEX}/current", b"two\n"), None),
    "a new key": (lambda tree: tree.write(f"{INDEX}/by-hash/new", b"one\n"), None),
    "a key": (lambda tree: tree.write(f"{INDEX}/by-hash/one", b"two\n"), None),
    "a key removed": (lambda tree: tree.unlink(f"{INDEX}/by-hash/one"), f"{INDEX}/by-hash/one"),
    "a snapshot": (lambda tree: tree.write(f"{SESSIONS}/one/AGENTS.md", b"x"), None),
    "a snapshot written": (lambda tree: tree.write(f"{SESSIONS}/two/AGENTS.md", b"y"), None),
    "a snapshot removed": (lambda tree: tree.unlink(f"{SESSIONS}/two/AGENTS.md"), f"{SESSIONS}/two/AGENTS.md"),
    "a session": (lambda tree: tree.mkdir(f"{SESSIONS}/four"), None),
    "a branch": (lambda tree: tree.command(f"{SESSIONS}/one", "branch", "four"), None),
    "a branch with a cwd of its own": (lambda tree: tree.command(f"{SESSIONS}/three", "branch", "four"), None),
    "a session archived": (lambda tree: tree.rename(f"{SESSIONS}/two", f"{ARCHIVE}/two"), f"{SESSIONS}/two"),
    "the last of a cwd archived": (
        lambda tree: tree.rename(f"{SESSIONS}/three", f"{ARCHIVE}/three"),
        f"{SESSIONS}/three",
    ),
    "a session deleted": (lambda tree: tree.command(f"{SESSIONS}/two", "delete", "two"), None),
    "a cut": (lambda tree: tree.command(f"{SESSIONS}/one", "compact", '{"before":0,"summary":[],"reason":"r"}'), None),
    "a key saved": (lambda tree: tree.save(f"{INDEX}/by-hash/new", b"one\n"), None),
    "a key saved over another": (lambda tree: tree.save(f"{INDEX}/by-hash/one", b"two\n"), None),
    "a uuid removed": (lambda tree: tree.unlink(f"{INDEX}/by-uuid/{UUID}"), f"{INDEX}/by-uuid/{UUID}"),
    "a snapshot saved": (lambda tree: tree.save(f"{SESSIONS}/one/AGENTS.md", b"x"), None),
    "a log saved": (lambda tree: tree.save(f"{SESSIONS}/one/messages.jsonl", SAID), None),
    "a provider": (lambda tree: tree.mkdir(f"{HOME}/model/new"), None),
    "a provider removed": (lambda tree: tree.rmdir(f"{HOME}/model/empty"), f"{HOME}/model/empty"),
    "a model": (lambda tree: tree.mkdir(f"{HOME}/model/big/new.d"), None),
    "a model removed": (lambda tree: tree.rmdir(f"{HOME}/model/big/big.d"), f"{HOME}/model/big/big.d"),
    "the last model of a provider that nobody made": (
        lambda tree: tree.rmdir(f"{HOME}/model/old/m.d"),
        f"{HOME}/model/old/m.d",
    ),
    "an agent's definition": (lambda tree: tree.mkdir("agent/new.d", ROOT), None),
    "a definition's provider": (lambda tree: tree.mkdir("model/new", ROOT), None),
    "a definition's model": (lambda tree: tree.mkdir("model/big/new.d", ROOT), None),
    "a definition's model removed": (lambda tree: tree.rmdir("model/big/big.d", ROOT), "model/big/big.d"),
    "the last definition of a provider that nobody made": (
        lambda tree: tree.rmdir("model/old/m.d", ROOT),
        "model/old/m.d",
    ),
    "a shared space given away": (lambda tree: tree.give("shared/team", 3000), None),
    "a shared space": (lambda tree: tree.mkdir("shared/new", ROOT), None),
    "a shared space removed": (lambda tree: tree.rmdir("shared/empty", ROOT), "shared/empty"),
    "an agent": (lambda tree: tree.mkdir(f"{HOME}/agent/new"), None),
    "an archive directory": (lambda tree: tree.mkdir(f"{ARCHIVE}/new"), None),
}  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Paths]:
    """Alice's home: sessions one (current), two and three, with cwds, keys and a snapshot; what admins define."""
    world = World(tmp_path)
    tree = Paths(world)
    for path in (AGENT, f"{HOME}/model/small.d", f"{HOME}/model/big", f"{HOME}/model/big/big.d", ARCHIVE):
        tree.mkdir(path)
    tree.mkdir(f"{HOME}/model/empty")
    for path in ("agent/coder.d", "model/big", "model/big/big.d", "shared/team", "shared/empty"):
        tree.mkdir(path, ROOT)
    for path in ("agent/helper", "agent/helper/session/one", "model/m.d", "archived_sessions/helper"):
        tree.mkdir(f"shared/team/{path}", ROOT)
    # What a mount before this one made.
    world.store.add_owner(HOME, "model", "old/m", ALICE.uid, ALICE.gid)
    world.store.add_definition("model", "old/m")
    for name in ("one", "two", "three"):
        tree.mkdir(f"{SESSIONS}/{name}")
        tree.write(f"{SESSIONS}/{name}/cwd", b"/only\n" if name == "three" else b"/srv\n")
        tree.write(f"{INDEX}/by-hash/{name}", name.encode() + b"\n")
    tree.write(f"{SESSIONS}/one/cwd", b"/srv/sub\n")
    tree.write(f"{SESSIONS}/one/cwd", b"/srv\n")
    tree.write(f"{INDEX}/by-uuid/{UUID}", b"two\n")
    tree.write(f"{SESSIONS}/two/AGENTS.md", b"x")
    yield tree
    world.close()


@pytest.mark.parametrize("what", CHANGES)
def test_the_kernel_is_told_of_every_attribute_and_name_that_changed(tree: Paths, what: str) -> None:
    change, asked = CHANGES[what]
    before = tree.all()
    tree.world.told.clear()
    change(tree)
    tree.world.core.kernel.close()
    after = tree.all()
    assert after != before
    moved = {path for path in before.keys() & after.keys() if before[path] != after[path]}
    assert {path for path in moved if before[path].inode not in tree.world.told} == set()
    paths = {seen.inode: path for path, seen in before.items()}
    dropped = {f"{paths[parent]}/{name.decode()}" for parent, name in tree.world.told_names} | {asked}
    for path in before.keys() - after.keys():
        assert any(f"{path}/".startswith(f"{name}/") for name in dropped), path


def test_what_was_done_before_a_failure_is_told_too(tree: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "the disk")

    monkeypatch.setattr(tree.world.core.disk, "change_root", fails)
    before = tree.all()
    tree.world.told.clear()
    with pytest.raises(OSError, match="the disk"):
        tree.give("shared/team", 3000)
    after = tree.all()
    assert {before[path].inode for path in before if before[path] != after[path]} <= tree.world.told
    assert after["shared/team/agent/helper/session/one/state"].owner == (0, 3000)


@pytest.mark.parametrize("what", CHANGES)
def test_content_never_changes_without_its_mtime(tree: Paths, what: str) -> None:
    change, _ = CHANGES[what]
    before = tree.all()
    change(tree)
    after = tree.all()
    for path in before.keys() & after.keys():
        assert before[path].content == after[path].content or before[path].mtime < after[path].mtime, path


@pytest.mark.parametrize("what", CHANGES)
def test_a_directorys_mtime_moves_with_its_names_and_a_sessions_is_its_updated_at(tree: Paths, what: str) -> None:
    change, _ = CHANGES[what]
    before = tree.all()
    change(tree)
    after = tree.all()
    for path in (path for path in before.keys() & after.keys() if stat.S_ISDIR(after[path].mode)):
        if f"{path}/updated_at" in after:
            assert after[path].mtime // 10**9 == int(after[f"{path}/updated_at"].content), path
        elif names_in(before, path) != names_in(after, path):
            assert before[path].mtime < after[path].mtime, path


def names_in(files: dict[str, Seen], directory: str) -> set[str]:
    return {path for path in files if path.rpartition("/")[0] == directory}
