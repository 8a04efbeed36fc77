"""The tree against a plain model, without a mount: what is made is found and listed, and nothing else is."""

import errno
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ctxfs.files.handles import Handle
from ctxfs.inodes import Kind, Node, inode_of, node_of
from ctxfs.patterns import FOUND, NAMED
from ctxfs.table import TABLE
from tests.unit.world import ALICE, Caller, World

BOB: Any = Caller(1002, 1002)

NAMES = st.sampled_from(
    ["a", "b", "c", "default", "index", "ctx", "model", "a b", "x.sock", "é", "a" * 65, "a.d", "b.d"]
)
GOOD = frozenset(("a", "b", "c", "default", "index", "ctx", "model"))

# What a directory of each kind takes: names → the kind that mkdir makes of them.
KINDS: dict[str, dict[str, str]] = {
    "agents": dict.fromkeys(GOOD - {"ctx", "model"}, "agent"),
    "models": dict.fromkeys(GOOD, "provider") | {f"{name}.d": "model" for name in "ab"},
    "provider": {f"{name}.d": "model" for name in "ab"},
    "sessions": dict.fromkeys(GOOD - {"index"}, "session"),
    "archive": dict.fromkeys(GOOD, "directory") | {f"{name}.d": "directory" for name in "ab"},
    "directory": dict.fromkeys(GOOD, "directory") | {f"{name}.d": "directory" for name in "ab"},
}
FIXED = {"agent": {"session": "sessions"}, "model": {"session": "sessions"}, "sessions": {"index": "index"}}


class Directory:
    """A directory of the model."""

    def __init__(self, kind: str, inode: int, name: str = "", parent: "Directory | None" = None) -> None:
        self.kind = kind
        self.inode = inode
        self.name = name
        self.parent = parent
        self.children: dict[str, Directory] = {}

    def path(self) -> list[str]:
        return [*self.parent.path(), self.name] if self.parent else []


class TreeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.world = World(self.directory)
        self.known: list[Directory] = []

    def teardown(self) -> None:
        self.world.close()
        shutil.rmtree(self.directory)

    def look_up(self, parent: int, name: str, caller: Any = ALICE) -> int:
        return int(self.world.does(self.world.operations.lookup(parent, name.encode(), caller)).st_ino)

    @initialize()
    def home(self) -> None:
        home = self.look_up(self.look_up(1, "home"), "1001")
        for name, kind in (("agent", "agents"), ("model", "models"), ("archived_sessions", "archive")):
            self.known.append(Directory(kind, self.look_up(home, name), name))
        agents, models, archive = self.known
        for parent, name in ((agents, "a"), (models, "a.d"), (archive, "a"), (archive, "model")):
            self.make(parent, name)
        self.make(archive.children["model"], "a.d")
        for owner in (agents.children["a"], models.children["a.d"]):
            for name in ("a", "b", "default"):
                self.make(owner.children["session"], name)

    def make(self, directory: Directory, name: str) -> None:
        answer = self.world.outcome(self.world.operations.mkdir(directory.inode, name.encode(), 0o755, ALICE))
        kind = KINDS[directory.kind].get(name)
        if name in directory.children:
            assert answer == errno.EEXIST
        elif kind is None:
            assert answer == errno.EINVAL
        else:
            assert answer == 0
            self.learn(directory, name, kind)

    def choose(self, data: st.DataObject, *kinds: str) -> Directory | None:
        chosen = [directory for directory in self.known if not kinds or directory.kind in kinds]
        return data.draw(st.sampled_from(chosen)) if chosen else None

    def learn(self, parent: Directory, name: str, kind: str) -> None:
        made = Directory(kind, self.look_up(parent.inode, name), name, parent)
        parent.children[name] = made
        self.known.append(made)
        for fixed, fixed_kind in FIXED.get(kind, {}).items():
            self.learn(made, fixed, fixed_kind)

    def unlearn(self, directory: Directory) -> None:
        for child in list(directory.children.values()):
            self.unlearn(child)
        self.known.remove(directory)
        assert directory.parent is not None
        del directory.parent.children[directory.name]

    @rule(data=st.data(), name=NAMES)
    def mkdir(self, data: st.DataObject, name: str) -> None:
        directory = self.choose(data, *KINDS)
        if directory is not None:
            self.make(directory, data.draw(st.sampled_from([name, *sorted(KINDS[directory.kind])])))

    @rule(data=st.data(), name=NAMES)
    def rmdir(self, data: st.DataObject, name: str) -> None:
        directory = self.choose(data, *KINDS)
        if directory is None:
            return
        name = data.draw(st.sampled_from([name, *sorted(directory.children)]))
        answer = self.world.outcome(self.world.operations.rmdir(directory.inode, name.encode(), ALICE))
        child = directory.children.get(name)
        if child is None:
            assert answer == errno.ENOENT
        elif child.kind in ("session", "index"):
            assert answer in (errno.ENOTEMPTY, errno.EPERM)
        elif any(grandchild.kind not in ("index", "sessions") for grandchild in self.below(child)):
            assert answer == errno.ENOTEMPTY
        else:
            assert answer == 0
            self.unlearn(child)

    def below(self, directory: Directory) -> list[Directory]:
        return [each for child in directory.children.values() for each in (child, *self.below(child))]

    @rule(data=st.data())
    def archive(self, data: st.DataObject) -> None:
        session, target = self.choose(data, "session"), self.choose(data, "directory")
        if session is None or target is None or session.parent is None or session.parent.kind != "sessions":
            return
        owner = session.parent.parent
        assert owner is not None
        answer = self.world.outcome(
            self.world.operations.rename(
                session.parent.inode, session.name.encode(), target.inode, session.name.encode(), 0, ALICE
            )
        )
        wanted = [owner.name] if owner.kind == "agent" else ["model", *owner.path()]
        fits = target.path()[-len(wanted) :] == wanted
        current = self.world.store.owner_by_id(node_of(owner.inode).id)
        assert current is not None
        if not fits:
            assert answer == errno.EPERM
        elif session.name in ("default", current.current):
            assert answer == errno.EBUSY
        elif session.name in target.children:
            assert answer == errno.EEXIST
        else:
            assert answer == 0
            self.unlearn(session)
            self.learn(target, session.name, "session")

    @rule(data=st.data())
    def others_are_kept_out(self, data: st.DataObject) -> None:
        directory = self.choose(data)
        assert directory is not None
        operations = self.world.operations
        assert self.world.outcome(operations.opendir(directory.inode, BOB)) == errno.EACCES
        assert self.world.outcome(operations.mkdir(directory.inode, b"a", 0o755, BOB)) == errno.EACCES

    @invariant()
    def listings_and_look_ups_agree_with_the_model(self) -> None:
        for directory in self.known:
            if directory.kind in ("session", "index"):
                continue
            names = self.world.names(directory.inode, ALICE.uid)
            assert set(names) == set(directory.children), directory.path()
            for name in ("a", "b", "c", "default", "a.d", "b.d", "é"):
                answer = self.world.outcome(self.world.operations.lookup(directory.inode, name.encode(), ALICE))
                assert answer == (0 if name in directory.children else errno.ENOENT), (directory.path(), name)
            for name, child in directory.children.items():
                assert self.look_up(directory.inode, name) == child.inode

    @invariant()
    def a_listing_goes_on_after_any_of_its_offsets(self) -> None:
        for directory in self.known:
            entry = self.world.tree.entry(node_of(directory.inode))
            listed = [(offset, name) for offset, name, _ in self.world.tree.children(entry, 0, ALICE.uid)]
            assert [offset for offset, _ in listed] == sorted({offset for offset, _ in listed})
            for at, (offset, _) in enumerate(listed):
                rest = [name for _, name, _ in self.world.tree.children(entry, offset, ALICE.uid)]
                assert rest == [name for _, name in listed[at + 1 :]]


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


def test_every_kind_is_in_the_tree_once() -> None:
    """From the root every row can be reached, and a row's name is its own in each of its directories."""
    reached = {Kind.ROOT}
    for _ in Kind:
        reached |= {kind for parent in reached for kind, _ in NAMED[parent]}
        reached |= {pattern.kind for parent in reached for pattern in FOUND[parent]}
    assert reached == set(TABLE)
    for parent in Kind:
        names = [row.name for _, row in NAMED[parent]]
        assert len(names) == len(set(names))


def test_rows_without_content_are_directories_and_the_others_are_not() -> None:
    for kind, row in TABLE.items():
        if kind is Kind.SOCKET:
            continue
        is_read = row.show is not None or row.stream is not None or row.reader is not Handle
        assert row.is_directory != is_read, kind
        assert bool(NAMED[kind] or FOUND[kind]) <= row.is_directory, kind


def test_a_users_own_mount_shows_their_home_and_nothing_shared(tmp_path: Path) -> None:
    world = World(tmp_path, alone=True)
    try:
        uid = world.core.mounter
        assert list(world.names(1, uid)) == ["status", "agent", "model", "home"]
        homes = inode_of(Node(Kind.HOMES, 1))
        assert list(world.names(homes, uid)) == [str(uid)]
        me: Any = Caller(uid, uid)
        for name, answer in ((str(uid), 0), (str(uid + 1), errno.ENOENT)):
            assert world.outcome(world.operations.lookup(homes, name.encode(), me)) == answer
        assert world.outcome(world.operations.lookup(1, b"shared", me)) == errno.ENOENT
        assert world.outcome(world.operations.mkdir(homes, str(uid + 1).encode(), 0o700, me)) == errno.EPERM
    finally:
        world.close()
