"""What is printed cannot steer a terminal (spec 4)."""

import pytest

from mountctl.text import bytes_text, duration_text, escaped, escaped_name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain – ünïcode 日本 🙂", "plain – ünïcode 日本 🙂"),
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("a\rb\x7f\x9b", "a\\x0db\\x7f\\x9b"),
        ("line\n\ttab", "line\n\ttab"),
        ("\u202eevil", "\\u202eevil"),
        ("lone \ud800", "lone \\ud800"),
    ],
)
def test_control_characters_are_escaped_and_text_is_not(text: str, expected: str) -> None:
    assert escaped(text) == expected


def test_a_name_stays_on_its_line() -> None:
    assert escaped_name("a\nb\tc") == "a\\x0ab\\x09c"


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 30, "1.0 GiB"), (5 << 50, "5120.0 TiB")],
)
def test_sizes_for_people(count: int, expected: str) -> None:
    assert bytes_text(count) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0, "0s"), (59, "59s"), (60, "1m0s"), (3725, "1h2m"), (90000, "1d1h")]
)
def test_durations_for_people(seconds: int, expected: str) -> None:
    assert duration_text(seconds) == expected
