"""Where things are on the mount, for ``ctx``: its root, the caller's home, an agent's sessions (spec 4, 1.2).

Plain file operations only. The quickest commands use this module, so it imports nothing but ``os``.
"""

import os

from mountctl.cli import UNAVAILABLE, USAGE, Failure

MODEL_PREFIX = "model:"


def root() -> str:
    """``$CTX_ROOT``, by default ``/ctx``."""
    return os.environ.get("CTX_ROOT") or "/ctx"


def home() -> str:
    """``$CTX_HOME``, by default the entry of ``home/`` that belongs to the caller.

    Usually that is ``home/<euid>``; in a user namespace it is called after the outer uid, and a listing shows it.
    """
    if own := os.environ.get("CTX_HOME"):
        return own
    homes, uid = f"{root()}/home", os.geteuid()
    plain = f"{homes}/{uid}"
    try:
        if os.stat(plain).st_uid == uid:
            return plain
        found = (f"{homes}/{name}" for name in os.listdir(homes))
        return next((path for path in found if os.stat(path).st_uid == uid), plain)
    except OSError as error:
        raise no_mount(error) from error


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
    """The caller's home, or the shared space of that name."""
    return home() if name is None else f"{root()}/shared/{_plain(name)}"


def owner(agent: str, shared: str | None) -> str:
    """The directory of an agent, or of ``model:[PROVIDER/]MODEL``, in a space."""
    if not agent.startswith(MODEL_PREFIX):
        return f"{space(shared)}/agent/{_plain(agent)}"
    parts = [_plain(part) for part in agent.removeprefix(MODEL_PREFIX).split("/")]
    return f"{space(shared)}/model/{'/'.join(parts)}.d"


def definition(agent: str) -> str:
    """Where an admin defined an agent or model, if one did."""
    kind, _, name = agent.rpartition(":")
    parts = [_plain(part) for part in name.split("/")]
    return f"{root()}/{kind or 'agent'}/{'/'.join(parts)}.d"


def spaces() -> list[str]:
    """The names of the shared spaces, in no order."""
    return _listed(f"{root()}/shared")


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
    chosen = current(agent, shared) if name is None else name
    return f"{owner(agent, shared)}/session/{_plain(chosen)}"


def no_session(directory: str) -> Failure:
    """The failure of a command that reads a session which is not there."""
    from mountctl.text import escaped_name

    owner = os.path.dirname(os.path.dirname(directory))
    look = "`ctx agent session list AGENT`" if os.path.isdir(owner) else "`ctx agent list`"
    return Failure(f"no session {escaped_name(directory)}: {look} shows what there is")


def _plain(name: str) -> str:
    """``name`` if it cannot lead elsewhere; what else a name may be is the mount's to judge."""
    if not name or "/" in name or "\0" in name or name in (".", "..", "index"):
        raise Failure(f"{name!r} is not a name", USAGE)
    return name
