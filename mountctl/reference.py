"""What the tables of commands and settings say, for readers: man pages, completions, the configuration reference,
the reference of files.

Development only: no command imports this. What it makes is committed below ``mountctl/share`` and ``docs`` (``./run
docs`` writes it, a test keeps it fresh), so that an installed program needs neither shtab nor argparse-manpage.
"""

import argparse
import re
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage  # type: ignore[import-untyped]

from ctxfs.config import SETTINGS
from mountctl import reference_files
from mountctl.cli import Command, Group, parser_of
from mountctl.ctx import PROGRAM as CTX
from mountctl.main import PROGRAM as MOUNTCTL

PROJECT = Path(__file__).resolve().parent.parent
PROGRAMS: Mapping[str, tuple[Group, int]] = {"ctx": (CTX, 1), "mountctl": (MOUNTCTL, 8)}
"""Each program's table and the section of the manual it belongs to."""
COMPLETIONS = {"bash": "bash/{}", "zsh": "zsh/_{}", "fish": "fish/{}.fish"}

_DATE = "ctxfs"  # a page that bore the day it was made on would never be fresh
_WIDTH = 100
_MANUAL = {1: "User Commands", 8: "System Administration"}


def generated() -> dict[str, str]:
    """Every generated file: its path in the project and its text."""
    files = {"docs/configuration.md": configuration(), "docs/files.md": reference_files.files()}
    for program, (table, section) in PROGRAMS.items():
        files[f"mountctl/share/man/{program}.{section}"] = group_page(program, table, section)
        for words, command in leaves((program,), table):
            files[f"mountctl/share/man/{'-'.join(words)}.{section}"] = command_page(words, command, section)
        for shell, place in COMPLETIONS.items():
            files[f"mountctl/share/completions/{place.format(program)}"] = completion(program, table, shell)
    return files


def leaves(words: tuple[str, ...], group: Group) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Every command of a table with all its words, the program's name first."""
    for name, entry in group.commands.items():
        if isinstance(entry, Command):
            yield (*words, name), entry
        else:
            yield from leaves((*words, name), entry)


def command_page(words: tuple[str, ...], command: Command, section: int) -> str:
    """The man page of one command, as groff."""
    parser = parser_of(list(words), import_module(command.module))
    parser.formatter_class = partial(argparse.HelpFormatter, width=_WIDTH)  # not as wide as this terminal
    page = Manpage(
        parser,
        {
            "date": _DATE,
            "description": command.help,
            "manual_section": str(section),
            "manual_title": _MANUAL[section],
            "project_name": "ctxfs",
        },
    )
    name = "-".join(words)
    text = re.sub(r'^\.TH [^"]*"', f'.TH {name.upper()} "', str(page), count=1)
    text = re.sub(r"(?m)^(\.SH NAME\n).* \\?- ", lambda found: f"{found[1]}{_roff(name)} \\- ", text, count=1)
    return f"{text.rstrip()}\n.SH SEE ALSO\n.BR {_roff(words[0])} ({section})\n"


def group_page(program: str, table: Group, section: int) -> str:
    """The man page of a program: its commands, and where each is explained."""
    title = f'.TH {program.upper()} "{section}" "{_DATE}" "ctxfs" "{_MANUAL[section]}"'
    name = f".SH NAME\n{program} \\- {_roff(table.help)}"
    synopsis = f".SH SYNOPSIS\n.B {program}\n.I COMMAND\n…"
    rows = [
        f".TP\n.B {_roff(' '.join(words))}\n{_roff(command.help)}; see\n.BR {_roff('-'.join(words))} ({section})"
        for words, command in leaves((program,), table)
    ]
    return "\n".join([title, name, synopsis, ".SH COMMANDS", *rows, ""])


def _roff(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")


def completion(program: str, table: Group, shell: str) -> str:
    """A completion script for ``bash``, ``zsh`` or ``fish``."""
    parser = argparse.ArgumentParser(prog=program, description=table.help)
    _grow(parser, table)
    return f"{shtab.complete(parser, shell=shell).rstrip()}\n"


def _grow(parser: argparse.ArgumentParser, group: Group) -> None:
    """Gives ``parser`` a sub-parser for each command of ``group``."""
    children = parser.add_subparsers(metavar="COMMAND")
    for name, entry in group.commands.items():
        child = children.add_parser(name, help=entry.help, description=entry.help)
        if isinstance(entry, Command):
            import_module(entry.module).add_arguments(child)
            for action in child._actions:
                _complete_paths(action)
        else:
            _grow(child, entry)


_PATHS = {"DIR": shtab.DIRECTORY, "MOUNTPOINT": shtab.DIRECTORY, "PATH": shtab.FILE, "FILE": shtab.FILE}


def _complete_paths(action: argparse.Action) -> None:
    if isinstance(action.metavar, str) and action.metavar in _PATHS:
        action.complete = _PATHS[action.metavar]  # type: ignore[attr-defined]


def configuration() -> str:
    """docs/configuration.md."""
    defaults = {"HOME": "~"}
    rows = [f"| `{one.key}` | {_default(one.default(defaults))} | {one.help} |" for one in SETTINGS]
    return "\n".join([_CONFIGURATION, "| setting | default, as root | what it is |", "| --- | --- | --- |", *rows, ""])


def _default(value: str | int) -> str:
    return "" if value == "" else f"`{value}`"


_CONFIGURATION = """# Configuration

<!-- written by `./run docs` from ctxfs/config.py -->

`/etc/ctxfs/config.toml` < `$XDG_CONFIG_HOME/ctxfs/config.toml` < the environment (`CTXFS_MOUNTPOINT` and so on: the
setting in capitals) < the options of a command. A key that is none of these is an error that names file and line; only
marks may stand beside them, each a table of its keys and their types: `[marks."demo/seen"]`, `page = "number"`.
`mountctl config show` prints what holds and where it comes from, `mountctl config check` checks the files.
"""


def write(project: Path) -> None:
    """Writes all of it, and removes what is made no longer."""
    share = project / "mountctl/share"
    files = {project / path: text for path, text in generated().items()}
    for directory in ("man", "completions"):
        for stale in (share / directory).rglob("*"):
            if stale.is_file() and stale not in files:
                stale.unlink()
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(PROJECT)
