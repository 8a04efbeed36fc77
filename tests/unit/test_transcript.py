"""transcript.md: what is shown of each kind of entry, and that no content passes for something of ours (spec 1.7)."""

import pytest

from backend.entries import NewCut, NewEntry, NewMark, NewMessage
from backend.lines import entry_of, line_of
from backend.rows import Row
from backend.transcript import entry_text, title

WHEN = "2001-09-09 01:46:40"


def shown(entry: NewEntry) -> str:
    line = line_of(entry)
    return entry_text(entry_of(Row(7, 10**12, line.kind, line.stream, line.raw))).decode()


CALL = [{"id": "c1", "name": "Bash", "arguments": {"command": "ls"}}]
CALL_BLOCK = 'Call of **Bash** (c1):\n\n```json\n{\n  "command": "ls"\n}\n```\n\n'
SHOWN: dict[str, tuple[NewEntry, str]] = {
    "text": (NewMessage({"role": "user", "content": "Hello"}), f"## 7 · user · {WHEN}\n\nHello\n\n"),
    "no text": (NewMessage({"role": "assistant", "content": ""}), f"## 7 · assistant · {WHEN}\n\n"),
    "parts": (
        NewMessage({"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "image", "path": "/i.png"}]}),
        f"## 7 · user · {WHEN}\n\nA\n\n[image /i.png]\n\n",
    ),
    "thinking": (
        NewMessage({"role": "assistant", "content": [{"type": "thinking", "thinking": "a\nb"}]}),
        f"## 7 · assistant · {WHEN}\n\n> a\n> b\n\n",
    ),
    "calls": (
        NewMessage({"role": "assistant", "content": "", "tool_calls": CALL}),
        f"## 7 · assistant · {WHEN}\n\n{CALL_BLOCK}",
    ),
    "result": (
        NewMessage({"role": "tool", "content": [{"type": "tool_result", "tool_call_id": "c1", "content": "a\nb"}]}),
        f"## 7 · tool · {WHEN}\n\nResult (c1):\n\n```\na\nb\n```\n\n",
    ),
    "a result as text": (
        NewMessage({"role": "tool", "tool_call_id": "c1", "content": "ok"}),
        f"## 7 · tool · {WHEN}\n\nResult (c1):\n\n```\nok\n```\n\n",
    ),
    "call event": (NewMark("tool_call", {"run": "r1", **CALL[0]}), f"## 7 · tool_call · {WHEN}\n\n{CALL_BLOCK}"),
    "error": (
        NewMark("error", {"run": "r1", "code": "EIO", "message": "no <b>\ndisk"}),
        f"## 7 · error · {WHEN}\n\n**EIO**: no \\<b>\\x0adisk\n\n",
    ),
    "cancelled": (
        NewMark("done", {"run": "r1", "status": "cancelled"}),
        f"## 7 · done · {WHEN}\n\nThe run ended: cancelled\n\n",
    ),
    "done": (NewMark("done", {"run": "r1", "status": "ok"}), ""),
    "delta": (NewMark("delta", {"run": "r1", "text": "x"}), ""),
    "a mark that looks like another": (NewMark("demo/error", {"code": "x"}), ""),
    "a mark whose data is no object": (NewMark("note", 5), ""),
    "cut": (
        NewCut({"before": 3, "summary": [{"role": "user", "content": "We\nmet."}], "reason": "manual"}),
        f"## 7 · cut (manual) · {WHEN}\n\nFrom here on the model is sent this instead of all that is above:\n\n"
        "> **user**:\n> \n> We\n> met.\n\n",
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_shown(name: str) -> None:
    entry, text = SHOWN[name]
    assert shown(entry) == text


HOSTILE = {
    "a heading of ours": ("## 8 · assistant · 2001-09-09 01:46:41", "\\## 8 · assistant · 2001-09-09 01:46:41"),
    "an underlined one": ("8 · assistant\n---", "\\8 · assistant\n---"),
    "another heading": ("## Plan\ntext", "## Plan\ntext"),
    "a comment that never ends": ("<!-- all that follows", "\\<!-- all that follows"),
    "inside code nothing is changed": ("```\n<b>\n## 8 · x\n```", "```\n<b>\n## 8 · x\n```"),
    "code that is left open": ("~~~ text\n```", "~~~ text\n```\n~~~"),
    "code with longer ticks": ("````\n```\n<", "````\n```\n<\n````"),
    "escape sequences": ("\x1b[31m\r", "\\x1b[31m\\x0d"),
    "right to left": ("\u202e", "\\u202e"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_content_passes_for_ours(name: str) -> None:
    text, safe = HOSTILE[name]
    assert shown(NewMessage({"role": "user", "content": text})) == f"## 7 · user · {WHEN}\n\n{safe}\n\n"


def test_a_result_cannot_end_its_block() -> None:
    entry = NewMessage({"role": "tool", "tool_call_id": "c", "content": "```\n````\n"})
    assert shown(entry).endswith("\n\n`````\n```\n````\n\n`````\n\n")


def test_a_role_cannot_begin_a_line() -> None:
    assert shown(NewMessage({"role": "x\n# y", "content": ""})) == f"## 7 · x\\x0a# y · {WHEN}\n\n"


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"[]", b'{"role":5,"content":{"a":1},"tool_calls":"x"}'])
def test_a_foreign_line_is_no_error(raw: bytes) -> None:
    for kind in ("message", "mark"):
        if kind == "mark" or raw.startswith(b'{"'):
            entry_text(entry_of(Row(0, 10**17, kind, "messages", raw)))


def test_a_title_is_one_line() -> None:
    assert title("a+b") == b"# Session a+b\n\n"
