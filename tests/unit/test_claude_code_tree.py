"""Claude Code's tree of messages as a session and its children (spec 4.2, import).

A case is the lines of a file, each ``uuid<parent role text``, and the sessions it gives: name of the chain it was begun
from, how many of its entries it holds, and what was said in it after them.
"""

import io
import json
from typing import Any, NamedTuple

import pytest

from backend.transcripts import claude_code
from backend.transcripts.records import Child, Converted

SESSION = "7d0c5f3e-2b1a-4c8d-9e0f-1a2b3c4d5e6f"


class Session(NamedTuple):
    parent: int | None
    at: int
    said: list[str]


def line(text: str) -> dict[str, Any]:
    """``u1 user hello``, ``a1<u1 assistant hi``, ``*`` before a side chain's line; ``call:ID``, ``result:ID``."""
    names, kind, what = text.split(" ", 2)
    uuid, _, parent = names.lstrip("*").partition("<")
    verb, _, call = what.partition(":")
    content: Any = [{"type": "text", "text": what}]
    if verb == "call":
        content = [{"type": "tool_use", "id": call, "name": "Bash", "input": {}}]
    elif verb == "result":
        content = [{"type": "tool_result", "tool_use_id": call, "content": "ok"}]
    role, _, response = kind.partition("/")
    message = {"role": role, "content": content} | ({"id": response} if response else {})
    return {
        "type": role,
        "uuid": uuid,
        "parentUuid": parent or None,
        "sessionId": SESSION,
        "isSidechain": names.startswith("*"),
        "message": message,
    }


def sessions(*values: dict[str, Any]) -> list[Session]:
    file = io.BytesIO(b"".join(json.dumps(value).encode() + b"\n" for value in values))
    found = {0: Session(None, 0, [])}
    for record in claude_code.convert(file, "private"):
        if isinstance(record, Child):
            found[record.chain] = Session(record.parent, record.at.entries, [])
        else:
            assert isinstance(record, Converted)
            found[record.chain].said.append(what(json.loads(record.raw)))
    return list(found.values())


def what(value: dict[str, Any]) -> str:
    if value.get("type") == "tool_call":
        return f"call:{value['id']}"
    if value.get("type") == "cut":
        return f"cut {value['before']} {value['reason']}: {value['summary'][0]['content']}"
    (part,) = value["content"]
    return f"result:{part['tool_call_id']}" if part["type"] == "tool_result" else str(part["text"])


TALK = ("u1 user hello", "a1<u1 assistant hi", "u2<a1 user more", "a2<u2 assistant yes")
TALKED = ["hello", "hi", "more", "yes"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(TALK, [Session(None, 0, TALKED)], id="no fork"),
        pytest.param(
            (*TALK, "u3<a1 user other", "a3<u3 assistant no"),
            [Session(None, 0, TALKED), Session(0, 2, ["other", "no"])],
            id="a prompt asked anew",
        ),
        pytest.param(
            (*TALK, "u3<a1 user b", "u4<a1 user c", "a4<u4 assistant d", "a3<u3 assistant e"),
            [Session(None, 0, TALKED), Session(0, 2, ["b", "e"]), Session(0, 2, ["c", "d"])],
            id="two more prompts, their answers mixed",
        ),
        pytest.param(
            ("u1 user hello", "a1<u1 assistant hi", "a2<u1 assistant hey", "u2<a2 user more"),
            [Session(None, 0, ["hello", "hi"]), Session(0, 1, ["hey", "more"])],
            id="an answer given anew",
        ),
        pytest.param(
            (*TALK, "u3<a1 user b", "a3<u3 assistant c", "u4<u3 user d"),
            [Session(None, 0, TALKED), Session(0, 2, ["b", "c"]), Session(1, 3, ["d"])],
            id="a branch of a branch",
        ),
        pytest.param(
            ("u1 user hello", "a1<u1 assistant hi", "u2 user more", "u3<gone user again", "a3<u3 assistant yes"),
            [Session(None, 0, ["hello", "hi", "more", "again", "yes"])],
            id="parents that are missing or not named",
        ),
        pytest.param(
            (
                "u1 user go",
                "a1<u1 assistant/m call:1",
                "r1<a1 user result:1",
                "a2<a1 assistant/m call:2",
                "r2<a2 user result:2",
                "a3<r1 assistant/n done",
            ),
            [Session(None, 0, ["go", "call:1", "result:1", "call:2", "result:2", "done"])],
            id="calls in parallel are no fork",
        ),
        pytest.param(
            ("u1 user go", "r1<u1 user result:1", "a1<u1 assistant call:1", "a2<a1 assistant done"),
            [Session(None, 0, ["go", "result:1", "call:1", "done"])],
            id="a result before its call",
        ),
        pytest.param(
            ("u1 user go", "a1<u1 assistant call:1", "*s1 user task", "*s2<s1 assistant did", "r1<a1 user result:1"),
            [Session(None, 0, ["go", "call:1", "result:1"]), Session(0, 0, ["task", "did"])],
            id="a side chain",
        ),
        pytest.param(
            ("u1 user go", "*s1 user task", "*t1 user other", "*s2<s1 assistant did", "*t2<t1 assistant done"),
            [Session(None, 0, ["go"]), Session(0, 0, ["task", "did"]), Session(0, 0, ["other", "done"])],
            id="two side chains, mixed",
        ),
        pytest.param(
            ("u1 user go", "*s1<u1 user task", "*s2<gone assistant did", "a1<u1 assistant hi"),
            [Session(None, 0, ["go", "hi"]), Session(0, 0, ["task", "did"])],
            id="a side chain of which a line is missing",
        ),
        pytest.param(
            ("*s1 user task", "*s2<s1 assistant did"),
            [Session(None, 0, ["task", "did"])],
            id="a file of a side chain alone",
        ),
        pytest.param(
            (*TALK, *TALK[2:], "u3<a2 user last"),
            [Session(None, 0, [*TALKED, "last"])],
            id="lines twice",
        ),
        pytest.param(
            ("u1 user hello", "u1 user other", "a1<u1 assistant hi"),
            [Session(None, 0, ["hello", "other", "hi"])],
            id="a uuid twice with different content",
        ),
    ],
)
def test_the_tree(lines: tuple[str, ...], expected: list[Session]) -> None:
    assert sessions(*map(line, lines)) == expected


