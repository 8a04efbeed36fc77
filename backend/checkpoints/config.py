"""The daemon's configuration file, TOML (notes 2.12). Pure but for reading it; unknown keys are ignored."""

import math
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from backend.checkpoints.times import parse_duration
from backend.checkpoints.wire import Age, Count, Retention
from backend.errors import CtxError

DEFAULT_FILE = Path("/etc/ws-ckpt/config.toml")
DEFAULT_STATE = Path("/var/lib/ws-ckpt")
DEFAULT_MOUNT = Path("/mnt/btrfs-workspace")
DEFAULT_KEEP = 20
BACKENDS = ("auto", "btrfs-base", "btrfs-loop", "reflink", "copy")

_MAX_U32 = (1 << 32) - 1
_MAX_U64 = (1 << 64) - 1


class ConfigurationError(CtxError):
    """A file that cannot be read, is no TOML, or holds a value that cannot be."""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """All settings; ``img_size`` in GB, ``img_max_percent`` 0–100, intervals in seconds."""

    auto_cleanup: bool = False
    auto_cleanup_keep: Retention = Count(DEFAULT_KEEP)
    auto_cleanup_interval_secs: int = 86400
    health_check_interval_secs: int = 300
    backend: str = "auto"
    img_size: int = 30
    img_max_percent: float = 40.0

    def with_image_of(self, running: "Configuration") -> "Configuration":
        """These settings, but the image's size and the back end, which hold from start to start."""
        return msgspec.structs.replace(
            self, backend=running.backend, img_size=running.img_size, img_max_percent=running.img_max_percent
        )


def read_configuration(file: Path) -> Configuration:
    """The file's settings, defaults for what it leaves out or if there is none (``ConfigurationError``)."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Configuration()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{file}: {error}") from error
    try:
        return _configuration(table)
    except ValueError as error:
        raise ConfigurationError(f"{file}: {error}") from None


def _configuration(table: dict[str, Any]) -> Configuration:
    default = Configuration()
    backend = _table(table, "backend")
    loop = _table(backend, "btrfs-loop")
    kind = _typed(backend, "type", str, default.backend)
    return Configuration(
        auto_cleanup=_typed(table, "auto_cleanup", bool, default.auto_cleanup),
        auto_cleanup_keep=_retention(table.get("auto_cleanup_keep", DEFAULT_KEEP)),
        auto_cleanup_interval_secs=_whole(table, "auto_cleanup_interval_secs", default.auto_cleanup_interval_secs),
        health_check_interval_secs=_whole(table, "health_check_interval_secs", default.health_check_interval_secs),
        backend=kind if kind in BACKENDS else "auto",
        img_size=_whole(loop, "img_size", default.img_size),
        img_max_percent=_percent(loop.get("img_max_percent", default.img_max_percent)),
    )


def _table(table: dict[str, Any], key: str) -> dict[str, Any]:
    found: dict[str, Any] = _typed(table, key, dict, {})
    return found


def _typed(table: dict[str, Any], key: str, kind: type, default: Any) -> Any:
    value = table.get(key, default)
    if not isinstance(value, kind):
        raise ValueError(f"{key} must be of type {kind.__name__}")  # noqa: TRY004
    return value


def _whole(table: dict[str, Any], key: str, default: int) -> int:
    value = table.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_U64:
        raise ValueError(f"{key} must be a whole number of at least 0")
    return value


def _retention(value: Any) -> Retention:
    if isinstance(value, str):
        parse_duration(value)
        return Age(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_U32:
        return Count(value)
    raise ValueError('auto_cleanup_keep must be a count, or a duration as in "30d"')


def _percent(value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not 0 <= value <= 100
    ):
        raise ValueError("img_max_percent must be a number from 0 to 100")
    return float(value)
