"""A session tree as CortexFS leaves it, written by hand, and what tests ask of a jsonl store over it."""

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from backend.errors import CtxError
from backend.jsonl import JsonlStore
from backend.lines import parse_line
from backend.rows import Append, Appended, Line, Owner, Session

RUN = b"ctx-0123456789abcdef0123456789abcdef"
MESSAGES = (
    b'{"content":"hello","role":"user","run":"%(run)b"}\n'
    b'{"content":[{"text":"hi \xe2\x9c\x93","type":"text"}],"role":"assistant","run":"%(run)b"}\n'
    b'{"content":"age A has no run","role":"user"}\n'
) % {b"run": RUN}
EVENTS = (
    b'{"client_id":"msg-1","cwd":"/workspace","id":"%(run)b","run":"%(run)b","scope":"private","type":"start"}\n'
    b'{"run":"%(run)b","type":"something/new"}\n'
    b'{"run":"%(run)b","status":"ok","type":"done"}\n'
) % {b"run": RUN}

SESSION: Mapping[str, bytes] = {
    "messages.jsonl": MESSAGES,
    "events.jsonl": EVENTS,
    "latest.md": "hi ✓\n".encode(),
    "state": b"done\n",
    "cwd": b"/workspace\n",
    "created_at": b"1760000000\n",
    "updated_at": b"1760000500\n",
    "meta.json": b'{"client":"ctx","model":"debug/echo","scope":"private"}\n',
    "context/budget": b"0\n",
    "context/pack.json": b'{"items":[],"session":"default"}\n',
    "context/swap/index.jsonl": b"",
    "raw": b"age C\n",
    "state.json": b'{"status":"done"}\n',
    "current_run": RUN + b"\n",
    ".store/lock": b"",
    ".store/claim/.cursor.json": b"{}",
}
HOME = "home/1000"
SESSIONS = f"{HOME}/agent/coder/session"


def write_tree(root: Path, files: Mapping[str, bytes]) -> None:
    """Files by path, 0600 in 0700."""
    for name, content in files.items():
        path = root / name
        for directory in reversed([each for each in path.parents if not each.exists()]):
            directory.mkdir(0o700)
        path.write_bytes(content)
        path.chmod(0o600)


def write_session(root: Path, name: str = "default", **changed: bytes | None) -> Path:
    """A session of home/1000's coder; ``changed`` by file name, ``_`` for the dot, None leaves it out."""
    files: dict[str, bytes | None] = {**SESSION}
    files |= {key.replace("_jsonl", ".jsonl").replace("_json", ".json"): value for key, value in changed.items()}
    write_tree(root / SESSIONS / name, {key: value for key, value in files.items() if value is not None})
    return root / SESSIONS / name


def write_cortexfs(root: Path) -> None:
    """Two sessions with their index, an archived one, a model's, a shared one, and an agent's definition."""
    write_session(root, "default")
    write_session(root, "worktree-1", updated_at=b"1760000900\n", cwd=b"/work\n")
    write_tree(
        root,
        {
            f"{SESSIONS}/index/list": b"worktree-1\ndefault\n",
            f"{SESSIONS}/index/current": b"default\n",
            f"{SESSIONS}/index/by-cwd/cwd-990e10b3394addcf": b"default\n",
            f"{SESSIONS}/index/by-cwd/cwd-1f92008dc8753ba3": b"worktree-1",
            f"{SESSIONS}/index/by-hash/abc123": b"default\n",
            f"{SESSIONS}/index/by-hash/stale": b"no-such-session\n",
            f"{SESSIONS}/index/by-uuid/0b0b0b0b-0000-4000-8000-000000000000": b"worktree-1\n",
            f"{SESSIONS}/.default.gc-1-2-3/state": b"idle\n",
            "agent/coder.d/owner": b"1000\n",
            **{f"{HOME}/archived_sessions/coder/old/{name}": content for name, content in SESSION.items()},
            **{f"{HOME}/model/debug/echo.d/session/m/{name}": content for name, content in SESSION.items()},
            **{f"shared/team/agent/coder/session/s/{name}": content for name, content in SESSION.items()},
        },
    )


def picture(root: Path, skip: Sequence[str] = (".ctxfs",)) -> dict[str, tuple[int, bytes, int]]:
    """Every file and directory below ``root``: mode, content (of a link: its target) and mtime."""
    seen: dict[str, tuple[int, bytes, int]] = {}
    for place, directories, files in os.walk(root):
        directories[:] = [name for name in directories if name not in skip]
        for name in directories + files:
            path = Path(place) / name
            found = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(found.st_mode) else b""
            if stat.S_ISLNK(found.st_mode):
                content = os.readlink(path).encode()
            seen[str(path.relative_to(root))] = (found.st_mode, content, found.st_mtime_ns)
    return seen


def opened(root: Path, clock: Callable[[], int] | None = None) -> JsonlStore:
    return JsonlStore.open_now(root) if clock is None else JsonlStore.open_now(root, clock=clock)


def coder(store: JsonlStore) -> Owner:
    owner = store.owner(HOME, "agent", "coder")
    assert owner is not None
    return owner


def session(store: JsonlStore, name: str = "default") -> Session:
    row = store.session(coder(store).id, name)
    assert row is not None
    return row


def say(text: str, role: str = "user") -> Line:
    return parse_line("messages", b'{"content":"%b","role":"%b"}' % (text.encode(), role.encode()))


def event(text: str) -> Line:
    return parse_line("events", text.encode())


def append(store: JsonlStore, row: Session, *lines: Line, **named: Any) -> Appended:
    [result] = store.append([Append(row.id, lines, **named)])
    if isinstance(result, CtxError):
        raise result
    return result


def read_everything(store: JsonlStore) -> None:
    """Whatever a mount could ask of a tree that is only looked at."""
    store.status()
    for space in (*store.spaces("home/"), *store.spaces("shared/")):
        for kind in ("agent", "model"):
            for owner in store.owners(space.name, kind):
                store.list_content(owner.id)
                for each in ("by-cwd", "by-hash", "by-uuid"):
                    store.mappings(owner.id, each)
                for row in store.sessions(owner.id):
                    _read(store, row)
        for directory in store.archive_directories(space.name, None):
            for row in store.archived_sessions(directory.id):
                _read(store, row)


def _read(store: JsonlStore, row: Session) -> None:
    store.rows(row.id)
    store.latest(row.id)
    store.snapshot(row.id, "AGENTS.md")
    for stream in ("messages", "events"):
        store.read_stream(row.id, stream, 0, 1 << 30)


CD = event('{"type":"cwd","cwd":"/tmp"}')


def made(root: Path) -> JsonlStore:
    """A store with one session, ``default``."""
    store = opened(root)
    store.add_space(HOME, 1000, 1000, 0o700)
    owner = store.add_owner(HOME, "agent", "coder", 1000, 1000)
    store.create_session(owner.id, "default", 1000)
    return store


def raws(store: JsonlStore, row: Session) -> list[bytes]:
    return [each.raw for each in store.rows(row.id)]
