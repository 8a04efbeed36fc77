"""The persistence side of cosh's store (spec 5): generations, migration, modes, and what a writer's death leaves."""

import fcntl
import json
import multiprocessing
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from backend.envelopes import configuration, directories
from backend.envelopes.errors import EnvelopeError
from backend.envelopes.store import SessionStore
from backend.envelopes.strict import MAX_U64
from tests.cosh_store import CoshStore, message, session_id
from tests.unit.envelopes.controlled import opened, refusal


def test_a_new_session_is_written_as_envelope_v1(store: CoshStore) -> None:
    with opened(store) as held:
        made = held.new("qwen", [message("héllo")], session_id(1))
        assert made.generation == 0
        written = held.persist(made)
    assert written.generation == 1
    raw = (store.scope / f"{session_id(1)}.json").read_bytes()
    assert list(json.loads(raw)) == [
        *("schema_version", "session_id", "workspace_scope", "created_at_ms", "updated_at_ms", "model", "generation"),
        *("messages", "compaction_revision"),
    ]
    assert raw.startswith(b'{\n  "schema_version": 1,\n') and "héllo".encode() in raw
    assert not [name for name in os.listdir(store.scope) if name.endswith(".tmp")]


@pytest.mark.parametrize("mask", [0, 0o022, 0o077, 0o777])
def test_files_are_private_whatever_the_umask(store: CoshStore, mask: int) -> None:
    before = os.umask(mask)
    try:
        with opened(store) as held:
            held.persist(held.new("", [], session_id(1)))
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [store.root, store.scope, *store.scope.iterdir()]}
    assert modes == {
        store.root.name: 0o700,
        store.scope.name: 0o700,
        f"{session_id(1)}.json": 0o600,
        f".{session_id(1)}.lock": 0o600,
    }


def test_an_open_scope_directory_is_made_private_by_a_writer_only(store: CoshStore) -> None:
    store.put(1)
    store.scope.chmod(0o755)
    with opened(store) as held:
        held.ids()
        assert stat.S_IMODE(store.scope.stat().st_mode) == 0o755
        held.persist(held.new("", []))
        assert stat.S_IMODE(store.scope.stat().st_mode) == 0o700


def test_a_session_goes_on_from_what_was_loaded(store: CoshStore) -> None:
    store.put(1, generation=7, compaction={"revision": 2}, compaction_revision=2)
    with opened(store) as held:
        loaded = held.load(session_id(1))
        written = held.persist(loaded.changed(messages=[*loaded.history(), message("more", "assistant")]))
        again = held.load(session_id(1))
    assert (written.generation, again.generation, again.message_count) == (8, 8, 2)
    assert (again.created_at_ms, again.compaction, again.compaction_revision) == (11, {"revision": 2}, 2)
    assert again.updated_at_ms > 22


@pytest.mark.parametrize(
    ("stored", "written", "code"),
    [
        ({"generation": 5}, {"generation": 4}, "conflict"),
        ({"generation": 5}, {"generation": 6}, "conflict"),
        ({"generation": 5}, {"generation": 0}, "conflict"),
        (None, {"generation": 1}, "conflict"),
        ({"generation": MAX_U64}, {"generation": MAX_U64}, "corrupt"),
        ({"generation": 1}, {"workspace_scope": "/elsewhere"}, "scope_mismatch"),
        ({"workspace_scope": "/elsewhere"}, {"generation": 1}, "scope_mismatch"),
        ({"schema_version": 2}, {"generation": 1}, "incompatible_version"),
        ({"generation": "x"}, {"generation": 1}, "corrupt"),
        ({"compaction_revision": 5}, {"generation": 1}, "conflict"),
        ({"generation": 1}, {"generation": 1, "session_id": "../x"}, "invalid_id"),
        ({"generation": 1}, {"generation": 1, "messages": [message("\ud800")]}, "corrupt"),
    ],
)
def test_a_write_that_does_not_follow_what_is_stored_changes_nothing(
    store: CoshStore, stored: dict[str, Any] | None, written: dict[str, Any], code: str
) -> None:
    if stored is not None:
        store.put(1, **stored)
    with opened(store) as held:
        session = held.new("", [], session_id(1)).changed(**written)
        before = {name: raw for name, raw in store.files().items() if name.endswith(".json")}
        assert refusal(held.persist, session) == code
    assert {name: raw for name, raw in store.files().items() if name.endswith(".json")} == before
    assert not list(store.root.rglob("*.tmp"))


def test_a_session_over_32_mib_is_not_written(store: CoshStore) -> None:
    with opened(store) as held:
        assert refusal(held.persist, held.new("", [message("x" * (32 << 20))], session_id(1))) == "corrupt"
    assert not list(store.scope.glob("*.json"))


def test_secrets_are_redacted_on_disk_and_on_load(store: CoshStore) -> None:
    secret = "sk-abcdefghijklmnop"
    store.put(2, messages=[message(secret)])
    with opened(store) as held:
        made = held.new("", [message(f"my {secret}")], session_id(1))
        written = held.persist(made)
        assert secret not in (store.scope / f"{session_id(1)}.json").read_text()
        assert written.messages == [message(f"my {secret}")]  # the turn that is going on keeps them
        assert list(held.load(session_id(2)).history()) == [message("<redacted>")]


