"""Paths in an agent's view, resolved with the peer's rights and never past its root (spec 3.4).

Every call is made with the peer's ids (``identity.acting_as``). What is resolved is held by a descriptor, so no rename
or link that comes later changes what was judged.
"""

import contextlib
import errno
import os
import stat

from backend.system_calls import RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS, open_resolving

_LEADS_NOWHERE = (errno.ENOENT, errno.ELOOP, errno.ENAMETOOLONG)


def open_in_view(root: int, path: str, flags: int) -> int:
    """openat2(2) below ``root``: ``..`` and links stay in it, magic links lead nowhere (``ELOOP``)."""
    return open_resolving(root, os.fsencode(path), flags, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)


def resolve_cwd(root: int, cwd: str, *, on_host: bool) -> int:
    """A descriptor of the directory that ``cwd`` is in the view ``root``; ``on_host``: what ``is_on_host`` said of it.

    ``FileNotFoundError``: missing, or not to be seen by the peer on the host either. ``PermissionError``: not in the
    view but there when followed on the host, or not searchable. ``NotADirectoryError``.
    """
    try:
        descriptor = open_in_view(root, cwd, os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        if error.errno not in _LEADS_NOWHERE:
            raise OSError(error.errno, f"cwd {cwd!r}: {error.strerror}") from None
        if on_host:
            raise PermissionError(errno.EACCES, f"cwd {cwd!r} is outside of the agent's view") from None
        raise FileNotFoundError(errno.ENOENT, f"no directory {cwd!r} in the agent's view") from None
    if not os.access(f"/proc/self/fd/{descriptor}", os.X_OK):
        os.close(descriptor)
        raise PermissionError(errno.EACCES, f"cwd {cwd!r} cannot be searched")
    return descriptor


def find_executable(root: int, cwd: str, name: str, path: str) -> str:
    """The path in the view of what ``name`` runs: as execvp(3) has it (``FileNotFoundError``, ``PermissionError``)."""
    candidates = [name] if "/" in name else [f"{directory or cwd}/{name}" for directory in path.split(":")]
    failure: OSError = FileNotFoundError(errno.ENOENT, f"no executable {name!r} in the agent's view")
    for candidate in (os.path.join(cwd, each) for each in candidates):
        try:
            _check_executable(root, candidate)
        except PermissionError as error:
            failure = error
        except OSError:
            continue
        else:
            return candidate
    raise failure


def _check_executable(root: int, path: str) -> None:
    descriptor = open_in_view(root, path, os.O_PATH)
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        if not regular or not os.access(f"/proc/self/fd/{descriptor}", os.X_OK):
            raise PermissionError(errno.EACCES, f"{path!r} in the agent's view cannot be executed")
    finally:
        os.close(descriptor)


def is_on_host(host_root: int, cwd: str) -> bool:
    """Whether a path means something where there is no view: as it stands, or followed from the view's root.

    ``host_root``: that root as the host has it. To be asked before a view is attached, as ``..`` could lead into it.
    """
    for path, directory in ((cwd, None), (f".{cwd}", host_root)):
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_PATH, dir_fd=directory))
            return True
    return False
