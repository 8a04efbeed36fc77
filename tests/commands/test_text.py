"""What is printed cannot steer a terminal (spec 4)."""

from collections.abc import Iterator

import pytest

from mountctl import text
from mountctl.text import bytes_text, duration_text, escaped, escaped_name, print_table


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("plain – ünïcode 日本 🙂", "plain – ünïcode 日本 🙂"),
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("a\rb\x7f\x9b", "a\\x0db\\x7f\\x9b"),
        ("line\n\ttab", "line\n\ttab"),
        ("\u202eevil", "\\u202eevil"),
        ("lone \ud800", "lone \\ud800"),
    ],
)
def test_control_characters_are_escaped_and_text_is_not(given: str, expected: str) -> None:
    assert escaped(given) == expected


def test_a_name_stays_on_its_line() -> None:
    assert escaped_name("a\nb\tc") == "a\\x0ab\\x09c"


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 30, "1.0 GiB"), (5 << 50, "5120.0 TiB")],
)
def test_sizes_for_people(count: int, expected: str) -> None:
    assert bytes_text(count) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0s"), (59, "59s"), (60, "1m0s"), (3725, "1h2m"), (90000, "1d1h"), (863999, "9d23h"), (864000, "10d")],
)
def test_durations_for_people(seconds: int, expected: str) -> None:
    assert duration_text(seconds) == expected


ROWS = [("日本", "a"), ("x", "b\x1b"), ("", "")]


def test_columns_are_aligned_by_what_a_terminal_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(text, "is_terminal", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(("one", "two"), ROWS)
    assert capsys.readouterr().out == "one   two\n日本  a\nx     b\\x1b\n\n"


def test_elsewhere_rows_are_for_programs_and_come_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []

    def rows() -> Iterator[tuple[str, str]]:
        for row in ROWS:
            printed.append(capsys.readouterr().out)
            yield row

    print_table(("one", "two"), rows())
    assert [*printed, capsys.readouterr().out] == ["", "日本\ta\n", "x\tb\\x1b\n", "\t\n"]


@pytest.mark.parametrize("terminal", [True, False])
def test_of_nothing_there_is_no_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    monkeypatch.setattr(text, "is_terminal", lambda: terminal)
    print_table(("one", "two"), [])
    assert capsys.readouterr().out == ""
