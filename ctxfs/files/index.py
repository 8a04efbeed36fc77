"""The files below ``index/``: by-cwd (derived), by-hash and by-uuid (the owner's to make) (spec 1.2, 1.4)."""

import errno
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyfuse3 import FUSEError

from backend.errors import Missing
from backend.rows import IndexKind
from ctxfs.files.directories import PAGE, Caller, Found
from ctxfs.inodes import Key
from ctxfs.privacy import check_space
from ctxfs.subjects import OwnerSubject

if TYPE_CHECKING:
    from ctxfs.core import Core


def key_of(owner: int, index: IndexKind, name: str) -> Key:
    """By what a file of by-*/ is interned."""
    return "key", owner, index, name


def key_files(index: IndexKind) -> tuple[Any, Any, None, Any]:
    """The functions of one directory of keys: find, list, (none is made by mkdir), remove.

    A key that is found need not lead to a session (yet); listings page by the mapping's id.
    """

    def find(_core: "Core", subject: OwnerSubject, name: str, _uid: int) -> Key:
        return key_of(subject.owner.id, index, name)

    def each(core: "Core", subject: OwnerSubject, after: int, _uid: int) -> Iterable[Found]:
        while page := core.store.mappings(subject.owner.id, index, after, PAGE):
            for mapping in page:
                yield Found(mapping.id, mapping.key, key_of(subject.owner.id, index, mapping.key))
            after = page[-1].id

    def remove(core: "Core", subject: OwnerSubject, name: str, caller: Caller) -> None:
        check_space(subject.access, caller.uid)
        mapping = core.store.mapping(subject.owner.id, index, name)
        if mapping is None:
            raise Missing(f"no key {name!r}")
        if index == "by-cwd":
            raise FUSEError(errno.EPERM)
        core.store.remove_mapping(mapping.id)

    return find, each, None, remove
