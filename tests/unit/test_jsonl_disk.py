"""What a jsonl store leaves on the disk: layout, modes, views, descriptors (spec 1.3, 2.9)."""

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from backend.entries import FORMAT_VERSION, NewEntry, NewMark, NewMessage, SessionHeader
from backend.errors import (
    InvalidValue,
    Missing,
    OpenError,
    SessionError,
    StoreCorrupt,
    StoreFormat,
    StoreLocked,
)
from backend.jsonl import JsonlStore
from backend.jsonl.handles import _OPEN_SESSIONS
from backend.names import cwd_key
from tests.unit.jsonl_tree import CD, HOME, SESSIONS, append, coder, event, made, opened, picture, raws, say, session

# layout and views


def test_a_session_is_the_files_that_cortexfs_makes(store: JsonlStore, root: Path) -> None:
    found = {path.name for path in (root / SESSIONS / "default").iterdir()}
    assert found == {
        "messages.jsonl",
        "events.jsonl",
        "latest.md",
        "state",
        "cwd",
        "created_at",
        "updated_at",
        "meta.json",
        "context",
        ".store",
    }


def test_the_small_files_and_the_index_say_what_the_log_says(store: JsonlStore, root: Path) -> None:
    other = store.create_session(coder(store).id, "other", 1000)
    append(
        store,
        session(store),
        say("hi", "assistant"),
        CD,
        event('{"type":"state","from":"idle","state":"done"}'),
        event('{"type":"meta","meta":{"scope":"private","client":"x"}}'),
        time=1_700_000_000_999,
    )
    store.set_mapping(coder(store).id, "by-hash", "abc", "other")
    store.set_current(coder(store).id, "other")
    files = {
        "default/latest.md": b"hi\n",
        "default/cwd": b"/tmp\n",
        "default/state": b"done\n",
        "default/updated_at": b"1700000000\n",
        "default/meta.json": b'{"client":"x","scope":"private"}\n',
        "default/created_at": b"%d\n" % (session(store).created_at // 1000),
        "index/list": b"default\nother\n",
        "index/current": b"other\n",
        f"index/by-cwd/{cwd_key('/tmp')}": b"default\n",
        "index/by-hash/abc": b"other\n",
    }
    assert {name: (root / SESSIONS / name).read_bytes() for name in files} == files
    store.delete_session(other.id)
    assert not (root / SESSIONS / "index/by-hash/abc").exists()
    assert not (root / SESSIONS / "index/current").exists()
    assert (root / SESSIONS / "index/list").read_bytes() == b"default\n"


def test_what_the_index_derives_is_the_same_when_its_files_were_dropped_or_forged(root: Path) -> None:
    """Field report 14: an index that drifts from what it indexes."""
    store = made(root)
    for number in range(9):
        row = store.create_session(coder(store).id, f"s{number}", 1000)
        append(store, row, event(f'{{"type":"cwd","cwd":"/{number % 4}"}}'), say("hi", "assistant"))
    append(store, session(store, "s3"), CD)

    def index() -> tuple[bytes, dict[str, str]]:
        mappings = store.mappings(coder(store).id, "by-cwd")
        return store.list_content(coder(store).id), {row.key: row.session for row in mappings}

    before = index()
    store.close()
    files = root / SESSIONS / "index"
    shutil.rmtree(files / "by-cwd")
    (files / "by-cwd").mkdir(0o700)
    (files / "by-cwd" / cwd_key("/nowhere")).write_bytes(b"s1\n")
    (files / "list").write_bytes(b"s1\nno-such-session\n")
    store = opened(root)
    assert index() == before
    append(store, session(store, "s1"), say("more"))
    assert (files / "list").read_bytes() == index()[0]
    store.close()


def test_a_long_list_is_written_at_the_end(root: Path) -> None:
    store = made(root)
    for number in range(400):
        store.create_session(coder(store).id, f"session-{number}", 1000)
    content = store.list_content(coder(store).id)
    mtime = coder(store).list_mtime
    store.close()
    path = root / SESSIONS / "index/list"
    assert path.read_bytes() == content
    assert path.stat().st_mtime_ns == mtime


def test_mtimes_are_those_of_the_files(store: JsonlStore, root: Path) -> None:
    append(store, session(store), say("hi", "assistant"), CD)
    row = session(store)
    expected = {
        "messages.jsonl": row.messages_mtime,
        "events.jsonl": row.events_mtime,
        "latest.md": row.latest_mtime,
        "cwd": row.cwd_mtime,
        "state": row.state_mtime,
    }
    assert {name: (root / SESSIONS / "default" / name).stat().st_mtime_ns for name in expected} == expected


def test_order_jsonl_holds_the_header_and_where_entries_lie(store: JsonlStore, root: Path) -> None:
    lines = [say("a"), CD, say("b")]
    append(store, session(store), *lines, time=[1, 2, 3])
    content = (root / SESSIONS / "default/.store/order.jsonl").read_bytes()
    header, *order = [json.loads(line) for line in content.splitlines()]
    assert header["sessionId"] == session(store).session_id
    assert (header["formatVersion"], header["createdAt"]) == (FORMAT_VERSION, session(store).created_at)
    assert [{key: line[key] for key in ("n", "time", "stream", "offset", "length")} for line in order] == [
        {"n": 0, "time": 1, "stream": "messages", "offset": 0, "length": len(lines[0].raw)},
        {"n": 1, "time": 2, "stream": "events", "offset": 0, "length": len(CD.raw)},
        {"n": 2, "time": 3, "stream": "messages", "offset": len(lines[0].raw) + 1, "length": len(lines[2].raw)},
    ]


def test_a_format_that_is_not_known_is_refused(root: Path) -> None:
    store = made(root)
    session_id = session(store).session_id
    store.close()
    path = root / SESSIONS / "default/.store/order.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"formatVersion":1', b'"formatVersion":2'))
    store = opened(root)
    for call in (store.head, store.read):
        with pytest.raises(SessionError):
            trio.run(call, session_id)
    assert "format version 2" in (session(store).fault or "")
    store.close()


def test_sessions_without_a_place_survive_a_lost_catalogue(root: Path) -> None:
    store = opened(root)
    header = SessionHeader(
        session_id="a/../b\0é", format_version=1, created_at=5, delegation_depth=2, origin={"x": [1]}
    )
    entries: list[NewEntry] = [NewMessage({"role": "user", "content": "hi"}), NewMark("turn-skip", {"reason": ""})]
    trio.run(store.create, header, entries)
    before = trio.run(store.read, header.session_id)
    store.close()
    (root / ".ctxfs/catalogue.jsonl").unlink()
    store = opened(root)
    assert trio.run(store.read, header.session_id) == before
    head = trio.run(store.head, header.session_id)
    assert head and (head.header, head.length) == (header, 2)
    store.close()


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
def test_a_header_that_no_file_can_hold_is_refused(store: JsonlStore, root: Path, text: str) -> None:
    before = set(picture(root))
    for fields in ({"session_id": text}, {"session_id": "x", "title": text}):
        header = SessionHeader(**{"format_version": 1, "created_at": 5, "delegation_depth": 0} | fields)  # type: ignore[arg-type]
        with pytest.raises(SessionError):
            trio.run(store.create, header)
    assert set(picture(root)) == before


@pytest.mark.parametrize("time", [-(1 << 63) - 1, 1 << 63, 10**40])
def test_a_time_that_no_clock_shows_is_refused(store: JsonlStore, time: int) -> None:
    with pytest.raises(SessionError):
        append(store, session(store), say("x"), time=time)
    assert session(store).n == 0
    append(store, session(store), say("x"), time=-(1 << 63))
    assert store.rows(session(store).id)[0].time == -(1 << 63)


@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o377])
def test_files_are_0600_in_0700_whatever_the_umask(root: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        store = made(root)
        append(store, session(store), say("hi", "assistant"), CD)
        store.branch_session(session(store).id, 1, "child")
        store.write_snapshot(session(store).id, "AGENTS.md", b"# rules\n")
        store.set_mapping(coder(store).id, "by-hash", "abc", "child")
        store.set_definition_value(store.add_definition("model", "debug/echo"), "exec", b"[]\n")
        directory = store.add_archive_directory(HOME, None, "coder", 1000)
        store.archive_session(session(store, "child").id, directory.id)
        store.close()
    finally:
        os.umask(old)
    modes = {name: stat.S_IMODE(mode) for name, (mode, _, _) in picture(root, skip=()).items()}
    assert {
        name: oct(mode) for name, mode in modes.items() if mode != (0o700 if (root / name).is_dir() else 0o600)
    } == {}
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_makes_belongs_to_the_home_and_to_who_made_it(root: Path) -> None:
    store = made(root)
    append(store, session(store), say("hi", "assistant"), CD)
    store.add_space("shared/team", 0, 500, 0o2770)
    team = store.add_owner("shared/team", "agent", "coder", 0, 500)
    store.create_session(team.id, "s", 1001)
    store.close()
    home = [(root / HOME).stat(), *(path.lstat() for path in (root / HOME).rglob("*"))]
    assert {(found.st_uid, found.st_gid) for found in home} == {(1000, 1000)}
    made_in = root / "shared/team/agent/coder/session/s"
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in made_in.rglob("*")} == {(1001, 500)}


