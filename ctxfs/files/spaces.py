"""Homes, shared spaces, and the agents, models and providers in them (spec 1.2, 1.8)."""

import errno
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyfuse3 import FUSEError

from backend.errors import Exists, Missing, NotEmpty
from backend.rows import Owner, OwnerKind
from ctxfs.files.directories import Caller, Found
from ctxfs.files.providers import model_removed, provider_directories
from ctxfs.inodes import Kind, Node
from ctxfs.privacy import check_admin, check_space
from ctxfs.subjects import Nothing, OwnerSubject, ProviderSubject, SpaceSubject

if TYPE_CHECKING:
    from ctxfs.core import Core

AGENT_DIRECTORIES = ("root", "data", "cache", "log")


def find_home(core: "Core", _: Nothing, name: str, _uid: int) -> int | None:
    """Every uid has a home, stored or not; a user's own mount shows that user's alone."""
    number = int(name)
    return None if core.alone and number != core.mounter else number


def each_home(core: "Core", _: Nothing, after: int, uid: int) -> Iterable[Found]:
    """The opener's own; uid 0 sees the stored ones."""
    stored = (int(space.name.removeprefix("home/")) for space in core.store.spaces("home/"))
    uids = sorted(stored) if uid == 0 and not core.alone else [uid]
    return [Found(number + 1, str(number), number) for number in uids if number + 1 > after]


def make_home(_core: "Core", _: Nothing, _name: str, _caller: Caller) -> int:
    """Every home is there without being made; what is not is another's, in a user's own mount."""
    raise FUSEError(errno.EPERM)


def find_shared(core: "Core", _: Nothing, name: str, _uid: int) -> int | None:
    """A shared space by name; none in a user's own mount."""
    if core.alone or core.store.space(f"shared/{name}") is None:
        return None
    return core.subjects.space_id(f"shared/{name}")


def each_shared(core: "Core", _: Nothing, after: int, _uid: int) -> Iterable[Found]:
    spaces = [] if core.alone else core.store.spaces("shared/")
    return [
        Found(space.id, space.name.removeprefix("shared/"), core.subjects.space_id(space.name))
        for space in sorted(spaces, key=lambda space: space.id)
        if space.id > after
    ]


def make_shared(core: "Core", _: Nothing, name: str, caller: Caller) -> int:
    """``mkdir shared/<name>`` by an admin: root's, 2770, until it is given to a group."""
    check_admin(core.mounter, caller.uid)
    core.disk.make_root(f"shared/{name}/data", core.mounter, caller.gid, 0o2770)
    core.store.add_space(f"shared/{name}", core.mounter, caller.gid, 0o2770)
    return core.subjects.space_id(f"shared/{name}")


def give_shared(core: "Core", space: SpaceSubject, uid: int, gid: int, mode: int) -> None:
    """``chown`` and ``chmod`` by an admin; its ordinary directory goes along, where its members left one."""
    core.store.change_space(space.name, uid, gid, mode)
    core.subjects.forget_places()
    for key in shared_roots(space).values():
        if core.disk.has_root(key):
            core.disk.change_root(key, uid, gid, mode)


def remove_shared(core: "Core", _: Nothing, name: str, caller: Caller) -> None:
    """``rmdir`` by an admin, once nothing is in it."""
    check_admin(core.mounter, caller.uid)
    key = f"shared/{name}/data"
    if core.disk.has_root(key) and not core.disk.root_is_empty(key):
        raise NotEmpty(f"{key} holds files")
    core.store.remove_space(f"shared/{name}")
    if core.disk.has_root(key):
        core.disk.remove_root(key)
    core.subjects.forget_places()


def shared_roots(subject: SpaceSubject) -> dict[str, str]:
    """Ordinary directories of a shared space: name → their key on disk."""
    return {"data": f"{subject.name}/data"}


def agent_roots(subject: OwnerSubject) -> dict[str, str]:
    """Ordinary directories of a private agent: name → their key on disk; shared agents have none."""
    return {} if subject.access.shared else _root_keys(subject.owner.space, subject.owner.name)


def _root_keys(space: str, agent: str) -> dict[str, str]:
    return {name: f"{space}/agent/{agent}/{name}" for name in AGENT_DIRECTORIES}


def find_agent(core: "Core", space: SpaceSubject, name: str, _uid: int) -> int | None:
    return _owner_id(core, space, "agent", name)


def each_agent(core: "Core", space: SpaceSubject, after: int, _uid: int) -> Iterable[Found]:
    return [Found(o.id, o.name, o.id) for o in _owners(core, space, "agent") if o.id > after]


def make_agent(core: "Core", space: SpaceSubject, name: str, caller: Caller) -> int:
    """``mkdir agent/<agent>`` brings session/ and, in a home, the ordinary directories (spec 1.2)."""
    check_space(space.access, caller.uid)
    if not space.access.shared:
        # First, and they may be there already: an agent must not be without them, whenever the disk is full.
        for key in _root_keys(space.name, name).values():
            core.disk.make_root(key, space.access.uid, space.access.gid, 0o700)
    return _make_owner(core, space, "agent", name, caller)


