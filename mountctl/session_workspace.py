"""A session's workspace: the host's directory that its cwd is in the agent's view, and its checkpoints (spec 6.8, 3.4).

The view is what the launcher would make of what the mount shows of the agent's definition. To be run on the host: a
path of a chroot means nothing to the checkpoint daemon, which decides whose workspace it is.
"""

import os

from backend.checkpoints import wire
from backend.entries import MarkEntry
from backend.strict_json import compact
from ctxfs.agents.host_paths import host_path
from ctxfs.agents.launch import View
from ctxfs.agents.mount_table import parse_table
from ctxfs.checkpoints.client import CheckpointClient
from mountctl import places
from mountctl.cli import Failure
from mountctl.ctx_checkpoint_create import new_id
from mountctl.entries import LogFile
from mountctl.sessions import attribute, read_value

EVENT = "checkpoint"


def workspace_of(agent: str, directory: str) -> str:
    """The host's path of the directory that a session works in (``Failure``, ``OSError``)."""
    cwd, definition = read_value(f"{directory}/cwd"), places.definition(agent)
    root = _value(f"{definition}/root")
    view = View(
        root or f"{places.owner(agent, None)}/root",
        os.path.realpath(places.root()),
        tuple(parse_table(_value(f"{definition}/mount"))),
        own=not root,
    )
    try:
        return host_path(view, cwd)
    except OSError as error:
        raise Failure(f"the session's cwd {cwd!r} is no directory in the agent's view: {error.strerror}") from error


def _value(path: str) -> str:
    try:
        return read_value(path)
    except FileNotFoundError:
        return ""


async def take(client: CheckpointClient, agent: str, directory: str, workspace: str, message: str | None) -> str | None:
    """Checkpoints a session's workspace and records that in its log; the snapshot's id, None if there is nothing."""
    metadata = {
        "agent": agent,
        "session": os.path.basename(directory),
        "uuid": attribute(directory, "uuid"),
        "n": int(attribute(directory, "n") or 0),
    }
    id = new_id()
    answer = await client.checkpoint(workspace, id, message, compact(metadata).decode())
    if isinstance(answer, wire.CheckpointSkipped):
        return None
    line = compact({"snapshot": id, "type": EVENT, "workspace": workspace}) + b"\n"
    with open(f"{directory}/events.jsonl", "ab", buffering=0) as events:
        events.write(line)
    return id


async def newest(client: CheckpointClient, directory: str, workspace: str, at: int) -> str:
    """The newest checkpoint of the workspace that the session recorded at or before entry ``at`` (``Failure``)."""
    there = {entry.id for entry in await client.list(workspace) if not entry.meta.missing}
    found = None
    with LogFile(directory) as entries:
        for entry in entries:
            if entry.n > at:
                break
            if isinstance(entry, MarkEntry) and entry.name == EVENT and entry.data.get("workspace") == workspace:
                snapshot = entry.data.get("snapshot")
                found = snapshot if snapshot in there else found
    if found is None:
        raise Failure(f"the session has no checkpoint of {workspace} at or before entry {at}")
    return str(found)
