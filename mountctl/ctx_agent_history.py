"""``ctx agent history``: a session's messages, as bytes for programs or as a conversation for people (spec 4.1)."""

import argparse
import contextlib
import errno
import os
from typing import BinaryIO

from mountctl import places
from mountctl.cli import OK, USAGE, Failure
from mountctl.ctx_agent_output import copy
from mountctl.session_options import add_session
from mountctl.text import is_terminal

DESCRIPTION = """Shows a session's messages: on a pipe the bytes of messages.jsonl; on a terminal, or with --pretty,
a readable conversation with roles, times and tool calls, through $PAGER if it does not fit the screen."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--pretty", action="store_true", help="the readable form on a pipe too")
    form.add_argument("--html", metavar="FILE", help="write a page that needs no network and no scripts")


def run(arguments: argparse.Namespace) -> int:
    directory = places.session(arguments.agent, arguments.session, arguments.space)
    if arguments.html is not None:
        _write_page(directory, arguments.agent, arguments.html)
    elif arguments.pretty or is_terminal():
        _print_conversation(directory)
    else:
        copy(f"{directory}/messages.jsonl")
    return OK


def _print_conversation(directory: str) -> None:
    from mountctl.conversation import Conversation
    from mountctl.conversation_text import markdown_renderer, text_of
    from mountctl.entries import LogFile
    from mountctl.pager import Pager

    with LogFile(directory) as log, Pager() as pager:
        markdown = markdown_renderer()
        for item in Conversation(log):
            pager.write(text_of(item, markdown))


def _write_page(directory: str, agent: str, path: str) -> None:
    from mountctl.session_page import write_page

    with _page_file(os.path.realpath(path), path) as file:
        write_page(file, directory, agent)


def _page_file(target: str, path: str) -> contextlib.AbstractContextManager[BinaryIO]:
    """A file that replaces what a link leads to; a device or a pipe is no such thing and is written to."""
    from mountctl.private_files import private_file

    if path.endswith("/") or os.path.isdir(target):
        raise Failure(f"{path!r} is a directory: --html takes the name of a file", USAGE)
    if os.path.exists(target) and not os.path.isfile(target):
        return open(target, "wb")
    if not os.path.isdir(os.path.dirname(target)):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return private_file(os.path.dirname(target), os.path.basename(target))
