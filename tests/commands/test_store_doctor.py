"""``mountctl doctor``: what is wrong with a closed store, and what of it is made anew (spec 4.6; field report 14)."""

import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from backend.errors import OpenError
from backend.rows import Append
from backend.sqlite import SqliteStore
from mountctl.cli import run
from mountctl.doctor import examine
from mountctl.main import PROGRAM
from tests.commands.running import Ran, mountctl
from tests.contract.harness import Harness, cd, event, say
from tests.mounting import running_mount
from tests.people import ALICE


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A closed sqlite store with sessions, a branch, a run, by-cwd and lines that wait."""
    at = Harness("sqlite", tmp_path)
    one, two = at.session("one"), at.session("two")
    at.append(one, say("hello"), cd("/srv"), say("hi", "assistant"))
    at.append(
        two,
        say("there"),
        event("start", run="r1", id="r1", client_id="c1", cwd="/", scope="private"),
        event("done", run="r1", status="ok"),
    )
    at.store.branch_session(one.id, 2, "twig")
    at.append(two, *(say("x" * 1000) for _ in range(20)))
    at.append(at.session("waits"), say("not merged"))
    at.store.close()
    return tmp_path / "store"


def change(store: Path, sql: str) -> None:
    with contextlib.closing(sqlite3.connect(store / "ctxfs.db")) as database, database:
        assert database.execute(sql).rowcount > 0


def segments(store: Path) -> list[Any]:
    with contextlib.closing(sqlite3.connect(store / "ctxfs.db")) as database:
        return database.execute("SELECT * FROM segment").fetchall()


def doctor(store: Path, *options: str) -> Ran:
    return mountctl("doctor", "--store", str(store), *options)


def found(store: Path, *options: str, code: int = 1) -> dict[str, Any]:
    ran = doctor(store, "--json", *options)
    assert (ran.code, ran.err) == (code, ""), ran
    answer: dict[str, Any] = json.loads(ran.out)
    return answer


def test_a_sound_store_is_read_through(store: Path) -> None:
    assert found(store, code=0) == {"faults": [], "sessions": 4, "entries": 29, "copy": None}
    assert doctor(store).out == "4 sessions, 29 entries: nothing is wrong\n"


DERIVED = {
    "list size": "UPDATE owner SET list_size = list_size + 3",
    "current": "UPDATE owner SET current = 'gone'",
    "by-cwd is missing": "DELETE FROM mapping WHERE kind = 'by-cwd'",
    "by-cwd leads elsewhere": "UPDATE mapping SET session = (SELECT id FROM session WHERE name = 'two')",
    "the name in by-cwd": "UPDATE session SET cwd_key = 'x' WHERE name = 'one'",
    "a log of nobody": "INSERT INTO log (base_n, base_messages, base_events) VALUES (0, 0, 0)",
    "a run's line is missing": "DELETE FROM run_line WHERE kind = 'start'",
    "a value's line is missing": "DELETE FROM value_line WHERE cwd IS NOT NULL",
    "a value's line too many": "INSERT INTO value_line (log, n, state) SELECT id, 9, 'x' FROM session WHERE id = 2",
    "a value's line of no entry": "INSERT INTO value_line (log, n, state) SELECT id, 99, 'x' FROM session LIMIT 1",
    "a value's line says something else": "UPDATE value_line SET latest_size = latest_size + 1",
    "a run's line of no entry": "INSERT INTO run_line SELECT log, 99, 'done', 'r9', NULL FROM run_line LIMIT 1",
    "a run's line too many": "INSERT INTO run_line SELECT log, 3, 'done', 'r9', NULL FROM run_line LIMIT 1",
}


@pytest.mark.parametrize("sql", DERIVED.values(), ids=DERIVED)
def test_what_is_derived_is_found_and_made_anew_after_a_copy(store: Path, sql: str) -> None:
    change(store, sql)
    assert found(store)["faults"] != []
    assert [path.name for path in store.parent.iterdir()] == ["store"]
    answer = found(store, "--repair", code=0)
    assert answer["faults"] == []
    copy = Path(answer["copy"])
    assert copy.stat().st_mode & 0o777 == 0o700
    assert found(copy)["faults"] != []
    assert found(store, code=0)["faults"] == []


TRUE = {
    "entries are missing": "DELETE FROM segment WHERE n > 0 AND log = (SELECT id FROM session WHERE name = 'two')",
    "a gap": "UPDATE segment SET n = n + 1 WHERE n > 0",
    "the session says more": "UPDATE session SET n = n + 1 WHERE name = 'one'",
    "a state nobody set": "UPDATE session SET state = 'active' WHERE name = 'one'",
    "a line that is none": "UPDATE segment SET messages = CAST(replace(messages, '{', '[') AS BLOB) WHERE n = 0",
}


@pytest.mark.parametrize("sql", TRUE.values(), ids=TRUE)
def test_what_only_the_log_says_is_found_and_never_made_up(store: Path, sql: str) -> None:
    change(store, sql)
    assert found(store)["faults"] != []
    before = segments(store)
    assert found(store, "--repair")["faults"] != []
    assert segments(store) == before


def test_a_broken_index_of_the_database_is_built_anew(store: Path) -> None:
    with contextlib.closing(sqlite3.connect(store / "ctxfs.db")) as database:
        [page] = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'session_name'").fetchone()
        [size] = database.execute("PRAGMA page_size").fetchone()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    with (store / "ctxfs.db").open("r+b") as file:
        file.seek((page - 1) * size + size - 200)
        content = file.read(200)
        file.seek((page - 1) * size + size - 200)
        file.write(content.replace(b"one", b"ony"))
    assert {fault["check"] for fault in found(store)["faults"]} >= {"database"}
    assert found(store, "--repair", code=0)["faults"] == []


def test_a_database_that_is_none_is_a_fault_and_stays_as_it_is(store: Path) -> None:
    with (store / "ctxfs.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    before = (store / "ctxfs.db").read_bytes()
    [fault] = found(store)["faults"]
    assert (fault["check"], "restore a backup" in fault["reason"]) == ("database", True)
    ran = doctor(store, "--repair")
    [copy] = store.parent.glob("*.before-repair-*")
    assert (ran.code, str(copy) in ran.err) == (8, True)
    assert (store / "ctxfs.db").read_bytes() == before


def test_a_directory_whose_session_is_gone_is_reported_and_kept(store: Path) -> None:
    orphan = store / "disk/home/1000/context/4711"
    orphan.mkdir(parents=True)
    (orphan / "notes").write_text("mine")
    [fault] = found(store, "--repair")["faults"]
    assert (fault["check"], fault["path"]) == ("disk", "home/1000/context/4711")
    assert (orphan / "notes").read_text() == "mine"


@pytest.mark.parametrize("name", ["²", "٣", "0", "007", "-1", "1_0", "9" * 20, "9" * 200, "notes", "4711\n"])
def test_names_that_are_no_ids_are_not_judged(store: Path, name: str) -> None:
    (store / "disk/home/1000/context" / name).mkdir(parents=True)
    assert found(store, code=0)["faults"] == []


@pytest.mark.parametrize("link", ["home", "home/1000", "home/1000/context", "home/1000/context/4711"])
def test_links_do_not_lead_it_out_of_the_store(store: Path, tmp_path: Path, link: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "home/1000/context/4711").mkdir(parents=True)
    path = store / "disk" / link
    if path.is_dir():
        path.rename(tmp_path / "moved")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(elsewhere / link)
    assert found(store, code=0)["faults"] == []


def test_lines_that_wait_are_lines(store: Path) -> None:
    opened = SqliteStore.open_now(store)
    [session] = [one for one in opened.sessions(1) if one.name == "waits"]
    opened.append([Append(session.id, [say("more")])])
    opened.close()
    assert found(store, code=0)["entries"] == 30


def test_it_is_for_stores_that_are_not_mounted(fuse_device: None) -> None:
    with running_mount() as mount:
        ran = mountctl("doctor", "--store", str(mount.store), environment=mount.environment)
        assert (ran.code, "ctx doctor" in ran.err) == (69, True)


def test_no_store_is_no_sound_store(tmp_path: Path) -> None:
    assert doctor(tmp_path / "nothing").code == 69
    assert not (tmp_path / "nothing").exists()
    assert os.listdir(tmp_path) == []


def flipped(data: bytearray, random: Random) -> None:
    for _ in range(random.choice((1, 1, 8, 200))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def zeroed(data: bytearray, random: Random) -> None:
    at, size = random.randrange(len(data)), random.choice((1, 16, 512))
    data[at : at + size] = bytes(len(data[at : at + size]))


def cut_short(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data)) :]


def longer(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data))
    data[at:at] = random.randbytes(random.choice((1, 5)))


DAMAGES = (flipped, zeroed, cut_short, longer)


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_no_damage_ends_the_examination(tmp_path: Path, kind: str, damage: Callable[[bytearray, Random], None]) -> None:
    """Whatever byte of whatever file: it is a fault, an error that says so, or in nobody's way; never a crash."""
    at = Harness(kind, tmp_path)
    one, two = at.session("one"), at.session("two")
    at.append(one, say("hello"), cd("/srv"), say("hi", "assistant"), event("meta", meta={"client": "c"}))
    at.append(two, *(say("x" * 1000) for _ in range(20)), event("cut", before=3, summary=[], reason="m"))
    at.store.branch_session(one.id, 2, "twig")
    at.store.archive_session(at.session("old").id, at.archive().id)
    at.store.close()
    [sound] = tmp_path.iterdir()
    files = sorted(path for path in sound.rglob("*") if path.is_file() and path.stat().st_size)
    random = Random(damage.__name__)
    noticed = 0
    for _ in range(60):
        copy = tmp_path / "copy"
        shutil.copytree(sound, copy)
        victim = copy / random.choice(files).relative_to(sound)
        data = bytearray(victim.read_bytes())
        damage(data, random)
        victim.write_bytes(data)
        try:
            noticed += bool(examine(copy)["faults"])
        except OpenError:
            noticed += 1
        shutil.rmtree(copy)
    assert noticed > 0


