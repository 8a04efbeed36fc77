"""What the kernel is told when something changes, so that it may cache everything else for an hour.

Attributes are invalidated inside a handler, before its reply (safe with ``attr_only``, and a reader must see the
append that has been answered). Entries never are: that deadlocks on the directory's lock, so a thread of its own
sends them (design, FUSE facts). Pages of logs are dropped before the size is told (``ctxfs.log_pages``).
"""

import errno
import logging
import threading
import time
from collections.abc import Callable, Collection
from queue import SimpleQueue

import pyfuse3

from backend.derived import File
from backend.log_contract import listed_key
from backend.rows import Appended, IndexKind, Removed, Session
from ctxfs.files.index import key_of
from ctxfs.inodes import Kind, Node, inode_of
from ctxfs.log_pages import LogPages
from ctxfs.loop import Future, Loop
from ctxfs.statistics import Statistics
from ctxfs.subjects import Subjects

log = logging.getLogger("ctxfs")

TIMEOUT_S = 3600
UNSTEADY_S = 1.0
"""For so long after a list became shorter its readers bypass the kernel's pages."""
OUTDATED = 4096
"""So many inodes are remembered that the kernel knows nothing of; forgotten, it is told once more than it needs."""
_GONE = (errno.ENOENT, errno.ENODEV, errno.ENOTCONN, errno.EBADF)

SESSION_FILES = {
    "messages.jsonl": Kind.MESSAGES,
    "events.jsonl": Kind.EVENTS,
    "latest.md": Kind.LATEST,
    "state": Kind.STATE,
    "cwd": Kind.CWD,
    "created_at": Kind.CREATED_AT,
    "updated_at": Kind.UPDATED_AT,
    "meta.json": Kind.META,
    "AGENTS.md": Kind.AGENTS_MD,
    "SKILLS.md": Kind.SKILLS_MD,
}
CONTEXT_FILES: dict[Kind, File] = {
    Kind.CONTEXT_MESSAGES: "messages.jsonl",
    Kind.CONTEXT_LOG: "log.jsonl",
    Kind.CONTEXT_TRANSCRIPT: "transcript.md",
    Kind.CONTEXT_REQUEST: "request.json",
}
_FIRST_INODES = {file: inode_of(Node(kind, 0)) for file, kind in SESSION_FILES.items()}
_LOGS = ("messages.jsonl", "events.jsonl")
_FIRST_MESSAGES, _FIRST_EVENTS = (_FIRST_INODES[file] for file in _LOGS)
_FIRST_CONTEXT_INODES = tuple(inode_of(Node(kind, 0)) for kind in CONTEXT_FILES)
_FIRST_SESSION, _FIRST_LIST = inode_of(Node(Kind.SESSION, 0)), inode_of(Node(Kind.LIST, 0))
KEY_DIRECTORIES: dict[IndexKind, Kind] = {
    "by-cwd": Kind.BY_CWD,
    "by-hash": Kind.BY_HASH,
    "by-uuid": Kind.BY_UUID,
}
KEY_FILES: dict[IndexKind, Kind] = {"by-cwd": Kind.CWD_KEY, "by-hash": Kind.HASH_KEY, "by-uuid": Kind.UUID_KEY}

_MOVED_BY_SESSIONS = (
    *(Kind.AGENT, Kind.MODEL, Kind.SESSIONS, Kind.INDEX, Kind.LIST, Kind.CURRENT),
    *KEY_DIRECTORIES.values(),
)


