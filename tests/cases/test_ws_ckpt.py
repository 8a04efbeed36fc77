"""The golden vectors of the ws-ckpt protocol, and that a wrong byte or value makes one fail."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.__main__ import main
from tests.cases.rows import Row, read_rows
from tests.cases.ws_ckpt import check_row

CASES = Path(__file__).with_name("ws-ckpt.jsonl")
ROWS = read_rows(CASES.read_bytes())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_vector(row: Row) -> None:
    check_row(json.loads(row.raw))


def test_the_program_runs_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ws-ckpt", str(CASES)]) == 0
    assert capsys.readouterr().out == "133 passed, 0 failed\n"


RELOADED = {"kind": "response", "name": "ReloadConfigOk", "value": {}, "hex": "0a000000"}
DELETED = {"kind": "response", "name": "DeleteOk", "value": {"target": "a"}, "hex": "03000000010000000000000061"}


@pytest.mark.parametrize("row", [RELOADED, DELETED])
def test_the_rows_that_are_spoilt_below_are_good(row: dict[str, Any]) -> None:
    check_row(row)


@pytest.mark.parametrize(
    "row",
    [
        {**RELOADED, "hex": "0b000000"},
        {**RELOADED, "kind": "request"},
        {**RELOADED, "value": {"config": None}},
        {**DELETED, "value": {"target": "b"}},
        {**DELETED, "value": {}},
        {**DELETED, "hex": "03000000010000000000000062"},
        {**DELETED, "hex": "0300000001000000000000006100"},
        {**DELETED, "name": "RecoverOk"},
        {**DELETED, "name": "no such message"},
    ],
)
def test_a_spoilt_row_fails(row: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"."):
        check_row(row)
