"""Names → files: what follows from the table of ``ctxfs.table`` over one mount's core. Reads only."""

import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from pyfuse3 import FUSEError

from backend.errors import Missing
from ctxfs.inodes import Key, Kind, Node
from ctxfs.patterns import BY_NAME, FOUND, NAMED
from ctxfs.privacy import Access
from ctxfs.rows import Pattern, Row
from ctxfs.table import TABLE

if TYPE_CHECKING:
    from ctxfs.core import Core

OFFSET_BITS = 48


class Entry(msgspec.Struct, frozen=True):
    """A file that was found: its node, row and subject."""

    node: Node
    row: Row
    subject: Any

    @property
    def access(self) -> Access:
        access: Access = self.subject.access
        return access


class Tree:
    """Names → entries, over one mount's core. Pure reading; changes are the functions that rows name."""

    def __init__(self, core: "Core") -> None:
        self._core = core

    def entry(self, node: Node) -> Entry:
        """The entry of a node that the kernel knows.

        ``ESTALE`` once its subject is gone: the kernel then looks the name up again, which may lead elsewhere by now.
        """
        row = TABLE[node.kind]
        try:
            return Entry(node, row, row.load(self._core.subjects, node.id))
        except Missing:
            raise FUSEError(errno.ESTALE) from None

    def present(self, entry: Entry) -> bool:
        """Whether the name leads anywhere now, or a writer is about to make it."""
        exists = entry.row.exists
        return exists is None or exists(self._core, entry.subject) or self._is_pending(entry)

    def _is_pending(self, entry: Entry) -> bool:
        return entry.node in self._core.pending and not entry.access.archived

    def named(self, directory: Entry, name: str, uid: int) -> Entry | None:
        """What the table has under that name in a directory, there or not."""
        named = BY_NAME[directory.node.kind].get(name)
        if named is not None:
            return self.entry(Node(named, directory.node.id))
        for pattern in FOUND[directory.node.kind]:
            number = pattern.find(self._core, directory.subject, name, uid) if pattern.fits(name) else None
            if number is not None:
                return self.entry(self.node(pattern.kind, number))
        return None

    def node(self, kind: Kind, id: int | Key) -> Node:
        """The node of what a pattern found or made; the kernel is to be told of it next."""
        return Node(kind, self._core.subjects.interned.id(id) if isinstance(id, tuple) else id)

    def lookup(self, directory: Entry, name: str, uid: int) -> Entry | None:
        """What is there under that name."""
        entry = self.named(directory, name, uid)
        return entry if entry is not None and self.present(entry) else None

    def children(self, directory: Entry, start: int, uid: int) -> Iterator[tuple[int, str, Entry]]:
        """Entries after offset ``start``: (offset to go on from, name, entry). Offsets are stable, never positions."""
        for offset, (kind, row) in enumerate(NAMED[directory.node.kind], 1):
            if offset > start:
                entry = self.entry(Node(kind, directory.node.id))
                if self.present(entry):
                    yield offset, row.name, entry
        for ordinal, pattern in enumerate(FOUND[directory.node.kind], 1):
            base = ordinal << OFFSET_BITS
            if start < base + (1 << OFFSET_BITS):
                yield from self._found(directory, pattern, base, max(0, start - base), uid)

    def _found(
        self, directory: Entry, pattern: Pattern, base: int, after: int, uid: int
    ) -> Iterator[tuple[int, str, Entry]]:
        row = TABLE[pattern.kind]
        for found in pattern.each(self._core, directory.subject, after, uid):
            node = self.node(pattern.kind, found.id)
            subject = found.subject or row.load(self._core.subjects, node.id)
            yield base + found.offset, found.name, Entry(node, row, subject)

    def known_below(self, directory: Node) -> Iterator[Node]:
        """All that the kernel may know below a directory; what it does not know gets no number."""
        for kind, row in NAMED[directory.kind]:
            node = Node(kind, directory.id)
            yield node
            if row.is_directory:
                yield from self.known_below(node)
        if FOUND[directory.kind]:
            yield from self._known_found(self.entry(directory))

    def _known_found(self, directory: Entry) -> Iterator[Node]:
        interned = self._core.subjects.interned
        for pattern in FOUND[directory.node.kind]:
            for found in pattern.each(self._core, directory.subject, 0, 0):
                id = interned.known(found.id) if isinstance(found.id, tuple) else found.id
                if id is not None:
                    yield Node(pattern.kind, id)
                    yield from self.known_below(Node(pattern.kind, id))

    def roots(self, directory: Entry) -> dict[str, str]:
        """Ordinary directories in a directory: name → their key on disk."""
        return directory.row.roots(directory.subject) if directory.row.roots else {}
