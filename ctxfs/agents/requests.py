"""What a client may ask on an agent's or a model's socket (spec 3.2). Pure."""

from typing import Literal

import msgspec

from backend.errors import InvalidValue, LineTooLong
from backend.names import is_name, is_session_name, is_stable_path

MAX_INPUT = 256 << 10
MAX_CLIENT = 256
DEFAULT_SESSION = "default"

Scope = Literal["private", "shared", "temp"]


class Ping(msgspec.Struct, frozen=True, tag="ping", tag_field="op"):
    """Whether anybody is there."""


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """Which session is meant; ``space`` goes with the scope ``shared`` and no other."""

    session: str = DEFAULT_SESSION
    scope: Scope = "private"
    space: str | None = None

    def check_place(self) -> None:
        """``InvalidValue`` for what can be no session."""
        if not is_session_name(self.session):
            raise InvalidValue("session is the name of a session")
        if (self.scope == "shared") != (self.space is not None):
            raise InvalidValue("space is given with the scope shared, and with no other")


class Send(Placed, frozen=True, kw_only=True, tag="send", tag_field="op"):
    """A message for the agent. ``id`` is the client's own, by which a retry is known; ``client`` is what it is."""

    id: str
    input: str
    cwd: str | None = None
    client: str | None = None
    queue: bool = False

    def check(self) -> None:
        """``InvalidValue``, ``LineTooLong``."""
        self.check_place()
        if not is_name(self.id):
            raise InvalidValue("id is a name of at most 64 bytes (spec 1.1)")
        if len(self.input.encode()) > MAX_INPUT:
            raise LineTooLong("an input has at most 256 KiB")
        if self.client is not None and len(self.client.encode()) > MAX_CLIENT:
            raise InvalidValue("client has at most 256 bytes")
        if self.cwd is not None and not is_stable_path(self.cwd):
            raise InvalidValue("cwd is an absolute path without empty, . or .. parts")


class Resume(Placed, frozen=True, kw_only=True, tag="resume", tag_field="op"):
    """A session's entries after a cursor: the id of a start or a tool_call, or an entry's number."""

    after: str | int | None = None
    follow: bool = False


class Cancel(Placed, frozen=True, kw_only=True, tag="cancel", tag_field="op"):
    """The end of a run, by its own id or the client's."""

    id: str


Request = Ping | Send | Resume | Cancel
