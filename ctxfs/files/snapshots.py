"""AGENTS.md and SKILLS.md: whole content, replaced when the writer closes (spec 1.4)."""

from typing import TYPE_CHECKING

from pyfuse3 import FUSEError

from backend.errors import InvalidValue, ValueTooBig
from ctxfs.files.appends import writable_session
from ctxfs.files.handles import MakingWriter, Opening
from ctxfs.inodes import Kind, Node, inode_of

if TYPE_CHECKING:
    from ctxfs.core import Core

MAX_SNAPSHOT = 1 << 20
NAMES = {Kind.AGENTS_MD: "AGENTS.md", Kind.SKILLS_MD: "SKILLS.md"}


def put_snapshot(core: "Core", node: Node, content: bytes) -> None:
    """Replaces the snapshot, or makes it: ``EFBIG`` above 1 MiB, ``EINVAL`` unless UTF-8; the same is no change."""
    writable_session(core, node.id)
    if len(content) > MAX_SNAPSHOT:
        raise ValueTooBig("a snapshot has at most 1 MiB")
    try:
        content.decode()
    except UnicodeDecodeError:
        raise InvalidValue("a snapshot is UTF-8") from None
    name = NAMES[node.kind]
    if core.store.snapshot(node.id, name) is not None and core.store.read_snapshot(node.id, name) == content:
        return
    core.store.write_snapshot(node.id, name, content)
    core.kernel.attributes_changed(inode_of(node))


async def replace_snapshot(core: "Core", node: Node, content: bytes, _uid: int) -> None:
    """A temporary renamed onto a snapshot."""
    put_snapshot(core, node, content)
    await core.commits.sync()


def truncate_snapshot(core: "Core", node: Node, size: int) -> None:
    """Cuts it, or fills it with zeros; to nothing, it changes nothing."""
    if size:
        content = core.store.read_snapshot(node.id, NAMES[node.kind])
        put_snapshot(core, node, content[:size].ljust(min(size, MAX_SNAPSHOT + 1), b"\0"))


def remove_snapshot(core: "Core", node: Node) -> None:
    """``unlink``."""
    core.store.remove_snapshot(node.id, NAMES[node.kind])


class SnapshotWriter(MakingWriter):
    """A handle on a snapshot; its writes are seen by others when it is flushed, by itself at once."""

    def __init__(self, opening: Opening) -> None:
        writable_session(opening.core, opening.node.id)
        super().__init__(opening)
        self._append = opening.appends
        self._name = NAMES[self.node.kind]
        self._makes = self.core.store.snapshot(self.node.id, self._name) is None
        self._draft = bytearray() if self._makes else None
        self._changed = self._makes
        self._refused = False

    def _edit(self) -> bytearray:
        """The content that is being written; of what was refused in part there is none."""
        writable_session(self.core, self.node.id)
        if self._refused:
            raise ValueTooBig("a part of this content was refused: truncate, and write it anew")
        if self._draft is None:
            present = self.core.store.read_snapshot(self.node.id, self._name)
            self.hold(len(present))
            self._draft = bytearray(present)
        return self._draft

    async def read(self, offset: int, size: int) -> bytes:
        if self._draft is None:
            return await super().read(offset, size)
        return bytes(self._draft[offset : offset + size])

    async def write(self, offset: int, data: bytes) -> int:
        draft = self._edit()
        start = len(draft) if self._append else offset
        self._resize(max(len(draft), start + len(data)))
        draft[start : start + len(data)] = data
        self._changed = True
        return len(data)

    def truncate(self, size: int) -> None:
        """To nothing, it changes nothing until something is written; readers see the old content until a flush."""
        if size == 0:
            writable_session(self.core, self.node.id)
            self._refused = False
            self._draft = bytearray()
            self.hold(0)
        else:
            self._resize(size)
        self._changed = size > 0

    def truncate_at_open(self) -> None:
        if not self._makes:
            self._draft = bytearray()

    def _resize(self, size: int) -> None:
        draft = self._edit()
        try:
            if size > MAX_SNAPSHOT:
                raise ValueTooBig("a snapshot has at most 1 MiB")
            self.hold(size)
        except (ValueTooBig, FUSEError):
            self._refuse()
            raise
        draft[size:] = bytes(max(0, size - len(draft)))

    def _refuse(self) -> None:
        """Of content that was refused in part (too big, or no memory left), the rest must not replace anything."""
        self._refused = True
        self._draft = None
        self.hold(0)

    async def flush(self) -> None:
        if self._changed and not self._refused and self._draft is not None:
            put_snapshot(self.core, self.node, bytes(self._draft))
            self._changed = False
            self.stored()
        await self.synced()
