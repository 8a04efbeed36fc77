"""What an admin defined of an agent or model (spec 1.2), read from the store. FUSE thread only."""

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from backend.errors import InvalidValue
from backend.names import is_uid
from backend.rows import OwnerKind
from backend.store import FileStore
from ctxfs.agents.mount_table import MountRow, parse_table
from ctxfs.files.sockets import Address

if TYPE_CHECKING:
    from ctxfs.core import Core

ECHO = "echo"
"""The agent that every mount has, and that answers what it is sent; defined by nobody, it needs no executable."""


class Definition(NamedTuple):
    """An agent's or model's definition; what was never written has its default. ``root`` None: the peer's own.

    ``number`` is None for the echo that nobody has defined.
    """

    argv: tuple[str, ...] = ()
    root: str | None = None
    cwd: str = "/"
    rows: tuple[MountRow, ...] = ()
    model: str | None = None
    adapter: str | None = None
    number: int | None = None


class _Meta(msgspec.Struct):
    """What of meta.json says how an agent is spoken with."""

    adapter: str | None = None


def read_definition(store: FileStore, kind: OwnerKind, name: str) -> Definition | None:
    """None where nobody has defined it."""
    for number, known, _ in store.definitions(kind):
        if known == name:
            return _read(store, number)
    return Definition() if (kind, name) == ("agent", ECHO) else None


def _read(store: FileStore, number: int) -> Definition:
    try:
        return Definition(
            tuple(msgspec.json.decode(_value(store, number, "exec") or "[]", type=list[str])),
            _value(store, number, "root") or None,
            _value(store, number, "cwd") or "/",
            tuple(parse_table(_value(store, number, "mount"))),
            _value(store, number, "model") or None,
            msgspec.json.decode(_value(store, number, "meta.json") or "{}", type=_Meta).adapter,
            number,
        )
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # Only a tree that others made can hold such values.
        raise InvalidValue("the definition cannot be read: write its files anew") from None


def _value(store: FileStore, number: int, file: str) -> str:
    stored = store.definition_value(number, file)
    return "" if stored is None else stored[0].decode().removesuffix("\n")


def wanted_sockets(core: "Core") -> dict[Address, int | None]:
    """The sockets that there should be, each with whose alone it is (None: everybody's).

    An agent or model has one from when its executable is set.
    """
    wanted: dict[Address, int | None] = {Address(ECHO): None}
    kinds: tuple[OwnerKind, ...] = ("agent", "model")
    for kind in kinds:
        for number, name, _ in core.store.definitions(kind):
            if not _value(core.store, number, "exec") and (kind, name) != ("agent", ECHO):
                continue
            owner = _owner(core.store, number)
            provider, slash, model = name.partition("/")
            if kind == "agent":
                wanted[Address(name)] = owner
            elif slash:
                wanted[Address(model, provider)] = owner
    return wanted


def _owner(store: FileStore, number: int) -> int | None:
    """Whose alone it is; what cannot be read is root's."""
    owner = _value(store, number, "owner")
    return (int(owner) if is_uid(owner) else 0) if owner else None
