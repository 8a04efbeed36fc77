"""``ctx agent session rewind``: goes on from an earlier entry, if asked with the files of that time (spec 6.8)."""

import argparse
import json
import os
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from backend.checkpoints.errors import CheckpointError, DaemonTimeout
from backend.names import child_name
from ctxfs.checkpoints.client import CheckpointClient
from mountctl import places
from mountctl.checkpoint_options import add_daemon, ask
from mountctl.cli import OK, Failure
from mountctl.session_options import add_session, natural
from mountctl.session_workspace import newest, take, workspace_of
from mountctl.sessions import attribute, require_session
from mountctl.text import escaped_name

DESCRIPTION = """Makes a session that goes on from an earlier entry of another, and prints where it is. With --files the
directory that the session works in becomes what its newest checkpoint at or before that entry holds; what it is now is
checkpointed first."""


class Rewound(NamedTuple):
    """The snapshot that the files become, and the one of what they were; None where files are left alone."""

    restored: str | None = None
    saved: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("--at", type=natural, metavar="N", required=True, help="how many entries to keep")
    parser.add_argument("--files", action="store_true", help="take the session's files back too")
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    directory = places.session(arguments.agent, arguments.session, arguments.space)
    require_session(directory)
    sessions, session = os.path.split(directory)
    entries = int(attribute(directory, "n") or 0)
    if arguments.at > entries:
        raise Failure(f"{session} has {entries} entries, --at {arguments.at} is beyond them")
    workspace = workspace_of(arguments.agent, directory) if arguments.files else None
    rewound = Rewound() if workspace is None else ask(arguments, _preparing(arguments, directory, workspace))
    name = child_name(session, os.urandom(4).hex())
    os.setxattr(directory, "user.ctx.branch", f"{name} {arguments.at}".encode())
    if workspace is not None and rewound.restored is not None:
        _take_files_back(arguments, workspace, rewound.restored, f"{sessions}/{name}")
    if arguments.json:
        print(json.dumps({"session": name, "restored": rewound.restored, "saved": rewound.saved}))
    else:
        print(escaped_name(f"{sessions}/{name}"))
    return OK


def _preparing(
    arguments: argparse.Namespace, directory: str, workspace: str
) -> Callable[[CheckpointClient], Awaitable[Rewound]]:
    """Finds the checkpoint to go back to, and takes one of what is there now."""

    async def prepare(client: CheckpointClient) -> Rewound:
        target = await newest(client, directory, workspace, arguments.at)
        message = f"before a rewind to entry {arguments.at}"
        return Rewound(target, await take(client, arguments.agent, directory, workspace, message))

    return prepare


def _take_files_back(arguments: argparse.Namespace, workspace: str, snapshot: str, branch: str) -> None:
    """The last step: if it fails the new session goes again, and nothing has happened but a checkpoint."""
    try:
        ask(arguments, lambda client: client.rollback(workspace, snapshot))
    except DaemonTimeout:
        raise  # it may still be done
    except CheckpointError:
        os.setxattr(branch, "user.ctx.delete", os.path.basename(branch).encode())
        raise