@pytest.mark.parametrize("count", range(7))
def test_a_file_that_has_grown_gives_the_same_sessions_as_far_as_it_went(count: int) -> None:
    lines = [line(text) for text in (*TALK, "u3<a1 user other", "a3<u3 assistant no")]
    whole = sessions(*lines)
    for before, after in zip(sessions(*lines[:count]), whole, strict=False):
        assert before[:2] == after[:2] and after.said[: len(before.said)] == before.said


def other(kind: str, uuid: str, parent: str | None, **more: object) -> dict[str, Any]:
    return {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": SESSION, **more}


def compacted(uuid: str, parent: str) -> dict[str, Any]:
    return {
        **line(f"{uuid}<{parent} user x"),
        "isCompactSummary": True,
        "message": {"role": "user", "content": "short"},
    }


BOUNDARY = {"subtype": "compact_boundary", "logicalParentUuid": "a2", "compactMetadata": {"trigger": "auto"}}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(
            [*TALK, other("system", "b1", None, **BOUNDARY), compacted("c1", "b1"), "u3<c1 user on"],
            [*TALKED, "cut 4 auto: short", "on"],
            id="a compaction with its boundary",
        ),
        pytest.param(
            [*TALK, compacted("c1", "a2"), "u3<c1 user on"],
            [*TALKED, "cut 4 compact: short", "on"],
            id="a compaction as older versions wrote it",
        ),
        pytest.param(
            [{"type": "summary", "summary": "earlier", "leafUuid": "elsewhere"}, *TALK],
            ["cut 0 summary: earlier", *TALKED],
            id="a summary of what was before the file",
        ),
        pytest.param(
            [*TALK[:2], {"type": "summary", "summary": "greeting", "leafUuid": "a1"}, *TALK[2:]],
            ["hello", "hi", "cut 2 summary: greeting", "more", "yes"],
            id="a summary of the conversation as it stands",
        ),
        pytest.param(
            [*TALK, {"type": "summary", "summary": "of another", "leafUuid": "elsewhere"}],
            TALKED,
            id="a summary of another session",
        ),
        pytest.param(
            [*TALK[:2], other("system", "x1", "a1"), other("progress", "x2", "x1"), "u2<x2 user more", TALK[3]],
            TALKED,
            id="lines that are not of the conversation do not break it",
        ),
    ],
)
def test_cuts_and_other_lines(lines: list[Any], expected: list[str]) -> None:
    values = [line(one) if isinstance(one, str) else one for one in lines]
    assert sessions(*values) == [Session(None, 0, expected)]
