"""``rename`` in the tree: a save, an archived session, or refused (spec 1.4, Temporaries and renames)."""

import errno
from typing import TYPE_CHECKING

from pyfuse3 import RENAME_NOREPLACE, FUSEError

from backend.errors import Exists, Missing
from ctxfs.attributes import names_changed
from ctxfs.files import sessions
from ctxfs.files.temporaries import Temporary
from ctxfs.inodes import INTERNED, Kind, inode_of
from ctxfs.tree import Entry, Tree

if TYPE_CHECKING:
    from ctxfs.core import Core


class Renames:
    """One request each: (old directory, old name) → (new directory, new name), by ``uid``."""

    def __init__(self, core: "Core", tree: Tree) -> None:
        self._core = core
        self._tree = tree

    async def rename(self, old: Entry, name: str, new: Entry, new_name: str, flags: int, uid: int) -> None:
        if flags & ~RENAME_NOREPLACE:
            raise FUSEError(errno.EINVAL)
        temporary = self._core.temporaries.find(inode_of(old.node), uid, name)
        if temporary is not None:
            await self._save(temporary, new, new_name, flags)
            return
        moved = self._tree.lookup(old, name, uid)
        if moved is None:
            root = self._tree.roots(old).get(name)
            if root is not None and self._core.disk.has_root(root):
                raise FUSEError(errno.EPERM)
            raise Missing("no such file")
        if moved.node.kind is not Kind.SESSION or new.node.kind is not Kind.ARCHIVE_DIRECTORY:
            raise FUSEError(errno.EROFS if moved.access.archived else errno.EPERM)
        if moved.access.archived:
            raise FUSEError(errno.EROFS)
        sessions.archive_session(self._core, moved.node.id, new.node.id, new_name, uid)

    async def _save(self, temporary: Temporary, new: Entry, name: str, flags: int) -> None:
        """A temporary renamed: onto a file of the table it is a write to that file."""
        assert temporary.key is not None
        directory, uid, _ = temporary.key
        if directory != inode_of(new.node):
            raise FUSEError(errno.EXDEV)
        target = self._tree.named(new, name, uid)
        taken = self._core.temporaries.find(directory, uid, name) is not None
        if flags & RENAME_NOREPLACE and (taken or (target is not None and self._tree.present(target))):
            raise Exists(f"{name} exists")
        if target is None:
            if new.row.temporaries is None or not new.row.temporaries(name):
                raise FUSEError(errno.EINVAL)
            self._core.temporaries.rename(temporary, name)
        else:
            is_new = not self._tree.present(target)
            await self._replace(temporary, target)
            self._core.kernel.entry_changed(directory, name)
            if is_new:
                names_changed(self._core, new)

    async def _replace(self, temporary: Temporary, target: Entry) -> None:
        if target.row.accept is None:
            raise FUSEError(errno.EISDIR if target.row.is_directory else errno.EACCES)
        interned = self._core.subjects.interned
        if target.node.kind in INTERNED:
            # The alias counts as one lookup: its target's number must live as long.
            interned.remember(target.node.id)
        try:
            await target.row.accept(self._core, target.node, bytes(temporary.content), temporary.uid)
        except Exception:
            if target.node.kind in INTERNED:
                interned.forget(target.node.id, 1)
            raise
        self._core.kernel.alias(inode_of(temporary.node), inode_of(target.node))
        self._core.temporaries.become(temporary, target.node)
