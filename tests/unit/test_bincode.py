"""What bincode's defaults accept and refuse (spec 6.1), and that malformed input costs no memory."""

import enum
import math
import tracemalloc
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.checkpoints import wire
from backend.checkpoints.bincode import F64, U32, U64, Checked, WireError, codec_of, decode, encode


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct, frozen=True):
    x: U32
    name: str | None
    colours: tuple[Colour, ...]


class Nothing(msgspec.Struct, frozen=True):
    pass


Digits = Annotated[str, Checked(int)]
Shape = Point | Nothing


@pytest.mark.parametrize(
    ("annotation", "value", "data"),
    [
        (bool, True, "01"),
        (U32, 258, "02010000"),
        (U64, 2**64 - 1, "ff" * 8),
        (F64, 40.0, "0000000000004440"),
        (str, "é\0", "0300000000000000c3a900"),
        (Digits, "12", "02000000000000003132"),
        (str | None, None, "00"),
        (str | None, "", "01" + "00" * 8),
        (tuple[bool, ...], (True, False), "02000000000000000100"),
        (Colour, Colour.BLUE, "01000000"),
        (Shape, Nothing(), "01000000"),
        (Shape, Point(1, None, (Colour.RED,)), "00000000" + "01000000" + "00" + "0100000000000000" + "00000000"),
    ],
)
def test_a_value_has_one_form(annotation: Any, value: object, data: str) -> None:
    codec = codec_of(annotation)
    assert encode(codec, value).hex() == data
    assert decode(codec, bytes.fromhex(data)) == value
    assert decode(codec, bytes.fromhex(data) + b"and more") == value
    assert len(bytes.fromhex(data)) >= codec.least


@pytest.mark.parametrize(
    ("annotation", "data"),
    [
        (bool, ""),
        (bool, "02"),
        (U32, "000000"),
        (U64, "00000000000000"),
        (str, "0200000000000000" + "61"),
        (str, "ff" * 8),
        (str, "0100000000000000" + "ff"),
        (str, "0300000000000000" + "eda080"),
        (Digits, "0100000000000000" + "61"),
        (str | None, "02"),
        (str | None, "01"),
        (tuple[bool, ...], "0300000000000000" + "0101"),
        (tuple[bool, ...], "ff" * 8),
        (tuple[Nothing, ...], "01"),
        (Colour, "02000000"),
        (Shape, "02000000"),
        (Shape, "00000000"),
        (wire.Request, ""),
        (wire.Request, "0c000000"),
        (wire.Response, "0e000000"),
        (wire.Response, "04000000" + "0b000000" + "00" * 8),
    ],
)
def test_malformed_input_is_an_error(annotation: Any, data: str) -> None:
    with pytest.raises(WireError):
        decode(codec_of(annotation), bytes.fromhex(data))


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(U32, 2**32), (U32, -1), (U64, 2**64), (str, "\ud800"), (Digits, "x"), (Shape, Colour.RED), (F64, "1")],
)
def test_what_cannot_be_expressed_is_an_error(annotation: Any, value: object) -> None:
    with pytest.raises(WireError):
        encode(codec_of(annotation), value)


def test_a_type_without_a_form_is_refused_when_it_is_described() -> None:
    with pytest.raises(TypeError):
        codec_of(bytes)


@pytest.mark.parametrize("announced", [2**63, 2**40, 10**9])
@pytest.mark.parametrize("head", ["00000000", "05000000", "08000000"])
def test_an_announced_length_allocates_nothing(head: str, announced: int) -> None:
    data = bytes.fromhex(head) + announced.to_bytes(8, "little") + bytes(1000)
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            wire.decode_response(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=200), st.integers(0, 13))
def test_any_bytes_are_a_message_or_an_error(data: bytes, variant: int) -> None:
    for decoder in (wire.decode_request, wire.decode_response):
        try:
            decoder(variant.to_bytes(4, "little") + data)
        except WireError:
            continue


texts = st.text(st.characters(exclude_categories=["Cs"]))
optional_texts = st.none() | texts
stamps = st.sampled_from(["1970-01-01T00:00:00Z", "2026-11-29T13:52:23.484690650Z"])
values = st.none() | st.sampled_from(['{"n":[1,2.5,null]}', '"é"', "null"])
metas = st.builds(wire.SnapshotMeta, optional_texts, values, st.booleans(), stamps, st.booleans())
messages = st.one_of(
    st.builds(wire.Checkpoint, texts, texts, optional_texts, optional_texts, st.booleans()),
    st.builds(wire.Delete, optional_texts, texts, st.booleans()),
    st.builds(wire.Cleanup, texts, st.none() | st.integers(0, 2**32 - 1)),
    st.builds(wire.ListOk, st.lists(st.builds(wire.SnapshotEntry, texts, texts, metas)).map(tuple)),
    st.builds(wire.DiffOk, st.lists(st.builds(wire.DiffEntry, texts, st.sampled_from(wire.ChangeType))).map(tuple)),
    st.builds(wire.Error, st.sampled_from(wire.ErrorCode), texts),
)


@given(messages)
def test_every_message_survives_the_wire_and_no_part_of_one_does(message: Any) -> None:
    union = wire.Request if isinstance(message, wire.Request) else wire.Response
    codec = codec_of(union)
    data = encode(codec, message)
    assert decode(codec, data) == message
    for end in range(len(data)):
        with pytest.raises(WireError):
            decode(codec, data[:end])


def test_a_number_that_is_none_survives() -> None:
    codec = codec_of(F64)
    assert math.isnan(decode(codec, encode(codec, math.nan)))


def test_a_retention_of_no_duration_spoils_the_message() -> None:
    report = wire.ConfigReport("/m", "/s", "info", True, wire.Age("30d"), 1, 2, 3, 4.0)
    data = wire.encode_response(wire.ConfigOk(report))
    assert wire.decode_response(data) == wire.ConfigOk(report)
    with pytest.raises(WireError, match="duration"):
        wire.decode_response(data.replace(b"30d", b"30y"))


@pytest.mark.parametrize(("length", "fits"), [(0, True), (wire.MAX_FRAME, True), (wire.MAX_FRAME + 1, False)])
def test_a_frame_has_16_mib_at_most(length: int, fits: bool) -> None:
    if fits:
        assert wire.payload_length(wire.frame(bytes(length))[:4]) == length
        return
    with pytest.raises(wire.FrameTooLarge, match="max 16777216"):
        wire.frame(bytes(length))
    with pytest.raises(wire.FrameTooLarge, match=rf"^Frame too large: {length} bytes \(max 16777216\)$"):
        wire.payload_length(length.to_bytes(4, "little"))
