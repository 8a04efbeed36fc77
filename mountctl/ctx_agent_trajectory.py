"""``ctx agent trajectory``: a session as ATIF JSON on stdout, validated before a byte of it is printed (spec 4.3)."""

import argparse
import json
import sys
from collections.abc import Iterator

from backend import trajectory
from ctxfs.version import version
from mountctl import places
from mountctl.cli import OK, UNAVAILABLE, Failure
from mountctl.entries import LogFile
from mountctl.exporting import Session, find
from mountctl.session_options import add_session
from mountctl.text import counted, escaped_name

DESCRIPTION = "Prints a session as a trajectory for other programs: JSON in the format ATIF-v1.7."

_MAX_ISSUES = 16
_MAX_ISSUE = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)


def run(arguments: argparse.Namespace) -> int:
    session = find(arguments.agent, arguments.session, arguments.space)
    sys.stdout.buffer.writelines(trajectory_json(session))
    return OK


def trajectory_json(session: Session) -> Iterator[bytes]:
    """A session's trajectory, in pieces; ``Failure`` (69) before the first if it would be empty or invalid."""
    name = session.agent.removeprefix(places.MODEL_PREFIX)
    agent = trajectory.agent_of(_meta(session.directory), name, version())
    with LogFile(session.directory, session.blob) as log:
        found = trajectory.project(log, session.name, agent)
    if not found.steps:
        raise Failure("nothing to export: the session has no messages", UNAVAILABLE)
    if issues := list(trajectory.issues(found)):
        raise Failure(_refusal(issues), UNAVAILABLE)
    return trajectory.json_pieces(found)


def _meta(directory: str) -> dict[str, object]:
    """meta.json; empty where it does not parse, as a foreign one may."""
    try:
        with open(f"{directory}/meta.json", encoding="utf-8") as file:
            meta = json.load(file)
    except (FileNotFoundError, ValueError):
        return {}
    return meta if isinstance(meta, dict) else {}


def _refusal(issues: list[str]) -> str:
    lines = [f"- {escaped_name(issue)[:_MAX_ISSUE]}" for issue in issues[:_MAX_ISSUES]]
    if more := len(issues) - len(lines):
        lines.append(f"- {counted(more, 'more issue')} not shown")
    return "\n".join([f"invalid trajectory projection ({counted(len(issues), 'issue')})", *lines])
