"""bincode 1.3.3 with its defaults, from type annotations: one description of a type drives both directions (spec 6.1).

Little-endian integers of fixed width, lengths as u64, variants as u32; bytes after a value are allowed. Pure. Decoding
never allocates more than what the input holds: a length is compared with the bytes that are left before it is used.

=============================  ====================================================================
annotation                     on the wire
=============================  ====================================================================
``U32``, ``U64``, ``F64``      4, 8, 8 bytes
``bool``                       one byte, 0 or 1
``str``                        u64 count of bytes, UTF-8
``Annotated[str, Checked]``    a ``str`` that its check accepts
``tuple[T, ...]``              u64 count, then the items
``T | None``                   one byte 0; or 1 and the value
subclass of ``enum.Enum``      u32: the member's position
subclass of ``msgspec.Struct`` its fields in their order
``A | B | …`` of structs       u32: the position in the union; then the struct
=============================  ====================================================================
"""

import enum
import struct
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec

from backend.errors import CtxError


class WireError(CtxError):
    """Bytes that are no value of the type, or a value that the type cannot express."""


class Fixed(NamedTuple):
    """Marks a number: its format for ``struct``."""

    format: str


class Checked(NamedTuple):
    """Marks a string that has a form: ``check`` raises ``ValueError`` for any other."""

    check: Callable[[str], object]


U32 = Annotated[int, Fixed("<I")]
U64 = Annotated[int, Fixed("<Q")]
F64 = Annotated[float, Fixed("<d")]


class Input:
    """Bytes that are decoded, and how far that has come."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes (``WireError``: there are fewer)."""
        if count > self.left():
            raise WireError(f"{count} bytes are announced, {self.left()} are left")
        start, self._at = self._at, self._at + count
        return self._data[start : self._at]


class Codec(Protocol):
    """Both directions of one type; ``least`` is how many bytes a value has at least."""

    least: int

    def write(self, value: Any, out: bytearray) -> None: ...

    def read(self, source: Input) -> Any: ...


def encode(codec: Codec, value: Any) -> bytes:
    """The bytes of a value (``WireError``: it cannot be expressed)."""
    out = bytearray()
    codec.write(value, out)
    return bytes(out)


def decode(codec: Codec, data: bytes) -> Any:
    """The value that ``data`` begins with (``WireError``)."""
    return codec.read(Input(data))


