"""Lists of stored sessions: order, pages, all workspaces, legacy ones (spec 5)."""

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from backend.envelopes import directories
from tests.cosh_store import DAY_MS, CoshStore, message, session_id
from tests.unit.envelopes.controlled import MISSING, asked, inspected, listed


def test_a_list_is_ordered_by_mtime_and_then_by_id(store: CoshStore) -> None:
    for number in (1, 2, 3):
        store.put(number, updated_at_ms=1000 - number)
    tied = store.put(9)
    os.utime(tied, ns=((DAY_MS + 2000) * 1_000_000,) * 2)
    assert [id for id, _ in listed(store)] == [session_id(number) for number in (3, 2, 9, 1)]


@pytest.mark.parametrize(("limit", "count"), [(0, 1), (1, 1), (7, 7), (100, 100), (999, 100)])
def test_a_list_is_clamped_to_1_to_100(store: CoshStore, limit: int, count: int) -> None:
    for number in range(101):
        store.put(number)
    assert len(listed(store, limit=limit)) == count
    assert len(listed(store)) == 20


def test_pages_give_every_session_once_and_survive_the_end_of_their_cursor(store: CoshStore) -> None:
    paths = {session_id(number): store.put(number) for number in range(7)}
    seen, cursor = list[str](), None
    while page := asked(store, "list", limit=2, cursor=cursor):
        ids = [entry["session_id"] for entry in page["sessions"]]
        seen += ids
        cursor = page["next_cursor"]
        if cursor is None:
            break
        assert cursor == f"v1:{DAY_MS + 1000 * int(ids[-1][-2:], 16):016x}:{ids[-1]}"
        paths[ids[-1]].unlink()
    assert seen == [session_id(number) for number in range(6, -1, -1)]


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "v1",
        "v1:0",
        "v2:0:" + MISSING,
        "v1::" + MISSING,
        "v1:xyz:" + MISSING,
        "v1:-1:" + MISSING,
        "v1:0:x",
        "v1:0:" + MISSING + ":",
        "v1:" + "f" * 17 + ":" + MISSING,
    ],
)
def test_a_cursor_of_another_form_is_invalid(store: CoshStore, cursor: str) -> None:
    assert asked(store, "list", cursor=cursor) == "invalid_cursor"


def test_hex_of_any_length_is_a_cursor(store: CoshStore) -> None:
    store.put(1)
    assert len(listed(store, cursor=f"v1:{'0' * 40}FFFFFFFFFFF:{MISSING}")) == 1
    assert listed(store, cursor=f"v1:0:{MISSING}") == []


