"""Man pages, completions and the configuration reference say what the code says, today."""

import subprocess
from importlib import import_module

import pytest

from ctxfs.config import SETTINGS
from ctxfs.inodes import Kind
from mountctl.cli import Command, parser_of
from mountctl.reference import PROGRAMS, PROJECT, generated, leaves
from mountctl.reference_files import ABOUT

ALL = [leaf for program, (table, _) in PROGRAMS.items() for leaf in leaves((program,), table)]
GENERATED = generated()


@pytest.mark.parametrize("path", sorted(GENERATED))
def test_what_is_committed_is_what_the_code_says(path: str) -> None:
    assert (PROJECT / path).read_text(encoding="utf-8") == GENERATED[path], "run `./run docs`"


def test_nothing_else_is_there() -> None:
    share = PROJECT / "mountctl/share"
    found = {str(path.relative_to(PROJECT)) for part in ("man", "completions") for path in (share / part).rglob("*.*")}
    assert found <= set(GENERATED)


@pytest.mark.parametrize(("words", "command"), ALL, ids=[" ".join(words) for words, _ in ALL])
def test_a_page_explains_every_option_of_its_command(words: tuple[str, ...], command: Command) -> None:
    section = PROGRAMS[words[0]][1]
    page = GENERATED[f"mountctl/share/man/{'-'.join(words)}.{section}"].replace("\\-", "-")
    parser = parser_of(list(words), import_module(command.module))
    options = [option for action in parser._actions for option in action.option_strings if action.dest != "help"]
    assert page.startswith(f'.TH {"-".join(words).upper()} "{section}"')
    assert [option for option in options if option not in page] == []


def test_the_configuration_reference_has_every_setting() -> None:
    text = GENERATED["docs/configuration.md"]
    assert [setting.key for setting in SETTINGS if f"| `{setting.key}` |" not in text] == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ctx agent hist", ["history"]),
        ("ctx agent session s", ["select"]),
        ("mountctl mount --st", ["--store"]),
        ("mountctl umount --l", ["--lazy"]),
    ],
)
def test_bash_completes(line: str, expected: list[str]) -> None:
    program, *words = line.split()
    script = f"""
        source {PROJECT}/mountctl/share/completions/bash/{program}
        COMP_WORDS=({line}); COMP_CWORD={len(words)}; COMP_LINE='{line}'; COMP_POINT={len(line)}
        _shtab_{program}; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == expected


def test_the_reference_of_files_has_every_kind_that_has_a_name() -> None:
    rows = GENERATED["docs/files.md"].count("\n| `")
    assert set(ABOUT) == set(Kind) - {Kind.TEMPORARY}
    assert rows > len(ABOUT)
