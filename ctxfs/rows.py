"""The columns of the table of files (``ctxfs.table``): what a row says of one kind, and where kinds are found."""

import dataclasses
import stat
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from backend.rows import Stream
from ctxfs.files.directories import Caller, Found
from ctxfs.files.handles import Handle, Opening
from ctxfs.inodes import Key, Kind, Node
from ctxfs.privacy import Modes
from ctxfs.subjects import Subjects

if TYPE_CHECKING:
    from ctxfs.core import Core


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of file.

    ``show`` gives the content, ``size`` its length where that needs no content; ``stream`` is a log file, read by
    ranges. ``reader`` makes the handle of a reader, ``open`` that of a writer (none: derived), ``accept`` takes a
    temporary renamed onto it.
    ``truncate`` is a change of size by path (without it: to nothing, which is none). ``unlink`` removes it.
    ``exists`` is asked where a name may lead to nothing; ``creatable`` names may be made by ``open(O_CREAT)``.
    ``give`` changes a directory's uid, gid and mode for an admin. ``temporaries`` says which other names in it may be
    temporaries. ``roots``: ordinary directories in it.
    """

    name: str
    parents: tuple[Kind, ...]
    modes: Modes
    load: Callable[[Subjects, int], Any]
    mtime: Callable[["Core", Any], int]
    show: Callable[["Core", Any], bytes] | None = None
    size: Callable[["Core", Any], int] | None = None
    stream: Stream | None = None
    reader: Callable[[Opening], Handle] = Handle
    open: Callable[[Opening], Handle] | None = None
    accept: Callable[["Core", Node, bytes, int], Awaitable[None]] | None = None
    exists: Callable[["Core", Any], bool] | None = None
    truncate: Callable[["Core", Node, int], None] | None = None
    unlink: Callable[["Core", Node], None] | None = None
    creatable: bool = False
    give: Callable[["Core", Any, int, int, int], None] | None = None
    temporaries: Callable[[str], bool] | None = None
    roots: Callable[[Any], dict[str, str]] | None = None

    is_directory: bool = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_directory", stat.S_ISDIR(self.modes.private))


@dataclasses.dataclass(frozen=True, slots=True)
class Pattern:
    """Files of one kind in one kind of directory, by name: how they are found, listed, made and removed.

    ``fits`` says which names may be made (spec 1.1). ``bind`` makes the row of a socket that is being bound.
    """

    parent: Kind
    kind: Kind
    fits: Callable[[str], bool]
    find: Callable[["Core", Any, str, int], int | Key | None]
    each: Callable[["Core", Any, int, int], Iterable[Found]]
    make: Callable[["Core", Any, str, Caller], int | Key] | None = None
    remove: Callable[["Core", Any, str, Caller], None] | None = None
    bind: Callable[["Core", Any, str, Caller], int] | None = None