UNREADABLE = {
    "records that are none": "UPDATE segment SET entries = CAST(entries || 'x' AS BLOB) WHERE log = 2",
    "bytes that are missing": "UPDATE segment SET messages = substr(messages, 1, 10) WHERE log = 2",
    "no lines at all": "UPDATE segment SET messages = x'' WHERE log = 2",
}


@pytest.mark.parametrize("sql", UNREADABLE.values(), ids=UNREADABLE)
def test_a_row_that_cannot_be_read_is_a_fault_of_its_session_alone(store: Path, sql: str) -> None:
    change(store, sql)
    answer = found(store)
    assert {fault["path"] for fault in answer["faults"] if fault["check"] == "history"} == {
        "home/1000/agent/coder/session/two"
    }
    assert answer["sessions"] == 4


def test_what_is_wrong_with_the_store_itself_is_said_of_the_store(store: Path) -> None:
    (store / "ctxfs.db").write_bytes(b"x" * 8192)
    ran = mountctl("doctor", "--store", str(store))
    assert ran.code == 1 and ran.out.startswith("the store: ")


def test_the_store_of_somebody_else_is_denied(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for directory in (store.parent, *store.parent.parents):
        if directory.stat().st_uid == 0 and directory.is_relative_to("/tmp/"):
            directory.chmod(0o755)
    assert ALICE.does(run, "mountctl", PROGRAM, ["doctor", "--store", str(store)]) == 13
