"""The namespace of ``/ctx`` as one table (spec 1.2): a row for each kind of file.

To add a file, append its ``Kind`` in ``ctxfs.inodes`` and a row here. A row says where the file is, whose it is and
with which mode, what it shows, and what a write to it does; the functions it names are in ``ctxfs.files``.
A file with a name of its own has the id of its directory as its own; those with names of many kinds (``<…>``) are
found in the directories that ``ctxfs.patterns`` says.
"""

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyfuse3 import FUSEError

from backend.errors import Missing
from backend.facts import stream_size
from backend.rows import Stream
from ctxfs.files import appends, context, definitions, snapshots, spaces, values
from ctxfs.files.mount_status import mount_status, status_changed_at
from ctxfs.inodes import Kind, Node
from ctxfs.kernel_cache import CONTEXT_FILES
from ctxfs.privacy import (
    DERIVED,
    DIRECTORY,
    EDITABLE,
    PUBLIC_DERIVED,
    PUBLIC_DIRECTORY,
    PUBLIC_EDITABLE,
    SESSION_DIRECTORY,
    SOCKET,
)
from ctxfs.rows import Row
from ctxfs.subjects import Subjects

if TYPE_CHECKING:
    from ctxfs.core import Core


def _mounted(core: "Core", _: Any) -> int:
    return core.subjects.started_ns


def _session_time(_: "Core", subject: Any) -> int:
    # Never 0 (spec 1.2), though an import may bring entries of 1970.
    return max(1, int(subject.updated_at * 1_000_000))


def _owner_time(_: "Core", subject: Any) -> int:
    return int(subject.owner.mtime)


def _own_time(_: "Core", subject: Any) -> int:
    return int(subject.mtime)


def _key_time(core: "Core", subject: Any) -> int:
    return int(subject.mapping.mtime) if subject.mapping else core.subjects.started_ns


def _text(value: object) -> bytes:
    return f"{value}\n".encode()


def _session_row(name: str, mtime: str, show: Callable[[Any], object], **more: Any) -> Row:
    """A value of a session; its content is ``show`` of the session's row and a newline."""
    return Row(
        name=name,
        parents=(Kind.SESSION,),
        load=Subjects.session,
        mtime=lambda _, subject: getattr(subject.session, mtime),
        show=lambda _, subject: _text(show(subject.session)),
        **({"modes": DERIVED} | more),
    )


def _value(value: values.Value) -> dict[str, Any]:
    """The columns of a file that takes a value."""

    async def accept(core: "Core", node: Node, content: bytes, uid: int) -> None:
        await value.put(core, node.id, content, uid)
        await core.commits.sync()

    return {"open": lambda opening: values.ValueWriter(opening, value), "accept": accept}


def _keep_history(_core: "Core", _node: Node, _size: int) -> None:
    raise FUSEError(errno.EPERM)


def _log_row(name: str, stream: Stream, mtime: str) -> Row:
    return Row(
        name=name,
        parents=(Kind.SESSION,),
        modes=EDITABLE,
        load=Subjects.session,
        mtime=lambda _, subject: getattr(subject.session, mtime),
        size=lambda _, subject: stream_size(subject.session, stream),
        stream=stream,
        open=appends.LogWriter,
        accept=appends.replace_log,
        truncate=_keep_history,
    )


def _derived_row(kind: Kind) -> Row:
    file = CONTEXT_FILES[kind]
    return Row(
        name=file,
        parents=(Kind.CONTEXT,),
        modes=DERIVED,
        load=Subjects.session,
        mtime=lambda core, subject: core.contexts.mtime(subject.session, file),
        size=lambda core, subject: core.contexts.present(subject.session, file).size,
        exists=lambda core, subject: core.contexts.view(subject.session, file) is not None,
        reader=context.DerivedHandle,
        unlink=context.unlink_derived,
    )


def _snapshot_row(name: str) -> Row:
    def found(core: "Core", subject: Any) -> Any:
        snapshot = core.store.snapshot(subject.session.id, name)
        if snapshot is None:
            raise Missing(f"no {name}")
        return snapshot

    return Row(
        name=name,
        parents=(Kind.SESSION,),
        modes=EDITABLE,
        load=Subjects.session,
        mtime=lambda core, subject: found(core, subject).mtime,
        size=lambda core, subject: found(core, subject).size,
        show=lambda core, subject: core.store.read_snapshot(subject.session.id, name),
        exists=lambda core, subject: core.store.snapshot(subject.session.id, name) is not None,
        open=snapshots.SnapshotWriter,
        accept=snapshots.replace_snapshot,
        truncate=snapshots.truncate_snapshot,
        unlink=snapshots.remove_snapshot,
        creatable=True,
    )


