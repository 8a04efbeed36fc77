"""The protocol of session control over stores written byte by byte (spec 5): one request in, one answer out."""

import fcntl
import json
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.envelopes import configuration, directories
from backend.envelopes.control import answer
from backend.envelopes.errors import CODES
from tests.cosh_store import DAY_MS, CoshStore, message, session_id

MISSING = session_id(999)
MEBIBYTE = 1 << 20


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CoshStore:
    made = CoshStore(tmp_path)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setattr(configuration, "SYSTEM_LAYER", str(tmp_path / "etc.toml"))
    return made


def asked(store: CoshStore, action: str, **fields: Any) -> Any:
    """The data of an answer, or its error's code."""
    request = {"action": action, "workspace_scope": str(store.workspace), **fields}
    found = json.loads(answer(json.dumps(request).encode()).line)
    return found["data"] if found["ok"] else found["error"]["code"]


def listed(store: CoshStore, **fields: Any) -> list[tuple[str, str]]:
    return [(entry["session_id"], entry["health"]) for entry in asked(store, "list", **fields)["sessions"]]


def inspected(store: CoshStore, number: int) -> Any:
    found = asked(store, "inspect", session_id=session_id(number))
    return found if isinstance(found, str) else found["session"]


# Requests


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{} x",
        b"[" * 100_000,
        b'{"action":"list"}',
        b'{"workspace_scope":"/"}',
        b'{"action":"nothing","workspace_scope":"/"}',
        b'{"action":"List","workspace_scope":"/"}',
        b'{"action":1,"workspace_scope":"/"}',
        b'{"action":"list","workspace_scope":7}',
        b'{"action":"list","workspace_scope":"/","limit":null}',
        b'{"action":"list","workspace_scope":"/","limit":-1}',
        b'{"action":"list","workspace_scope":"/","limit":1.0}',
        b'{"action":"list","workspace_scope":"/","limit":true}',
        b'{"action":"list","workspace_scope":"/","limit":18446744073709551616}',
        b'{"action":"list","workspace_scope":"/","cursor":5}',
        b'{"action":"list","workspace_scope":"/","all_workspaces":null}',
        b'{"action":"list","workspace_scope":"/","workspace_scope":"/"}',
        b'{"action":"list","workspace_scope":"\\ud800"}',
        b'{"action":"list","workspace_scope":"/","x":NaN}',
        b'{"action":"inspect","workspace_scope":"/"}',
        b'{"action":"validate","workspace_scope":"/","session_id":null}',
        b'{"action":"prepare_clear_all","workspace_scope":"/"}',
        b'{"action":"prepare_clear_all","workspace_scope":"/","protected_session_ids":null}',
        b'{"action":"clear","workspace_scope":"/","session_ids":[]}',
        b'{"action":"clear","workspace_scope":"/","protected_session_ids":[]}',
        b'{"action":"clear","workspace_scope":"/","session_ids":[1],"protected_session_ids":[]}',
    ],
)
def test_what_is_no_request_is_refused_before_anything_is_touched(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.envelopes.control.settings_for", None)
    found = answer(raw)
    error = json.loads(found.line)["error"]
    assert not found.ok
    assert error["code"] == "invalid_request"
    assert error["message"].startswith("invalid session management request: invalid session-control request: ")


def test_a_request_may_have_1_mib_and_no_byte_more(store: CoshStore) -> None:
    request = json.dumps({"action": "list", "workspace_scope": str(store.workspace)}).encode()
    assert answer(request.ljust(MEBIBYTE)).ok
    error = json.loads(answer(request.ljust(MEBIBYTE + 1)).line)["error"]
    assert error["message"] == (
        "invalid session management request: session-control request exceeds the 1048576 byte limit"
    )


def test_unknown_fields_are_ignored(store: CoshStore) -> None:
    assert listed(store, extra={"a": [1, 1]}, session_id=5) == []


def test_answers_are_compact_with_ok_and_action_first(store: CoshStore) -> None:
    store.put(1)
    request = {"action": "inspect", "workspace_scope": str(store.workspace), "session_id": session_id(1)}
    expected = (
        f'{{"ok":true,"data":{{"action":"inspect","session":{{"session_id":"{session_id(1)}",'
        f'"workspace_scope":"{store.workspace}","created_at_ms":11,"updated_at_ms":22,"model":"qwen","message_count":1,'
        '"first_prompt":"hello","schema_version":1,"health":"ready"}}}\n'
    )
    assert answer(json.dumps(request).encode()).line == expected.encode()


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"action": "list"}, '{"ok":true,"data":{"action":"list","sessions":[],"next_cursor":null}}'),
        (
            {"action": "prepare_clear_all", "protected_session_ids": []},
            '{"ok":true,"data":{"action":"prepare_clear_all","session_ids":[],"protected_session_ids":[],"next_cursor":null}}',
        ),
        (
            {"action": "clear", "session_ids": [], "protected_session_ids": []},
            '{"ok":true,"data":{"action":"clear","deleted":[],"skipped":[]}}',
        ),
        (
            {"action": "validate", "session_id": MISSING},
            '{"ok":false,"error":{"code":"not_found","message":"session not found: '
            '00000000-0000-0000-0000-0000000003e7","recoverable":true,'
            '"hint":"Refresh the session list and choose an existing entry."}}',
        ),
    ],
)
def test_an_empty_workspace_answers_and_stays_empty(store: CoshStore, fields: dict[str, Any], line: str) -> None:
    found = answer(json.dumps({"workspace_scope": str(store.workspace), **fields}).encode())
    assert found.line.decode() == line + "\n"
    assert list(store.home.iterdir()) == []


