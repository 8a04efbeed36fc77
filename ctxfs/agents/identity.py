"""The peer's ids: for a while, or for good (spec 3.6). Single-threaded processes only: a process has one set of ids.

In the mount of an ordinary user nothing is switched: everybody there is that user.
"""

import contextlib
import os
from collections.abc import Iterator

from ctxfs.agents.launch import Identity


@contextlib.contextmanager
def acting_as(identity: Identity) -> Iterator[None]:
    """The block has all of the peer's ids; only the saved ones lead back."""
    if os.geteuid() != 0:
        yield
        return
    groups = os.getgroups()
    os.setgroups(identity.groups)
    os.setresgid(identity.gid, identity.gid, 0)
    os.setresuid(identity.uid, identity.uid, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)


def become(identity: Identity) -> None:
    """The process is the peer from now on."""
    if os.geteuid() == 0:
        os.setgroups(identity.groups)
        os.setresgid(identity.gid, identity.gid, identity.gid)
        os.setresuid(identity.uid, identity.uid, identity.uid)
