"""The daemon's control socket, as commands use it: one JSON object a line (spec 4.6).

Operations: ``status`` → the daemon's figures, ``sync`` → after everything committed is on disk, ``stop`` → the daemon
unmounts and ends, ``backup`` → begins a copy of the store in the directory ``path``, or says how far it is. An answer
is an object, ``{"error": text}`` a refusal. No question waits longer than it says.
"""

import socket
import time
from pathlib import Path
from typing import Any

import msgspec

from backend.errors import CtxError

_MAX_ANSWER_BYTES = 1 << 20


class Figures(msgspec.Struct, frozen=True):
    """The answer to ``status``: counters of the mount, of its caches by their names, ``bytes`` on disk."""

    requests: dict[str, int]
    errors: dict[str, int]
    dropped_rests: int
    last_error: str | None
    sessions: int
    homes: int
    bytes: int
    cache_hits: dict[str, int] = msgspec.field(default_factory=dict)
    cache_misses: dict[str, int] = msgspec.field(default_factory=dict)


class ControlError(CtxError):
    """The daemon did not answer, or answered with an error."""

    exit_code = 69


class ControlDenied(ControlError):
    """The daemon is somebody else's."""

    exit_code = 13


def ask(path: Path, operation: str, timeout_s: float, /, **more: str) -> dict[str, Any]:
    """The daemon's answer to one operation (``ControlError``: none in time, an error, or not theirs to ask)."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(timeout_s)
            client.connect(str(path))
            client.sendall(msgspec.json.encode({"op": operation, **more}) + b"\n")
            answer = msgspec.json.decode(_line(client, time.monotonic() + timeout_s), type=dict[str, Any])
    except PermissionError as error:
        raise ControlDenied(f"only root and whoever mounted it may ask the daemon for {operation!r}") from error
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise ControlError(f"no answer from the daemon to {operation!r}: {error}") from error
    if "error" in answer:
        raise ControlError(f"the daemon refused {operation!r}: {answer['error']}")
    return answer


def _line(client: socket.socket, deadline: float) -> bytes:
    """What comes up to a newline; it may be somebody else's daemon, so neither time nor size is its to choose."""
    line = b""
    while not line.endswith(b"\n") and len(line) <= _MAX_ANSWER_BYTES:
        client.settimeout(max(0.001, deadline - time.monotonic()))
        if time.monotonic() > deadline or not (part := client.recv(1 << 16)):
            raise TimeoutError("no whole answer")
        line += part
    return line


def figures(path: Path, timeout_s: float) -> Figures:
    """What a daemon says of itself (``ControlError``: nothing, or nonsense)."""
    try:
        return msgspec.convert(ask(path, "status", timeout_s), Figures)
    except msgspec.ValidationError as error:
        raise ControlError(f"the daemon answered 'status' with nonsense: {error}") from error
