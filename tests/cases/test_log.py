"""The golden cases of the log on every store, and the program that runs them."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases.__main__ import main
from tests.cases.log import check_row
from tests.cases.rows import Mismatch, Row, read_rows, same

CASES = Path(__file__).with_name("log.jsonl")
ROWS = read_rows(CASES.read_bytes())


@pytest.mark.parametrize("store", ["sqlite", "memory", "jsonl"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_case(row: Row, store: str) -> None:
    check_row(json.loads(row.raw), store)


def test_the_program_counts_what_passes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_bytes(b"\n".join(CASES.read_bytes().split(b"\n")[-20:]))
    assert main(["log", str(file), "--store", "memory"]) == 0
    assert capsys.readouterr().out == "19 passed, 0 failed\n"


def test_the_program_names_what_fails_and_goes_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    digest = {"kind": "digest_relation", "input": {"a": {}, "b": {}}}
    rows = [
        json.dumps({"id": "good", **digest, "expect": {"equal": True}}),
        json.dumps({"id": "bad", **digest, "expect": {"equal": False}}),
        json.dumps({**digest, "expect": {"equal": False}, "note": "\u2028\x85\r"}, ensure_ascii=False),
        "",
        json.dumps({**digest, "expect": {"equal": True}}),
        "not JSON",
        json.dumps({"id": "odd", "kind": "no such kind", "input": {}, "expect": {}}),
        json.dumps({"id": "op", "kind": "script", "input": {"ops": [{"op": "?"}]}, "expect": {"results": [{}]}}),
    ]
    file = tmp_path / "some.jsonl"
    file.write_text("\n".join(rows))
    assert main(["log", str(file), "--store", "memory"]) == 1
    assert capsys.readouterr().out.split("\n") == ["bad", "3", "6", "odd", "op", "2 passed, 5 failed", ""]


def test_a_file_that_cannot_be_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["log", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().out == ""


def test_the_program_from_a_shell(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"\n")
    command = [sys.executable, "-m", "tests.cases", "log", str(tmp_path / "empty")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0 passed, 0 failed\n")


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ([1], (1.0,), True),
        ({"a": [None]}, {"a": [None]}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ([], None, False),
        ("1", 1, False),
    ],
)
def test_values_are_compared_as_json(a: object, b: object, equal: bool) -> None:
    assert same(a, b) is same(b, a) is equal


def test_a_branch_that_tells_another_event_fails() -> None:
    [row] = [row for row in ROWS if row.id == "S-branch-01"]
    check_row(json.loads(row.raw), "memory")
    with pytest.raises(Mismatch, match="events"):
        check_row(json.loads(row.raw.replace(b"chatluna/session-branch", b"chatluna/other")), "memory")


@pytest.mark.parametrize(("listed", "passes"), [(["b", "a"], True), (["a"], False), (["a", "b", "b"], False)])
def test_a_list_is_compared_in_any_order(listed: list[str], passes: bool) -> None:
    ops = [{"op": "create", "as": id, "id": id} for id in ("a", "b")]
    results = [{"ok": True}, {"ok": True}, {"value": listed}]
    row = {"kind": "script", "input": {"ops": [*ops, {"op": "list"}]}, "expect": {"results": results}}
    with contextlib.nullcontext() if passes else pytest.raises(Mismatch, match="list"):
        check_row(row, "memory")
