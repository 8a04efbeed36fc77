"""Points in time and durations as ws-ckpt writes them (spec 6.1; RFC 3339 in UTC, ``30d``). Pure.

Times are nanoseconds since 1970, durations seconds.
"""

import re
import time
from datetime import UTC, datetime, timedelta

MAX_DURATION_S = (1 << 63) - 1

_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))", re.ASCII
)
_DURATION = re.compile(r"\s*(\d+)([smhdw])\s*", re.ASCII | re.IGNORECASE)
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_NS = 1_000_000_000


def timestamp_text(time_ns: int) -> str:
    """RFC 3339 with ``Z``: no fraction, or the shortest of 3, 6 and 9 digits that is exact."""
    seconds, fraction = divmod(time_ns, _SECOND_NS)
    digits = f"{fraction:09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    whole = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole.rjust(19, '0')}{'.' if digits else ''}{digits}Z"


def parse_timestamp(text: str) -> int:
    """The time that an RFC 3339 text means (``ValueError``)."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no point in time")
    whole, fraction, sign, hours, minutes = match.groups()
    since = datetime.fromisoformat(whole.upper()).replace(tzinfo=UTC) - _EPOCH
    offset = 0 if sign is None else (1 if sign == "+" else -1) * (int(hours) * 3600 + int(minutes) * 60)
    return (since.days * 86400 + since.seconds - offset) * _SECOND_NS + int((fraction or "").ljust(9, "0"))


def parse_duration(text: str) -> int:
    """The seconds that digits and one of ``s m h d w`` mean (``ValueError``)."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no duration: a number and one of s, m, h, d, w, as in 30d")
    seconds = int(match[1][:20]) * _UNIT_S[match[2].lower()]
    if seconds > MAX_DURATION_S or len(match[1].lstrip("0")) > 20:
        raise ValueError(f"{text[:40]!r} is too long a duration")
    return seconds


def now_text() -> str:
    """This moment, to the nanosecond."""
    return timestamp_text(time.time_ns())
