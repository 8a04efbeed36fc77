"""Mount options: what ``-o`` takes and what of it reaches the kernel (spec 4.6, 1.8). Pure."""

import re
from typing import NamedTuple

from backend.errors import InvalidValue

_KERNEL = frozenset(("ro", "noexec", "noatime", "sync", "dirsync"))
_ALWAYS = frozenset(("default_permissions", "nosuid", "nodev"))
_DEFAULTS = frozenset(("rw", "exec", "async", "defaults")) | _ALWAYS
# libfuse refuses these for a mount that would be the same with them: a FUSE mount's times of access are its daemon's.
_WITHOUT_EFFECT = frozenset(("atime", "diratime", "nodiratime", "relatime", "strictatime", "lazytime"))
_FSTAB = frozenset(("auto", "noauto", "user", "nouser", "users", "owner", "group", "nofail", "_netdev"))
_TAKEN = _DEFAULTS | _WITHOUT_EFFECT | _FSTAB
_FSTAB_PREFIXES = ("x-", "comment=")
# What these say goes to the daemon, and nothing of it to the kernel (spec 4.6).
_OWN = {"store": (re.compile(".+"), "a directory"), "agent_timeout": (re.compile("[0-9]{1,9}"), "a time in seconds")}
_REFUSED = {
    "suid": "the mount is always nosuid",
    "dev": "the mount is always nodev",
    "auto_unmount": "a crash must leave a dead mount, never an empty directory",
    "max_read": "the kernel refuses it",
    "nonempty": "the mountpoint must be empty",
    "fsname": "it is the store's path",
    "subtype": "it is ctxfs",
    "allow_root": "root mounts for every user, a user for themselves alone",
}


class MountOptions(NamedTuple):
    """Parsed ``-o``: options for the kernel, the store's directory, the seconds that a run may take."""

    kernel: frozenset[str]
    store: str | None = None
    agent_timeout: int | None = None


def parse_options(text: str) -> MountOptions:
    """Comma-separated mount options; those for fstab and systemd are left out, unknown ones refused by name."""
    kernel: set[str] = set()
    own: dict[str, str] = {}
    for option in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = option.partition("=")
        if key in _OWN:
            own[key] = _value_of(key, value)
        elif key in _REFUSED:
            raise InvalidValue(f"mount option {key!r}: {_REFUSED[key]}")
        elif option in _KERNEL or option == "allow_other":
            kernel.add(option)
        elif option not in _TAKEN and not option.startswith(_FSTAB_PREFIXES):
            raise InvalidValue(f"unknown mount option {option!r}")
    seconds = own.get("agent_timeout")
    return MountOptions(frozenset(kernel), own.get("store"), None if seconds is None else int(seconds))


def _value_of(key: str, value: str) -> str:
    pattern, meaning = _OWN[key]
    if not pattern.fullmatch(value):
        raise InvalidValue(f"mount option {key!r} needs {meaning}")
    return value


def fuse_options(store: str, chosen: frozenset[str], *, owner_uid: int | None) -> frozenset[str]:
    """What the FUSE library is given: for every user if root mounts, else for ``owner_uid`` alone (spec 1.8)."""
    if owner_uid is not None and "allow_other" in chosen:
        raise InvalidValue("mount option 'allow_other': a user's mount is for that user alone")
    allow = frozenset(("allow_other",)) if owner_uid is None else frozenset[str]()
    names = frozenset((f"fsname={_escape(store)}", "subtype=ctxfs"))
    return _ALWAYS | allow | names | (chosen - {"allow_other"})


def _escape(text: str) -> str:
    """libfuse splits options at commas and takes a backslash as an escape; pyfuse3 takes ASCII, so the rest is told."""
    told = text.encode("ascii", "backslashreplace").decode("ascii")
    return told.replace("\\", "\\\\").replace(",", "\\,")
