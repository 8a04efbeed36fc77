"""Clearing stored sessions, beside writers and under swaps of what is cleared (spec 5)."""

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from backend.envelopes import configuration, directories
from tests.cosh_store import CoshStore, message, session_id
from tests.unit.envelopes.controlled import MISSING, asked, inspected, listed


def test_a_plan_parts_a_page_by_protection_and_goes_on_after_any_id(store: CoshStore) -> None:
    for number in range(1, 6):
        store.put(number, b"corrupt")
    fields = {"protected_session_ids": [session_id(2), session_id(5)], "limit": 3}
    assert asked(store, "prepare_clear_all", **fields) == {
        "action": "prepare_clear_all",
        "session_ids": [session_id(1), session_id(3)],
        "protected_session_ids": [session_id(2)],
        "next_cursor": session_id(3),
    }
    last = asked(store, "prepare_clear_all", **fields, cursor=session_id(3))
    assert (last["session_ids"], last["next_cursor"]) == ([session_id(4)], None)
    assert asked(store, "prepare_clear_all", **fields, cursor=MISSING)["session_ids"] == []
    assert asked(store, "prepare_clear_all", **fields, cursor="x") == "invalid_cursor"
    assert len(asked(store, "prepare_clear_all", protected_session_ids=[], limit=0)["session_ids"]) == 1


def test_a_plan_above_4096_ids_needs_pages(store: CoshStore) -> None:
    store.scope.mkdir(parents=True)
    for number in range(4097):
        (store.scope / f"{session_id(number)}.json").touch()
    assert asked(store, "prepare_clear_all", protected_session_ids=[]) == "invalid_request"
    page = asked(store, "prepare_clear_all", protected_session_ids=[], limit=99_999)
    assert (len(page["session_ids"]), page["next_cursor"]) == (4096, session_id(4095))
    (store.scope / f"{session_id(0)}.json").unlink()
    assert len(asked(store, "prepare_clear_all", protected_session_ids=[])["session_ids"]) == 4096


def test_clear_removes_each_id_and_says_why_not(store: CoshStore) -> None:
    store.put(1)
    store.put(2, b"corrupt")
    store.put(3)
    store.put_legacy(3)
    store.put_legacy(4)
    store.put(5)
    (store.scope / f".{session_id(1)}.lock").touch()
    ids = [session_id(number) for number in (1, 1, 2, 3, 4, 5)] + [MISSING, "bad"]
    found = asked(store, "clear", session_ids=ids, protected_session_ids=[session_id(5)])
    assert found["deleted"] == [session_id(number) for number in (1, 2, 3, 4)]
    assert [(entry["session_id"], entry["error"]["code"]) for entry in found["skipped"]] == [
        (session_id(1), "not_found"),
        (session_id(5), "active_session"),
        (MISSING, "not_found"),
        ("bad", "invalid_id"),
    ]
    assert os.listdir(store.scope) == [f"{session_id(5)}.json"]
    assert os.listdir(store.workspace / "sessions") == []


