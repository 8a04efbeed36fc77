"""Cosh's store for a user who may not do everything in it (spec 5): what cannot be read hides nothing else."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.envelopes import configuration
from backend.envelopes.control import answer
from tests.cosh_store import CoshStore, session_id
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
