"""``context/`` of a session: its derived files, and where the runtime's own files beside them are kept (spec 1.7)."""

from typing import TYPE_CHECKING

from ctxfs.files.handles import Handle, Opening
from ctxfs.inodes import Node
from ctxfs.kernel_cache import CONTEXT_FILES

if TYPE_CHECKING:
    from backend.rows import Session
    from ctxfs.core import Core


def root_key(core: "Core", session: "Session") -> str:
    """The key of the ordinary directory that holds the runtime's files; it need not be there."""
    return core.store.context_directory(session.id) or f"{_space(core, session)}/context/{session.id}"


def _space(core: "Core", session: "Session") -> str:
    if session.archive is not None:
        return core.subjects.archive(session.archive).directory.space
    assert session.owner is not None
    return core.subjects.owner(session.owner).owner.space


def changed_at(core: "Core", session: "Session") -> int:
    """When a name in the directory last changed, ns."""
    return max(session.created_mtime, core.disk.closed_roots.mtime(root_key(core, session)))


def unlink_derived(core: "Core", node: Node) -> None:
    """It comes back, made anew from the log."""
    core.contexts.forget(node.id)


class DerivedHandle(Handle):
    """An open derived file; while it is open what is known of its session is kept."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._file = CONTEXT_FILES[self.node.kind]
        self._seen = self._mtime()
        self.core.contexts.use(self.node.id)

    def _mtime(self) -> int:
        return self.core.contexts.mtime(self.core.subjects.session(self.node.id).session, self._file)

    async def read(self, offset: int, size: int) -> bytes:
        return await self.core.contexts.read(self.node.id, self._file, offset, size)

    async def has_changed(self) -> bool:
        await self.core.contexts.ready(self.node.id, self._file)
        seen, self._seen = self._seen, self._mtime()
        return seen != self._seen

    def release(self) -> None:
        self.core.contexts.leave(self.node.id)
        super().release()