def test_every_error_has_its_hint() -> None:
    assert len(CODES) == 10
    assert all(hint.endswith(".") for _, hint in CODES.values())


@pytest.mark.parametrize(
    "id",
    [
        "",
        "x",
        session_id(10).upper(),
        "{" + session_id(1) + "}",
        "urn:uuid:" + session_id(1),
        "0" * 32,
        session_id(1) + "\n",
        "../" + session_id(1),
    ],
)
def test_only_the_canonical_uuid_is_an_id(store: CoshStore, id: str) -> None:
    store.put(1)
    assert asked(store, "inspect", session_id=id) == "invalid_id"
    assert asked(store, "prepare_clear_all", protected_session_ids=[id]) == "invalid_id"
    assert asked(store, "clear", session_ids=[session_id(1)], protected_session_ids=[id]) == "invalid_id"
    skipped = asked(store, "clear", session_ids=[id], protected_session_ids=[])["skipped"]
    assert [entry["error"]["code"] for entry in skipped] == ["invalid_id"]
    assert listed(store) == [(session_id(1), "ready")]


def test_the_nil_uuid_is_an_id(store: CoshStore) -> None:
    store.put(0)
    assert inspected(store, 0)["health"] == "ready"


@pytest.mark.parametrize("field", ["session_ids", "protected_session_ids"])
def test_at_most_128_ids_are_counted_before_the_store_is_opened(store: CoshStore, field: str) -> None:
    fields = {"session_ids": [], "protected_session_ids": [], field: [MISSING] * 129}
    request = {"action": "clear", "workspace_scope": "/missing", **fields}
    message = json.loads(answer(json.dumps(request).encode()).line)["error"]["message"]
    assert message == f"invalid session management request: {field} contains 129 IDs; at most 128 are allowed"
    assert asked(store, "clear", **{**fields, field: [MISSING] * 128})["deleted"] == []


def test_a_missing_workspace_is_told_before_a_bad_id(store: CoshStore) -> None:
    request = {"action": "inspect", "workspace_scope": "/missing/ws", "session_id": "bad"}
    error = json.loads(answer(json.dumps(request).encode()).line)["error"]
    assert error["code"] == "io"
    assert error["message"] == (
        "session resolve workspace failed for /missing/ws: No such file or directory (os error 2)"
    )


@pytest.mark.parametrize("workspace", ["", "a\0b", "/etc/passwd/x"])
def test_a_path_that_leads_nowhere_is_an_io_error(store: CoshStore, workspace: str) -> None:
    assert asked(store, "list", workspace_scope=workspace) == "io"


def test_a_workspace_that_is_not_utf8_is_an_invalid_request(store: CoshStore, tmp_path: Path) -> None:
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")
    os.symlink(os.fsencode(tmp_path) + b"/\xff", tmp_path / "link")
    assert asked(store, "list", workspace_scope=str(tmp_path / "link")) == "invalid_request"


def test_huge_ids_are_cut_so_that_the_answer_stays_small(store: CoshStore) -> None:
    found = asked(store, "clear", session_ids=["é" * 131_072], protected_session_ids=[])["skipped"][0]
    assert len(found["session_id"].encode()) <= 128
    assert len(found["error"]["message"].encode()) <= 2048
    ids = ["😀" * 1500] * 128
    request = {
        "action": "clear",
        "workspace_scope": str(store.workspace),
        "session_ids": ids,
        "protected_session_ids": [],
    }
    line = answer(json.dumps(request, ensure_ascii=False).encode()).line
    assert len(line) < MEBIBYTE
    assert len(json.loads(line)["data"]["skipped"]) == 128