def remove_agent(core: "Core", space: SpaceSubject, name: str, caller: Caller) -> None:
    """``rmdir``: without sessions and with empty ordinary directories (spec 1.4)."""
    number = _owner_id(core, space, "agent", name)
    if number is None:
        raise Missing(f"no agent {name!r}")
    subject = core.subjects.owner(number)
    check_space(subject.access, caller.uid)
    keys = [key for key in agent_roots(subject).values() if core.disk.has_root(key)]
    if not all(core.disk.root_is_empty(key) for key in keys):
        raise NotEmpty(f"agent {name!r} still has files in its ordinary directories")
    core.store.remove_owner(number)
    for key in keys:
        core.disk.remove_root(key)


def find_model(core: "Core", space: SpaceSubject, name: str, _uid: int) -> int | None:
    return _owner_id(core, space, "model", name.removesuffix(".d"))


def each_model(core: "Core", space: SpaceSubject, after: int, _uid: int) -> Iterable[Found]:
    owners = _owners(core, space, "model")
    return [Found(o.id, f"{o.name}.d", o.id) for o in owners if "/" not in o.name and o.id > after]


def make_model(core: "Core", space: SpaceSubject, name: str, caller: Caller) -> int:
    """``mkdir model/<model>.d``."""
    return _make_owner(core, space, "model", name.removesuffix(".d"), caller)


def remove_model(core: "Core", space: SpaceSubject, name: str, caller: Caller) -> None:
    """``rmdir``: without sessions."""
    number = _owner_id(core, space, "model", name.removesuffix(".d"))
    if number is None:
        raise Missing(f"no model {name!r}")
    check_space(space.access, caller.uid)
    core.store.remove_owner(number)


def _number(core: "Core", space: SpaceSubject) -> int:
    return core.subjects.space_id(space.name)


def _models(core: "Core", space: SpaceSubject) -> list[tuple[int, str]]:
    return [(owner.id, owner.name) for owner in core.store.owners(space.name, "model")]


def stored(core: "Core", space: SpaceSubject) -> None:
    """A home is stored at the first mkdir in it (spec 1.8)."""
    if not space.access.shared and core.store.space(space.name) is None:
        core.store.add_space(space.name, space.access.uid, space.access.gid, 0o700)


# ``model/<provider>/`` of a space.
PROVIDERS = provider_directories(
    place=_number,
    models=_models,
    check=lambda _, space, caller: check_space(space.access, caller.uid),
    prepare=stored,
)


def find_provider_model(core: "Core", subject: ProviderSubject, name: str, _uid: int) -> int | None:
    return _owner_id(core, _space_of(subject), "model", f"{subject.provider}/{name.removesuffix('.d')}")


def each_provider_model(core: "Core", subject: ProviderSubject, after: int, _uid: int) -> Iterable[Found]:
    prefix = f"{subject.provider}/"
    owners = _owners(core, _space_of(subject), "model")
    return [
        Found(o.id, f"{o.name.removeprefix(prefix)}.d", o.id)
        for o in owners
        if o.name.startswith(prefix) and o.id > after
    ]


def make_provider_model(core: "Core", subject: ProviderSubject, name: str, caller: Caller) -> int:
    """``mkdir model/<provider>/<model>.d``."""
    return _make_owner(core, _space_of(subject), "model", f"{subject.provider}/{name.removesuffix('.d')}", caller)


def remove_provider_model(core: "Core", subject: ProviderSubject, name: str, caller: Caller) -> None:
    """``rmdir``: without sessions."""
    space = _space_of(subject)
    remove_model(core, space, f"{subject.provider}/{name}", caller)
    model_removed(core, Node(Kind.SPACE_MODELS, _number(core, space)), subject, _models(core, space))


def _make_owner(core: "Core", space: SpaceSubject, kind: OwnerKind, name: str, caller: Caller) -> int:
    check_space(space.access, caller.uid)
    if core.store.owner(space.name, kind, name) is not None:
        raise Exists(f"{kind} {name!r} exists")
    stored(core, space)
    uid = caller.uid if space.access.shared else space.access.uid
    return core.store.add_owner(space.name, kind, name, uid, space.access.gid).id


def _owners(core: "Core", space: SpaceSubject, kind: OwnerKind) -> list[Owner]:
    """By id, as listings go on."""
    return sorted(core.store.owners(space.name, kind), key=lambda owner: owner.id)


def _owner_id(core: "Core", space: SpaceSubject, kind: OwnerKind, name: str) -> int | None:
    owner = core.store.owner(space.name, kind, name)
    return None if owner is None else owner.id


def _space_of(subject: ProviderSubject) -> SpaceSubject:
    if subject.space is None:
        raise FUSEError(errno.ENOENT)
    return subject.space
