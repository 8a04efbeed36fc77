"""Whose sessions a peer of ``agent/ctx.sock`` may name (spec 1.8, 3.1). FUSE thread only.

What the kernel checks of a process that walks the tree is checked here of a peer: a home is its uid's, a shared space
is who its mode bits let in.
"""

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from backend.asking import SESSIONS
from backend.errors import InvalidValue, Missing
from backend.names import is_name, is_owner_name, is_session_name
from backend.rows import Owner, OwnerKind, Session, Space
from ctxfs.bridge import Bridge
from ctxfs.sockets.connection import Peer

if TYPE_CHECKING:
    from ctxfs.core import Core

_MODEL_PREFIX = "model:"
READ, CHANGE = 0o5, 0o7


class Place(Protocol):
    """The fields of a request that name a space."""

    @property
    def home(self) -> int | None: ...
    @property
    def space(self) -> str | None: ...


def space_of(core: "Core", peer: Peer, place: Place, wanted: int) -> str:
    """The name of the space, ``EACCES`` unless the peer may do there what ``wanted`` (READ, CHANGE) says."""
    if place.space is None:
        home = peer.uid if place.home is None else place.home
        if peer.uid not in (0, home) or (core.alone and home != core.mounter):
            raise PermissionError(errno.EACCES, "a home is its own user's alone")
        return f"home/{home}"
    if place.home is not None or not is_name(place.space):
        raise InvalidValue("space is the name of a shared space, and home is not given with it")
    space = None if core.alone else core.store.space(f"shared/{place.space}")
    if space is None:
        raise Missing(f"no shared space {place.space!r}")
    if peer.uid and _allowed(space, peer) & wanted != wanted:
        raise PermissionError(errno.EACCES, f"not a member of the shared space {place.space!r}")
    return space.name


def _allowed(space: Space, peer: Peer) -> int:
    """The permission bits that are the peer's, as the kernel chooses them."""
    if peer.uid == space.uid:
        return space.mode >> 6 & 7
    return space.mode >> 3 & 7 if space.gid in peer.groups else space.mode & 7


def owner_of(core: "Core", space: str, agent: str) -> Owner:
    """An agent of a space, or ``model:[PROVIDER/]MODEL``."""
    if not is_owner_name(agent):
        raise InvalidValue("agent is the name of an agent, or model: and that of a model")
    kind: OwnerKind = "model" if agent.startswith(_MODEL_PREFIX) else "agent"
    name = agent.removeprefix(_MODEL_PREFIX)
    owner = core.store.owner(space, kind, name)
    if owner is None:
        raise Missing(f"no {kind} {name!r} in {space}")
    return owner


def agent_name(owner: Owner) -> str:
    """The inverse of ``owner_of``."""
    return owner.name if owner.kind == "agent" else f"{_MODEL_PREFIX}{owner.name}"


def owners_of(core: "Core", space: str, agent: str | None) -> list[Owner]:
    """The one that is named, else all agents and models of a space, by kind and id."""
    if agent is not None:
        return [owner_of(core, space, agent)]
    kinds: tuple[OwnerKind, ...] = ("agent", "model")
    return [owner for kind in kinds for owner in sorted(core.store.owners(space, kind), key=lambda owner: owner.id)]


def session_of(core: "Core", owner: Owner, name: str) -> Session | None:
    """A live session by name, None where there is none (``InvalidValue``: there can be none)."""
    if not is_session_name(name):
        raise InvalidValue("session is the name of a session")
    return core.store.session(owner.id, name)


async def sessions_after(bridge: Bridge, owner: Owner, after: int) -> Sequence[Session]:
    """Live sessions of an owner with an id above ``after``, by id: some of them, none at the end. Trio's thread."""
    return await bridge.run(lambda core: core.store.sessions(owner.id, after, SESSIONS))
