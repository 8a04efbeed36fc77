"""Every fault is reported, none repaired (spec 2.7)."""

from typing import Any

import pytest

from backend.entries import CutEntry, Entry, MarkEntry, MessageEntry
from backend.invariants import check_invariants

SAY = {"role": "user", "content": "x"}


def message(n: Any, content: Any = "x") -> dict[str, Any]:
    return {"n": n, "time": 1, "kind": "message", "message": {"role": "user", "content": content}}


def cut(n: Any, data: Any) -> dict[str, Any]:
    return {"n": n, "time": 1, "kind": "cut", "data": data}


def rules(*entries: dict[str, Any]) -> list[tuple[int, str]]:
    return [(fault.index, fault.rule) for fault in check_invariants(entries)]


@pytest.mark.parametrize("n", [1, -1, True, False, 0.0, float("nan"), "0", None])
def test_numbers_are_integers_from_0(n: Any) -> None:
    assert rules(message(n)) == [(0, "sequence")]


def test_a_missing_number_is_a_fault() -> None:
    assert rules({"time": 1, "kind": "message", "message": SAY}) == [(0, "sequence")]


def test_every_entry_after_a_gap_is_named() -> None:
    assert rules(message(0), message(2), message(3), message(3)) == [(1, "sequence"), (2, "sequence")]


@pytest.mark.parametrize("before", [0, 1, 2])
def test_cuts_within_bounds(before: int) -> None:
    assert rules(message(0), message(1), cut(2, {"before": before, "summary": [], "reason": "r"})) == []


@pytest.mark.parametrize("data", [{"before": value} for value in (3, -1, True, 1.0, "1", None)] + [{}, None, [], "x"])
def test_cuts_out_of_bounds(data: Any) -> None:
    assert rules(message(0), message(1), cut(2, data)) == [(2, "cut-before")]


def test_the_bound_is_the_number_that_the_cut_itself_claims() -> None:
    assert rules(cut(5, {"before": 5})) == [(0, "sequence")]
    assert rules(cut("x", {"before": 1})) == [(0, "sequence"), (0, "cut-before")]


def _cycle() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "content",
    [
        float("nan"),
        float("-inf"),
        b"x",
        {1},
        (1,),
        {1: 2},
        {True: 1},
        _cycle(),
        _nested(100_000),
        rules,
        "\ud83d\ude00",
    ],
    ids=lambda value: type(value).__name__,
)
def test_payloads_that_json_does_not_carry(content: Any) -> None:
    assert rules(message(0, content), message(1)) == [(0, "json")]


@pytest.mark.parametrize("content", ["\ud800", "\x00\u2028", 1e300, 2**63, [None, True, 0.5, {}], "\U0001f600"])
def test_payloads_that_json_carries(content: Any) -> None:
    assert rules(message(0, content)) == []


def test_an_entry_may_have_every_fault() -> None:
    assert rules(cut(7, {"before": 9, "native": {1}})) == [(0, "sequence"), (0, "cut-before"), (0, "json")]


def test_nothing_is_repaired() -> None:
    entries = [message(0), cut(3, {"before": -1})]
    check_invariants(entries)
    assert entries == [message(0), cut(3, {"before": -1})]


def test_stored_entries_are_judged_alike() -> None:
    entries: list[Entry] = [
        MessageEntry(0, 1, SAY, {"turn": float("nan")}),
        MarkEntry(1, 1, "m", {1: 2}),
        CutEntry(4, 1, {"before": 5}),
    ]
    faults = [(fault.index, fault.rule) for fault in check_invariants(entries)]
    assert faults == [(0, "json"), (1, "json"), (2, "sequence"), (2, "cut-before")]
