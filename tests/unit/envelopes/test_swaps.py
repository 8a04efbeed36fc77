"""What others do to cosh's store between any two calls of an operation, and where an operation can die (spec 5).

``Interrupted`` stands for ``os`` in the only module that touches files: before the call of a given number it does what
an attacker would, or ends the process.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend.envelopes import configuration, directories
from backend.envelopes.control import answer
from backend.envelopes.errors import EnvelopeError
from backend.envelopes.store import SessionStore
from tests.cosh_store import CoshStore, message, session_id

FIRST, ID = session_id(0), session_id(1)


class Interrupted:
    """``os``, and what is done before its call of number ``at``."""

    def __init__(self, at: int, action: Callable[[], None]) -> None:
        self.calls = 0
        self._at = at
        self._action = action

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if not callable(found) or isinstance(found, type):
            return found

        def called(*args: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == self._at:
                self._action()
            return found(*args, **named)

        return called


def asked(store: CoshStore, action: str) -> str:
    fields: dict[str, Any] = {"session_id": ID, "session_ids": [FIRST, ID], "protected_session_ids": []}
    if action == "all workspaces":
        action, fields = "list", {"all_workspaces": True}
    request = {"action": action, "workspace_scope": str(store.workspace), **fields}
    return answer(json.dumps(request).encode()).line.decode()


def persisted(store: CoshStore, _: str) -> str:
    try:
        with SessionStore(str(store.workspace), configuration.DEFAULT_PERSIST_DIR) as held:
            loaded = held.load(ID)
            held.persist(loaded)
            return json.dumps(list(loaded.history()))
    except EnvelopeError as error:
        return str(error)


OPERATIONS: dict[str, Callable[[CoshStore, str], str]] = {
    **dict.fromkeys(("list", "all workspaces", "inspect", "validate", "prepare_clear_all", "clear"), asked),
    "persist": persisted,
}


def everything(top: Path) -> dict[str, Any]:
    """Every name below a directory, with its mode, and its content where it is a file."""
    return {
        str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in sorted(top.rglob("*"))
    }


TARGETS = {
    "root": lambda store: store.root,
    "scope": lambda store: store.scope,
    "session": lambda store: store.scope / f"{ID}.json",
    "lock": lambda store: store.scope / f".{ID}.lock",
    "legacy": lambda store: store.workspace / "sessions",
    "legacy session": lambda store: store.workspace / f"sessions/{ID}.json",
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_link_put_in_the_place_of_anything_at_any_moment_leads_nowhere(
    store: CoshStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, target: str
) -> None:
    outside = tmp_path / "outside"
    for directory in (outside, outside / store.scope.name):
        store.put(1, scope=directory, messages=[message("stolen")])
    before = everything(outside)
    path = TARGETS[target](store)
    is_file = path.suffix in (".json", ".lock")

    def swap() -> None:
        if path.exists():
            path.rename(path.with_name("aside"))
        if not path.is_symlink():
            path.symlink_to(outside / f"{ID}.json" if is_file else outside)

    for step in range(1, 1000):
        for top in (store.home, store.workspace):
            shutil.rmtree(top)
            top.mkdir()
        for number in range(2):
            store.put(number, messages=[message("mine")])
        store.put_legacy(1, "mine too")
        interrupted = Interrupted(step, swap)
        with monkeypatch.context() as patched:
            patched.setattr(directories, "os", interrupted)
            said = OPERATIONS[operation](store, operation)
        assert "stolen" not in said
        assert everything(outside) == before
        if interrupted.calls < step:
            break
    assert 5 < step < 999


@pytest.mark.parametrize("operation", ["clear", "persist"])
@pytest.mark.parametrize("has_legacy", [False, True])
def test_an_operation_that_is_killed_anywhere_is_done_or_can_be_done_again(
    store: CoshStore, monkeypatch: pytest.MonkeyPatch, operation: str, has_legacy: bool
) -> None:
    for step in range(1, 1000):
        shutil.rmtree(store.root, ignore_errors=True)
        for number in range(2):
            store.put(number, messages=[message("mine")])
        if has_legacy:
            store.put_legacy(1, "mine too")
        status = _killed_at(step, lambda: OPERATIONS[operation](store, operation))
        if operation == "clear":
            left = [path for path in (store.scope, store.workspace / "sessions") if (path / f"{ID}.json").exists()]
            assert store.scope in left or not left  # the older copy goes first
            assert OPERATIONS["clear"](store, "clear").count(ID) == 1 + (not left)
            assert not (store.scope / f"{ID}.json").exists()
        else:
            found = json.loads((store.scope / f"{ID}.json").read_bytes())
            assert (found["generation"], found["messages"]) in [(n, [message("mine")]) for n in (1, 2)]
            assert "mine" in OPERATIONS["persist"](store, "persist")
        if status == 0:
            break
    assert 5 < step < 999


def _killed_at(step: int, call: Callable[[], object]) -> int:
    """The status of a process that makes the call, and is ended before its step of that number."""
    pid = os.fork()
    if pid == 0:
        try:
            vars(directories)["os"] = Interrupted(step, lambda: os._exit(9))
            call()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
