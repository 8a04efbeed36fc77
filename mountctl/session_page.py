"""A session of the mount as an HTML page in a file (spec 4.1)."""

import json
import os
from datetime import UTC, datetime
from typing import BinaryIO

from backend.transcripts.blobs import Load
from ctxfs.version import version
from mountctl.conversation import Conversation, Index
from mountctl.conversation_page import page
from mountctl.entries import LogFile
from mountctl.sessions import read_value


def write_page(file: BinaryIO, directory: str, agent: str, load: Load | None = None) -> None:
    """Writes the page of a session's directory; ``load`` puts blobs back. ``Failure`` where there is no session."""
    session = os.path.basename(directory)
    with LogFile(directory, load) as log:
        conversation = Conversation(log)
        while conversation.index.look_on():
            pass
        facts = _facts(directory, agent, session, conversation.index)
        for piece in page(f"{agent} · {session}", facts, conversation.index.questions, conversation):
            file.write(piece.encode())


def _facts(directory: str, agent: str, session: str, index: Index) -> dict[str, str]:
    facts = {
        "agent": agent,
        "session": session,
        "model": _model(directory),
        "cwd": read_value(f"{directory}/cwd"),
        "created": _time_text(directory, "created_at"),
        "updated": _time_text(directory, "updated_at"),
        "entries": str(index.entries),
        "tokens": "{} in, {} out".format(*index.tokens) if any(index.tokens) else "",
        "written by": f"ctxfs {version()}",
    }
    return {name: value for name, value in facts.items() if value}


def _time_text(directory: str, name: str) -> str:
    return datetime.fromtimestamp(int(read_value(f"{directory}/{name}")), UTC).strftime("%Y-%m-%d %H:%M UTC")


def _model(directory: str) -> str:
    """The session's model; empty where meta.json names none."""
    meta = json.loads(read_value(f"{directory}/meta.json"))
    return str(meta.get("model", ""))
