"""The configuration: every setting, its default and where its value comes from, in one place (spec 4.6).

``/etc/ctxfs/config.toml`` < the user's file < environment ``CTXFS_*`` < options of the command. A key that is not in
``SETTINGS`` is an error that names file and line, so a typo never means the default. Beside those settings a file may
define marks (spec 2.3): a table ``[marks."NAME"]`` of its keys and their types, each a setting ``marks.NAME`` here.
"""

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from backend.errors import CtxError, InvalidValue, SessionError
from backend.marks import FieldType, Marks
from backend.names import is_stable_path
from ctxfs import logs, stores
from ctxfs.agents.settings import Settings
from ctxfs.options import parse_options

SYSTEM_FILE = Path("/etc/ctxfs/config.toml")
ENVIRONMENT_PREFIX = "CTXFS_"
OPTION = "option"
MAX_FILE_BYTES = 1 << 20
MAX_NUMBER = (1 << 63) - 1
MAX_SECONDS = 1_000_000_000
_AGENTS = Settings()
_MARKS = "marks."
_TYPES = ", ".join(get_args(FieldType))

Schema = Mapping[str, FieldType]


class ConfigError(CtxError):
    """A setting that is unknown or cannot be so; the message begins with where it stands."""


class OptionError(ConfigError):
    """An option's value that cannot be so."""

    exit_code = 2


class Setting(NamedTuple):
    """One setting: its default for this caller, how a value is checked, and what it is for."""

    key: str
    default: Callable[[Mapping[str, str]], str | int]
    check: Callable[[Any], str | int]
    help: str


class Value(NamedTuple):
    """A setting's value and where it comes from: ``default``, ``FILE:LINE``, ``environment NAME`` or ``option``."""

    value: str | int | Schema
    origin: str


class Config(NamedTuple):
    """The effective configuration; ``values`` has every key of ``SETTINGS``, and ``marks.NAME`` of each mark."""

    values: Mapping[str, Value]

    @property
    def mountpoint(self) -> str:
        return str(self.values["mountpoint"].value)

    @property
    def store(self) -> Path:
        return Path(str(self.values["store"].value))

    @property
    def format(self) -> stores.Format | None:
        """The format asked for, None for what the store is."""
        return next((form for form in stores.FORMATS if form == self.values["format"].value), None)

    @property
    def options(self) -> str:
        return str(self.values["options"].value)

    @property
    def runtime_dir(self) -> Path:
        return Path(str(self.values["runtime_dir"].value))

    @property
    def log_level(self) -> str:
        return str(self.values["log_level"].value)

    @property
    def metrics(self) -> Path | None:
        """Where figures are published, if anywhere."""
        path = str(self.values["metrics"].value)
        return Path(path) if path else None

    @property
    def agents(self) -> Settings:
        """What agents get."""
        return Settings(
            str(self.values["agent_home"].value),
            str(self.values["agent_path"].value),
            str(self.values["agent_lang"].value),
            int(str(self.values["agent_timeout"].value)),
            int(str(self.values["agent_output"].value)),
        )

    @property
    def umount_timeout(self) -> int:
        """In seconds."""
        return int(str(self.values["umount_timeout"].value))

    @property
    def marks(self) -> Mapping[str, Schema]:
        """The marks that are defined, by name."""
        return {
            key.removeprefix(_MARKS): value.value
            for key, value in self.values.items()
            if isinstance(value.value, Mapping)
        }


def user_file(environment: Mapping[str, str]) -> Path:
    """The caller's own configuration file."""
    return _xdg(environment, "XDG_CONFIG_HOME", ".config") / "ctxfs/config.toml"


def runtime_directories(uid: int) -> Sequence[Path]:
    """Where a daemon of that uid keeps its runtime files, unless configured otherwise: now, or when it was started.

    One that was started at boot had no /run/user/UID: a login makes that.
    """
    if uid == 0:
        return [Path("/run/ctxfs")]
    login, always = Path(f"/run/user/{uid}"), Path(f"/tmp/ctxfs-{uid}")
    return [login / "ctxfs", always] if login.is_dir() else [always]


