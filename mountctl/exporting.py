"""What every export format shares: which session it reads (spec 4.2).

A format is a module with ``export(session, directory)``, which writes one session below a directory and returns the
path of what it wrote. ``FORMATS`` is the table of them; only the module that is asked for is imported.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from mountctl import blobs, places

FORMATS: Mapping[str, str] = {
    "atif": "mountctl.export_atif",
    "cosh": "mountctl.export_cosh",
    "html": "mountctl.export_html",
    "jsonl": "mountctl.export_jsonl",
    "markdown": "mountctl.export_markdown",
}


class Session(NamedTuple):
    """A session that is exported."""

    agent: str
    space: str | None
    directory: str

    @property
    def name(self) -> str:
        return os.path.basename(self.directory)

    def blob(self, sha256: str) -> bytes:
        """The content of one of its blobs (``Failure``: it is missing or was changed)."""
        return blobs.load(blobs.directory(self.agent, self.space), sha256)


class Format(Protocol):
    """A module of ``FORMATS``."""

    def export(self, session: Session, directory: str) -> str: ...


def find(agent: str, session: str | None, space: str | None) -> Session:
    """A session of an agent, by default its current one."""
    return Session(agent, space, places.session(agent, session, space))
