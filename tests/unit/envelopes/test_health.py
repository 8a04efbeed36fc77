"""What a stored session is said to be, whatever its file holds (spec 5)."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from backend.envelopes.control import answer
from tests.cosh_store import DAY_MS, CoshStore, message, session_id
from tests.unit.envelopes.controlled import asked, inspected, listed


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
        (b'{"schema_version":18446744073709551615}', "incompatible", 4294967295),
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