@pytest.mark.parametrize("persist_dir", [configuration.DEFAULT_PERSIST_DIR, "kept"])
def test_a_legacy_session_migrates_at_its_next_persist(store: CoshStore, persist_dir: str) -> None:
    legacy = store.put_legacy(1, directory=store.workspace / ("kept" if persist_dir == "kept" else "sessions"))
    with opened(store, persist_dir) as held:
        loaded = held.load(session_id(1))
        assert loaded.generation == 0
        assert held.persist(loaded).generation == 1
        assert not legacy.exists()
        assert held.load(session_id(1)).generation == 1
        assert held.ids() == [session_id(1)]


def test_a_legacy_copy_that_cannot_go_is_an_io_error_and_tried_again(
    store: CoshStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    legacy = store.put_legacy(1)
    real = directories.Directory.remove

    def failing(self: directories.Directory, id: str) -> None:
        raise EnvelopeError("io", operation="remove", path=self.path, reason="no")

    with opened(store) as held:
        loaded = held.load(session_id(1))
        with monkeypatch.context() as patched:
            patched.setattr(directories.Directory, "remove", failing)
            assert refusal(held.persist, loaded) == "io"
        assert legacy.exists()
        assert directories.Directory.remove is real
        assert held.load(session_id(1)).generation == 1
        assert held.persist(held.load(session_id(1))).generation == 2
    assert not legacy.exists()


def test_a_bad_or_locked_legacy_session_is_not_migrated(store: CoshStore) -> None:
    legacy = store.put_legacy(1)
    with opened(store) as held, legacy.open() as other:
        loaded = held.load(session_id(1))
        fcntl.flock(other, fcntl.LOCK_EX)
        assert refusal(held.persist, loaded) == "conflict"
        fcntl.flock(other, fcntl.LOCK_UN)
        legacy.write_text("{}")
        assert refusal(held.persist, loaded) == "corrupt"
    assert legacy.read_text() == "{}"


def test_temporaries_of_an_hour_are_swept_once_by_the_first_write(store: CoshStore) -> None:
    store.put(1)
    now = time.time()
    ages = {".old.tmp": 3700, ".young.tmp": 60, "visible.tmp": 9999, ".kept.lock": 9999}
    for name, age in ages.items():
        (store.scope / name).touch()
        os.utime(store.scope / name, (now - age, now - age))
    target = store.workspace / "target"
    target.touch()
    (store.scope / ".link.tmp").symlink_to(target)
    with opened(store) as held:
        held.persist(held.new("", [], session_id(2)))
        assert {name for name in ages if (store.scope / name).exists()} == {".young.tmp", "visible.tmp", ".kept.lock"}
        (store.scope / ".old.tmp").touch()
        os.utime(store.scope / ".old.tmp", (0, 0))
        held.persist(held.new("", [], session_id(3)))
        assert (store.scope / ".old.tmp").exists()
    assert target.exists()


@pytest.mark.parametrize("failing", ["fsync", "rename"])
def test_a_write_that_fails_leaves_the_old_file_and_no_temporary(
    store: CoshStore, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = store.put(1)
    before = path.read_bytes()

    def broken(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with opened(store) as held:
        loaded = held.load(session_id(1))
        monkeypatch.setattr(os, failing, broken)
        assert refusal(held.persist, loaded) == "io"
    assert path.read_bytes() == before
    assert not list(store.scope.glob("*.tmp"))


def test_a_lock_that_is_no_file_is_refused(store: CoshStore) -> None:
    store.put(1)
    target = store.workspace / "target"
    (store.scope / f".{session_id(1)}.lock").symlink_to(target)
    with opened(store) as held:
        assert refusal(held.clear, session_id(1), ()) == "io"
        assert refusal(held.persist, held.load(session_id(1))) == "io"
    assert not target.exists()


def test_a_write_into_a_swapped_directory_stays_in_the_pinned_one(
    store: CoshStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(1)
    outside, aside = tmp_path / "outside", tmp_path / "aside"
    outside.mkdir()
    with opened(store) as held:
        loaded = held.load(session_id(1))
        store.scope.rename(aside)
        store.scope.symlink_to(outside)
        held.persist(loaded)
    assert os.listdir(outside) == []
    assert json.loads((aside / f"{session_id(1)}.json").read_bytes())["generation"] == 2
    with opened(store, "~/other") as fresh:
        fresh.persist(fresh.new("", []))
    with pytest.raises(EnvelopeError, match="open scoped session directory"):
        opened(store)


def _append(workspace: str, home: str, count: int) -> None:
    os.environ["HOME"] = home
    done = 0
    with SessionStore(workspace, configuration.DEFAULT_PERSIST_DIR) as held:
        while done < count:
            try:
                loaded = held.load(session_id(1))
                held.persist(loaded.changed(messages=[*loaded.history(), message("x")]))
                done += 1
            except EnvelopeError as error:
                if error.code != "conflict":
                    raise


def test_concurrent_writers_lose_nothing(store: CoshStore) -> None:
    store.put(1, messages=[])
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append, args=(str(store.workspace), str(store.home), 15)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    with opened(store) as held:
        found = held.load(session_id(1))
    assert (found.message_count, found.generation) == (45, 46)
