"""``ctx doctor``: what is wrong with the mount and with the caller's sessions, and where (spec 4.1, 2.7)."""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from mountctl import ctx_socket, places
from mountctl.cli import ERROR, OK, USAGE, Failure
from mountctl.progress import Progress
from mountctl.session_options import add_json, add_space
from mountctl.text import counted, escaped_name, styled

DESCRIPTION = """Reads all of my sessions, or those of one agent, or one of them, from the first line to the last, and
compares what is derived from them. Says what is wrong and where; exit code 1 if anything is. Repairs nothing."""

KEYS = ("check", "path", "reason", "line", "offset", "n")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", nargs="?", help="an agent, or model:PROVIDER/MODEL; default: all")
    parser.add_argument("-s", "--session", metavar="S", help="one session of AGENT")
    add_space(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.session is not None and arguments.agent is None:
        raise Failure("--session is one of AGENT's: name it", USAGE)
    if arguments.session is not None:
        places.session_name(arguments.session)
    if arguments.agent is not None:
        places.owner(arguments.agent, arguments.space)
    found = examine(arguments)
    if arguments.json:
        print(json.dumps(found))
    else:
        print(text(found))
    return ERROR if found["faults"] else OK


def examine(arguments: argparse.Namespace) -> dict[str, Any]:
    """``{faults, sessions, entries}`` (docs/json.md)."""
    place = ctx_socket.place(arguments.space)
    with ctx_socket.connection() as daemon:
        daemon.send({"op": "status", **place})
        status = daemon.receive()
        daemon.send({"op": "doctor", **place, **_asked(arguments)})
        faults = list(_mount_faults(status))
        with Progress(2 * status["bytes"]) as progress:
            at = progress.of_file()
            while (frame := daemon.receive())["type"] != "end":
                if frame["type"] == "fault":
                    faults.append({key: frame[key] for key in KEYS})
                else:
                    at(frame["bytes"] + status["bytes"] * frame["verified"] // max(1, frame["entries"]))
    return {"faults": faults, "sessions": frame["sessions"], "entries": frame["entries"]}


def _asked(arguments: argparse.Namespace) -> dict[str, str]:
    given = {"agent": arguments.agent, "session": arguments.session}
    return {key: value for key, value in given.items() if value is not None}


def _mount_faults(status: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if status["failure"] is not None:
        reason = f"the store does not take what it is given: {status['failure']}"
        yield dict.fromkeys(KEYS) | {"check": "mount", "path": "", "reason": reason}


def text(found: dict[str, Any]) -> str:
    """What was found, for people."""
    lines = [_line(fault) for fault in found["faults"]]
    read = f"{counted(found['sessions'], 'session')}, {counted(found['entries'], 'entry', 'entries')}"
    verdict = counted(len(lines), "fault") if lines else "nothing is wrong"
    return "\n".join([*lines, f"{read}: {styled(verdict, '31' if lines else '32')}"])


def _line(fault: dict[str, Any]) -> str:
    """``PATH:LINE: byte N: reason``, as compilers say it."""
    where = escaped_name(fault["path"] or ("the mount" if fault["check"] == "mount" else "the store"))
    if fault["line"] is not None:
        where += f":{fault['line']}: byte {fault['offset']}"
    elif fault["n"] is not None:
        where += f": entry {fault['n']}"
    return f"{where}: {escaped_name(fault['reason'])}"