def test_an_answer_over_1_mib_is_replaced(store: CoshStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(1)
    monkeypatch.setattr("backend.envelopes.control.MAX_RESPONSE", 100)
    request = {"action": "list", "workspace_scope": str(store.workspace)}
    found = answer(json.dumps(request).encode())
    assert not found.ok
    assert found.line.decode() == (
        '{"ok":false,"error":{"code":"invalid_request","message":"session-control response exceeded the protocol byte '
        'budget","recoverable":true,"hint":"Retry with a smaller page or request batch."}}\n'
    )


# Where the store is


@pytest.mark.parametrize(
    ("workspace", "scope"),
    [
        ("/work/project", "65d80d2c48b3d23b89fb7644"),
        ("/home/user/project", "9dad1e4e08b0b11cbcd86025"),
        ("/工作区/项目一", "65511fe7dda792df84e59231"),
    ],
)
def test_a_scope_directory_is_named_by_the_hash_of_the_path(workspace: str, scope: str) -> None:
    from backend.envelopes.places import scope_of

    assert scope_of(workspace) == scope


@pytest.mark.parametrize("persist_dir", ["~/elsewhere", "~", "inside", "../shared", "/{tmp}/absolute", "inside/./deep"])
def test_the_root_is_where_the_layer_of_the_workspace_says(store: CoshStore, tmp_path: Path, persist_dir: str) -> None:
    persist_dir = persist_dir.replace("/{tmp}", str(tmp_path))
    store.configure(persist_dir)
    root = store.home / persist_dir[2:] if persist_dir.startswith("~") else store.workspace / persist_dir
    store.put(1, scope=Path(os.path.normpath(root)) / store.scope.name)
    assert listed(store) == [(session_id(1), "ready")]


@pytest.mark.parametrize("layers", [(), ("etc",), ("home",), ("etc", "home"), ("etc", "home", "workspace")])
def test_the_layer_nearest_to_the_workspace_says_where_the_root_is(
    store: CoshStore, tmp_path: Path, layers: tuple[str, ...]
) -> None:
    paths = {"etc": tmp_path / "etc.toml"} | {
        name: top / ".copilot-shell/config.toml" for name, top in (("home", store.home), ("workspace", store.workspace))
    }
    for layer in layers:
        paths[layer].parent.mkdir(exist_ok=True, parents=True)
        text = f"[other]\nx = 1\n[session]\nauto_persist = false\nmore = 1\npersist_dir = '{tmp_path / layer}'\n"
        paths[layer].write_text(text)
        store.put(1, scope=tmp_path / layer / store.scope.name, messages=[message(layer)])
    store.put(1, messages=[message("default")])
    assert inspected(store, 1)["first_prompt"] == [*("default",), *layers][-1]


@pytest.mark.parametrize(
    "layer",
    [
        "[session",
        "session = 1",
        "[session]\npersist_dir = 5",
        "[session]\npersist_dir = 'a\0b'",
        "x = " + "[" * 1_000_000,
        "x = " + "{a=" * 300_000,
        "a" + ".a" * 500_000 + " = 1",
        "[" + '"a" . ' * 150_000 + "a]",
        "#" * (MEBIBYTE + 1),
    ],
    ids=lambda layer: layer[:30].replace("\n", " "),
)
def test_a_bad_layer_is_passed_over_with_a_warning(store: CoshStore, layer: str) -> None:
    store.put(1)
    store.configure("x")
    (store.workspace / ".copilot-shell/config.toml").write_text(layer)
    request = {"action": "list", "workspace_scope": str(store.workspace)}
    found = answer(json.dumps(request).encode())
    assert len(json.loads(found.line)["data"]["sessions"]) == 1
    assert len(found.warnings) == 1


@pytest.mark.parametrize("text", ["a" * 500_000, "a." * 60 + "b", '"' * 500_000, "1.2.3 " * 80_000])
def test_texts_of_a_layer_may_be_long(store: CoshStore, tmp_path: Path, text: str) -> None:
    store.configure(str(tmp_path / "root"))
    with (store.workspace / ".copilot-shell/config.toml").open("a") as layer:
        layer.write(f"[other]\ntext = {json.dumps(text)}\n")
    store.put(1, scope=tmp_path / "root" / store.scope.name)
    assert listed(store) == [(session_id(1), "ready")]


def test_a_fifo_in_place_of_a_layer_blocks_nobody(store: CoshStore) -> None:
    (store.workspace / ".copilot-shell").mkdir()
    os.mkfifo(store.workspace / ".copilot-shell/config.toml")
    assert listed(store) == []


def test_a_linked_home_is_followed_once_but_no_link_below_the_root(store: CoshStore, tmp_path: Path) -> None:
    store.put(1)
    moved = tmp_path / "moved"
    store.home.rename(moved)
    store.home.symlink_to(moved)
    assert listed(store) == [(session_id(1), "ready")]
    other = moved / "other"
    store.scope.rename(other)
    store.scope.symlink_to(other)
    before = store.files()
    assert asked(store, "list") == "io"
    assert asked(store, "inspect", session_id=session_id(1)) == "io"
    assert asked(store, "clear", session_ids=[session_id(1)], protected_session_ids=[]) == "io"
    assert store.files() == before


# Health


@pytest.mark.parametrize(
    ("raw", "health", "version"),
    [
        (b"", "corrupt", None),
        (b"\xff\xfe{}", "corrupt", None),
        (b"{", "corrupt", None),
        (b"7", "corrupt", None),
        (b"{}", "corrupt", None),
        (b"[" * 50_000, "corrupt", None),
        (b'{"schema_version":"1"}', "corrupt", None),
        (b'{"schema_version":-1}', "corrupt", None),
        (b'{"schema_version":1.0}', "corrupt", None),
        (b'{"schema_version":true}', "corrupt", None),
        (b'{"schema_version":1}', "corrupt", None),
        (b'{"schema_version":2}', "incompatible", 2),
        (b'{"schema_version":0,"messages":5}', "incompatible", 0),
        (b"[5]", "corrupt", None),
        (b'[{"role":"user"}]', "corrupt", None),
        (b'[{"role":"user","content":"\\ud800"}]', "corrupt", None),
    ],
)
def test_what_does_not_load_has_its_health(store: CoshStore, raw: bytes, health: str, version: int | None) -> None:
    store.put(1, raw)
    summary = inspected(store, 1)
    at = DAY_MS + 1000
    assert summary == {
        "session_id": session_id(1),
        "workspace_scope": str(store.workspace),
        "created_at_ms": at,
        "updated_at_ms": at,
        "model": None,
        "message_count": 0,
        "first_prompt": None,
        "schema_version": version,
        "health": health,
    }
    assert asked(store, "list")["sessions"] == [summary]
    code = {"corrupt": "corrupt", "incompatible": "incompatible_version"}[health]
    assert asked(store, "validate", session_id=session_id(1)) == code


@pytest.mark.parametrize(
    "changed",
    [
        *[
            {name: None}
            for name in ("session_id", "workspace_scope", "created_at_ms", "model", "generation", "messages")
        ],
        {"session_id": session_id(2)},
        {"created_at_ms": -1},
        {"updated_at_ms": 1.5},
        {"generation": 1 << 64},
        {"messages": {}},
        {"messages": ["x"]},
        {"messages": [{"content": "x"}]},
        {"messages": [message(5)]},
        {"messages": [message([{"type": "image"}])]},
        {"messages": [message([{"type": "text"}])]},
        {"messages": [message([{"type": "tool_result", "content": "x"}])]},
        {"messages": [message([{"type": "tool_result", "tool_use_id": "1", "content": "x", "is_error": 1}])]},
        {"messages": [message("x", name=5)]},
        {"messages": [message("x", tool_calls=[{"id": "1", "type": "function"}])]},
        {"messages": [message("x", tool_calls=[{"id": "1", "type": "f", "function": {"name": "f", "arguments": {}}}])]},
        {"compaction_revision": "x"},
    ],
)
@pytest.mark.parametrize("padding", [0, 300_000], ids=["small", "large"])
def test_an_envelope_with_a_wrong_field_is_corrupt(store: CoshStore, changed: dict[str, Any], padding: int) -> None:
    store.put(1, **changed, unknown="x" * padding)
    assert inspected(store, 1)["health"] == "corrupt"


_CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize("padding", [0, 300_000], ids=["small", "large"])
def test_every_form_of_message_loads(store: CoshStore, padding: int) -> None:
    messages = [
        message("rules", "system"),
        message([{"type": "text", "text": "hello"}, {"type": "tool_result", "tool_use_id": "1", "content": "done"}]),
        message("", "assistant", tool_calls=[_CALL], name=None, tool_call_id=None, unknown=[1]),
        message("x" * padding, "tool", tool_call_id="1", name="f"),
        message("second"),
    ]
    store.put(1, messages=messages, compaction={"revision": 1}, compaction_revision=3)
    summary = inspected(store, 1)
    assert (summary["message_count"], summary["first_prompt"], summary["health"]) == (5, "hello done", "ready")
    assert asked(store, "validate", session_id=session_id(1))["session"] == summary


def test_a_session_of_another_workspace_is_a_mismatch(store: CoshStore) -> None:
    store.put(1, workspace_scope="/else\x1b/where", model="m")
    summary = inspected(store, 1)
    at = DAY_MS + 1000
    assert summary["workspace_scope"] == "/else/where"
    assert (summary["created_at_ms"], summary["message_count"], summary["model"]) == (at, 0, None)
    assert (summary["schema_version"], summary["health"]) == (1, "scope_mismatch")
    assert asked(store, "validate", session_id=session_id(1)) == "scope_mismatch"


def test_no_control_character_of_a_session_reaches_the_answer(store: CoshStore) -> None:
    store.put(1, model="a\x1b[31m\x9b", messages=[message("b\x07\u0085c\x7f")])
    store.put(2, workspace_scope="d\x00e")
    request = {"action": "list", "workspace_scope": str(store.workspace)}
    line = answer(json.dumps(request).encode()).line.decode()[:-1]
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in line)
    assert "\\u00" not in line


