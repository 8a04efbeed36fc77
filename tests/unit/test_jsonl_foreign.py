"""A CortexFS tree is mounted as it is (spec 2.9), and history that cannot be proven is never touched (spec 1.5)."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from backend.entries import MessageEntry
from backend.errors import Busy
from backend.jsonl import JsonlStore
from backend.names import cwd_key
from tests.unit.jsonl_tree import (
    EVENTS,
    HOME,
    MESSAGES,
    SESSIONS,
    append,
    coder,
    event,
    opened,
    picture,
    read_everything,
    say,
    session,
    write_cortexfs,
    write_session,
    write_tree,
)


@pytest.fixture
def tree(root: Path) -> Iterator[JsonlStore]:
    """A store over a whole CortexFS tree."""
    write_cortexfs(root)
    store = opened(root)
    yield store
    store.close()


def test_reading_leaves_every_byte_mode_and_time_as_it_was(root: Path) -> None:
    write_cortexfs(root)
    before = picture(root)
    for _ in range(2):
        store = opened(root)
        read_everything(store)
        store.close()
    assert picture(root) == before


def test_by_cwd_is_as_old_as_the_cwd_whenever_the_store_is_opened(root: Path) -> None:
    write_cortexfs(root)
    missing, wrong = sorted((root / SESSIONS / "index/by-cwd").iterdir())
    missing.unlink()
    wrong.write_text("another\n")
    seen = []
    for _ in range(2):
        store = opened(root)
        seen.append({row.key: row.mtime for row in store.mappings(coder(store).id, "by-cwd")})
        cwds = {cwd_key(row.cwd): row.cwd_mtime for row in (session(store, name) for name in ("default", "worktree-1"))}
        store.close()
    assert seen[0] == seen[1]
    assert seen[0][missing.name] >= cwds[missing.name]
    assert seen[0][wrong.name] > wrong.stat().st_mtime_ns


def test_the_small_files_say_what_a_foreign_session_is(tree: JsonlStore) -> None:
    row = session(tree)
    assert (row.n, row.state, row.cwd, row.meta) == (
        6,
        "done",
        "/workspace",
        '{"client":"ctx","model":"debug/echo","scope":"private"}',
    )
    assert (row.created_at, row.updated_at) == (1_760_000_000_000, 1_760_000_500_000)
    assert (row.messages_size, row.events_size) == (len(MESSAGES), len(EVENTS))
    assert tree.latest(row.id) == "hi ✓\n".encode()
    assert row.latest_size == len("hi ✓\n".encode())


def test_its_entries_are_all_messages_then_all_events_at_its_last_update(tree: JsonlStore) -> None:
    rows = tree.rows(session(tree).id)
    assert b"".join(row.raw + b"\n" for row in rows) == MESSAGES + EVENTS
    assert [row.n for row in rows] == list(range(6))
    assert {row.time for row in rows} == {1_760_000_500_000}
    assert [row.stream for row in rows] == ["messages"] * 3 + ["events"] * 3


def test_its_entries_can_be_read_as_such(tree: JsonlStore) -> None:
    entries = trio.run(tree.read, session(tree).session_id)
    assert entries[2] == MessageEntry(2, 1_760_000_500_000, {"content": "age A has no run", "role": "user"})


def test_the_index_is_what_the_sessions_say(tree: JsonlStore) -> None:
    owner = coder(tree)
    assert tree.list_content(owner.id) == b"worktree-1\ndefault\n"
    assert owner.current == "default"
    assert {row.key: row.session for row in tree.mappings(owner.id, "by-cwd")} == {
        cwd_key("/workspace"): "default",
        cwd_key("/work"): "worktree-1",
    }
    assert [(row.key, row.session) for row in tree.mappings(owner.id, "by-hash")] == [("abc123", "default")]
    assert len(tree.mappings(owner.id, "by-uuid")) == 1


def test_models_archived_and_shared_sessions_and_definitions_are_found(tree: JsonlStore) -> None:
    model = tree.owner(HOME, "model", "debug/echo")
    shared = tree.owner("shared/team", "agent", "coder")
    assert model and tree.session(model.id, "m")
    shared_session = tree.session(shared.id, "s") if shared else None
    assert shared_session and shared_session.scope == "shared"
    directory = tree.archive_directory(HOME, None, "coder")
    archived = tree.archived_session(directory.id, "old") if directory else None
    assert archived and archived.n == 6
    assert [row[1] for row in tree.definitions("agent")] == ["coder"]
    assert tree.status().sessions == 4


def test_hidden_leftovers_of_other_tools_are_no_sessions(tree: JsonlStore) -> None:
    assert [row.name for row in tree.sessions(coder(tree).id)] == ["default", "worktree-1"]


def test_ids_stay_over_restarts(root: Path) -> None:
    write_cortexfs(root)

    def ids() -> list[object]:
        store = opened(root)
        owner = coder(store)
        found = [(row.id, row.session_id, row.seq, row.messages_mtime) for row in store.sessions(owner.id)]
        mappings = [row.id for kind in ("by-cwd", "by-hash") for row in store.mappings(owner.id, kind)]
        store.close()
        return [owner.id, found, mappings]

    assert ids() == ids()


def test_a_lost_catalogue_is_made_again_alike(root: Path) -> None:
    write_cortexfs(root)
    seen = []
    for _ in range(2):
        store = opened(root)
        seen.append([(row.id, row.session_id, row.n) for row in store.sessions(coder(store).id)])
        store.close()
        shutil.rmtree(root / ".ctxfs")
    assert seen[0] == seen[1]


def test_sessions_copied_in_while_closed_are_found_and_those_removed_are_gone(root: Path) -> None:
    write_cortexfs(root)
    store = opened(root)
    kept = session(store, "worktree-1").id
    gone = session(store, "default").id
    store.close()
    shutil.rmtree(root / SESSIONS / "default")
    write_session(root, "new")
    store = opened(root)
    assert {row.name: row.id == kept for row in store.sessions(coder(store).id)} == {"worktree-1": True, "new": False}
    assert store.session_by_id(gone) is None
    assert session(store, "new").id > gone
    assert store.list_content(coder(store).id).splitlines()[0] == b"new"
    store.close()


def test_a_copy_of_a_session_has_another_id(root: Path) -> None:
    write_cortexfs(root)
    store = opened(root)
    append(store, session(store), say("ours now"))
    first = session(store).session_id
    store.close()
    shutil.copytree(root / SESSIONS / "default", root / SESSIONS / "copy")
    store = opened(root)
    copy = session(store, "copy")
    assert session(store).session_id == first != copy.session_id
    assert copy.n == 7
    append(store, copy, say("on its own"))
    assert (session(store, "copy").n, session(store).n) == (8, 7)
    store.close()


def test_the_whole_store_can_be_moved(root: Path) -> None:
    write_cortexfs(root)
    store = opened(root)
    append(store, session(store), say("before"))
    before = [(row.id, row.session_id, row.n) for row in store.sessions(coder(store).id)]
    store.close()
    moved = root.rename(root.with_name("elsewhere"))
    store = opened(moved)
    assert [(row.id, row.session_id, row.n) for row in store.sessions(coder(store).id)] == before
    append(store, session(store), say("after"))
    store.close()


def test_the_first_append_to_a_foreign_session_follows_its_events(root: Path) -> None:
    write_cortexfs(root)
    store = opened(root)
    appended = append(store, session(store), say("more"), event('{"type":"cwd","cwd":"/tmp"}'))
    assert appended.files == {"messages.jsonl", "events.jsonl", "cwd", "updated_at"}
    store.close()
    directory = root / SESSIONS / "default"
    assert (directory / "messages.jsonl").read_bytes() == MESSAGES + b'{"content":"more","role":"user"}\n'
    store = opened(root)
    row = session(store)
    assert [each.n for each in store.rows(row.id)] == list(range(8))
    assert [each.stream for each in store.rows(row.id)][6:] == ["messages", "events"]
    assert (row.n, row.state, row.cwd, row.latest_n) == (8, "done", "/tmp", 1)
    assert store.rows(row.id)[0].time == 1_760_000_500_000
    store.close()


def test_what_foreign_files_said_is_kept_when_the_journal_is_lost(root: Path) -> None:
    write_session(root)
    store = opened(root)
    append(store, session(store), say("more"))
    before = session(store)
    store.close()
    (root / SESSIONS / "default/.store/journal").unlink()
    store = opened(root)
    assert session(store) == before
    store.close()


def test_a_branch_of_a_foreign_session_keeps_what_its_files_said(tree: JsonlStore) -> None:
    row = session(tree)
    whole = tree.branch_session(row.id, 6, "whole")
    part = tree.branch_session(row.id, 2, "part")
    assert (whole.n, whole.state, whole.cwd, whole.meta) == (6, row.state, row.cwd, row.meta)
    assert (part.n, part.state, part.latest_n) == (2, "idle", 1)
    assert tree.read_stream(part.id, "messages", 0, 1 << 20) == b"".join(MESSAGES.splitlines(True)[:2])
    assert tree.read_stream(part.id, "events", 0, 1 << 20) == b""


@pytest.mark.parametrize(
    "name, content, field, expected",
    [
        ("state", b"ACTIVE\n", "state", "idle"),
        ("state", b"active \n", "state", "idle"),
        ("state", b"a" * 70_000, "state", "idle"),
        ("state", None, "state", "idle"),
        ("state", b"active", "state", "active"),
        ("cwd", b"/work/\n", "cwd", "/"),
        ("cwd", b"/a\n/b\n", "cwd", "/"),
        ("cwd", b"\xff\n", "cwd", "/"),
        ("meta.json", b'{"a":1} x\n', "meta", '{"client":"ctx","scope":"private"}'),
        ("meta.json", b"[]\n", "meta", '{"client":"ctx","scope":"private"}'),
        ("created_at", b"-5\n", "n", 6),
        ("updated_at", b"9" * 400, "n", 6),
    ],
)
def test_a_bad_small_file_counts_as_none(
    root: Path, name: str, content: bytes | None, field: str, expected: object
) -> None:
    path = write_session(root) / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    store = opened(root)
    assert getattr(session(store), field) == expected
    assert session(store).fault is None
    store.close()


@pytest.mark.parametrize("name", ["state", "cwd", "meta.json", "latest.md", "updated_at"])
@pytest.mark.parametrize("plant", ["link", "fifo", "directory"])
def test_what_is_planted_in_place_of_a_small_file_is_not_followed(root: Path, name: str, plant: str) -> None:
    outside = root.parent / "outside"
    outside.write_bytes(b"active\n")
    path = write_session(root) / name
    path.unlink()
    plants: dict[str, Callable[[], object]] = {
        "link": lambda: path.symlink_to(outside),
        "fifo": lambda: os.mkfifo(path),
        "directory": path.mkdir,
    }
    plants[plant]()
    store = opened(root)
    assert session(store).state == ("idle" if name == "state" else "done")
    append(store, session(store), event('{"type":"state","from":"idle","state":"error"}'))
    store.close()
    assert outside.read_bytes() == b"active\n"


def test_a_session_whose_state_cannot_be_read_is_not_archived(root: Path) -> None:
    write_session(root, "odd", state=b"ACTIVE\n")
    store = opened(root)
    directory = store.add_archive_directory(HOME, None, "coder", 1000)
    with pytest.raises(Busy):
        store.archive_session(session(store, "odd").id, directory.id)
    store.close()


def test_missing_log_files_are_empty_ones(root: Path) -> None:
    write_session(root, events_jsonl=None)
    store = opened(root)
    assert (session(store).n, session(store).fault) == (3, None)
    append(store, session(store), event('{"type":"cwd","cwd":"/tmp"}'))
    assert store.read_stream(session(store).id, "events", 0, 100) == b'{"type":"cwd","cwd":"/tmp"}\n'
    store.close()


def test_names_that_are_none_are_passed_over(root: Path) -> None:
    write_session(root)
    write_tree(
        root,
        {
            f"{SESSIONS}/index.d/state": b"",
            f"{SESSIONS}/a b/state": b"",
            "home/01/agent/x/session/s/state": b"",
            "home/me/agent/x/session/s/state": b"",
            f"{HOME}/agent/ctx/session/s/state": b"",
        },
    )
    store = opened(root)
    assert [space.name for space in store.spaces("home/")] == [HOME]
    assert [owner.name for owner in store.owners(HOME, "agent")] == ["coder"]
    assert [row.name for row in store.sessions(coder(store).id)] == ["default"]
    store.close()
