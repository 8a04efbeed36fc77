"""The ``[session]`` settings of cosh-core's three configuration layers (spec 5).

A layer that cannot be read is passed over, with a warning to whoever asks for it; the next one still counts. A
workspace's layer comes with whatever was cloned or unpacked there, so nothing in it may take long.
"""

from __future__ import annotations

import os
import stat
from types import SimpleNamespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_PERSIST_DIR = "~/.copilot-shell/cosh-core/sessions"
SYSTEM_LAYER = "/etc/copilot-shell/config.toml"

_LAYER = ".copilot-shell/config.toml"
_MAX_LAYER = 1 << 20
# A key of 64 parts: the time that tomllib takes for a key grows with the square of their number, up to minutes.
_LONG_KEY = r"""(?<![\w-])(?>(?>[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*+\.[ \t]*+){64}"""


class Settings(SimpleNamespace):
    """What cosh-core is configured to do with sessions."""

    auto_persist: bool = True
    persist_dir: str = DEFAULT_PERSIST_DIR
    warnings: tuple[str, ...] = ()


def settings_for(workspace: str) -> Settings:
    """System < home < workspace; ``workspace`` as the client sent it."""
    found, warnings = dict[str, "Any"](), list[str]()
    for path in (SYSTEM_LAYER, os.path.expanduser(f"~/{_LAYER}"), os.path.join(workspace, _LAYER)):
        try:
            found |= _layer(path)
        except (OSError, ValueError) as error:
            warnings.append(f"{path}: {error}")
    return Settings(**found, warnings=tuple(warnings))


def _layer(path: str) -> dict[str, Any]:
    text = _text(path)
    if text is None:
        return {}
    import re
    import tomllib

    if re.search(_LONG_KEY, text):
        raise ValueError("a key has too many parts")
    try:
        section = tomllib.loads(text).get("session", {})
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(section, dict):
        raise ValueError("session is no table")  # noqa: TRY004 - as whatever else is wrong with a layer
    wanted: dict[str, type] = {"auto_persist": bool, "persist_dir": str}
    values = {key: section[key] for key in wanted if key in section}
    for key, value in values.items():
        if type(value) is not wanted[key]:
            raise ValueError(f"session.{key} must be a {wanted[key].__name__}")
    if "\0" in values.get("persist_dir", ""):
        raise ValueError("session.persist_dir holds a NUL")
    return values


def _text(path: str) -> str | None:
    """The text of a regular file, None where there is none; a FIFO in its place blocks nobody."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_LAYER:
            raise ValueError("not a file of at most 1 MiB")
        return file.read(_MAX_LAYER).decode()