def test_a_page_is_filled_from_further_entries_where_some_cannot_be_read(
    store: CoshStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        store.put(number)
    real = directories.Directory.open

    def vanishing(self: directories.Directory, id: str) -> Any:
        return None if id in (session_id(4), session_id(2)) else real(self, id)

    monkeypatch.setattr(directories.Directory, "open", vanishing)
    page = asked(store, "list", limit=2)
    assert [entry["session_id"] for entry in page["sessions"]] == [session_id(3), session_id(1)]
    assert page["next_cursor"].endswith(session_id(1))


def test_only_the_entries_of_a_page_are_read(store: CoshStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(150):
        store.put(number)
    read: list[str] = []
    real = directories.SessionFile.read

    def counted(self: directories.SessionFile) -> bytes:
        read.append(self.id)
        return real(self)

    monkeypatch.setattr(directories.SessionFile, "read", counted)
    assert len(listed(store, limit=100)) == len(read) == 100


def test_other_names_in_the_directory_are_no_sessions(store: CoshStore) -> None:
    path = store.put(1)
    for name in (f".{session_id(1)}.lock", f".{session_id(1)}.{session_id(2)}.tmp", "x.json", session_id(3)):
        (path.parent / name).write_bytes(b"[]")
    (path.parent / f"{session_id(10).upper()}.json").write_bytes(b"[]")
    assert listed(store) == [(session_id(1), "ready")]


# All workspaces


def _foreign(store: CoshStore, tmp_path: Path, name: str, number: int) -> Path:
    other = tmp_path / name
    other.mkdir(exist_ok=True)
    return store.put(number, scope=store.scope_of(other), workspace_scope=str(other), session_id=session_id(number))


def test_all_workspaces_shows_foreign_sessions_as_mismatches(store: CoshStore, tmp_path: Path) -> None:
    store.put(1)
    store.put_legacy(2)
    _foreign(store, tmp_path, "b", 3)
    store.put_in(store.scope_of(tmp_path / "c"), 4, b"[]")
    (store.root / "not-a-scope").mkdir()
    (store.root / ("0" * 24)).symlink_to(store.scope)
    found = asked(store, "list", all_workspaces=True)["sessions"]
    assert [(entry["session_id"], entry["health"], entry["workspace_scope"]) for entry in found] == [
        (session_id(4), "scope_mismatch", str(store.workspace)),
        (session_id(3), "scope_mismatch", str(tmp_path / "b")),
        (session_id(1), "ready", str(store.workspace)),
    ]
    assert [id for id, _ in listed(store)] == [session_id(2), session_id(1)]


def test_all_workspaces_of_no_root_is_an_empty_page(store: CoshStore) -> None:
    assert listed(store, all_workspaces=True) == []


def test_300_sessions_of_5_workspaces_page_with_few_descriptors(store: CoshStore, tmp_path: Path) -> None:
    for number in range(300):
        _foreign(store, tmp_path, f"w{number % 5}", number)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 8, hard))
    try:
        first = asked(store, "list", all_workspaces=True, limit=100)
        second = asked(store, "list", all_workspaces=True, limit=100, cursor=first["next_cursor"])
        third = asked(store, "list", all_workspaces=True, limit=100, cursor=second["next_cursor"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    pages = [entry["session_id"] for page in (first, second, third) for entry in page["sessions"]]
    assert pages == [session_id(number) for number in range(299, -1, -1)]
    assert third["next_cursor"] is None


# Legacy


def test_legacy_arrays_in_the_scope_directory_are_ready(store: CoshStore) -> None:
    store.put(1, json.dumps([message("old")]).encode())
    summary = asked(store, "validate", session_id=session_id(1))["session"]
    assert (summary["model"], summary["schema_version"], summary["health"]) == (None, 1, "ready")
    assert summary["created_at_ms"] == summary["updated_at_ms"] == DAY_MS + 1000


def test_the_default_root_knows_the_sessions_directory_of_the_workspace(store: CoshStore) -> None:
    store.put_legacy(1)
    store.put_legacy(2)
    store.put(2, messages=[message("new")])
    before = store.files()
    assert [entry["first_prompt"] for entry in asked(store, "list")["sessions"]] == ["new", "old"]
    assert asked(store, "prepare_clear_all", protected_session_ids=[])["session_ids"] == [session_id(1), session_id(2)]
    assert inspected(store, 1)["first_prompt"] == "old"
    assert store.files() == before


@pytest.mark.parametrize("raw", [b"{}", b"{", b"[5]", b"\xff"])
def test_a_bad_legacy_file_is_an_error_to_inspect_and_corrupt_to_list(store: CoshStore, raw: bytes) -> None:
    store.put_legacy(1).write_bytes(raw)
    assert asked(store, "inspect", session_id=session_id(1)) == "corrupt"
    assert [health for _, health in listed(store)] == ["corrupt"]


@pytest.mark.parametrize(
    ("persist_dir", "owned"),
    [("kept", True), (".", True), ("a/../kept", False), ("../shared", False), ("/{ws}/kept", False), ("~/kept", False)],
)
def test_a_custom_root_is_a_legacy_directory_only_if_it_is_the_workspaces_own(
    store: CoshStore, tmp_path: Path, persist_dir: str, owned: bool
) -> None:
    for directory in ("work/kept", "work", "shared", "home/kept"):
        store.put_legacy(1, directory=tmp_path / directory)
    (store.workspace / "a").mkdir()
    store.configure(persist_dir.replace("/{ws}", str(store.workspace)))
    before = store.files()
    assert len(listed(store)) == owned
    assert len(asked(store, "clear", session_ids=[session_id(1)], protected_session_ids=[])["deleted"]) == owned
    assert (store.files() == before) is not owned


def test_a_legacy_directory_that_leads_out_of_the_workspace_is_nobodys(store: CoshStore, tmp_path: Path) -> None:
    store.put_legacy(1, directory=tmp_path / "outside")
    (store.workspace / "sessions").symlink_to(tmp_path / "outside")
    assert listed(store) == []
    assert asked(store, "inspect", session_id=session_id(1)) == "not_found"


def test_a_file_in_place_of_the_legacy_directory_is_ignored(store: CoshStore) -> None:
    (store.workspace / "sessions").write_text("x")
    assert listed(store) == []