def codec_of(annotation: Any) -> Codec:
    """The codec that an annotation describes (``TypeError``: it is none of the table above)."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        mark = arguments[1]
        return _Number(mark.format) if isinstance(mark, Fixed) else _CheckedText(mark.check)
    if origin is tuple:
        return _Sequence(codec_of(arguments[0]))
    if origin in (types.UnionType, typing.Union):
        return _union(arguments)
    if annotation is bool:
        return _Boolean()
    if annotation is str:
        return _Text()
    if issubclass(annotation, enum.Enum):
        return _Names(annotation)
    if issubclass(annotation, msgspec.Struct):
        return _Record(annotation)
    raise TypeError(f"{annotation!r} has no form in bincode")


def _union(members: tuple[Any, ...]) -> Codec:
    if types.NoneType not in members:
        return _Choice(members)
    (some,) = (member for member in members if member is not types.NoneType)
    return _Optional(codec_of(some))


class _Number:
    def __init__(self, form: str) -> None:
        self._struct = struct.Struct(form)
        self.least = self._struct.size

    def write(self, value: Any, out: bytearray) -> None:
        try:
            out += self._struct.pack(value)
        except struct.error as error:
            raise WireError(f"{value!r} is no number of {self.least} bytes: {error}") from None

    def read(self, source: Input) -> Any:
        return self._struct.unpack(source.take(self.least))[0]


_length = _Number("<Q")
_variant = _Number("<I")


class _Boolean:
    least = 1

    def write(self, value: Any, out: bytearray) -> None:
        out.append(1 if value else 0)

    def read(self, source: Input) -> bool:
        (byte,) = source.take(1)
        if byte > 1:
            raise WireError(f"{byte} is neither true nor false")
        return byte == 1


class _Text:
    least = _length.least

    def write(self, value: str, out: bytearray) -> None:
        try:
            data = value.encode()
        except UnicodeEncodeError:
            raise WireError("a lone surrogate has no form in UTF-8") from None
        _length.write(len(data), out)
        out += data

    def read(self, source: Input) -> str:
        try:
            return source.take(_length.read(source)).decode()
        except UnicodeDecodeError:
            raise WireError("a string is not UTF-8") from None


class _CheckedText(_Text):
    def __init__(self, check: Callable[[str], object]) -> None:
        self._check = check

    def write(self, value: str, out: bytearray) -> None:
        super().write(self._checked(value), out)

    def read(self, source: Input) -> str:
        return self._checked(super().read(source))

    def _checked(self, value: str) -> str:
        try:
            self._check(value)
        except ValueError as error:
            raise WireError(str(error)) from None
        return value


class _Optional:
    least = 1

    def __init__(self, some: Codec) -> None:
        self._some = some

    def write(self, value: Any, out: bytearray) -> None:
        out.append(0 if value is None else 1)
        if value is not None:
            self._some.write(value, out)

    def read(self, source: Input) -> Any:
        (tag,) = source.take(1)
        if tag > 1:
            raise WireError(f"{tag} is no tag of an optional value")
        return self._some.read(source) if tag else None


class _Sequence:
    least = _length.least

    def __init__(self, item: Codec) -> None:
        self._item = item

    def write(self, value: tuple[Any, ...], out: bytearray) -> None:
        _length.write(len(value), out)
        for item in value:
            self._item.write(item, out)

    def read(self, source: Input) -> tuple[Any, ...]:
        count = _length.read(source)
        if count * self._item.least > source.left():
            raise WireError(f"{count} items are announced, {source.left()} bytes are left")
        return tuple(self._item.read(source) for _ in range(count))


class _Names:
    least = _variant.least

    def __init__(self, names: type[enum.Enum]) -> None:
        self._members = tuple(names)

    def write(self, value: enum.Enum, out: bytearray) -> None:
        _variant.write(self._members.index(value), out)

    def read(self, source: Input) -> enum.Enum:
        member: enum.Enum = _chosen(self._members, _variant.read(source))
        return member


class _Record:
    def __init__(self, record: type[msgspec.Struct]) -> None:
        self._record = record
        self._fields = [(field.name, codec_of(field.type)) for field in msgspec.structs.fields(record)]
        self.least = sum(codec.least for _, codec in self._fields)

    def write(self, value: msgspec.Struct, out: bytearray) -> None:
        for name, codec in self._fields:
            codec.write(getattr(value, name), out)

    def read(self, source: Input) -> msgspec.Struct:
        return self._record(*[codec.read(source) for _, codec in self._fields])


class _Choice:
    def __init__(self, members: tuple[type[msgspec.Struct], ...]) -> None:
        self._members = members
        self._codecs = [codec_of(member) for member in members]
        self.least = _variant.least + min(codec.least for codec in self._codecs)

    def write(self, value: msgspec.Struct, out: bytearray) -> None:
        if type(value) not in self._members:
            raise WireError(f"a {type(value).__name__} is none of {[member.__name__ for member in self._members]}")
        index = self._members.index(type(value))
        _variant.write(index, out)
        self._codecs[index].write(value, out)

    def read(self, source: Input) -> msgspec.Struct:
        codec: Codec = _chosen(self._codecs, _variant.read(source))
        value: msgspec.Struct = codec.read(source)
        return value


def _chosen(members: typing.Sequence[Any], index: int) -> Any:
    if index >= len(members):
        raise WireError(f"there is no variant {index}: {len(members)} are known")
    return members[index]
