"""Times and durations as ws-ckpt writes them (spec 6.1, 6.3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.checkpoints.times import MAX_DURATION_S, parse_duration, parse_timestamp, timestamp_text


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_000_000_000, "1970-01-01T00:00:01Z"),
        (500_000_000, "1970-01-01T00:00:00.500Z"),
        (1_000, "1970-01-01T00:00:00.000001Z"),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (1_795_960_343_484_690_650, "2026-11-29T13:52:23.484690650Z"),
    ],
)
def test_a_time_has_the_shortest_exact_fraction(time_ns: int, text: str) -> None:
    assert timestamp_text(time_ns) == text
    assert parse_timestamp(text) == time_ns


@given(st.integers(0, 253_402_300_799_999_999_999))
def test_times_survive(time_ns: int) -> None:
    assert parse_timestamp(timestamp_text(time_ns)) == time_ns


@pytest.mark.parametrize("text", ["1970-01-01T02:00:01+02:00", "1969-12-31T22:00:01.0-02:00", "1970-01-01t00:00:01z"])
def test_other_forms_of_rfc_3339_are_read(text: str) -> None:
    assert parse_timestamp(text) == 1_000_000_000


@pytest.mark.parametrize(
    "text", ["", "now", "1970-01-01", "1970-01-01T00:00:00", "1970-02-30T00:00:00Z", "0Z", "1970-01-01T00:00:00+24:00"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_timestamp(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("90s", 90),
        ("5m", 300),
        ("1H", 3600),
        ("30d", 2_592_000),
        (" 2w ", 1_209_600),
        ("007d", 604_800),
        (f"{MAX_DURATION_S}s", MAX_DURATION_S),
    ],
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "d", "5y", "-5d", "5 d", "1.5d", "٣d", f"{MAX_DURATION_S + 1}s", "9" * 5000 + "w", f"{2**62}w"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)
