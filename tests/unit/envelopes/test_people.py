"""Cosh's store for who may not do everything in it, or has no space left (spec 5)."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.envelopes import configuration
from backend.envelopes.control import answer
from backend.envelopes.errors import EnvelopeError
from backend.envelopes.store import SessionStore
from tests.cosh_store import CoshStore, message, session_id
from tests.mounting import SCRATCH
from tests.people import ALICE

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[CoshStore]:
    base = Path(tempfile.mkdtemp(prefix="ctxfs-test-", dir=SCRATCH))
    base.chmod(0o755)
    made = CoshStore(base)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setattr(configuration, "SYSTEM_LAYER", str(base / "etc.toml"))
    try:
        yield made
    finally:
        shutil.rmtree(base)


def give(store: CoshStore) -> None:
    """Everything is ALICE's."""
    for top in (store.home, store.workspace):
        for path in (top, *top.rglob("*")):
            os.chown(path, ALICE.uid, ALICE.gid)


def asked(store: CoshStore, action: str, **fields: Any) -> Any:
    """What ALICE is answered: data, or the error's code."""
    request = {"action": action, "workspace_scope": str(store.workspace), **fields}
    found = json.loads(ALICE.does(_answered, json.dumps(request).encode()))
    return found["data"] if found["ok"] else found["error"]["code"]


def _answered(raw: bytes) -> bytes:
    return answer(raw).line


def cleared(store: CoshStore) -> tuple[list[str], list[str]]:
    """The ids that are gone, and why the others are not."""
    found = asked(store, "clear", session_ids=[session_id(1)], protected_session_ids=[])
    return found["deleted"], [entry["error"]["code"] for entry in found["skipped"]]


def test_another_users_scope_is_passed_over(store: CoshStore, tmp_path: Path) -> None:
    store.put(1)
    store.put(2, scope=store.scope_of(tmp_path / "b"))
    give(store)
    os.chown(store.scope_of(tmp_path / "b"), 0, 0)
    store.scope_of(tmp_path / "b").chmod(0o700)
    page = asked(store, "list", all_workspaces=True)
    assert [entry["session_id"] for entry in page["sessions"]] == [session_id(1)]


def test_a_session_that_may_not_be_read_hides_no_other(store: CoshStore) -> None:
    for number in (1, 2, 3):
        store.put(number)
    give(store)
    (store.scope / f"{session_id(2)}.json").chmod(0)
    os.chown(store.scope / f"{session_id(3)}.json", 0, 0)
    (store.scope / f"{session_id(3)}.json").chmod(0o600)
    page = asked(store, "list", limit=1)
    assert [entry["session_id"] for entry in page["sessions"]] == [session_id(1)]
    assert asked(store, "inspect", session_id=session_id(2)) == "io"
    assert asked(store, "validate", session_id=session_id(3)) == "io"


def test_a_store_that_may_not_be_listed_is_an_io_error(store: CoshStore) -> None:
    store.put(1)
    give(store)
    store.scope.chmod(0o100)
    assert asked(store, "list") == "io"
    assert asked(store, "prepare_clear_all", protected_session_ids=[]) == "io"


@pytest.mark.parametrize("readonly", ["scope", "legacy"])
def test_what_may_not_be_removed_is_all_there_still(store: CoshStore, readonly: str) -> None:
    store.put(1)
    store.put_legacy(1)
    give(store)
    before = store.files()
    (store.scope if readonly == "scope" else store.workspace / "sessions").chmod(0o500)
    assert cleared(store) == ([], ["io"])
    kept = {path: raw for path, raw in store.files().items() if not path.endswith(".lock")}
    assert kept == before


@pytest.mark.parametrize("size", [100, 5_000, 300_000])
@pytest.mark.parametrize("left", [0, 4096])
def test_a_full_disk_is_an_io_error_and_keeps_what_was_stored(store: CoshStore, size: int, left: int) -> None:
    store.put(1).unlink()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k,mode=700", "tmpfs", store.scope], check=True)
    try:
        before = store.put(1).read_bytes()
        with SessionStore(str(store.workspace), configuration.DEFAULT_PERSIST_DIR) as held:
            loaded = held.load(session_id(1))
            fill(store.scope / "filling", left)
            with pytest.raises(EnvelopeError, match="No space left on device") as refused:
                held.persist(loaded.changed(messages=[message("x" * (size + left))]))
            assert refused.value.code == "io"
            assert (store.scope / f"{session_id(1)}.json").read_bytes() == before
            assert not list(store.scope.glob("*.tmp"))
            held.clear(session_id(1), ())
            held.persist(held.new("", [message("x")], session_id(2)))
    finally:
        subprocess.run(["umount", store.scope], check=True)


def fill(path: Path, left: int) -> None:
    """Takes all the space of a file system but for some bytes."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size - left)
