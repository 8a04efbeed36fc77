"""What the files of a definition may hold (spec 1.2): the mount's own rules, which commands judge by too. Pure."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from backend.errors import InvalidValue
from backend.names import is_model_name, is_stable_path, is_uid
from backend.strict_json import strict_document
from ctxfs.agents.mount_table import parse_table


class Rule(NamedTuple):
    """``check`` raises ``InvalidValue``, or returns whether a text is a value; ``wanted`` is what it has to be."""

    check: Callable[[str], object]
    wanted: str


def check_value(file: str, text: str) -> None:
    """``InvalidValue``, which says why: the file of a definition cannot hold that. An empty text takes a value back."""
    rule = RULES[file]
    if text and not rule.check(text):
        raise InvalidValue(f"it has to be {rule.wanted}")


def _is_argv(text: str) -> bool:
    try:
        argv = msgspec.json.decode(text.encode(), type=list[str])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return bool(argv) and all("\0" not in part for part in argv)


def _object(text: str) -> bool:
    strict_document(text.encode())
    return True


def _mount_table(text: str) -> bool:
    parse_table(text)
    return True


_PATH = Rule(is_stable_path, "a path from / without empty, . or .. parts (spec 1.6)")
RULES: Mapping[str, Rule] = {
    "owner": Rule(is_uid, "a uid"),
    "exec": Rule(_is_argv, "one argv, a JSON array of strings"),
    "root": _PATH,
    "cwd": _PATH,
    "mount": Rule(_mount_table, "lines of source TAB target TAB ro|rw TAB options"),
    "model": Rule(is_model_name, "a model's name"),
    "meta.json": Rule(_object, "one JSON object"),
}
