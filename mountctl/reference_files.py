"""docs/files.md: the tree as programs may rely on it, from the table of files (spec 1). Development only.

Modes, names, what may be written, made and removed come from ``ctxfs.table``, ``ctxfs.patterns`` and ``ctxfs.xattrs``;
what each kind is for is said here, and a kind that nothing is said of is an error.
"""

import stat
from collections.abc import Iterable, Iterator

from ctxfs.files.spaces import AGENT_DIRECTORIES
from ctxfs.inodes import Kind
from ctxfs.patterns import FOUND, NAMED
from ctxfs.rows import Pattern, Row
from ctxfs.table import TABLE
from ctxfs.xattrs import COMMANDS, LISTED, PREFIX, SESSION

ABOUT: dict[Kind, str] = {
    Kind.ROOT: "the mount",
    Kind.STATUS: "`key=value` lines about the mount",
    Kind.AGENTS: "definitions and sockets of agents",
    Kind.AGENT_DEFINITION: "what an admin defined of an agent",
    Kind.MODELS: "definitions and sockets of models",
    Kind.MODEL_PROVIDER: "the models of a provider",
    Kind.MODEL_DEFINITION: "what an admin defined of a model",
    Kind.DEFINITION_OWNER: "the uid whose agent it is; empty: everybody's",
    Kind.DEFINITION_EXEC: "its argv, a JSON array",
    Kind.DEFINITION_ROOT: "the directory that it sees as `/`",
    Kind.DEFINITION_CWD: "where it begins",
    Kind.DEFINITION_MOUNT: "what it sees beside its root, `SRC:DST:ro` or `rw` a line",
    Kind.DEFINITION_MODEL: "its model, `PROVIDER/MODEL`",
    Kind.DEFINITION_META: "anything else, one JSON object",
    Kind.DEFINITION_STATUS: "what it is doing",
    Kind.SOCKET: "where messages are sent (agents.md); `agent/ctx.sock`: see ctx-socket.md",
    Kind.HOMES: "a listing shows its reader's own home",
    Kind.HOME: "a user's own, there for every uid",
    Kind.SHARED: "shared spaces; not in a user's own mount",
    Kind.SHARED_SPACE: "its group's; mode 2770 unless an admin says otherwise",
    Kind.SPACE_AGENTS: "sessions by agent",
    Kind.SPACE_MODELS: "sessions by model",
    Kind.SPACE_PROVIDER: "models of one provider",
    Kind.ARCHIVE: "what was put aside, never to be changed again",
    Kind.ARCHIVE_DIRECTORY: "any path; `<agent>` by default",
    Kind.AGENT: "one agent's; mkdir brings all below it",
    Kind.MODEL: "one model's",
    Kind.SESSIONS: "its sessions",
    Kind.INDEX: "ways to find a session",
    Kind.LIST: "names, the one updated last first",
    Kind.CURRENT: "one session's name; absent while there is none",
    Kind.BY_CWD: "sessions by working directory",
    Kind.BY_HASH: "sessions by a hash of somebody else's",
    Kind.BY_UUID: "sessions by a UUID of somebody else's",
    Kind.CWD_KEY: "`cwd-` and 16 hex digits of FNV-1a 64 over the cwd; a session's name",
    Kind.HASH_KEY: "a session's name",
    Kind.UUID_KEY: "a session's name",
    Kind.SESSION: "one session, a view of its log",
    Kind.MESSAGES: "its messages, one JSON object a line",
    Kind.EVENTS: "everything else, one JSON object a line",
    Kind.LATEST: "the assistant's last text",
    Kind.STATE: "`idle`, `active`, `done` or `error`",
    Kind.CWD: "the last working directory",
    Kind.CREATED_AT: "seconds since the epoch",
    Kind.UPDATED_AT: "seconds since the epoch",
    Kind.META: "one JSON object; `client`, `model`, `scope`",
    Kind.AGENTS_MD: "a snapshot for people",
    Kind.SKILLS_MD: "a snapshot for people",
    Kind.CONTEXT: "made from the log when somebody looks; other names are the runtime's own files",
    Kind.CONTEXT_MESSAGES: "what the model would be sent now",
    Kind.CONTEXT_LOG: "every entry with `n`, `time`, `kind`",
    Kind.CONTEXT_TRANSCRIPT: "the session for people to read",
    Kind.CONTEXT_REQUEST: "the last request; absent without a prompt mark",
}