@pytest.mark.parametrize("links", [True, False])
def test_each_session_is_locked_while_it_is_removed(
    store: CoshStore, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    ids = [session_id(number) for number in range(5)]
    for number in range(5):
        store.put(number)
    (store.scope / f".{session_id(2)}.lock").touch()  # which somebody left
    real, removed = directories.Directory.remove, list[str]()

    def removing(self: directories.Directory, id: str) -> None:
        with (store.scope / f".{id}.lock").open("rb") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        removed.append(id)
        real(self, id)

    def no_links(*_: object, **__: object) -> NoReturn:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(directories.Directory, "remove", removing)
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    assert asked(store, "clear", session_ids=ids, protected_session_ids=[])["deleted"] == removed == ids
    assert os.listdir(store.scope) == []


def test_a_lock_that_another_holds_stays_its_own_among_those_that_are_removed(store: CoshStore) -> None:
    ids = [session_id(number) for number in range(4)]
    for number in range(4):
        store.put(number)
    with (store.scope / f".{ids[1]}.lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = asked(store, "clear", session_ids=ids, protected_session_ids=[])
        assert found["deleted"] == [ids[0], ids[2], ids[3]]
        assert sorted(os.listdir(store.scope)) == [f".{ids[1]}.lock", f"{ids[1]}.json"]
        assert os.fstat(held.fileno()).st_nlink == 1


def test_who_opened_a_lock_before_its_session_was_removed_finds_out(
    store: CoshStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [session_id(number) for number in range(4)]
    for number in range(4):
        store.put(number)
    real, opened = directories.Directory.remove, list[Any]()

    def removing(self: directories.Directory, id: str) -> None:
        opened.append((store.scope / f".{id}.lock").open("rb"))
        real(self, id)

    monkeypatch.setattr(directories.Directory, "remove", removing)
    assert asked(store, "clear", session_ids=ids, protected_session_ids=[])["deleted"] == ids
    assert [os.fstat(lock.fileno()).st_nlink for lock in opened] == [0, 0, 0, 0]
    for lock in opened:
        lock.close()


def test_a_missing_protection_deletes_nothing(store: CoshStore) -> None:
    store.put(1)
    assert asked(store, "clear", session_ids=[session_id(1)]) == "invalid_request"
    assert listed(store) == [(session_id(1), "ready")]


@pytest.mark.parametrize("legacy", [False, True])
def test_a_locked_session_is_in_conflict_until_its_holder_is_gone(store: CoshStore, legacy: bool) -> None:
    store.put(1)
    locked = store.put_legacy(1) if legacy else store.scope / f".{session_id(1)}.lock"
    with locked.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = asked(store, "clear", session_ids=[session_id(1)], protected_session_ids=[])
        assert [entry["error"]["code"] for entry in found["skipped"]] == ["conflict"]
        assert inspected(store, 1)["health"] == "ready"
    assert asked(store, "clear", session_ids=[session_id(1)], protected_session_ids=[])["deleted"] == [session_id(1)]


_HOLD = """
import fcntl, sys, time
with open(sys.argv[1], "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_holder_of_a_lock_that_is_killed_holds_nothing(store: CoshStore) -> None:
    store.put(1)
    command = [sys.executable, "-c", _HOLD, str(store.scope / f".{session_id(1)}.lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        found = asked(store, "clear", session_ids=[session_id(1)], protected_session_ids=[])
        assert [entry["error"]["code"] for entry in found["skipped"]] == ["conflict"]
        holder.send_signal(signal.SIGKILL)
    assert asked(store, "clear", session_ids=[session_id(1)], protected_session_ids=[])["deleted"] == [session_id(1)]


def test_what_has_another_name_elsewhere_stays_as_it_is_there(store: CoshStore, tmp_path: Path) -> None:
    store.scope.mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"not ours")
    elsewhere.chmod(0o644)
    for name in (f"{session_id(1)}.json", f".{session_id(1)}.lock"):
        (store.scope / name).hardlink_to(elsewhere)
    assert listed(store) == [(session_id(1), "corrupt")]
    assert asked(store, "clear", session_ids=[session_id(1)], protected_session_ids=[])["deleted"] == [session_id(1)]
    assert (elsewhere.read_bytes(), stat.S_IMODE(elsewhere.stat().st_mode)) == (b"not ours", 0o644)


def test_a_time_before_1970_is_0(store: CoshStore) -> None:
    os.utime(store.put(1, b"[]"), (-5, -5))
    assert (inspected(store, 1)["created_at_ms"], len(listed(store))) == (0, 1)


def test_stale_temporaries_are_not_swept_by_session_control(store: CoshStore) -> None:
    store.put(1)
    stale = store.scope / ".x.tmp"
    stale.touch()
    os.utime(stale, (0, 0))
    asked(store, "clear", session_ids=[session_id(1)], protected_session_ids=[])
    assert stale.exists()


# Swaps while an operation runs


@pytest.fixture
def outside(store: CoshStore, tmp_path: Path) -> Iterator[Path]:
    """A directory that holds a session of the same id, and must be left as it is."""
    path = tmp_path / "outside"
    store.put(1, scope=path, messages=[message("stolen")])
    yield path
    assert os.listdir(path) == [f"{session_id(1)}.json"]
    assert b"stolen" in (path / f"{session_id(1)}.json").read_bytes()


@pytest.mark.parametrize("action", ["list", "inspect", "validate", "prepare_clear_all", "clear"])
@pytest.mark.parametrize("what", ["scoped", "legacy"])
def test_a_directory_swapped_for_a_link_redirects_nothing(
    store: CoshStore, outside: Path, monkeypatch: pytest.MonkeyPatch, action: str, what: str
) -> None:
    path = (store.put(1) if what == "scoped" else store.put_legacy(1)).parent
    real = directories.opened

    def swapping(at: str, name: str) -> Any:
        directory = real(at, name)
        if name == what and directory is not None and not path.is_symlink():
            path.rename(path.with_name("aside"))
            path.symlink_to(outside)
        return directory

    monkeypatch.setattr(directories, "opened", swapping)
    fields: dict[str, Any] = {"session_id": session_id(1), "session_ids": [session_id(1)], "protected_session_ids": []}
    found = asked(store, action, **fields)
    assert path.is_symlink()
    assert "stolen" not in json.dumps(found)
    if action == "clear":
        assert found["deleted"] == [session_id(1)]
        assert not list(path.with_name("aside").glob("*.json"))


@pytest.mark.parametrize("action", ["list", "inspect", "validate", "clear"])
def test_a_file_swapped_for_a_link_redirects_nothing(
    store: CoshStore, outside: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    path = store.put(1)
    real = directories.Directory.open

    def swapping(self: directories.Directory, id: str) -> Any:
        if not path.is_symlink():
            path.unlink()
            path.symlink_to(outside / path.name)
        return real(self, id)

    monkeypatch.setattr(directories.Directory, "open", swapping)
    fields: dict[str, Any] = {"session_id": session_id(1), "session_ids": [session_id(1)], "protected_session_ids": []}
    found = asked(store, action, **fields)
    assert path.is_symlink()
    assert "stolen" not in json.dumps(found)


def test_a_directory_that_was_removed_and_made_again_is_opened_anew(store: CoshStore) -> None:
    from backend.envelopes.store import SessionStore

    store.put(1)
    with SessionStore(str(store.workspace), configuration.DEFAULT_PERSIST_DIR) as held:
        assert held.ids() == [session_id(1)]
        (store.scope / f"{session_id(1)}.json").unlink()
        store.scope.rmdir()
        assert held.ids() == []
        store.put(2)
        assert held.ids() == [session_id(2)]