def load(options: Mapping[str, str | int | None], environment: Mapping[str, str] = os.environ) -> Config:
    """The effective configuration; an option that is None was not given (``ConfigError``)."""
    values = {setting.key: Value(setting.default(environment), "default") for setting in SETTINGS}
    for file in (SYSTEM_FILE, user_file(environment)):
        values |= _from_file(file)
    values |= _from_environment(environment)
    given = {key: value for key, value in options.items() if value is not None}
    values |= {key: _checked(key, value, OPTION) for key, value in given.items()}
    return Config(values)


def _from_file(file: Path) -> dict[str, Value]:
    try:
        text = _content(file).decode()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{file}: it is nested too deeply") from None
    except ValueError as error:  # a TOMLDecodeError, or what int() says of a number of 5000 digits
        raise ConfigError(f"{file}: {error}") from error
    marks = table.pop("marks", {})
    found = {key: _checked(key, value, f"{file}:{_line_of([key], text)}") for key, value in table.items()}
    return found | _marks_of(marks, lambda *path: f"{file}:{_line_of(['marks', *path], text)}")


def _content(file: Path) -> bytes:
    """What a file holds: at once, whatever it is, and nothing that another user may have written (``OSError``)."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as opened:
        owner = os.fstat(descriptor).st_uid
        if file != SYSTEM_FILE and owner not in (0, os.geteuid()):
            raise ConfigError(f"{file}: it belongs to uid {owner}, whose settings are not yours")
        content = opened.read(MAX_FILE_BYTES + 1) or b""  # None: a pipe whose writer says nothing
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{file}: it has more than {MAX_FILE_BYTES} bytes")
    return content


def _marks_of(table: Any, origin: Callable[..., str]) -> dict[str, Value]:
    """The marks that a file defines; ``origin`` says where a key in its table stands."""
    if not isinstance(table, dict):
        raise ConfigError(f'{origin()}: marks must be tables, as [marks."demo/seen"]')
    registry, found = Marks(), {}
    for name, schema in table.items():
        if not isinstance(schema, dict):
            raise ConfigError(f"{origin(name)}: marks.{name} must be a table of its keys and their types")
        for key, kind in schema.items():
            if kind not in get_args(FieldType):
                raise ConfigError(f"{origin(name, key)}: marks.{name}: {key} must be one of {_TYPES}, in quotes")
        try:
            registry.define(name, schema)
        except SessionError as error:
            raise ConfigError(f"{origin(name)}: {error}") from None
        found[f"{_MARKS}{name}"] = Value(schema, origin(name))
    return found


def _line_of(path: Sequence[str], text: str) -> int:
    """The line where a key stands, given the tables that it is in; tomllib does not say."""
    lines, at = text.splitlines(), 0
    for depth, part in enumerate(path):
        before = r"[\[{.,\s]" if depth else r"^\s*\[*\s*"
        pattern = re.compile(rf"""(?:^|{before})["']?{re.escape(part)}["']?\s*[=.\]]""")
        at = next((number for number in range(at, len(lines)) if pattern.search(lines[number])), at)
    return at + 1


def _from_environment(environment: Mapping[str, str]) -> dict[str, Value]:
    names = {name: value for name, value in environment.items() if name.startswith(ENVIRONMENT_PREFIX)}
    found: dict[str, Value] = {}
    for name, value in names.items():
        key = name.removeprefix(ENVIRONMENT_PREFIX).lower()
        number = value.isascii() and value.isdigit() and len(value) <= len(str(MAX_NUMBER))
        found[key] = _checked(key, int(value) if number else value, f"environment {name}")
    return found


def _checked(key: str, value: Any, origin: str) -> Value:
    setting = next((setting for setting in SETTINGS if setting.key == key), None)
    if setting is None:
        known = ", ".join(setting.key for setting in SETTINGS)
        raise ConfigError(f"{origin}: unknown setting {key!r}; known are {known}")
    try:
        return Value(setting.check(value), origin)
    except ValueError as error:
        kind = OptionError if origin == OPTION else ConfigError
        raise kind(f"{origin}: {key} {error}") from None


def _path(value: Any) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("must be a path")
    return os.path.abspath(os.path.expanduser(value))


def _path_or_nothing(value: Any) -> str:
    return "" if value == "" else _path(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")  # noqa: TRY004
    return value


def _options(value: Any) -> str:
    try:
        parse_options(_text(value))
    except InvalidValue as error:
        raise ValueError(f"cannot be so: {error}") from None
    return str(value)


def _seconds(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_SECONDS:
        raise ValueError("must be a whole number of seconds")
    return value


def _bytes(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MAX_NUMBER:
        raise ValueError("must be a number of bytes")
    return value


def _stable_path(value: Any) -> str:
    if not isinstance(value, str) or not is_stable_path(value):
        raise ValueError("must be an absolute path without empty, . or .. parts")
    return value


def _one_of(*choices: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return str(value)

    return check


def _xdg(environment: Mapping[str, str], name: str, default: str) -> Path:
    own = environment.get(name, "")
    return Path(own) if own.startswith("/") else _home(environment) / default


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HOME") or "/")


def _default_mountpoint(environment: Mapping[str, str]) -> str:
    return "/ctx" if os.geteuid() == 0 else str(_home(environment) / "ctx")


def _default_store(environment: Mapping[str, str]) -> str:
    return "/var/lib/ctxfs" if os.geteuid() == 0 else str(_xdg(environment, "XDG_DATA_HOME", ".local/share") / "ctxfs")


def _default_runtime(environment: Mapping[str, str]) -> str:
    uid, own = os.geteuid(), environment.get("XDG_RUNTIME_DIR")
    return str(Path(own) / "ctxfs" if uid and own else runtime_directories(uid)[0])


SETTINGS = (
    Setting("mountpoint", _default_mountpoint, _path, "where the tree is shown"),
    Setting("store", _default_store, _path, "the directory that holds the logs"),
    Setting("format", lambda _: "auto", _one_of("auto", *stores.FORMATS), "the store's format; auto: what it is"),
    Setting("options", lambda _: "", _options, "mount options, as after -o"),
    Setting("runtime_dir", _default_runtime, _path, "control sockets and state of running daemons"),
    Setting("log_level", lambda _: "info", _one_of(*logs.LEVELS), "the least urgent events that are logged"),
    Setting("metrics", lambda _: "", _path_or_nothing, "figures as Prometheus text: a file, or *.sock; empty: none"),
    Setting("agent_home", lambda _: _AGENTS.home, _stable_path, "HOME of agents, a path of their view"),
    Setting("agent_path", lambda _: _AGENTS.path, _text, "PATH of agents"),
    Setting("agent_lang", lambda _: _AGENTS.lang, _text, "LANG of agents"),
    Setting("agent_timeout", lambda _: _AGENTS.wall_s, _seconds, "seconds that a run may take; 0: no end"),
    Setting("agent_output", lambda _: _AGENTS.output_bytes, _bytes, "bytes that a run may print"),
    Setting("umount_timeout", lambda _: 10, _seconds, "seconds that umount waits for the daemon to end"),
)


def rows(config: Config) -> Iterator[tuple[str, str | int | Schema, str, str]]:
    """``(key, value, origin, help)`` of every setting, for ``mountctl config show``."""
    helps = {setting.key: setting.help for setting in SETTINGS}
    for key, (value, origin) in config.values.items():
        yield key, value, origin, helps.get(key, "a mark that may be written: its keys and their types")
