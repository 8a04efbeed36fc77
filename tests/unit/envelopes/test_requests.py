"""The protocol of session control over stores written byte by byte (spec 5): one request in, one answer out."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from backend.envelopes.control import answer
from backend.envelopes.errors import CODES
from tests.cosh_store import CoshStore, message, session_id
from tests.unit.envelopes.controlled import MEBIBYTE, MISSING, asked, inspected, listed

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


@pytest.mark.parametrize("workspace", ["", "a\0b", "/etc/passwd/x", "/etc/passwd", "/dev/null"])
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
