"""What a file of the tree is about: rows of the store together with whose they are.

A *subject* is what the id in an inode number leads to; each family below has one ``load``. Rows of the store are
asked each time (a point query); only what cannot change while it exists (an owner's place) is kept.
"""

import msgspec

from backend.errors import Missing
from backend.rows import ArchiveDirectory, IndexKind, Mapping, Owner, Session
from backend.store import FileStore
from ctxfs.directory_times import DirectoryTimes
from ctxfs.files.providers import Providers
from ctxfs.files.sockets import Socket, Sockets
from ctxfs.inodes import Interned, Key
from ctxfs.privacy import Access
from ctxfs.statistics import CacheCounts
from ctxfs.users import Users

_SHARED_BIT = 1 << 40
SESSION_CACHE = 4096


class Nothing(msgspec.Struct, frozen=True):
    """The subject of files that are about the mount itself."""

    access: Access


class SpaceSubject(msgspec.Struct, frozen=True):
    """A home or a shared place; a home need not be stored."""

    name: str
    access: Access
    mtime: int
    mode: int | None = None


class ProviderSubject(msgspec.Struct, frozen=True):
    """The directory of a model's provider, in a space or (``space`` None) among the definitions."""

    space: SpaceSubject | None
    provider: str
    access: Access
    mtime: int


class OwnerSubject(msgspec.Struct, frozen=True):
    """An agent or model in a space."""

    owner: Owner
    access: Access


class KeySubject(msgspec.Struct, frozen=True):
    """A file of index/by-*; ``mapping`` is None while only a pending write knows it."""

    owner: Owner
    kind: IndexKind
    key: str
    mapping: Mapping | None
    access: Access


class SessionSubject(msgspec.Struct, frozen=True, gc=False):
    """A session, live or archived."""

    session: Session
    access: Access

    @property
    def updated_at(self) -> int:
        """ms."""
        return self.session.updated_at


class ListedSubject(msgspec.Struct, frozen=True):
    """A session in a listing: what its directory's attributes need of it."""

    updated_at: int
    access: Access


class ArchiveSubject(msgspec.Struct, frozen=True):
    """A directory below archived_sessions/."""

    directory: ArchiveDirectory
    access: Access


def archived_access(directory: ArchiveSubject, uid: int) -> Access:
    """Whose a session is that ``uid`` made, and that lies in that directory of the archive."""
    place = directory.access
    return Access(uid if place.shared else place.uid, place.gid, place.shared, archived=True)


class DefinitionSubject(msgspec.Struct, frozen=True):
    """An agent's or model's definition."""

    id: int
    access: Access


class SocketSubject(msgspec.Struct, frozen=True):
    """A socket that the daemon has bound."""

    socket: Socket
    access: Access


class Place(msgspec.Struct, frozen=True):
    """Where an owner is; it never moves."""

    space: str
    space_id: int
    access: Access