def _definition_row(kind: Kind) -> Row:
    file = definitions.FILES[kind]
    return Row(
        name=file,
        parents=(Kind.AGENT_DEFINITION, Kind.MODEL_DEFINITION),
        modes=PUBLIC_EDITABLE,
        load=Subjects.definition,
        mtime=lambda core, subject: definitions.changed_at(core, subject, file),
        show=lambda core, subject: definitions.shown(core, subject, file),
        **_value(definitions.value(kind)),
    )


def _key_row(**more: Any) -> Row:
    return Row(
        name="<key>",
        parents=(),
        load=Subjects.key,
        mtime=_key_time,
        show=lambda _, subject: _text(subject.mapping.session) if subject.mapping else b"",
        exists=lambda _, subject: subject.mapping is not None,
        **more,
    )


def _any_name(_: str) -> bool:
    return True


def _hidden_or_backup(name: str) -> bool:
    return name.startswith(".") or name.endswith("~")


def _directory(name: str, parents: tuple[Kind, ...], load: Any, mtime: Any = _mounted, **more: Any) -> Row:
    return Row(name=name, parents=parents, load=load, mtime=mtime, **({"modes": DIRECTORY} | more))


TABLE: dict[Kind, Row] = {
    Kind.ROOT: _directory("/", (), Subjects.nothing, modes=PUBLIC_DIRECTORY),
    Kind.STATUS: Row(
        name="status",
        parents=(Kind.ROOT,),
        modes=PUBLIC_DERIVED,
        load=Subjects.nothing,
        mtime=status_changed_at,
        show=mount_status,
    ),
    # What admins define.
    Kind.AGENTS: _directory("agent", (Kind.ROOT,), Subjects.nothing, modes=PUBLIC_DIRECTORY),
    Kind.AGENT_DEFINITION: _directory(
        "<agent>.d",
        (),
        Subjects.definition,
        modes=PUBLIC_DIRECTORY,
    ),
    Kind.MODELS: _directory("model", (Kind.ROOT,), Subjects.nothing, modes=PUBLIC_DIRECTORY),
    Kind.MODEL_PROVIDER: _directory(
        "<provider>",
        (),
        Subjects.provider,
        modes=PUBLIC_DIRECTORY,
    ),
    Kind.MODEL_DEFINITION: _directory(
        "<model>.d",
        (),
        Subjects.definition,
        modes=PUBLIC_DIRECTORY,
    ),
    **{kind: _definition_row(kind) for kind in definitions.FILES},
    Kind.DEFINITION_STATUS: Row(
        name="status",
        parents=(Kind.AGENT_DEFINITION, Kind.MODEL_DEFINITION),
        modes=PUBLIC_DERIVED,
        load=Subjects.definition,
        mtime=lambda core, subject: max(core.subjects.started_ns, core.activity.changed_at(subject.id)),
        show=lambda core, subject: _text(core.activity.state(subject.id)),
    ),
    Kind.SOCKET: Row(
        name="<name>.sock",
        parents=(),
        modes=SOCKET,
        load=Subjects.socket,
        mtime=lambda _, subject: subject.socket.mtime,
        size=lambda _core, _subject: 0,
    ),
    # Spaces.
    Kind.HOMES: _directory("home", (Kind.ROOT,), Subjects.nothing, modes=PUBLIC_DIRECTORY),
    Kind.HOME: _directory(
        "<uid>",
        (),
        Subjects.space,
        _own_time,
    ),
    Kind.SHARED: _directory(
        "shared",
        (Kind.ROOT,),
        Subjects.nothing,
        modes=PUBLIC_DIRECTORY,
        exists=lambda core, _: not core.alone,
    ),
    Kind.SHARED_SPACE: _directory(
        "<space>",
        (),
        Subjects.space,
        _own_time,
        give=spaces.give_shared,
        roots=spaces.shared_roots,
    ),
    Kind.SPACE_AGENTS: _directory("agent", (Kind.HOME, Kind.SHARED_SPACE), Subjects.space, _own_time),
    Kind.SPACE_MODELS: _directory("model", (Kind.HOME, Kind.SHARED_SPACE), Subjects.space, _own_time),
    Kind.ARCHIVE: _directory("archived_sessions", (Kind.HOME, Kind.SHARED_SPACE), Subjects.space, _own_time),
    Kind.AGENT: _directory(
        "<agent>",
        (),
        Subjects.owner,
        _owner_time,
        roots=spaces.agent_roots,
    ),
    Kind.MODEL: _directory(
        "<model>.d",
        (),
        Subjects.owner,
        _owner_time,
    ),
    Kind.SPACE_PROVIDER: _directory(
        "<provider>",
        (),
        Subjects.provider,
        _own_time,
    ),
    Kind.ARCHIVE_DIRECTORY: _directory(
        "<directory>",
        (),
        Subjects.archive,
        lambda _, subject: subject.directory.mtime,
    ),
    # Sessions of one agent or model.
    Kind.SESSIONS: _directory("session", (Kind.AGENT, Kind.MODEL), Subjects.owner, _owner_time),
    Kind.INDEX: _directory("index", (Kind.SESSIONS,), Subjects.owner, _owner_time, temporaries=_any_name),
    Kind.LIST: Row(
        name="list",
        parents=(Kind.INDEX,),
        modes=DERIVED,
        load=Subjects.owner,
        mtime=lambda _, subject: subject.owner.list_mtime,
        size=lambda _, subject: subject.owner.list_size,
        show=lambda core, subject: core.store.list_content(subject.owner.id),
    ),
    Kind.CURRENT: Row(
        name="current",
        parents=(Kind.INDEX,),
        modes=EDITABLE,
        load=Subjects.owner,
        mtime=lambda _, subject: subject.owner.current_mtime,
        show=lambda _, subject: _text(subject.owner.current) if subject.owner.current else b"",
        exists=lambda _, subject: subject.owner.current is not None,
        creatable=True,
        **_value(values.CURRENT),
    ),
    Kind.BY_CWD: _directory("by-cwd", (Kind.INDEX,), Subjects.owner, _owner_time),
    Kind.BY_HASH: _directory("by-hash", (Kind.INDEX,), Subjects.owner, _owner_time, temporaries=_hidden_or_backup),
    Kind.BY_UUID: _directory("by-uuid", (Kind.INDEX,), Subjects.owner, _owner_time, temporaries=_any_name),
    Kind.CWD_KEY: _key_row(modes=DERIVED),
    Kind.HASH_KEY: _key_row(modes=EDITABLE, creatable=True, **_value(values.KEY)),
    Kind.UUID_KEY: _key_row(modes=EDITABLE, creatable=True, **_value(values.KEY)),
    # One session.
    Kind.SESSION: _directory(
        "<session>",
        (),
        Subjects.session,
        _session_time,
        modes=SESSION_DIRECTORY,
        temporaries=_any_name,
    ),
    Kind.MESSAGES: _log_row("messages.jsonl", "messages", "messages_mtime"),
    Kind.EVENTS: _log_row("events.jsonl", "events", "events_mtime"),
    Kind.LATEST: Row(
        name="latest.md",
        parents=(Kind.SESSION,),
        modes=DERIVED,
        load=Subjects.session,
        mtime=lambda _, subject: subject.session.latest_mtime,
        size=lambda _, subject: subject.session.latest_size,
        show=lambda core, subject: core.store.latest(subject.session.id),
    ),
    Kind.STATE: _session_row("state", "state_mtime", lambda s: s.state, modes=EDITABLE, **_value(values.STATE)),
    Kind.CWD: _session_row("cwd", "cwd_mtime", lambda s: s.cwd, modes=EDITABLE, **_value(values.CWD)),
    Kind.CREATED_AT: _session_row("created_at", "created_mtime", lambda s: s.created_at // 1000),
    Kind.UPDATED_AT: _session_row("updated_at", "updated_mtime", lambda s: s.updated_at // 1000),
    Kind.META: _session_row("meta.json", "meta_mtime", lambda s: s.meta, modes=EDITABLE, **_value(values.META)),
    Kind.AGENTS_MD: _snapshot_row("AGENTS.md"),
    Kind.SKILLS_MD: _snapshot_row("SKILLS.md"),
    Kind.CONTEXT: _directory(
        "context",
        (Kind.SESSION,),
        Subjects.session,
        lambda core, subject: context.changed_at(core, subject.session),
        modes=SESSION_DIRECTORY,
    ),
    **{kind: _derived_row(kind) for kind in CONTEXT_FILES},
}
