"""Output for people that may be longer than a screen: through their pager then, and only then (spec 4.1).

A pager is started where stdout is a terminal of a known size and what is written does not fit it: ``$PAGER``, by
default ``less`` if there is one; ``PAGER=cat`` never. It ends when the user ends it, whatever is still to come.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from types import TracebackType
from typing import Self

from mountctl.text import is_terminal

_LESS = {"LESS": "FRX", "LESSCHARSET": "utf-8"}


class Pager:
    """Takes text; a context manager. ``BrokenPipeError`` inside it, when the reader has gone, ends it quietly."""

    def __init__(self) -> None:
        self._command = _command() if is_terminal() else []
        self._rows = os.get_terminal_size().lines if self._command else 0
        self._held: list[str] = []
        self._lines = 0
        self._process: subprocess.Popen[str] | None = None

    def write(self, text: str) -> None:
        """Prints a text, or holds it as long as all fits on the screen."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(text)
        elif not self._rows:
            sys.stdout.write(text)
        else:
            self._held.append(text)
            self._lines += text.count("\n")
            if self._lines >= self._rows:
                self._start()

    def _start(self) -> None:
        sys.stdout.flush()
        environment = {**_LESS, **os.environ}
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                encoding=sys.stdout.encoding,
                errors=sys.stdout.errors,
                env=environment,
            )
        except OSError:
            self._rows = 0
        else:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        held, self._held = "".join(self._held), []
        self.write(held)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        sys.stdout.write("".join(self._held))
        if self._process is None:
            return False
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._process.wait()
        return isinstance(error, BrokenPipeError)


def _command() -> list[str]:
    """The pager's words; none where there is no use in one."""
    if os.environ.get("TERM") in (None, "dumb") or not os.get_terminal_size().lines:
        return []
    words = shlex.split(os.environ.get("PAGER") or "less")
    return words if words and words != ["cat"] and shutil.which(words[0]) else []
