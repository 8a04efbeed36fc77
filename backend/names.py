"""Names and paths: what may be called what (spec 1.1), stable paths (1.6), cwd keys (1.2).

Pure functions over ``str``; nothing here looks at a disk. The quickest commands judge names too: nothing is imported.
"""

_DIGITS = frozenset("0123456789")
_FIRST = _DIGITS | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_REST = _FIRST | frozenset("._+-")
_CONTROL = frozenset(map(chr, (*range(0x20), 0x7F)))
_AS_ZERO = bytes.maketrans(b"123456789abcdef", b"0" * 15)
_NIL_UUID = b"00000000-0000-0000-0000-000000000000"

MAX_NAME = 64
MAX_UID = 4294967294
_KEPT_OF_PARENT = 55
RESERVED_AGENTS = frozenset(("ctx", "model"))

_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3


def is_name(text: str) -> bool:
    """A session, agent, shared-space, run, client or index-key name (spec 1.1)."""
    return (
        0 < len(text) <= MAX_NAME
        and text[0] in _FIRST
        and _REST.issuperset(text)
        and not text.endswith((".sock", ".d"))
    )


def is_session_name(text: str) -> bool:
    """A name that a session may have: ``index`` is taken (spec 1.1)."""
    return text != "index" and is_name(text)


def child_name(parent: str, key: str) -> str:
    """What a child of a session is called by default: ``<name cut to 55 bytes>+<8 hex>`` (spec 2.8)."""
    return f"{parent[:_KEPT_OF_PARENT]}+{key}"


def is_agent_name(text: str) -> bool:
    """A name that an agent may have (spec 1.1)."""
    return text not in RESERVED_AGENTS and is_name(text)


def is_agent_definition_name(text: str) -> bool:
    """``<agent>.d`` (spec 1.2)."""
    return text.endswith(".d") and is_agent_name(text.removesuffix(".d"))


def is_model_directory_name(text: str) -> bool:
    """``<model>.d`` (spec 1.2)."""
    return text.endswith(".d") and is_name(text.removesuffix(".d"))


def is_archive_directory_name(text: str) -> bool:
    """What a directory below archived_sessions/ may be called: an agent's name, or ``<model>.d`` (spec 1.2)."""
    return is_name(text.removesuffix(".d"))


def is_model_name(text: str) -> bool:
    """``model`` or ``provider/model`` (spec 1.1)."""
    parts = text.split("/")
    return len(parts) <= 2 and all(is_name(part) for part in parts)


def is_owner_name(text: str) -> bool:
    """What commands and ``agent/ctx.sock`` call an agent or a model: ``agent``, ``model:[provider/]model``."""
    model = text.removeprefix("model:")
    return is_agent_name(text) if model == text else is_model_name(model)


def is_uid(text: str) -> bool:
    """A decimal uid without leading zeros, 0–4294967294 (spec 1.1)."""
    is_number = 0 < len(text) <= len(str(MAX_UID)) and _DIGITS.issuperset(text)
    return is_number and (text == "0" or text[0] != "0") and int(text) <= MAX_UID


def is_uuid(text: str) -> bool:
    """A lowercase canonical UUID (spec 1.2): with every digit made 0 it is the nil one."""
    return len(text) == len(_NIL_UUID) and text.isascii() and text.encode().translate(_AS_ZERO) == _NIL_UUID


def is_stable_path(text: str) -> bool:
    """An absolute path without control bytes, ``.``, ``..``, empty parts or a trailing slash (spec 1.6)."""
    if not text.startswith("/") or not _CONTROL.isdisjoint(text):
        return False
    return text == "/" or all(part not in ("", ".", "..") for part in text[1:].split("/"))


def cwd_key(cwd: str) -> str:
    """The name of a cwd in index/by-cwd: ``cwd-`` and the FNV-1a 64 of its UTF-8 bytes (spec 1.2)."""
    value = _FNV_OFFSET
    for byte in cwd.encode():
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return f"cwd-{value:016x}"
