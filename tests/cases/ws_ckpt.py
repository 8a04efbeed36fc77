"""Vectors of the ws-ckpt protocol: ``{kind: request|response, name, value, hex}``, checked in both directions."""

import enum
import typing
from typing import Any

import msgspec

from backend.checkpoints import wire
from tests.cases.rows import expect

_UNIONS = {"request": wire.Request, "response": wire.Response}
_ENCODERS = {"request": wire.encode_request, "response": wire.encode_response}
_DECODERS = {"request": wire.decode_request, "response": wire.decode_response}


def check_row(row: dict[str, Any]) -> None:
    """Raises unless the value becomes exactly the bytes, and the bytes exactly the value."""
    kind, payload = row["kind"], bytes.fromhex(row["hex"])
    message = _message(kind, row["name"], row["value"])
    encoder: Any = _ENCODERS[kind]
    expect("the encoding", encoder(message).hex(), payload.hex())
    decoded = _DECODERS[kind](payload)
    expect("the name", type(decoded).__name__, row["name"])
    expect("the value", msgspec.to_builtins(decoded), row["value"])


def _message(kind: str, name: str, value: Any) -> Any:
    members = {member.__name__: member for member in typing.get_args(_UNIONS[kind])}
    return _value(members[name], value)


def _value(annotation: Any, value: Any) -> Any:
    """A JSON value as the type that an annotation of ``wire`` describes."""
    if value is None or typing.get_origin(annotation) is typing.Annotated:
        return value
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is tuple:
        return tuple(_value(arguments[0], item) for item in value)
    if arguments:
        return _alternative(arguments, value)
    if issubclass(annotation, enum.Enum):
        return annotation(value)
    return _record(annotation, value) if issubclass(annotation, msgspec.Struct) else value


def _alternative(members: tuple[Any, ...], value: Any) -> Any:
    """A value that may be absent, or a variant, which is an object of one key."""
    structs = [member for member in members if isinstance(member, type) and issubclass(member, msgspec.Struct)]
    variants = {struct.__name__: struct for struct in structs}
    return _value(variants[next(iter(value))] if variants else members[0], value)


def _record(record: type[msgspec.Struct], value: dict[str, Any]) -> msgspec.Struct:
    fields = msgspec.structs.fields(record)
    expect("the fields", sorted(value), sorted(field.encode_name for field in fields))
    return record(**{field.name: _value(field.type, value[field.encode_name]) for field in fields})
