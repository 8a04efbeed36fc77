"""The daemon's log: one line an event, to stderr, the journal or a file; never message contents (spec 4.6)."""

import logging
import os
import sys
import threading
import traceback
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

LEVELS = ("debug", "info", "warning", "error")
FILE_BYTES = 4 << 20

log = logging.getLogger("ctxfs")

_FORMAT = "%(levelname)s %(name)s: %(message)s"


class OneLineFormatter(logging.Formatter):
    """Keeps a stack on the line of its event, so that a line is an event for every tool that reads the log."""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\n", " | ")


class PrivateFileHandler(RotatingFileHandler):
    """Every file it opens, after a rotation too, is 0600 and no link, whatever the umask and whoever made it."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=_private)


def _private(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def configure(level: str, file: Path | None = None) -> None:
    """Sends all loggers to ``file``, or to stderr where there is none; times only where nobody else adds them."""
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        handler = PrivateFileHandler(file, maxBytes=FILE_BYTES, backupCount=1, encoding="utf-8")
    form = _FORMAT if "JOURNAL_STREAM" in os.environ and file is None else f"%(asctime)s {_FORMAT}"
    handler.setFormatter(OneLineFormatter(form))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def log_stacks() -> None:
    """Logs what every thread is doing, one line a thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        stack = " | ".join(line.strip() for line in traceback.format_stack(frame))
        log.info("stack of thread %s: %s", names.get(ident, ident), stack)
