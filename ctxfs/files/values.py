"""Writing values: small files that hold one value and take effect as soon as it is whole (spec 1.4, Values).

A ``Value`` is the rule of one kind of file: how much it takes, when what was written is whole, and what it does then.
"""

import dataclasses
import errno
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec
from pyfuse3 import FUSEError

from backend.errors import CtxError, InvalidValue, Missing, ValueTooBig
from backend.line_rules import MAX_META
from backend.lines import cwd_line, meta_line, parse_cwd, parse_state, state_line, validate_meta
from backend.names import is_session_name
from backend.rows import Line, Session
from ctxfs.files.appends import append_beyond
from ctxfs.files.handles import MakingWriter, Opening
from ctxfs.inodes import Kind, Node, inode_of

if TYPE_CHECKING:
    from ctxfs.core import Core

MAX_VALUE = 4096

_CUT_SHORT = "Input data was truncated"  # what the decoder says of the beginning of a document


def ends_in_newline(content: bytes) -> bool:
    """Whole as soon as its newline is there."""
    return content.endswith(b"\n")


def ends_json(content: bytes) -> bool:
    """Whole as soon as a newline is there and it parses, or cannot be made to by more: then it is refused at once."""
    if not content.endswith(b"\n"):
        return False
    try:
        msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        return str(error) != _CUT_SHORT
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """``store`` takes (core, id of the subject, whole content, opener's uid) and stores the value, or raises.

    ``limit`` counts its bytes without the newline; a longer one is refused by ``too_long``.
    """

    limit: int
    store: Callable[["Core", int, bytes, int], Awaitable[None]]
    whole: Callable[[bytes], bool] = ends_in_newline
    too_long: type[CtxError] = InvalidValue

    def check_length(self, content: bytes) -> None:
        """Of a whole value, or of what was written of it so far."""
        if len(content) - content.endswith(b"\n") > self.limit:
            raise self.too_long(f"a value here has at most {self.limit} bytes")

    async def put(self, core: "Core", number: int, content: bytes, uid: int) -> None:
        """Stores the value, or refuses it."""
        self.check_length(content)
        await self.store(core, number, content, uid)


class ValueWriter(MakingWriter):
    """A handle on a value. Bytes come in order from offset 0, up to one whole value."""

    def __init__(self, opening: Opening, value: Value) -> None:
        super().__init__(opening)
        self._value = value
        self._append = opening.appends
        self._written = b""
        self._taken = False

    async def write(self, offset: int, data: bytes) -> int:
        if self._taken or (not self._append and offset != len(self._written)):
            raise InvalidValue("one value, written from the start, is all this file takes")
        try:
            await self._extend(self._written + data)
        except Exception:
            self._forget()
            raise
        return len(data)

    async def _extend(self, content: bytes) -> None:
        self._value.check_length(content)
        self.hold(len(content))
        self._written = content
        if self._value.whole(content):
            await self._take()

    async def _take(self) -> None:
        await self._value.put(self.core, self.node.id, self._written, self.uid)
        self._taken = True
        self.stored()

    def _forget(self) -> None:
        self._written = b""
        self._taken = False
        self.hold(0)

    def truncate(self, size: int) -> None:
        """Changes nothing until something is written; what this handle wrote before is over."""
        if size != 0:
            raise FUSEError(errno.EINVAL)
        self._forget()

    async def flush(self) -> None:
        if self._written and not self._taken:
            try:
                await self._take()
            except Exception:
                self._forget()
                raise
        await self.synced()


async def _append_event(core: "Core", number: int, line_of: Callable[[Session], Line | None]) -> None:
    """Appends what ``line_of`` makes of the session as it is when the line becomes its next entry, if anything."""

    def lines(session: Session) -> list[Line]:
        line = line_of(session)
        return [] if line is None else [line]

    await append_beyond(core, number, lines)


async def put_state(core: "Core", number: int, content: bytes, _uid: int) -> None:
    """Records a change of ``state``; the one it has records nothing."""
    state = parse_state(content)
    await _append_event(core, number, lambda s: None if s.state == state else state_line(s.state, state))


async def put_cwd(core: "Core", number: int, content: bytes, _uid: int) -> None:
    """Records a change of ``cwd``; the one it has records nothing."""
    cwd = parse_cwd(content)
    await _append_event(core, number, lambda s: None if s.cwd == cwd else cwd_line(cwd))


async def put_meta(core: "Core", number: int, content: bytes, _uid: int) -> None:
    """Records a change of ``meta.json``; the object it has records nothing."""
    meta = validate_meta(content.removesuffix(b"\n"), core.subjects.session(number).session.scope)
    line = meta_line(meta)
    await _append_event(core, number, lambda s: None if s.meta == line.meta else line)


async def put_current(core: "Core", number: int, content: bytes, _uid: int) -> None:
    """Selects an existing session."""
    name = _session_name(content)
    if core.subjects.owner(number).owner.current != name:
        core.store.set_current(number, name)
        core.kernel.attributes_changed(inode_of(Node(Kind.CURRENT, number)))


async def put_key(core: "Core", number: int, content: bytes, _uid: int) -> None:
    """A file of by-hash/ or by-uuid/, which may be new."""
    subject = core.subjects.key(number)
    name = _session_name(content)
    if core.store.session(subject.owner.id, name) is None:
        raise Missing(f"no session {name!r}")
    if subject.mapping is None or subject.mapping.session != name:
        core.store.set_mapping(subject.owner.id, subject.kind, subject.key, name)
        core.kernel.key_changed(subject.owner.id, subject.kind, subject.key)


def _session_name(content: bytes) -> str:
    try:
        name = content.removesuffix(b"\n").decode()
    except UnicodeDecodeError:
        raise InvalidValue("a session's name is ASCII") from None
    if not is_session_name(name):
        raise InvalidValue("that is no session's name")
    return name


STATE = Value(MAX_VALUE, put_state)
CWD = Value(MAX_VALUE, put_cwd)
META = Value(MAX_META, put_meta, ends_json, ValueTooBig)
CURRENT = Value(MAX_VALUE, put_current)
KEY = Value(MAX_VALUE, put_key)
