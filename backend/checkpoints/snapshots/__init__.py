"""Where a workspace's snapshots are: the protocol that every back end keeps (spec 6.5).

A call returns when what it did is on disk, or raises and has done nothing; ``OSError`` is the disk's, ``TreeChanged``
somebody's who writes in the workspace. Calls on one workspace never overlap, but for reading ones among themselves.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from backend.checkpoints.identity import Identity
from backend.checkpoints.wire import DiffEntry


class Snapshots(Protocol):
    """The live tree of one workspace, and its snapshots by id."""

    backend: str

    @property
    def root(self) -> Path:
        """Where the live tree is."""

    def identity(self) -> Identity:
        """Which directory stands at the workspace's path (``OSError``: none, or another kind)."""

    def live_identity(self) -> Identity:
        """Which directory the live tree is, whatever the path leads to (``OSError``: there is none)."""

    def identity_of(self, root: int) -> Identity:
        """The same of an open one."""

    def staged_identity(self) -> Identity:
        """Which directory is where trees are built (``OSError``: there is none)."""

    @property
    def bucket(self) -> Path:
        """The directory of the snapshots."""

    def ids(self) -> set[str]:
        """The snapshots on disk."""

    def move_in(self, announce: Callable[[Identity, Identity | None], None]) -> None:
        """Makes the directory at the path the live tree.

        ``announce`` is told first which one it is, and which the live tree is until then, if there is another. If the
        directory itself does not become it, it is left for ``clear``.
        """

    def has_moved_in(self) -> bool:
        """Whether the directory has become another one, to which the path leads."""

    def move_out(self, live: Identity | None) -> None:
        """Undoes a ``move_in`` that did not come to its end; ``live`` as it was announced. Snapshots stay."""

    def link(self) -> None:
        """Makes the path lead to the live tree again, if nothing is there."""

    def take(self, id: str, live: int) -> None:
        """Makes a snapshot of the live tree, which is open."""

    def delete(self, id: str) -> None:
        """Deletes a snapshot; after an error some of it may be left, which ``clear`` removes."""

    def changes(self, old: str, new: str) -> list[DiffEntry]:
        """What differs between two snapshots."""

    def restore(self, id: str, announce: Callable[[Identity], None]) -> Identity:
        """Makes the live tree what a snapshot holds; which directory it is now.

        ``announce`` is told which directory it will be before it is. What the tree was is left for ``clear``.
        """

    def clear(self, owned: Identity | None) -> None:
        """Removes what an operation left: parts of snapshots, and the directory ``owned`` where trees are built."""

    def release(self, announce: Callable[[Identity], None]) -> None:
        """Makes the workspace an ordinary directory of its own; ``announce`` as for ``restore``."""

    def destroy(self) -> None:
        """Deletes all snapshots, and whatever else there is of the workspace but its ordinary directory."""

    def disk(self) -> Path:
        """A directory on the disk that holds the snapshots."""
