"""Lines from a stream, however it is cut: all of them, in order, never more than the limit held (spec 3.2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.errors import InvalidValue
from ctxfs.sockets.frames import FrameTooLong, Lines, encode, error_frame

LIMIT = 16
TOO_LONG = b"\0too long"

streams = st.lists(st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b"")), max_size=8)


def taken(lines: Lines) -> list[bytes]:
    found = list[bytes]()
    while True:
        try:
            line = lines.take()
        except FrameTooLong:
            line = TOO_LONG
        if line is None:
            return found
        found.append(line)


def last(lines: Lines) -> bytes | None:
    try:
        return lines.end()
    except FrameTooLong:
        return TOO_LONG


@given(sent=streams, end=st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b"")), sizes=st.data())
def test_every_line_arrives_once_and_what_is_too_long_is_reported_once(
    sent: list[bytes], end: bytes, sizes: st.DataObject
) -> None:
    data = b"".join(line + b"\n" for line in sent) + end
    lines, found = Lines(LIMIT), list[bytes]()
    while data:
        assert 0 < lines.room <= LIMIT
        size = sizes.draw(st.integers(1, lines.room))
        lines.feed(data[:size])
        data = data[size:]
        found += taken(lines)
    assert found == [line if len(line) < LIMIT else TOO_LONG for line in sent]
    assert last(lines) == (end or None if len(end) < LIMIT else TOO_LONG)
    assert lines.end() is None


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InvalidValue("no such op"), "EINVAL", "no such op"),
        (PermissionError(13, "not yours", "/secret"), "EACCES", "not yours"),
        (OSError(99999, "odd"), "EIO", "odd"),
        (KeyError(), "EIO", "KeyError"),
    ],
)
def test_an_error_is_a_frame(error: Exception, code: str, message: str) -> None:
    assert encode(error_frame(error)) == b'{"code":"%s","message":"%s","type":"error"}\n' % (
        code.encode(),
        message.encode(),
    )


def test_an_error_frame_names_what_is_known() -> None:
    assert encode(error_frame(InvalidValue("x"), run="ctx-1", id="a")) == (
        b'{"code":"EINVAL","id":"a","message":"x","run":"ctx-1","type":"error"}\n'
    )
