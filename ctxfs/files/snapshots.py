"""AGENTS.md and SKILLS.md: whole content, replaced when the writer closes (spec 1.4)."""

import errno
from typing import TYPE_CHECKING

from pyfuse3 import FUSEError

from backend.errors import InvalidValue, ValueTooBig
from ctxfs.files.appends import writable_session
from ctxfs.files.handles import Opening, Writer
from ctxfs.inodes import Kind, Node, inode_of

if TYPE_CHECKING:
    from ctxfs.core import Core

MAX_SNAPSHOT = 1 << 20
NAMES = {Kind.AGENTS_MD: "AGENTS.md", Kind.SKILLS_MD: "SKILLS.md"}


def put_snapshot(core: "Core", node: Node, content: bytes) -> None:
    """Replaces the snapshot, or makes it: ``EFBIG`` above 1 MiB, ``EINVAL`` unless UTF-8."""
    if core.subjects.session(node.id).access.archived:
        raise FUSEError(errno.EROFS)
    if len(content) > MAX_SNAPSHOT:
        raise ValueTooBig("a snapshot has at most 1 MiB")
    try:
        content.decode()
    except UnicodeDecodeError:
        raise InvalidValue("a snapshot is UTF-8") from None
    core.store.write_snapshot(node.id, NAMES[node.kind], content)
    core.kernel.attributes_changed(inode_of(node))


async def replace_snapshot(core: "Core", node: Node, content: bytes, _uid: int) -> None:
    """A temporary renamed onto a snapshot."""
    put_snapshot(core, node, content)
    await core.commits.sync()


class SnapshotWriter(Writer):
    """A handle on a snapshot; its writes are seen by others when it is flushed."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        writable_session(self.core, self.node.id)
        self._append = opening.appends
        self._draft: bytearray | None = None

    def _edit(self) -> bytearray:
        if self._draft is None:
            self._draft = bytearray(self.core.store.read_snapshot(self.node.id, NAMES[self.node.kind]))
        return self._draft

    async def write(self, offset: int, data: bytes) -> int:
        draft = self._edit()
        start = len(draft) if self._append else offset
        self._resize(max(len(draft), start + len(data)))
        draft[start : start + len(data)] = data
        return len(data)

    def truncate(self, size: int) -> None:
        self._edit()
        self._resize(size)

    def truncate_at_open(self) -> None:
        """Readers see the old content until the new one is flushed."""
        self._draft = bytearray()

    def _resize(self, size: int) -> None:
        if size > MAX_SNAPSHOT:
            raise ValueTooBig("a snapshot has at most 1 MiB")
        self.hold(size)
        draft = self._edit()
        draft[size:] = bytes(max(0, size - len(draft)))

    async def flush(self) -> None:
        if self._draft is not None:
            put_snapshot(self.core, self.node, bytes(self._draft))
            self._draft = None
            self.unsynced = True
        await self.synced()
