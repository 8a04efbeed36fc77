"""Talking with an agent: what ``ctx agent send``, ``chat``, ``resume`` and ``cancel`` share (spec 3.2, 4.2).

A reply is printed as it streams in. The first Ctrl-C asks the daemon to cancel the run, the second leaves.
"""

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, NamedTuple

from backend.lines import text_of
from backend.strict_json import compact
from ctxfs.agents.requests import MAX_INPUT
from mountctl import places
from mountctl.cli import INTERRUPTED, OK, UNAVAILABLE, USAGE, Failure
from mountctl.ctx_socket import CtxSocket, accepted, connection_to, knows
from mountctl.text import escaped, is_terminal, styled

SCOPES = ("private", "shared", "temp")
_DIM = "2"


class Conversation(NamedTuple):
    """Whom to talk with, and in which session; ``fields`` say that in a request. ``logs``: where its stderr is kept."""

    socket: str
    fields: dict[str, Any]
    logs: str

    def connected(self) -> contextlib.AbstractContextManager[CtxSocket]:
        """A connection (``Failure``: there is no such agent, or no mount)."""
        path = f"{places.root()}/{self.socket}.sock"
        return connection_to(self.socket, Failure(f"{path} is not there: {_missing()}"))


def _missing() -> str:
    """Why there may be no socket of an agent."""
    if os.path.exists(f"{places.root()}/agent/ctx.sock"):
        return "an admin defines agents, `mountctl agent add`"
    return "this mount has no sockets, the daemon's log says why (`mountctl status` names it)"


def conversation(arguments: argparse.Namespace, scope: str | None = None) -> Conversation:
    """What the options of a command say (``Failure``)."""
    kind, _, name = places.owner_name(arguments.agent).rpartition(":")
    if kind == "model" and "/" not in name:
        raise Failure("only a model of a provider has a socket: model:PROVIDER/MODEL", USAGE)
    scope = scope or ("private" if arguments.space is None else "shared")
    if (scope == "shared") != (arguments.space is not None):
        raise Failure("--space NAME goes with --scope shared, and with no other", USAGE)
    fields: dict[str, Any] = {"scope": scope, "session": _session(arguments, scope)}
    if arguments.space is not None:
        fields["space"] = arguments.space
    return Conversation(f"{kind or 'agent'}/{name}", fields, f"{places.owner(arguments.agent, None)}/log")


def _session(arguments: argparse.Namespace, scope: str) -> str:
    named = None if arguments.session is None else places.session_name(arguments.session)
    if scope == "private" and not _is_own(places.home()):
        raise Failure("a message goes to the sender's own home, and CTX_HOME names another", UNAVAILABLE)
    if named is not None:
        return named
    # What a temp session is called matters to nobody, and where it is not there is nothing to look up.
    return "default" if scope == "temp" else places.current(arguments.agent, arguments.space)


def _is_own(home: str) -> bool:
    return knows(None) and os.stat(home).st_uid == os.geteuid()


def new_id() -> str:
    """An id for a send that no other has."""
    return f"ctx-{os.urandom(16).hex()}"


def message(raw: bytes) -> str:
    """What was read or typed, as a message (``Failure``: it can be none)."""
    if len(raw) > MAX_INPUT:
        raise Failure("a message has at most 256 KiB: put the rest into a file that the agent sees")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise Failure(f"a message is UTF-8, and byte {error.start} of this one is not") from None


def send(conversation: Conversation, connection: CtxSocket, request: dict[str, Any]) -> int:
    """Sends, prints the reply as it comes, and returns the exit code."""
    with _cancels(conversation, request["id"]):
        connection.send({"op": "send", "client": "ctx", **conversation.fields, **request})
        return _Reply(conversation.logs).print(_answer(conversation, connection))


def _answer(conversation: Conversation, connection: CtxSocket) -> Iterator[dict[str, Any]]:
    """The frames that answer a send, to its done; of one that had ended before, those that were recorded."""
    frame = connection.receive_frame()
    if frame.get("type") == "done" and "run" in frame:
        yield from _recorded(conversation, frame["run"])
    while frame.get("type") != "done":
        yield frame
        frame = connection.receive_frame()
    yield frame


def _recorded(conversation: Conversation, run: str) -> Iterator[dict[str, Any]]:
    with conversation.connected() as other:
        other.send({"op": "resume", "after": run, **conversation.fields})
        while (frame := other.receive_frame()).get("type") not in ("done", "end"):
            if frame.get("run") == run or "run" not in frame:
                yield frame


@contextlib.contextmanager
def _cancels(conversation: Conversation, id: str) -> Iterator[None]:
    """In the block Ctrl-C cancels the run, once; then it is what it is elsewhere."""

    def cancel(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        print("\nctx: cancelling", end="", file=sys.stderr, flush=True)
        with conversation.connected() as other:
            other.send({"op": "cancel", "id": id, **conversation.fields})
        # Who is told to press it sooner would leave a run behind that nobody cancelled.
        print("; press Ctrl-C again to leave", file=sys.stderr)

    before = signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Reply:
    """Prints what an agent says: its text to stdout; what it does, and why it failed, to stderr."""

    def __init__(self, logs: str) -> None:
        self._logs = logs
        self._streamed = ""
        self._ended_line = True
        self._failure: dict[str, Any] | None = None

    def print(self, frames: Iterable[dict[str, Any]]) -> int:
        status = ""
        for frame in frames:
            match frame:
                case {"type": "delta", "text": str(text)}:
                    self._streamed += text
                    self._write(text)
                case {"type": "message", "role": "assistant"}:
                    self._message(frame)
                case {"type": "tool_call", "name": str(name)}:
                    self._end_line()
                    print(styled(escaped(f"[{name}]"), _DIM), file=sys.stderr)
                case {"type": "error", "run": str()}:
                    # A done follows: the error of a run is what the run ends with.
                    self._failure = frame
                case {"type": "done", "status": str(status)}:
                    self._end_line()
            if self._failure is not frame:
                accepted(frame)
        return self._code(status)

    def _message(self, frame: dict[str, Any]) -> None:
        text = text_of(compact(frame))
        if self._streamed.startswith(text):
            # Long text becomes several messages, all after its last delta.
            self._streamed = self._streamed.removeprefix(text)
        else:
            if self._streamed:
                self._end_line()
            self._write(text)
            self._streamed = ""
        self._end_line()

    def _write(self, text: str) -> None:
        sys.stdout.write(escaped(text) if is_terminal() else text)
        sys.stdout.flush()
        if text:
            self._ended_line = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._ended_line:
            self._write("\n")

    def _code(self, status: str) -> int:
        if status == "ok":
            return OK
        if status == "cancelled":
            print("ctx: cancelled", file=sys.stderr)
            return INTERRUPTED
        failure = self._failure or {}
        said = f"{self._logs}/{failure.get('run')}.log"
        more = f" (its stderr: {said})" if os.path.isfile(said) else ""
        raise Failure(f"{failure.get('message', 'the run failed: `ctx agent log` says why')}{more}")