@pytest.mark.parametrize(("model", "shown"), [("", None), ("m" * 256, "m" * 256), ("😀" * 300_000, "😀" * 63 + "…")])
def test_a_model_is_shown_in_256_bytes(store: CoshStore, model: str, shown: str | None) -> None:
    store.put(1, model=model)
    assert inspected(store, 1)["model"] == shown


@pytest.mark.parametrize(
    ("messages", "prompt"),
    [
        ([], None),
        ([message("a", "assistant")], None),
        ([message(" \n"), message("second")], "second"),
        ([message("x" * 10_000)], "x" * 159 + "…"),
        ([message("x" * 700_000 + "y" * 700_000)], "x" * 159 + "…"),
        ([message("my key is sk-abcdefghijklmn")], "my key is <redacted>"),
    ],
)
def test_the_first_prompt_is_previewed(store: CoshStore, messages: list[Any], prompt: str | None) -> None:
    store.put(1, messages=messages)
    assert inspected(store, 1)["first_prompt"] == prompt


def test_a_prompt_that_cosh_shell_wrapped_is_previewed_even_where_its_frame_is_huge(store: CoshStore) -> None:
    first = "Handle this natural-language shell prompt request for a Shell-first assistant.\n"
    text = f"{first}\nuser_input: list files\n\nruntime_frame:\n{'é' * 900_000}\n\ncosh-shell Agent contract:\nx"
    store.put(1, messages=[message(text)])
    assert inspected(store, 1)["first_prompt"].startswith("list files")


