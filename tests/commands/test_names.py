"""A name that nothing can have is a usage error of every command, before anything else is looked at (spec 1.1, 4)."""

import argparse
import io
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from mountctl.cli import Command, parser_of, run
from mountctl.ctx import PROGRAM
from mountctl.reference import leaves

BAD = ("", ".", "..", "a/b", "/etc", "a b", "a\nb", "é", "\udce9", "a\x1b[2J", "x" * 65, ".x", "x.sock", "x.d")
BAD_AGENTS = (*BAD, "ctx", "model", "model:", "model:a/b/c", "model:a b/c")
SESSIONS = ("session", "name", "keep", "expected")
KINDS = {"agent": ("agent", BAD_AGENTS), "space": ("space", BAD)} | dict.fromkeys(
    SESSIONS, ("session", (*BAD, "index"))
)


def places() -> Iterator[tuple[tuple[str, ...], Command, str]]:
    """Every place of every command that a name may stand in: its ``dest``."""
    for words, command in leaves(("ctx",), PROGRAM):
        for action in parser_of(list(words), import_module(command.module))._actions:
            if action.dest in KINDS and words[1] in ("agent", "search", "doctor"):
                yield words, command, action.dest


def call(words: tuple[str, ...], command: Command, place: str, name: str) -> list[str]:
    """A call of a command in which ``name`` stands there, and good names elsewhere."""
    options, positionals = [], []
    for action in parser_of(list(words), import_module(command.module))._actions:
        value = name if action.dest == place else _good(action)
        if not action.option_strings:
            positionals.append(value)
        elif action.required or action.dest == place:
            options.append(f"{action.option_strings[-1]}={value}")
    return [*words[1:], *options, *positionals]


def _good(action: argparse.Action) -> str:
    return next(iter(action.choices)) if action.choices else "0" if action.dest == "at" else "good"


CALLS = list(places())


@pytest.mark.parametrize(("words", "command", "place"), CALLS, ids=[f"{' '.join(w)} {p}" for w, _, p in CALLS])
def test_a_name_that_nothing_can_have_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: tuple[str, ...],
    command: Command,
    place: str,
) -> None:
    monkeypatch.setenv("CTX_ROOT", str(tmp_path))
    monkeypatch.delenv("CTX_HOME", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    kind, bad = KINDS[place]
    for name in bad:
        code = run("ctx", PROGRAM, call(words, command, place, name))
        out, err = capsys.readouterr()
        assert (code, out, err.count("\n")) == (2, "", 1), name
        assert err.startswith(f"ctx: invalid {kind} name: ") and "\x1b" not in err, name
    assert list(tmp_path.iterdir()) == []


def test_the_places_are_all_there() -> None:
    assert len(CALLS) > 55
    assert {place for _, _, place in CALLS} == set(KINDS)


NOWHERE = [
    *("status", "agent list", "agent history a", "agent output a", "agent session list a", "agent session new a s"),
    *("agent session select a s", "agent session gc a", "agent send echo x", "agent tree a", "search x", "doctor"),
    "agent import a --from jsonl /dev/null",
]


@pytest.mark.parametrize("words", NOWHERE)
@pytest.mark.parametrize("where", ["CTX_ROOT", "CTX_HOME", "--space"])
def test_where_there_is_no_mount_every_command_is_not_available(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, words: str, where: str
) -> None:
    monkeypatch.setenv("CTX_ROOT", str(tmp_path))
    monkeypatch.delenv("CTX_HOME", raising=False)
    if where == "CTX_HOME":
        monkeypatch.setenv("CTX_HOME", str(tmp_path / "home"))
    space = ["--space=s"] if where == "--space" and words != "status" else []
    assert run("ctx", PROGRAM, [*words.split(), *space]) == 69
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("ctx: no ") and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
