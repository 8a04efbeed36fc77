"""The options that ``ctx agent`` commands share (spec 4)."""

import argparse

from backend.names import MAX_NAME, is_name, is_stable_path

STATES = ("active", "idle", "done", "error")

_MAX_DIGITS = 18


def add_agent(parser: argparse.ArgumentParser) -> None:
    """AGENT and ``--space``."""
    parser.add_argument("agent", metavar="AGENT", help="an agent, or model:PROVIDER/MODEL")
    add_space(parser)


def add_space(parser: argparse.ArgumentParser) -> None:
    """``--space``."""
    parser.add_argument("--space", metavar="NAME", help="a shared space; default: the caller's home")


def add_session(parser: argparse.ArgumentParser) -> None:
    """AGENT, ``--space`` and ``--session``."""
    add_agent(parser)
    parser.add_argument("-s", "--session", metavar="S", help="default: the current session")


def add_archive_dir(parser: argparse.ArgumentParser) -> None:
    """``--archive-dir``, which ``mountctl.archiving`` judges."""
    text = "an absolute path below the space's archived_sessions/; default: that itself"
    parser.add_argument("--archive-dir", metavar="ABS", help=text)


def natural(text: str) -> int:
    """An option's number of at least 0: decimal digits and nothing else."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 0")
    return int(text)


def named(text: str) -> str:
    """An option's name or path that is one: what a variable was to hold is not its default."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty")
    return text


def stable_path(text: str) -> str:
    """An option's working directory (spec 1.6)."""
    if not is_stable_path(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no absolute path without empty, . or .. parts")
    return text


def message_id(text: str) -> str:
    """An option's id of a message (spec 1.1)."""
    if not is_name(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of at most {MAX_NAME} letters, digits and . _ + -")
    return text


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``; the shapes are in docs/json.md."""
    parser.add_argument("--json", action="store_true", help="one JSON object (docs/json.md)")
