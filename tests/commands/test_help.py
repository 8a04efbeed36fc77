"""Both programs: help everywhere, usage errors, one JSON value on stdout (spec 4; field report 23)."""

from importlib import import_module

import pytest

from ctxfs.version import version
from mountctl.cli import Command, parser_of
from mountctl.ctx import PROGRAM as CTX
from mountctl.main import PROGRAM as MOUNTCTL
from mountctl.reference import leaves
from tests.commands.running import run_program

PROGRAMS = {"ctx": CTX, "mountctl": MOUNTCTL}
MODULES = {"ctx": "mountctl.ctx", "mountctl": "mountctl.main"}


ALL = [leaf for name, program in PROGRAMS.items() for leaf in leaves((name,), program)]


@pytest.mark.parametrize(("words", "command"), ALL, ids=[" ".join(words) for words, _ in ALL])
def test_every_command_explains_itself_and_all_its_options(words: tuple[str, ...], command: Command) -> None:
    parser = parser_of(list(words), import_module(command.module))
    text = parser.format_help()
    assert text.startswith(f"usage: {' '.join(words)}")
    assert parser.description and command.help
    assert all(action.help or not action.option_strings for action in parser._actions)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("arguments", "code", "stream"),
    [
        (("--help",), 0, "out"),
        ((), 2, "err"),
        (("nonsense",), 2, "err"),
        (("status", "--nonsense"), 2, "err"),
        (("status", "--help"), 0, "out"),
        (("--version",), 0, "out"),
        (("status", "--version"), 2, "err"),
        (("status", "--js"), 2, "err"),
    ],
)
def test_usage(program: str, arguments: tuple[str, ...], code: int, stream: str) -> None:
    ran = run_program(MODULES[program], *arguments, environment={"PATH": "/usr/bin:/bin"})
    assert ran.code == code
    assert bool(ran.out) == (stream == "out") and bool(ran.err) == (stream == "err")


def test_a_group_lists_its_commands() -> None:
    ran = run_program("mountctl.ctx", "agent", "session", "--help", environment={})
    assert [line.split()[0] for line in ran.out.splitlines() if line.startswith("  ")] == [
        "list",
        "new",
        "select",
        "branch",
        "compact",
        "checkpoint",
        "rewind",
        "archive",
        "gc",
        "import",
        "export",
    ]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_says_which_version_it_is(program: str) -> None:
    assert run_program(MODULES[program], "--version", environment={}).out == f"{program} {version()}\n"