# names


BAD_NAMES = ["", ".", "..", "../x", "a/b", "/a", "a\0b", "a\nb", "ü", "x" * 65, "index", "a b", ".hidden", "a.sock"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_no_name_leads_out_of_its_directory(store: JsonlStore, root: Path, name: str) -> None:
    owner, row = coder(store), session(store)
    definition = store.add_definition("agent", "coder")
    before = picture(root)
    calls: list[Callable[[], Any]] = [
        lambda: store.create_session(owner.id, name, 1000),
        lambda: store.branch_session(row.id, 0, name),
        lambda: store.set_current(owner.id, name),
        lambda: store.set_mapping(owner.id, "by-hash", name if name != "index" else "/", "default"),
        lambda: store.set_mapping(owner.id, "by-uuid", name, "default"),
        lambda: store.set_mapping(owner.id, "by-hash", "abc", name),
        lambda: store.add_space(f"shared/{name}" if name != "index" else "shared", 0, 0, 0o2770),
        lambda: store.add_space(f"home/{name}", 0, 0, 0o700),
        lambda: store.write_snapshot(row.id, name, b""),
        lambda: store.remove_snapshot(row.id, name),
    ]
    if name not in ("index", "a/b"):
        calls += [
            lambda: store.add_owner(HOME, "agent", name, 1000, 1000),
            lambda: store.add_owner(HOME, "model", name, 1000, 1000),
            lambda: store.add_definition("agent", name),
        ]
    if name in ("", ".", "..", "../x", "a/b", "/a", "a\0b", ".hidden"):
        calls += [
            lambda: store.add_archive_directory(HOME, None, name, 1000),
            lambda: store.set_definition_value(definition, name, b""),
        ]
    for call in calls:
        with pytest.raises((InvalidValue, Missing)):
            call()
    assert store.owner(HOME, "agent", name) is None
    assert store.session(owner.id, name) is None
    assert store.space(f"home/{name}") is None
    assert picture(root) == before


# opening


def test_a_store_is_open_once(store: JsonlStore, root: Path) -> None:
    with pytest.raises(StoreLocked):
        opened(root)


@pytest.mark.parametrize(
    "damage, kind",
    [
        (lambda root: (root / ".ctxfs/format").write_bytes(b"ctxfs-jsonl 2\n"), StoreFormat),
        (lambda root: (root / "ctxfs.db").write_bytes(b""), StoreFormat),
        (lambda root: (root / ".ctxfs/catalogue.jsonl").write_bytes(b"{}\n{}\n"), StoreCorrupt),
        (lambda root: (root / ".ctxfs/lock").unlink() or (root / ".ctxfs/lock").symlink_to("/dev/null"), OpenError),
    ],
    ids=["another version", "another store", "bad catalogue", "lock is a link"],
)
def test_a_store_that_is_none_of_ours_is_refused(
    root: Path, damage: Callable[[Path], object], kind: type[OpenError]
) -> None:
    made(root).close()
    damage(root)
    with pytest.raises(kind):
        opened(root)


def test_a_file_is_no_store(root: Path) -> None:
    file = root / "file"
    file.write_bytes(b"")
    with pytest.raises(StoreFormat):
        opened(file)


def test_a_torn_last_line_of_the_catalogue_is_ours(root: Path) -> None:
    made(root).close()
    path = root / ".ctxfs/catalogue.jsonl"
    path.write_bytes(path.read_bytes() + b'{"is":"gon')
    store = opened(root)
    assert session(store)
    store.create_session(coder(store).id, "other", 1000)
    store.close()
    opened(root).close()


def test_ids_are_not_used_again_after_the_catalogue_was_rewritten(root: Path) -> None:
    store = made(root)
    for number in range(600):
        store.remove_archive_directory(store.add_archive_directory(HOME, None, f"d{number}", 1000).id)
    last = store.create_session(coder(store).id, "last", 1000)
    store.delete_session(last.id)
    store.close()
    before = (root / ".ctxfs/catalogue.jsonl").stat().st_size
    store = opened(root)
    assert (root / ".ctxfs/catalogue.jsonl").stat().st_size < before / 10
    again = store.create_session(coder(store).id, "again", 1000)
    assert again.id > last.id
    assert again.seq > last.seq
    store.close()


def test_few_files_are_open_however_many_sessions_are_used(store: JsonlStore) -> None:
    before = len(os.listdir("/proc/self/fd"))
    rows = [store.create_session(coder(store).id, f"s{number}", 1000) for number in range(3 * _OPEN_SESSIONS)]
    for row in rows:
        append(store, row, say("x"))
    assert len(os.listdir("/proc/self/fd")) - before <= 4 * _OPEN_SESSIONS
    for row in rows:
        append(store, row, say("y"))
        assert raws(store, row) == [say("x").raw, say("y").raw]
