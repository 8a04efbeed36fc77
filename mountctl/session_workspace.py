"""A session's workspace: the host's directory that its cwd is in the agent's view, and its checkpoints (spec 6.8, 3.4).

Resolved with the caller's own rights, never past the view's root, from what the mount shows of the agent's definition.
To be run on the host: a path of a chroot means nothing to the checkpoint daemon.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import PurePosixPath

from backend.checkpoints import wire
from backend.entries import MarkEntry
from backend.strict_json import compact
from backend.system_calls import RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS, open_resolving
from ctxfs.agents.mount_table import MountRow, parse_table
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
    root = _value(f"{definition}/root") or f"{places.owner(agent, None)}/root"
    base, rest = _attached(cwd, parse_table(_value(f"{definition}/mount"))) or (root, cwd)
    with contextlib.ExitStack() as stack:
        top = os.open(base, os.O_PATH | os.O_DIRECTORY)
        stack.callback(os.close, top)
        try:
            found = open_resolving(
                top, os.fsencode(rest), os.O_PATH | os.O_DIRECTORY, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS
            )
        except OSError as error:
            raise Failure(f"the session's cwd {cwd!r} is no directory in the agent's view: {error.strerror}") from error
        stack.callback(os.close, found)
        return os.readlink(f"/proc/self/fd/{found}")


def _attached(cwd: str, rows: Sequence[MountRow]) -> tuple[str, str] | None:
    """The source of the innermost row that ``cwd`` is in, and the rest of the path below it."""
    inside = [row for row in rows if PurePosixPath(cwd).is_relative_to(row.target)]
    if not inside:
        return None
    row = max(reversed(inside), key=lambda row: len(row.target))
    source = row.source
    if source == "/ctx" or source.startswith("/ctx/"):
        source = places.root() + source.removeprefix("/ctx")
    return source, str(PurePosixPath(cwd).relative_to(row.target))


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
