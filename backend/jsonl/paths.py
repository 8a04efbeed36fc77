"""Where things lie below the store's directory: CortexFS's layout (notes on it: section 2), and names allowed in it.

Every path of the store is made here, from names that are judged first: no name leads elsewhere.
"""

import os

from backend.errors import InvalidValue
from backend.jsonl.disk import directories, regular
from backend.jsonl.handles import STORE
from backend.names import is_agent_name, is_model_name, is_name, is_uid, is_uuid
from backend.rows import IndexKind, OwnerKind

HIDDEN = ".ctxfs"
ARCHIVE = "archived_sessions"
CWD_KEYS: IndexKind = "by-cwd"
OUTER_KEYS: tuple[IndexKind, IndexKind] = ("by-hash", "by-uuid")

_MAX_COMPONENT = 255


def is_component(name: str) -> bool:
    """Whether a name is one visible component of a path."""
    return (
        bool(name) and not name.startswith(".") and not {"/", "\0"} & set(name) and len(name.encode()) <= _MAX_COMPONENT
    )


def component(name: str) -> str:
    """The name, or ``InvalidValue`` where it is no single visible component of a path."""
    try:
        fits = is_component(name)
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise InvalidValue(f"{name!r} is no name of a file")
    return name


def is_space(name: str) -> bool:
    """``home/<uid>`` or ``shared/<name>``."""
    prefix, _, rest = name.partition("/")
    return (prefix == "home" and is_uid(rest)) or (prefix == "shared" and is_name(rest))


def is_owner(kind: OwnerKind, name: str) -> bool:
    """An agent's or a model's name."""
    return is_agent_name(name) if kind == "agent" else is_model_name(name)


def is_key(kind: IndexKind, key: str) -> bool:
    """A name in one of the index directories."""
    return is_uuid(key) if kind == "by-uuid" else is_name(key)


def owner_path(kind: OwnerKind, name: str) -> str:
    """Of an agent or a model, below its space."""
    return f"agent/{name}" if kind == "agent" else f"model/{name}.d"


def definition_path(kind: OwnerKind, name: str) -> str:
    """Of what an admin defined, below the store."""
    return f"{kind}/{name}.d"


def owner_names(place: str, kind: OwnerKind) -> list[str]:
    """The agents or models whose directory is below ``place``: those with a session/ of their own."""
    found = directories(f"{place}/agent") if kind == "agent" else _model_names(f"{place}/model")
    with_sessions = (name for name in found if "session" in directories(f"{place}/{owner_path(kind, name)}"))
    return [name for name in with_sessions if is_owner(kind, name)]


def definition_names(store: str, kind: OwnerKind) -> list[str]:
    """The agents or models defined below the store's directory."""
    if kind == "agent":
        found = [name.removesuffix(".d") for name in directories(f"{store}/agent") if name.endswith(".d")]
    else:
        found = _model_names(f"{store}/model")
    return [name for name in found if is_owner(kind, name)]


def holds_log(path: str) -> bool:
    """Whether a directory below the archive is a session's."""
    return STORE in directories(path) or any(regular(f"{path}/{name}") for name in ("messages.jsonl", "events.jsonl"))


def holds_anything(place: str) -> bool:
    """Whether a space's directory has something in it that is worth being one."""
    found = directories(place)
    return bool({"agent", "model", ARCHIVE} & set(found)) or ("data" in found and bool(os.listdir(f"{place}/data")))


def _model_names(place: str) -> list[str]:
    found: list[str] = []
    for name in directories(place):
        if name.endswith(".d"):
            found.append(name.removesuffix(".d"))
        else:
            inner = directories(f"{place}/{name}")
            found += [f"{name}/{model.removesuffix('.d')}" for model in inner if model.endswith(".d")]
    return found
