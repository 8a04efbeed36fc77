"""``ctx agent import``: transcripts of other programs as sessions (spec 4.2)."""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from backend.errors import CtxError
from backend.transcripts import claude_code, jsonl
from mountctl import places
from mountctl.cli import ERROR, OK, Failure
from mountctl.importing import MAX_REPORTED, Format, Imported, Target, check, transfer
from mountctl.progress import Progress
from mountctl.session_options import add_agent
from mountctl.text import counted, escaped_name

DESCRIPTION = """Imports transcripts as sessions, one a file. Importing again adds only what is new. An unreadable line
is reported as FILE:LINE: reason, and its session left out whole (exit code 1) unless --skip-bad is given."""

FORMATS: dict[str, Format] = {"claude-code": cast(Format, claude_code), "jsonl": cast(Format, jsonl)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_agent(parser)
    parser.add_argument("--from", dest="form", required=True, choices=sorted(FORMATS), help="what wrote them")
    parser.add_argument("--skip-bad", action="store_true", help="leave out unreadable lines only")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a .jsonl file, or a directory of them")


def run(arguments: argparse.Namespace) -> int:
    places.owner(arguments.agent, arguments.space)  # fails at once where nothing is mounted, or the agent is no name
    files = [file for path in arguments.paths for file in _sources(path)]
    with Progress(2 * sum(os.path.getsize(file) for file in files)) as progress:
        batch = _Batch(arguments, progress)
        for file in files:
            batch.add(file)
    print(batch.summary())
    return ERROR if batch.left_out else OK


def _sources(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        os.stat(path)
        yield path
        return
    found = sorted(str(file) for file in Path(path).rglob("*.jsonl") if file.is_file())
    if not found:
        raise Failure(f"{path} has no .jsonl file")
    yield from found


class _Batch:
    """One run of the command: what became of each file."""

    def __init__(self, arguments: argparse.Namespace, progress: Progress) -> None:
        self._format = FORMATS[arguments.form]
        self._target = Target(arguments.agent, arguments.space)
        self._skip_bad: bool = arguments.skip_bad
        self._progress = progress
        self._done: list[Imported] = []
        self.left_out = 0

    def add(self, file: str) -> None:
        """Imports one file, or says on stderr why its session is left out."""
        try:
            self._done.append(self._imported(file))
        except (Failure, CtxError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self._progress.say(f"{escaped_name(file)}: left out: {escaped_name(reason)}")
            self.left_out += 1

    def _imported(self, file: str) -> Imported:
        found = check(file, self._format, self._target.scope, self._progress.of_file())
        for fault in found.unreadable:
            self._progress.say(f"{escaped_name(file)}:{fault.number}: {escaped_name(fault.reason)}")
        if len(found.unreadable) == MAX_REPORTED:
            self._progress.say(f"{escaped_name(file)}: no more than {MAX_REPORTED} unreadable lines are shown")
        if found.unreadable and not self._skip_bad:
            raise Failure("unreadable lines; --skip-bad imports the rest of it")
        if not found.lines:
            return Imported("")
        return transfer(file, self._format, self._target, self._progress.of_file())

    def summary(self) -> str:
        """One line for stdout."""
        sessions = [result for result in self._done if result.session]
        added, present, skipped = (
            sum(getattr(one, key) for one in sessions) for key in ("added", "present", "skipped")
        )
        parts = [f"{counted(len(sessions), 'session')}: {counted(added, 'line')} added, {present} already there"]
        if skipped:
            parts.append(f"{counted(skipped, 'unreadable line')} skipped")
        if empty := len(self._done) - len(sessions):
            parts.append(f"{counted(empty, 'file')} without a conversation")
        if self.left_out:
            parts.append(f"{counted(self.left_out, 'session')} left out")
        return ", ".join(parts)
