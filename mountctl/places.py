"""Where things are on the mount, for ``ctx``: its root, the caller's home, an agent's sessions (spec 4, 1.2).

Plain file operations only. A name that nothing can have is a usage error, whatever the command. The quickest commands
use this module, so it imports nothing but ``os`` and the rules of names.
"""

import os

from backend.names import is_name, is_owner_name, is_session_name
from mountctl.cli import UNAVAILABLE, USAGE, Failure

MODEL_PREFIX = "model:"
_MANY = 10


def root() -> str:
    """``$CTX_ROOT``, by default ``/ctx``."""
    return os.environ.get("CTX_ROOT") or "/ctx"


def home() -> str:
    """``$CTX_HOME``, by default the entry of ``home/`` that belongs to the caller.

    Usually that is ``home/<euid>``; in a user namespace it is called after the outer uid, and a listing shows it.
    """
    if own := os.environ.get("CTX_HOME"):
        return _own_home(own.rstrip("/") or "/")
    homes, uid = f"{root()}/home", os.geteuid()
    plain = f"{homes}/{uid}"
    try:
        if os.stat(plain).st_uid == uid:
            return plain
        found = (f"{homes}/{name}" for name in os.listdir(homes))
        return next((path for path in found if os.stat(path).st_uid == uid), plain)
    except OSError as error:
        raise no_mount(error) from error


def _own_home(path: str) -> str:
    try:
        os.stat(path)
    except OSError as error:
        raise Failure(f"no home at {path} ({error.strerror}): CTX_HOME names it", UNAVAILABLE) from error
    return path


def no_mount(error: OSError) -> Failure:
    """The failure of a command that finds no ctxfs at ``root()``: names the caller's own, or says how to get one."""
    advice = "`mountctl mount` mounts one, CTX_ROOT names it"
    for mountpoint in _own_mounts():
        advice = f"yours is at {mountpoint}: export CTX_ROOT={mountpoint}"
    return Failure(f"no ctxfs at {root()} ({error.strerror}): {advice}", UNAVAILABLE)


def _own_mounts() -> list[str]:
    """Where an ordinary user has mounted; nowhere in a chroot that has no /proc."""
    from ctxfs.mounts import ctxfs_mounts

    uid = os.geteuid()
    try:
        return [mount.mountpoint for mount in ctxfs_mounts() if uid and mount.owner_uid == uid]
    except OSError:
        return []


def space(name: str | None) -> str:
    """The caller's home, or the shared space of that name (``Failure``: there is none)."""
    if name is None:
        return home()
    if not is_name(name):
        raise invalid_name(name, "space")
    path = f"{root()}/shared/{name}"
    try:
        os.stat(path)
    except OSError:
        raise _no_space(name) from None
    return path


def _no_space(name: str) -> Failure:
    try:
        os.stat(f"{root()}/status")
    except OSError as error:
        return no_mount(error)
    return Failure(f"there is no shared space {name!r}: {known('spaces', _listed(f'{root()}/shared'))}")


def known(kind: str, names: list[str]) -> str:
    """What there is of a kind, a few of them if they are many."""
    from mountctl.text import escaped_name

    shown = ", ".join(map(escaped_name, sorted(names)[:_MANY])) + (" …" if len(names) > _MANY else "")
    return f"the {kind} are {shown}" if names else f"there are no {kind} yet"


def owner(agent: str, shared: str | None) -> str:
    """The directory of an agent, or of ``model:[PROVIDER/]MODEL``, in a space."""
    name = owner_name(agent).removeprefix(MODEL_PREFIX)
    return f"{space(shared)}/agent/{name}" if name == agent else f"{space(shared)}/model/{name}.d"


def definition(agent: str) -> str:
    """Where an admin defined an agent or model, if one did."""
    kind, _, name = owner_name(agent).rpartition(":")
    return f"{root()}/{kind or 'agent'}/{name}.d"


def agents(shared: str | None) -> list[str]:
    """The names of the agents in a space, in no order."""
    return _listed(f"{space(shared)}/agent")


def models(shared: str | None) -> list[str]:
    """The models in a space as ``owner`` takes them, in no order."""
    base, found = f"{space(shared)}/model", list[str]()
    for name in _listed(base):
        inner = [name] if name.endswith(".d") else [f"{name}/{model}" for model in _listed(f"{base}/{name}")]
        found += [f"{MODEL_PREFIX}{model.removesuffix('.d')}" for model in inner]
    return found


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def current(agent: str, shared: str | None) -> str:
    """The name of an agent's current session, ``default`` while it has none."""
    try:
        with open(f"{owner(agent, shared)}/session/index/current", encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        return "default"


def session(agent: str, name: str | None, shared: str | None) -> str:
    """The directory of a session of an agent, by default its current one."""
    chosen = current(agent, shared) if name is None else session_name(name)
    return f"{owner(agent, shared)}/session/{chosen}"


def no_session(directory: str) -> Failure:
    """The failure of a command that reads a session which is not there."""
    from mountctl.text import escaped_name

    owner = os.path.dirname(os.path.dirname(directory))
    look = "`ctx agent session list AGENT`" if os.path.isdir(owner) else "`ctx agent list`"
    return Failure(f"no session {escaped_name(directory)}: {look} shows what there is")


def session_name(name: str) -> str:
    """``name`` if a session may be called so (``Failure``, usage)."""
    if not is_session_name(name):
        raise invalid_name(name, "session")
    return name


def owner_name(agent: str) -> str:
    """``agent`` if an agent, or after ``model:`` a model, may be called so (``Failure``, usage)."""
    if not is_owner_name(agent):
        raise invalid_name(agent, "agent")
    return agent


def invalid_name(name: str, kind: str) -> Failure:
    """The failure of a command that was given a name which nothing of that kind can have."""
    from mountctl.text import escaped_name

    return Failure(f"invalid {kind} name: {escaped_name(name)}", USAGE)
