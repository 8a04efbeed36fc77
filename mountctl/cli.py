"""What both programs share: finding the command, its options and help, exit codes, errors on stderr (spec 4).

A program is a table of names → module, or a table of its own (``agent``, ``session``). Only the module of the command
that is called is imported, and a module may offer ``quick(arguments)`` to answer its plainest form without argparse,
so this module imports next to nothing.
"""

from __future__ import annotations

import errno
import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from types import ModuleType

OK, ERROR, USAGE, DENIED, UNAVAILABLE, INTERNAL = 0, 1, 2, 13, 69, 70
# Of errors of the operating system; ENOTCONN: a mount whose daemon is gone.
_EXIT_CODES = {errno.EACCES: DENIED, errno.EPERM: DENIED, errno.ENOTCONN: UNAVAILABLE}
_ADVICE = {errno.ENOTCONN: ": the daemon is gone, `mountctl mount` cleans up and mounts again"}
INTERRUPTED = 130


class Command:
    """A leaf of a program's table: the module that has ``DESCRIPTION``, ``add_arguments`` and ``run``."""

    __slots__ = ("help", "module")

    def __init__(self, module: str, help: str) -> None:
        self.module = module
        self.help = help


class Group:
    """A named set of commands."""

    __slots__ = ("commands", "help")

    def __init__(self, help: str, commands: Mapping[str, Command | Group]) -> None:
        self.help = help
        self.commands = commands


class Failure(Exception):
    """Ends a command: a message for stderr and an exit code (spec 4)."""

    def __init__(self, message: str, exit_code: int = ERROR) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run(program: str, root: Group, arguments: Sequence[str]) -> int:
    """Runs one command line; whatever happens becomes an exit code and at most one line on stderr."""
    open_standard_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character gets its escape
    try:
        return _printed(program, root, list(arguments))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return ERROR
    except Exception as error:
        return complain(program, *explained(error))


def _printed(program: str, root: Group, arguments: list[str]) -> int:
    """The exit code of a command line whose output is all written."""
    try:
        code = _dispatch(program, root, arguments)
    except SystemExit as stop:  # argparse's help
        code = stop.code if isinstance(stop.code, int) else ERROR
    sys.stdout.flush()
    return code


def _drop_output() -> None:
    """What cannot be written would be tried again when the interpreter ends, which would change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def open_standard_streams() -> None:
    """Opens what the caller closed of stdin, stdout and stderr: the next file would get that number, and our output."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, mode, encoding="utf-8"))  # noqa: SIM115  (stays open)


def complain(program: str, message: str, exit_code: int) -> int:
    """Prints an error the way both programs do; what it quotes cannot steer the terminal."""
    from mountctl.text import escaped

    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    print(f"{program}: {escaped(message)}", file=sys.stderr)
    return exit_code


def explained(error: Exception) -> tuple[str, int]:
    """What is said of an error, and the exit code that it has."""
    from backend.errors import CtxError

    if isinstance(error, (CtxError, Failure)):
        return str(error), error.exit_code
    if isinstance(error, OSError):
        where = f"{error.filename}: " if isinstance(error.filename, str) else ""
        advice = _ADVICE.get(error.errno or 0, "")
        return f"{where}{error.strerror or error}{advice}", _EXIT_CODES.get(error.errno or 0, ERROR)
    if os.environ.get("CTX_TRACEBACK"):
        raise error
    return f"internal error: {error!r} (CTX_TRACEBACK=1 shows where)", INTERNAL


def _dispatch(program: str, group: Group, arguments: list[str]) -> int:
    words = [program]
    while True:
        if not arguments:
            print(overview(words, group), file=sys.stderr)
            return USAGE
        word = arguments.pop(0)
        if word in ("-h", "--help"):
            print(overview(words, group))
            return OK
        if word == "--version" and words == [program]:
            from ctxfs.version import version

            print(f"{program} {version()}")
            return OK
        found = group.commands.get(word)
        if found is None:
            raise Failure(f"unknown command {' '.join([*words[1:], word])!r}: see `{' '.join(words)} --help`", USAGE)
        words.append(word)
        if isinstance(found, Command):
            return _call(words, _module(found), arguments)
        group = found


def _module(command: Command) -> ModuleType:
    return __import__(command.module, fromlist=("run",))


def _call(words: list[str], module: ModuleType, arguments: list[str]) -> int:
    quick = getattr(module, "quick", None)
    if quick is not None and (code := quick(arguments)) is not None:
        return int(code)
    # Intermixed: options stand anywhere, also before an argument that may be left out.
    parsed = parser_of(words, module).parse_intermixed_args(arguments)
    return int(module.run(parsed))


def parser_of(words: list[str], module: ModuleType) -> argparse.ArgumentParser:
    """The options of one command; abbreviations are off, so that a typo is never taken for another option."""
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> None:  # type: ignore[override]
            raise Failure(f"{message}: see `{self.prog} --help`", USAGE)

    parser = Parser(prog=" ".join(words), description=module.DESCRIPTION, allow_abbrev=False)
    module.add_arguments(parser)
    return parser


def overview(words: list[str], group: Group) -> str:
    """The help of a group: one line a command."""
    width = max(map(len, group.commands))
    rows = [f"  {name:<{width}}  {_as_row(entry.help)}" for name, entry in group.commands.items()]
    title = " ".join(words)
    more = [f"`{title} COMMAND --help` says more."]
    if len(words) == 1:
        more.append(f"`{title} --version` says which one this is.")
    return "\n".join([f"usage: {title} COMMAND …", "", group.help, "", *rows, "", *more])


def _as_row(sentence: str) -> str:
    """A group's sentence as the commands beside it are described."""
    return f"{sentence[0].lower()}{sentence[1:].removesuffix('.')}"
