"""A session as a conversation for people: roles, times, texts with light markdown, tool calls (spec 4.1).

Reads messages.jsonl line by line; of events.jsonl only what a tool call needs is kept until its result is shown.
Whatever a message holds is escaped, so that no history can steer the terminal.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from mountctl.text import escaped, escaped_name, styled

_BOLD, _DIM, _CODE = "1", "2", "36"
_ROLES = {"user": "1;34", "assistant": "1;32", "tool": "1;33", "system": "1;35"}
_HEADING = re.compile(r"#{1,6} ")
_STRONG = re.compile(r"\*\*(.+?)\*\*")
_MAX_RESULT_LINES = 20

Calls = dict[tuple[str, str], tuple[str, Any]]


def print_conversation(directory: str) -> None:
    """Prints the conversation of a session's directory (``FileNotFoundError`` where there is none)."""
    calls = _tool_calls(f"{directory}/events.jsonl")
    with open(f"{directory}/messages.jsonl", encoding="utf-8", errors="replace") as messages:
        for line in messages:
            print("\n".join(_message(line, calls)), end="\n\n")
    for (run, _), (name, arguments) in calls.items():
        print(f"{_title('call', 'tool', run)}\n{_call(name, arguments)}  (no result)\n")


def _tool_calls(path: str) -> Calls:
    calls: Calls = {}
    with open(path, encoding="utf-8", errors="replace") as events:
        for line in events:
            if '"tool_call"' in line and (event := _object(line)).get("type") == "tool_call":
                calls[str(event.get("run")), str(event.get("id"))] = str(event.get("name")), event.get("arguments")
    return calls


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _message(line: str, calls: Calls) -> Iterator[str]:
    message = _object(line)
    role = str(message.get("role", "?"))
    time = message.get("timestamp")
    yield _title(role, role, f"{time}" if isinstance(time, str) else "")
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    for part in parts:
        yield from _part(part if isinstance(part, dict) else {}, str(message.get("run")), calls)
    made = message.get("tool_calls")
    for call in made if isinstance(made, list) else []:
        if isinstance(call, dict):
            yield _call(str(call.get("name")), call.get("arguments"))


def _title(text: str, role: str, aside: str) -> str:
    return styled(f"── {escaped_name(text)}", _ROLES.get(role, _BOLD)) + styled(
        f"  {escaped_name(aside)}" if aside else "", _DIM
    )


def _part(part: dict[str, Any], run: str, calls: Calls) -> Iterator[str]:
    match part.get("type"):
        case "text":
            yield from _markdown(str(part.get("text", "")))
        case "thinking":
            yield from (styled(f"  {escaped(line)}", _DIM) for line in str(part.get("thinking", "")).splitlines())
        case "tool_result":
            call = calls.pop((run, str(part.get("tool_call_id"))), None)
            if call is not None:
                yield _call(*call)
            yield from _result(part.get("content"))
        case kind:
            where = part.get("path") or part.get("url") or ""
            yield styled(f"[{escaped_name(str(kind))} {escaped_name(str(where)[:200])}]", _DIM)


def _call(name: str, arguments: Any) -> str:
    text = json.dumps(arguments, ensure_ascii=False)
    return styled("▸ ", _BOLD) + escaped_name(f"{name} {text if len(text) <= 500 else text[:499] + '…'}")


def _result(content: Any) -> Iterator[str]:
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    text = "\n".join(str(part.get("text", f"[{part.get('type')}]")) for part in parts if isinstance(part, dict))
    lines = text.splitlines()
    yield from (f"  {escaped(line)}" for line in lines[:_MAX_RESULT_LINES])
    if len(lines) > _MAX_RESULT_LINES:
        yield styled(f"  … {len(lines) - _MAX_RESULT_LINES} more lines", _DIM)


def _markdown(text: str) -> Iterator[str]:
    """The text, line by line; headings and strong words bold, code in a colour, where there are colours."""
    in_code = False
    for line in escaped(text).split("\n"):
        if line.lstrip().startswith("```"):
            in_code = not in_code
            yield styled(line, _DIM)
        elif in_code:
            yield styled(line, _CODE)
        elif _HEADING.match(line):
            yield styled(line, _BOLD)
        else:
            yield _STRONG.sub(lambda match: styled(match[1], _BOLD), line) if styled("", _BOLD) else line
