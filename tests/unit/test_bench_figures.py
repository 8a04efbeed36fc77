"""The benchmark's tables and judgement, on figures that no machine gave: nothing here measures anything."""

from pathlib import Path

import pytest

from tests.bench.__main__ import main
from tests.bench.bench import Bench, cost, speed
from tests.bench.figures import BEGIN, END, AtLeast, AtMost, Bound, Claim, Measured, Placement, Report, interleave, text

MEDIANS = {Placement.PINNED: {"ctxfs": 4.0, "ext4": 2.0}, Placement.UNPINNED: {"ctxfs": 8.0, "ext4": 10.0}}


def report(bound: Bound | None) -> Report:
    return Report(
        "Work",
        [Measured("ctxfs", "µs", {Placement.PINNED: 4.0})],
        [Claim("work", 0.5, bound, Placement.PINNED), Claim("work", 1.25, None, Placement.UNPINNED)],
    )


def test_systems_take_turns_and_the_median_round_counts() -> None:
    turns: list[str] = []
    values = {"ours": [1.0, 9.0, 2.0], "theirs": [5.0, 4.0, 6.0]}

    def system(name: str) -> float:
        turns.append(name)
        return values[name][turns.count(name) - 1]

    medians = interleave(3, {"ours": lambda: system("ours"), "theirs": lambda: system("theirs")})

    assert turns == ["ours", "theirs"] * 3
    assert medians == {"ours": 2.0, "theirs": 5.0}


def test_speed_is_the_others_time_by_ours_and_cost_is_its_inverse() -> None:
    assert [claim.value for claim in speed("work", MEDIANS, "ext4", AtLeast(0.5))] == [0.5, 1.25]
    assert [claim.value for claim in cost("work", MEDIANS, "ext4", AtMost(2))] == [2.0, 0.8]


@pytest.mark.parametrize(
    ("bound", "holds"),
    [
        (AtLeast(0.5), True),
        (AtLeast(0.51), False),
        (AtMost(0.5), True),
        (AtMost(0.49), False),
        (None, True),
    ],
)
def test_a_bound_holds_up_to_its_limit(bound: Bound | None, holds: bool) -> None:
    assert [claim.what for claim in report(bound).missed()] == ([] if holds else ["work"])


def test_a_table_has_a_line_for_each_claim_and_each_system() -> None:
    lines = text([report(AtLeast(0.8))]).splitlines()

    assert "| work | ≥ 0.8 | **0.50** (missed) | 1.25 |" in lines
    assert "| ctxfs | 4.00 µs | – |" in lines


@pytest.mark.parametrize(
    ("arguments", "bound", "status"),
    [
        (["--check"], AtLeast(0.8), 1),
        (["--check"], AtLeast(0.4), 0),
        ([], AtLeast(0.8), 0),
        (["--check", "good"], AtLeast(0.8), 0),
    ],
)
def test_check_fails_on_a_missed_bound_and_names_it(
    capsys: pytest.CaptureFixture[str], arguments: list[str], bound: Bound, status: int
) -> None:
    rows = {"good": lambda _: report(None), "judged": lambda _: report(bound)}

    assert main(arguments, rows) == status
    missed = [line for line in capsys.readouterr().err.splitlines() if line.startswith("missed: ")]
    assert missed == (
        ["missed: work, pinned: 0.50 (bound ≥ 0.8)"] if "good" not in arguments and bound.limit > 0.5 else []
    )


def test_write_replaces_the_tables_and_nothing_else(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text(f"Before.\n\n{BEGIN}\nold\n{END}\n\nAfter.\n")

    def row(_: Bench) -> Report:
        return report(AtLeast(0.8))

    main(["--write"], {"work": row}, document)

    before, _, rest = document.read_text().partition(BEGIN)
    tables, _, after = rest.partition(END)
    assert (before, after) == ("Before.\n\n", "\n\nAfter.\n")
    assert "### Work" in tables
    assert "old" not in tables


@pytest.mark.parametrize("arguments", [["nonsense"], ["--write", "work"], ["--write", "--quick"]])
def test_it_refuses_what_it_cannot_do(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments, {"work": lambda _: report(None)})
    assert refused.value.code == 2
