"""Which directory of the host a path of an agent's view is, without making the view (spec 3.4, 6.8).

The answer is that of the launcher: what is attached covers what is below it, the later the more; links and ``..`` stay
in the view. Names are looked up with the caller's own rights, one after another, so it is an answer for the moment:
whoever uses it decides for themselves what the caller may do there.
"""

import errno
import os
from collections.abc import Sequence

from ctxfs.agents.launch import View

CTX = "/ctx"
_MAX_LINKS = 40

_Attached = Sequence[tuple[list[str], str]]


def host_path(view: View, path: str) -> str:
    """The real path of the directory (``OSError``: there is none in the view, or the caller may not look)."""
    attached, inside, waiting, links = _attached(view), list[str](), _parts(path), 0
    while waiting:
        name = waiting.pop()
        if name == "..":
            del inside[-1:]
            continue
        target = _link(_place(attached, [*inside, name]))
        if target is None:
            inside.append(name)
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if target.startswith("/"):
            inside.clear()
        waiting += _parts(target)
    found = _place(attached, inside)
    if not os.path.isdir(found):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return found


def context_is_attached(view: View) -> bool:
    """Whether the view has the tree at ``/ctx`` that is elsewhere on the host."""
    return view.root != "/" or (view.mountpoint != CTX and os.path.isdir(CTX))


def source_on_host(view: View, source: str) -> str:
    """What a row's source means: below ``/ctx`` it is in the tree, wherever that is mounted."""
    if source == CTX or source.startswith(f"{CTX}/"):
        return view.mountpoint + source.removeprefix(CTX)
    return source


def _attached(view: View) -> _Attached:
    """What is in the view, by the parts of its path there; what comes later covers what came before."""
    attached = [] if view.root is None else [(list[str](), os.path.realpath(view.root))]
    if context_is_attached(view):
        attached.append((_parts(CTX), os.path.realpath(view.mountpoint)))
    for row in view.rows:
        attached.append((row.target[1:].split("/"), os.path.realpath(source_on_host(view, row.source))))
    return attached


def _place(attached: _Attached, parts: list[str]) -> str:
    for target, source in reversed(attached):
        if parts[: len(target)] == target:
            return os.path.join(source, *parts[len(target) :])
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/".join(parts))


def _link(place: str) -> str | None:
    """What a symlink holds, None if it is none (``OSError``: there is nothing)."""
    try:
        return os.readlink(place)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return None


def _parts(path: str) -> list[str]:
    """The names of a path, the first one last."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]