# Whose removal is a function that says why not.
_STAYS = frozenset((Kind.SESSION, Kind.CWD_KEY))

_TEXT = """# Files

<!-- written by `./run docs` from ctxfs/table.py, ctxfs/patterns.py and ctxfs/xattrs.py -->

What programs may rely on: names, modes, and what a write does. Nothing here is ever taken away or given another
meaning. `<…>` stands for many names: `[a-zA-Z0-9][a-zA-Z0-9._+-]{0,63}`, not ending in `.sock` or `.d`; a `<uid>` is
decimal. Of another name creation is `EINVAL`, a look-up `ENOENT`. *mode* is that of a home, *shared* that of a shared
space; a session that was archived has them without the right to write.

What *write* says: `lines` are appended, whole or not at all (`EINVAL`, `EMSGSIZE` above 1 MiB), and nothing that is
there can be changed (`EPERM`); a `value` takes effect once it is whole; `–` is `EACCES`, archived `EROFS`. A disk that
is full is `ENOSPC`, a log that cannot be proven `EIO`, and the file as it was. `make`, `remove`: creat or mkdir,
unlink or rmdir. Renaming a temporary onto a file is a write of its content.
"""

_XATTRS = """
## Extended attributes

On a session's directory, not to be changed: `{shown}`.
Listed are `{listed}`. On its files: `user.ctx.kind`, `user.ctx.token_estimate`.
Commands, by setting them on a session's directory (see [log.md](log.md)): `{commands}`.
"""


def files() -> str:
    """docs/files.md."""
    header = ["| path | mode | shared | write | what it is |", "| --- | --- | --- | --- | --- |"]
    attributes = _XATTRS.format(shown=_prefixed(SESSION), listed=_prefixed(LISTED), commands=_prefixed(COMMANDS))
    return "\n".join([_TEXT, *header, *_rows("", Kind.ROOT, None, {}), attributes]).rstrip() + "\n"


def _prefixed(names: Iterable[str]) -> str:
    return "`, `".join(f"{PREFIX}{name}" for name in names)


def _rows(path: str, kind: Kind, pattern: Pattern | None, seen: dict[Kind, str]) -> Iterator[str]:
    """Of a kind at a path, and of all below it, unless that was said of another path already."""
    row = TABLE[kind]
    about = f"as `{seen[kind]}`" if kind in seen else ABOUT[kind]
    yield _line(path or "/", row, _writes(row, pattern), about)
    if kind in seen:
        return
    seen[kind] = path
    if kind is Kind.AGENT:
        names = ",".join(AGENT_DIRECTORIES)
        yield f"| `{path}/{{{names}}}` | | | anything | ordinary directories, on the disk as they are |"
    for below, named in NAMED[kind]:
        yield from _rows(f"{path}/{named.name}".lstrip("/"), below, None, seen)
    for found in FOUND[kind]:
        yield from _rows(f"{path}/{TABLE[found.kind].name}".lstrip("/"), found.kind, found, seen)


def _line(path: str, row: Row, writes: str, about: str) -> str:
    slash = "/" if row.is_directory and path != "/" else ""
    modes = (f"`{stat.S_IMODE(mode):04o}`" for mode in (row.modes.private, row.modes.shared))
    return f"| `{path}{slash}` | {' | '.join(modes)} | {writes} | {about} |"


def _writes(row: Row, pattern: Pattern | None) -> str:
    words = ["lines"] if row.stream else ["value"] if row.open else []
    words += ["make"] if row.creatable or (pattern and (pattern.make or pattern.bind)) else []
    words += ["remove"] if row.unlink or (pattern and pattern.remove and pattern.kind not in _STAYS) else []
    return ", ".join(words) or "–"
