"""``agent/<agent>.d/`` and ``model/<provider>/<model>.d/``: what an admin defined (spec 1.2); root's to write."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from backend.errors import InvalidValue, Missing, ValueTooBig
from backend.line_rules import MAX_META
from backend.rows import OwnerKind
from ctxfs.agents.values import check_value
from ctxfs.files.directories import Caller, Found
from ctxfs.files.providers import model_removed, provider_directories
from ctxfs.files.values import MAX_VALUE, Value, ends_json
from ctxfs.inodes import Kind, Node, inode_of
from ctxfs.privacy import check_admin
from ctxfs.subjects import DefinitionSubject, Nothing, ProviderSubject

if TYPE_CHECKING:
    from ctxfs.core import Core

FILES = {
    Kind.DEFINITION_OWNER: "owner",
    Kind.DEFINITION_EXEC: "exec",
    Kind.DEFINITION_ROOT: "root",
    Kind.DEFINITION_CWD: "cwd",
    Kind.DEFINITION_MOUNT: "mount",
    Kind.DEFINITION_MODEL: "model",
    Kind.DEFINITION_META: "meta.json",
}


def find_agent_definition(core: "Core", _: Nothing, name: str, _uid: int) -> int | None:
    return _find(core, "agent", name.removesuffix(".d"))


def each_agent_definition(core: "Core", _: Nothing, after: int, _uid: int) -> Iterable[Found]:
    return [Found(n, f"{name}.d", n) for n, name, _ in sorted(core.store.definitions("agent")) if n > after]


def make_agent_definition(core: "Core", _: Nothing, name: str, caller: Caller) -> int:
    """``mkdir agent/<agent>.d`` by an admin."""
    return _make(core, "agent", name.removesuffix(".d"), caller)


def remove_agent_definition(core: "Core", _: Nothing, name: str, caller: Caller) -> None:
    """``rmdir`` by an admin: the definition goes, sessions stay."""
    check_admin(core.mounter, caller.uid)
    _remove(core, "agent", name.removesuffix(".d"))


def _models(core: "Core", _: Nothing | ProviderSubject) -> list[tuple[int, str]]:
    return [(number, name) for number, name, _ in core.store.definitions("model")]


# ``model/<provider>/``, made and removed by an admin.
PROVIDERS = provider_directories(
    place=lambda _core, _subject: None,
    models=_models,
    check=lambda core, _, caller: check_admin(core.mounter, caller.uid),
    prepare=lambda _core, _subject: None,
)


def find_model_definition(core: "Core", subject: ProviderSubject, name: str, _uid: int) -> int | None:
    return _find(core, "model", f"{subject.provider}/{name.removesuffix('.d')}")


def each_model_definition(core: "Core", subject: ProviderSubject, after: int, _uid: int) -> Iterable[Found]:
    prefix = f"{subject.provider}/"
    return [
        Found(number, f"{name.removeprefix(prefix)}.d", number)
        for number, name, _ in sorted(core.store.definitions("model"))
        if name.startswith(prefix) and number > after
    ]


def make_model_definition(core: "Core", subject: ProviderSubject, name: str, caller: Caller) -> int:
    """``mkdir model/<provider>/<model>.d`` by an admin."""
    return _make(core, "model", f"{subject.provider}/{name.removesuffix('.d')}", caller)


def remove_model_definition(core: "Core", subject: ProviderSubject, name: str, caller: Caller) -> None:
    """``rmdir`` by an admin."""
    check_admin(core.mounter, caller.uid)
    _remove(core, "model", f"{subject.provider}/{name.removesuffix('.d')}")
    model_removed(core, Node(Kind.MODELS, 1), subject, _models(core, subject))


def _find(core: "Core", kind: OwnerKind, name: str) -> int | None:
    for number, known, _ in core.store.definitions(kind):
        if known == name:
            return number
    return None


def _make(core: "Core", kind: OwnerKind, name: str, caller: Caller) -> int:
    check_admin(core.mounter, caller.uid)
    number = core.store.add_definition(kind, name)
    core.definitions.changed()
    return number


def _remove(core: "Core", kind: OwnerKind, name: str) -> None:
    number = _find(core, kind, name)
    if number is None:
        raise Missing(f"no {kind} {name!r}")
    core.store.remove_definition(number)
    core.definitions.changed()


def shown(core: "Core", subject: DefinitionSubject, file: str) -> bytes:
    """A value as it was written; empty while it never was."""
    value = core.store.definition_value(subject.id, file)
    return b"" if value is None else value[0]


def changed_at(core: "Core", subject: DefinitionSubject, file: str) -> int:
    """The mtime of a value, ns."""
    value = core.store.definition_value(subject.id, file)
    return core.subjects.started_ns if value is None else value[1]


def value(kind: Kind) -> Value:
    """The rule of one file of a definition; a newline alone takes its value back."""

    async def put(core: "Core", number: int, content: bytes, uid: int) -> None:
        check_admin(core.mounter, uid)
        text = _decoded(content)
        try:
            check_value(FILES[kind], text)
        except InvalidValue as error:
            raise InvalidValue(f"{FILES[kind]}: {error}") from None
        core.store.set_definition_value(number, FILES[kind], f"{text}\n".encode() if text else b"")
        core.kernel.attributes_changed(inode_of(Node(kind, number)))
        await core.definitions.followed()

    if kind is Kind.DEFINITION_MOUNT:
        # A table of many lines is whole when its writer closes.
        return Value(MAX_META, put, lambda _: False, ValueTooBig)
    if kind in (Kind.DEFINITION_META, Kind.DEFINITION_EXEC):
        return Value(MAX_META, put, ends_json, ValueTooBig)
    return Value(MAX_VALUE, put)


def _decoded(content: bytes) -> str:
    try:
        return content.decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise InvalidValue("a value is UTF-8") from None
