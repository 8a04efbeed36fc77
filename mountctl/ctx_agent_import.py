"""``ctx agent session import``: transcripts of other programs as sessions (spec 4.2)."""

import argparse
import json
import sys
from collections.abc import Iterable

from backend.errors import CtxError
from backend.transcripts.records import Identity
from mountctl import blobs, ctx_socket
from mountctl.cli import ERROR, OK, UNAVAILABLE, Failure
from mountctl.ctx_session_select import select
from mountctl.import_files import FileWriter, Writer
from mountctl.import_formats import FORMATS, Format
from mountctl.import_socket import SocketWriter
from mountctl.importing import MAX_REPORTED, Imported, Importer, Target, check
from mountctl.progress import Progress
from mountctl.session_options import add_agent, add_json
from mountctl.session_rows import newest
from mountctl.sessions import names
from mountctl.text import counted, escaped_name

DESCRIPTION = """Imports transcripts as sessions. Importing again adds only what is new. An unreadable line
is reported as FILE:LINE: reason, and its session left out whole (exit code 1) unless --skip-bad is given."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_agent(parser)
    add_json(parser)
    parser.add_argument("--from", dest="form", required=True, choices=sorted(FORMATS), help="what wrote them")
    parser.add_argument("--skip-bad", action="store_true", help="leave out unreadable lines only")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="what it wrote, or a directory of that")


def run(arguments: argparse.Namespace) -> int:
    form = FORMATS[arguments.form]
    target = Target(arguments.agent, arguments.space)
    target.require()
    sources = [source for path in arguments.paths for source in form.sources(path)]
    had_sessions = bool(names(target.sessions))
    with Progress(sum(map(form.size, sources))) as progress:
        batch = _Batch(form, target, Importer(target, _writer(target)), progress, arguments.skip_bad)
        batch.add_all(sources)
    if not had_sessions and names(target.sessions):
        _select_newest(target)
    print(json.dumps(batch.counts()) if arguments.json else batch.summary())
    return ERROR if batch.left_out else OK


def _select_newest(target: Target) -> None:
    """Makes an agent's newest session current: by itself that is the first that was made, whatever its time."""
    if (found := newest(target.agent, target.space)) is not None:
        _, row = found
        select(target.agent, row.name, target.space)


def _writer(target: Target) -> Writer:
    """Through the mount's socket, or where it has none by file operations."""
    directory = target.sessions
    connection = ctx_socket.connect()
    if connection is None:
        print("ctx: the mount has no agent/ctx.sock: entries get the time of this import", file=sys.stderr)
        return FileWriter(directory)
    return SocketWriter(connection, target.agent, target.space, directory)


class _Batch:
    """One run of the command: what became of each source."""

    def __init__(self, form: Format, target: Target, importer: Importer, progress: Progress, skip_bad: bool) -> None:
        self._format = form
        self._target = target
        self._importer = importer
        self._progress = progress
        self._skip_bad = skip_bad
        self._done: dict[str, Imported] = {}
        self.left_out = 0

    def add_all(self, sources: Iterable[str]) -> None:
        """Imports all sources; one that belongs to another's session after that one, wherever it stands."""
        waiting: list[tuple[str, Identity]] = []
        for source in sources:
            identity = self._attempt(source, None)
            if identity is not None:
                waiting.append((source, identity))
        for source, identity in waiting:
            self._attempt(source, identity)
        failed = self._importer.settle()
        for source, result in list(self._done.items()):
            if reasons := [failed[session] for session in result.sessions if session in failed]:
                self._leave_out(source, reasons[0])
                del self._done[source]

    def _attempt(self, source: str, waited: Identity | None) -> Identity | None:
        """Imports one source, or says on stderr why it is left out; its identity if its parent must come first."""
        try:
            identity = waited or self._format.identify(source)
            if waited is None and identity.parent is not None and not self._importer.knows(identity.parent):
                return identity
            self._done[source] = self._imported(source, identity)
        except (Failure, CtxError, OSError) as error:
            if isinstance(error, Failure) and error.exit_code == UNAVAILABLE:
                raise  # no other source can be imported either
            self._leave_out(source, error.strerror if isinstance(error, OSError) and error.strerror else str(error))
        return None

    def _leave_out(self, source: str, reason: str) -> None:
        self._progress.say(f"{escaped_name(source)}: left out: {escaped_name(reason)}")
        self.left_out += 1

    def _imported(self, source: str, identity: Identity) -> Imported:
        seen = self._progress.of_file()
        found = check(source, self._format, self._target.scope, seen)
        for fault in found.faults:
            place = f"{source}/{fault.file}" if fault.file else source
            self._progress.say(f"{escaped_name(place)}:{fault.number}: {escaped_name(fault.reason)}")
        if (more := found.bad + found.replaced - MAX_REPORTED) > 0:
            self._progress.say(f"{escaped_name(source)}: {counted(more, 'more line')} like these")
        if found.bad and not self._skip_bad:
            raise Failure(f"{counted(found.bad, 'unreadable line')}; --skip-bad imports the rest of it")
        if not found.lines:
            return Imported(skipped=found.bad)
        if found.needs_blobs:
            blobs.directory(self._target.agent, self._target.space)
        again = self._format.convert(source, self._target.scope, seen) if found.records is None else found.records
        imported = self._importer.transfer(source, identity, again)
        for name in imported.archived:
            self._progress.say(f"{escaped_name(source)}: session {name} is archived: it stays as it is")
        return imported

    def counts(self) -> dict[str, int]:
        """What was done, as ``--json`` prints it."""
        results = self._done.values()
        return {
            "sessions": len({session for result in results for session in result.sessions}),
            "added": sum(result.added for result in results),
            "present": sum(result.present for result in results),
            "skipped": sum(result.skipped for result in results),
            "empty": sum(not (result.sessions or result.archived) for result in results),
            "archived": sum(len(result.archived) for result in results),
            "left_out": self.left_out,
        }

    def summary(self) -> str:
        """One line for stdout."""
        counts = self.counts()
        done = f"{counted(counts['sessions'], 'session')}: {counted(counts['added'], 'line')} added"
        more = [
            f"{counted(counts[key], what)} {became}"
            for key, what, became in (
                ("skipped", "unreadable line", "skipped"),
                ("empty", "file", "without a conversation"),
                ("archived", "session", "archived and left as they are"),
                ("left_out", "session", "left out"),
            )
            if counts[key]
        ]
        return ", ".join([done, f"{counts['present']} already there", *more])