def _link(path: Path) -> None:
    path.rename(path.with_suffix(".aside"))
    path.symlink_to(path.with_suffix(".aside"))


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _socket(path: Path) -> None:
    path.unlink()
    os.mknod(path, 0o600 | stat.S_IFSOCK)


def _device(path: Path) -> None:
    path.unlink()
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))


@pytest.mark.parametrize("spoil", [_link, _dangling, _loop, _directory, _fifo, _socket, _device])
@pytest.mark.parametrize("legacy", [False, True])
def test_what_is_no_regular_file_is_no_session(store: CoshStore, spoil: Any, legacy: bool) -> None:
    path = store.put_legacy(1) if legacy else store.put(1)
    spoil(path)
    before = store.files()
    assert listed(store) == []
    assert asked(store, "inspect", session_id=session_id(1)) == "corrupt"
    assert asked(store, "validate", session_id=session_id(1)) == "corrupt"
    cleared = asked(store, "clear", session_ids=[session_id(1)], protected_session_ids=[])
    assert [entry["error"]["code"] for entry in cleared["skipped"]] == ["corrupt"]
    assert asked(store, "prepare_clear_all", protected_session_ids=[])["session_ids"] == []
    assert store.files() == before


@pytest.mark.parametrize(("more", "health"), [(0, "ready"), (1, "corrupt")])
def test_a_session_has_32_mib_at_most(store: CoshStore, more: int, health: str) -> None:
    path = store.put(1)
    raw = path.read_bytes()
    with path.open("ab") as file:
        file.write(b" " * ((32 << 20) + more - len(raw)))
    assert inspected(store, 1)["health"] == health
    assert [found for _, found in listed(store)] == [health]
    found = asked(store, "validate", session_id=session_id(1))
    assert found == "corrupt" if more else found["session"]["health"] == "ready"


def test_a_file_over_the_limit_is_never_read(store: CoshStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.put(1, b"").open("wb") as file:
        file.truncate((32 << 20) + 1)
    monkeypatch.setattr(os, "pread", None)
    assert inspected(store, 1)["health"] == "corrupt"


# Lists


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


# Clearing


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