class Subjects:
    """Loads subjects; raises ``Missing`` where the id leads nowhere any more. ``counts`` of the sessions' cache."""

    def __init__(self, store: FileStore, users: Users, root: Access, started_ns: int, counts: CacheCounts) -> None:
        self._counts = counts
        self.store = store
        self.users = users
        self.root = root
        self.started_ns = started_ns
        self.interned: Interned[Key] = Interned()
        self.providers = Providers()
        self.times = DirectoryTimes()
        self.sockets = Sockets()
        self._places: dict[int, Place] = {}
        self._sessions: dict[int, SessionSubject] = {}

    def nothing(self, _: int) -> Nothing:
        return Nothing(self.root)

    def space_id(self, name: str) -> int:
        """The id of a space that may not be stored yet: a home's is its uid."""
        tree, leaf = name.split("/")
        if tree == "home":
            return int(leaf)
        space = self.store.space(name)
        if space is None:
            raise Missing(f"no space {name!r}")
        return _SHARED_BIT | space.id

    def space(self, number: int) -> SpaceSubject:
        """A home is there for every uid, with the same attributes whether or not it is stored (spec 1.8)."""
        if not number & _SHARED_BIT:
            return SpaceSubject(f"home/{number}", Access(number, self.users.group(number)), self.started_ns)
        for space in self.store.spaces("shared/"):
            if space.id == number & ~_SHARED_BIT:
                return SpaceSubject(space.name, Access(space.uid, space.gid, shared=True), space.mtime, space.mode)
        raise Missing("no such shared space")

    def provider(self, number: int) -> ProviderSubject:
        key = self.interned.key(number)
        if key is None:
            raise Missing("no such provider")
        _, space_id, provider = key
        if space_id is None:
            return ProviderSubject(None, str(provider), self.root, self.started_ns)
        assert isinstance(space_id, int)
        space = self.space(space_id)
        return ProviderSubject(space, str(provider), space.access, space.mtime)

    def owner(self, number: int) -> OwnerSubject:
        owner = self.store.owner_by_id(number)
        if owner is None:
            raise Missing("no such agent or model")
        return OwnerSubject(owner, self._owner_access(owner))

    def _owner_access(self, owner: Owner) -> Access:
        space = self.place(owner).access
        return Access(owner.uid, space.gid, shared=True) if space.shared else space

    def place(self, owner: Owner) -> Place:
        place = self._places.get(owner.id)
        if place is None:
            number = self.space_id(owner.space)
            place = self._places[owner.id] = Place(owner.space, number, self.space(number).access)
        return place

    def key(self, number: int) -> KeySubject:
        key = self.interned.key(number)
        if key is None:
            raise Missing("no such index key")
        _, owner_id, kind, name = key
        assert isinstance(owner_id, int)
        subject = self.owner(owner_id)
        mapping = self.store.mapping(owner_id, kind, str(name))  # type: ignore[arg-type]
        return KeySubject(subject.owner, kind, str(name), mapping, subject.access)  # type: ignore[arg-type]

    def session(self, number: int) -> SessionSubject:
        """From a bounded cache: every change of a session goes through ``changed`` or ``drop`` below."""
        subject = self._sessions.get(number)
        if subject is not None:
            self._counts.hits += 1
            return subject
        self._counts.misses += 1
        session = self.store.session_by_id(number)
        if session is None:
            raise Missing("no such session")
        return self.changed(session)

    def forget_places(self) -> None:
        """A shared space was given away, or removed."""
        self._places.clear()
        self._sessions.clear()

    def changed(self, session: Session) -> SessionSubject:
        """Takes a session's new row in. Whose it is changes with ``drop`` and ``forget_places`` only."""
        known = self._sessions.get(session.id)
        if known is None and len(self._sessions) >= SESSION_CACHE:
            self._sessions.pop(next(iter(self._sessions)))
        access = self._session_access(session) if known is None else known.access
        subject = self._sessions[session.id] = SessionSubject(session, access)
        return subject

    def drop(self, number: int) -> None:
        """Forgets a session's row; the store is asked next time."""
        self._sessions.pop(number, None)

    def session_access(self, owner: Owner, uid: int) -> Access:
        """Whose a live session is, given its owner and who made it."""
        space = self.place(owner).access
        return Access(uid, space.gid, shared=True) if space.shared else space

    def _session_access(self, session: Session) -> Access:
        if session.archive is not None:
            # Its agent or model may be gone.
            return archived_access(self.archive(session.archive), session.uid)
        if session.owner is None:
            raise Missing("the session is nowhere in the tree")
        return self.session_access(self.owner(session.owner).owner, session.uid)

    def archive(self, number: int) -> ArchiveSubject:
        directory = self.store.archive_directory_by_id(number)
        if directory is None:
            raise Missing("no such archive directory")
        space = self.space(self.space_id(directory.space)).access
        access = Access(directory.uid, space.gid, shared=True) if space.shared else space
        return ArchiveSubject(directory, access)

    def definition(self, number: int) -> DefinitionSubject:
        return DefinitionSubject(number, self.root)

    def socket(self, number: int) -> SocketSubject:
        socket = self.sockets.by_id(number)
        access = self.root if socket.uid is None else Access(socket.uid, self.users.group(socket.uid))
        return SocketSubject(socket, access)
