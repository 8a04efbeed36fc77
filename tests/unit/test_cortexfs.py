"""Session directories of plain files as lines of sessions (spec 4.2, import; the layout of CortexFS)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from backend.transcripts import cortexfs
from backend.transcripts.records import Converted, Identity, Record, Unreadable

UUID = "0b5f6f0e-4c1d-4a57-9a0a-3d1f1a2b3c4d"
RUN = "ctx-0123456789abcdef0123456789abcdef"
USER = f'{{"content":"hello","role":"user","run":"{RUN}"}}'
START = f'{{"client_id":"m1","cwd":"/w","id":"{RUN}","run":"{RUN}","scope":"private","type":"start"}}'
DONE = f'{{"run":"{RUN}","status":"ok","type":"done"}}'
BLOB = {"type": "blob", "path": f"data/blob/{'0' * 64}", "sha256": "0" * 64, "bytes": 1}
SMALL = {"state": "done\n", "cwd": "/w\n", "created_at": "1760000000\n", "updated_at": "1760000009\n"}
META = {"meta.json": '{"client":"ctx","model":"debug/echo","scope":"private"}\n'}


def tree(base: Path, name: str = "default", **files: str) -> Path:
    """A session below ``base/agent/coder/session``; ``messages`` and ``events`` are its log."""
    session = base / "agent/coder/session" / name
    (session / "context").mkdir(parents=True)
    content = {"messages.jsonl": USER + "\n", "events.jsonl": f"{START}\n{DONE}\n"} | SMALL | META
    for file, text in (content | {key.replace("_jsonl", ".jsonl"): text for key, text in files.items()}).items():
        (session / file).write_text(text)
    return session


def read(session: Path, scope: str = "private") -> list[Record]:
    return list(cortexfs.convert(str(session), scope, lambda count: None))


def lines(found: list[Record]) -> list[tuple[str, Any]]:
    return [(one.stream, json.loads(one.raw)) for one in found if isinstance(one, Converted)]


def test_a_session_of_cortexfs_keeps_its_lines_and_what_its_small_files_say(tmp_path: Path) -> None:
    found = read(tree(tmp_path))
    assert [one.raw.decode() for one in found[:3] if isinstance(one, Converted)] == [USER, START, DONE]
    assert [value for _, value in lines(found[3:])] == [
        {"type": "meta", "meta": {"client": "ctx", "model": "debug/echo", "scope": "private"}},
        {"type": "state", "from": "idle", "state": "done"},
    ]
    assert {one.time for one in found if isinstance(one, Converted)} == {1760000009000}


def test_the_order_and_the_times_of_a_jsonl_store(tmp_path: Path) -> None:
    session = tree(tmp_path)
    (session / ".store").mkdir()
    order = [{"sessionId": "x"}, *({"stream": stream, "time": n} for n, stream in enumerate(["events", "messages"]))]
    (session / ".store/order.jsonl").write_text("".join(json.dumps(entry).ljust(159) + "\n" for entry in order))
    found = [(one.stream, one.time) for one in read(session)[:3] if isinstance(one, Converted)]
    assert found == [("events", 0), ("messages", 1), ("events", 1760000009000)]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"type": "start", "id": "r1", "run": "r1"}, {"client_id": "r1", "scope": "private", "cwd": None}),
        ({"type": "meta", "meta": {"scope": "shared"}}, {"meta": {"scope": "private"}}),
    ],
)
def test_events_of_older_versions_and_other_scopes_are_mended(tmp_path: Path, event: Any, expected: Any) -> None:
    found = lines(read(tree(tmp_path, events_jsonl=json.dumps(event) + "\n")))
    assert found[1][1] == event | expected


@pytest.mark.parametrize(
    ("file", "text", "number"),
    [
        ("messages.jsonl", USER + "\n{\n", 2),
        ("messages.jsonl", "\n", 1),
        ("messages.jsonl", USER + '\n{"role":"user"', 2),
        ("events.jsonl", '{"type":"agent.stop"}\n', 1),
        ("messages.jsonl", json.dumps({"role": "user", "content": [BLOB]}) + "\n", 1),
    ],
)
def test_what_cannot_be_read_is_said_with_its_file(tmp_path: Path, file: str, text: str, number: int) -> None:
    session = tree(tmp_path)
    (session / file).write_text(text)
    (fault,) = (one for one in read(session) if isinstance(one, Unreadable))
    assert (fault.file, fault.number) == (file, number)


def test_a_history_that_is_not_in_plain_files_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    session = tree(tmp_path, messages_jsonl="", events_jsonl="")
    (session / ".store").mkdir()
    (session / ".store/manifest.json").write_text("{}")
    (fault,) = read(session)
    assert isinstance(fault, Unreadable)


def test_sessions_are_found_at_and_below_a_path_and_links_are_not_followed(tmp_path: Path) -> None:
    first, second = tree(tmp_path, "a"), tree(tmp_path, "b")
    os.symlink(tmp_path, tmp_path / "agent/loop")
    index = first.parent / "index/by-uuid"
    index.mkdir(parents=True)
    (index / UUID).write_text("a\n")
    for path in (tmp_path, first.parent):
        assert list(cortexfs.sources(str(path))) == [str(first), str(second)]
    assert list(cortexfs.sources(str(first))) == [str(first)]
    assert [cortexfs.identify(str(one)) for one in (first, second)] == [Identity("a", UUID), Identity("b")]


@pytest.mark.parametrize("name", ["messages.jsonl", "events.jsonl", "cwd"])
def test_a_link_or_fifo_in_place_of_a_file_is_no_file(tmp_path: Path, name: str) -> None:
    session = tree(tmp_path)
    (tmp_path / "secret").write_text(USER.replace("hello", "secret") + "\n")
    (session / name).unlink()
    (session / name).symlink_to(tmp_path / "secret")
    assert b"secret" not in b"".join(one.raw for one in read(session) if isinstance(one, Converted))
    (session / name).unlink()
    os.mkfifo(session / name)
    read(session)