class KernelCache:
    """Sends invalidations, and wakes whoever polls a file that changed. ``changes`` moves with each."""

    def __init__(self, subjects: Subjects, loop: Loop, statistics: Statistics) -> None:
        self.changes = 0
        self.pages = LogPages(loop, statistics, self._drop_pages, self._shown)
        self._loop = loop
        self._subjects = subjects
        self._outdated: set[int] = set()
        self._contexts: set[int] = set()
        self._shortened: dict[int, float] = {}
        self._aliases: dict[int, set[int]] = {}
        self._watchers: dict[int, set[Watcher]] = {}
        self._entries: SimpleQueue[tuple[int, bytes] | Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._send_entries, name="ctxfs-notify", daemon=True)
        self._thread.start()

    def finish(self, then: Callable[[], None]) -> None:
        """Tells the kernel nothing more; ``then`` is called on the FUSE thread as soon as none of ours waits for it.

        Whoever stops to answer requests before that may wait for ever: in the kernel both threads wait for locks of
        those who wait for an answer. Names first, as requests are answered until the pages are gone, too.
        """
        self.when_told(lambda: self._loop.call_soon_threadsafe(lambda: self.pages.finish(then)))
        self._entries.put(None)

    def close(self) -> None:
        self.pages.close()
        self._entries.put(None)
        self._thread.join()

    def attributes_changed(self, inode: int) -> None:
        """Size, mtime or mode of a file changed; safe inside a handler."""
        self.changes += 1
        _invalidate(inode)
        for alias in self._aliases.get(inode, ()):
            _invalidate(alias)

    def told(self, inode: int) -> None:
        """The kernel was given attributes of a file of the tree."""
        self._outdated.discard(inode)

    def names_changed(self, directory: Node, own: int) -> None:
        """A name in a directory came or went: its mtime moves. ``own`` is the one that its row has, ns."""
        self._subjects.times.move(directory, own)
        self.attributes_changed(inode_of(directory))

    def entry_changed(self, parent: int, name: str) -> None:
        """A name leads elsewhere or nowhere now; sent from the notify thread."""
        self.changes += 1
        self._entries.put((parent, name.encode()))

    def when_told(self, call: Callable[[], None]) -> None:
        """``call`` is called on the notify thread once every name that changed until now was taken from the kernel."""
        self._entries.put(call)

    def alias(self, inode: int, target: int) -> None:
        """``inode`` (once a temporary) shows what ``target`` shows until the kernel forgets it (spec 1.4)."""
        self._aliases.setdefault(target, set()).add(inode)
        self.told(target)

    def unalias(self, inode: int, target: int) -> None:
        aliases = self._aliases.get(target)
        if aliases is not None:
            aliases.discard(inode)
            if not aliases:
                del self._aliases[target]

    def watch(self, inode: int, watcher: "Watcher") -> None:
        watchers = self._watchers.get(inode)
        if watchers is None:
            self._watchers[inode] = {watcher}
        else:
            watchers.add(watcher)

    def unwatch(self, inode: int, watcher: "Watcher") -> None:
        watchers = self._watchers.get(inode)
        if watchers is not None:
            watchers.discard(watcher)
            if not watchers:
                del self._watchers[inode]

    def appended(self, change: Appended) -> None:
        """Everything an append changed (spec 1.3); call it, and wait for ``hidden``, before the append is answered."""
        session = change.session
        self._subjects.changed(session)
        for file in change.files:
            inode = _FIRST_INODES[file] | session.id
            if not (file in _LOGS and self.pages.grew(inode)):
                self._grown(inode)
        if (directory := _FIRST_SESSION | session.id) not in self._outdated:
            self._outdate(directory)
        if session.id in self._contexts:
            for first in _FIRST_CONTEXT_INODES:
                self._grown(first | session.id)
        if session.owner is None:
            return
        if change.listed:
            self._grown(_FIRST_LIST | session.owner)
        if change.selected:
            self._grown(inode_of(Node(Kind.CURRENT, session.owner)))
        for key in change.keys_changed:
            self.key_changed(session.owner, "by-cwd", key)
        if change.keys_new or change.keys_gone:
            self.names_changed(Node(Kind.BY_CWD, session.owner), self._subjects.owner(session.owner).owner.mtime)
        for key in change.keys_gone:
            self._key_gone(session.owner, "by-cwd", key)

    def hidden(self, session: int) -> Future[None] | None:
        """What to wait for until the kernel knows of all lines of a session; None where it does."""
        return self.pages.hidden(_FIRST_MESSAGES | session, _FIRST_EVENTS | session)

    def context_shown(self, session: int) -> None:
        """The kernel may know attributes of files in a session's ``context/`` from now on."""
        self._contexts.add(session)

    def context_forgotten(self, session: int) -> None:
        """It must ask for them again, and is told of no append until it has."""
        self._contexts.discard(session)
        for first in _FIRST_CONTEXT_INODES:
            self.attributes_changed(first | session)

    def session_made(self, owner: int, session: Session) -> None:
        """A session was made, or branched: a branch has a cwd, and takes its key over."""
        self.owner_changed(owner)
        self._grown(inode_of(Node(Kind.LIST, owner)))
        if key := listed_key(session):
            self.key_changed(owner, "by-cwd", key)

    def removed(self, owner: int, session: int, change: Removed) -> None:
        """A session was archived or deleted: its row, its modes and its owner's index changed."""
        if len(self._shortened) >= OUTDATED:
            self._shortened.clear()
        self._shortened[owner] = time.monotonic()
        self._subjects.drop(session)
        for kind in (Kind.SESSION, Kind.CONTEXT, *SESSION_FILES.values(), *CONTEXT_FILES):
            self.attributes_changed(inode_of(Node(kind, session)))
        self.owner_changed(owner)
        for index, key in change.keys_gone:
            self._key_gone(owner, index, key)
        for index, key in change.keys_changed:
            self.key_changed(owner, index, key)

    def owner_changed(self, owner: int) -> None:
        """Sessions came or went: the directories whose mtime that is, index/list and index/current."""
        for kind in _MOVED_BY_SESSIONS:
            self.attributes_changed(inode_of(Node(kind, owner)))

    def is_unsteady(self, owner: int) -> bool:
        """Whether index/list became shorter just now, and may do so again, or grow, while it is read.

        What a page has less than the size that the kernel hears of meanwhile is zeros to its reader. Not for lists
        that only grow: a file that bypasses the pages cannot be mapped.
        """
        return self._shortened.get(owner, -UNSTEADY_S) + UNSTEADY_S > time.monotonic()

    def mapped(self, owner: int, index: IndexKind, *keys: str) -> None:
        """Keys of by-hash/ or by-uuid/ lead to sessions now, by other ways than a write to their files."""
        for key in keys:
            self.key_changed(owner, index, key)
        self.names_changed(Node(KEY_DIRECTORIES[index], owner), self._subjects.owner(owner).owner.mtime)

    def unmapped(self, owner: int, index: IndexKind, key: str) -> None:
        """A key of by-hash/ or by-uuid/ is gone, by other ways than an unlink of its file."""
        self._key_gone(owner, index, key)
        self.names_changed(Node(KEY_DIRECTORIES[index], owner), self._subjects.owner(owner).owner.mtime)

    def definition_turned(self, definition: int) -> None:
        """An agent or model became active, or idle."""
        self._grown(inode_of(Node(Kind.DEFINITION_STATUS, definition)))

    def key_changed(self, owner: int, index: IndexKind, key: str) -> None:
        number = self._subjects.interned.known(key_of(owner, index, key))
        if number is not None:
            self.attributes_changed(inode_of(Node(KEY_FILES[index], number)))

    def _key_gone(self, owner: int, index: IndexKind, key: str) -> None:
        # Its attributes as well: until its name is taken from the kernel, whoever asks is told the truth.
        self.key_changed(owner, index, key)
        self.entry_changed(inode_of(Node(KEY_DIRECTORIES[index], owner)), key)

    def _outdate(self, inode: int) -> None:
        """``attributes_changed``, of which the kernel hears once until it asks again: most lines follow another."""
        if len(self._outdated) >= OUTDATED:
            self._outdated.clear()
        self.attributes_changed(inode)
        self._outdated.add(inode)

    def _grown(self, inode: int) -> None:
        self.changes += 1
        if inode not in self._outdated:
            self._outdate(inode)
        for watcher in self._watchers.get(inode, ()):
            watcher.wake()

    def _shown(self, logs: Collection[int]) -> None:
        for inode in logs:
            self._grown(inode)

    def _drop_pages(self, inode: int) -> None:
        """On the thread of ``pages``."""
        for number in (inode, *tuple(self._aliases.get(inode, ()))):
            try:
                pyfuse3.invalidate_inode(number)
            except OSError as error:
                if error.errno not in _GONE:
                    # The thread must live on, and whoever waits for it must be answered.
                    log.exception("the kernel did not drop pages")

    def _send_entries(self) -> None:
        while (entry := self._entries.get()) is not None:
            if callable(entry):
                entry()
                continue
            try:
                pyfuse3.invalidate_entry(*entry)
            except OSError as error:
                if error.errno not in _GONE:
                    # The thread must live on: without it no name would be taken from the kernel any more.
                    log.exception("the kernel did not forget a name")


class Watcher:
    """One open handle's side of poll(2): whether its file grew since it was opened or last asked (spec 1.10)."""

    __slots__ = ("_grew", "_handle")

    def __init__(self) -> None:
        self._grew = False
        self._handle: pyfuse3.PollHandle | None = None

    def ask(self, handle: pyfuse3.PollHandle | None) -> bool:
        """Whether the file grew since the last call; ``handle`` (None: nobody waits) is woken when it grows next."""
        grew, self._grew = self._grew, False
        self._handle = handle or self._handle
        return grew

    def wake(self) -> None:
        self._grew = True
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.notify()


def _invalidate(inode: int) -> None:
    try:
        pyfuse3.invalidate_inode(inode, attr_only=True)
    except OSError as error:
        if error.errno not in _GONE:
            raise
