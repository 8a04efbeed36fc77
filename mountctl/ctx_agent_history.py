"""``ctx agent history``: a session's messages, as bytes for programs or as a conversation for people (spec 4.1)."""

import argparse

from mountctl import places
from mountctl.cli import OK
from mountctl.conversation import print_conversation
from mountctl.ctx_agent_output import copy
from mountctl.session_options import add_session
from mountctl.text import is_terminal

DESCRIPTION = """Shows a session's messages: on a pipe the bytes of messages.jsonl; on a terminal, or with --pretty,
a readable conversation with roles, times and tool calls."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("--pretty", action="store_true", help="the readable form on a pipe too")


def run(arguments: argparse.Namespace) -> int:
    directory = places.session(arguments.agent, arguments.session, arguments.space)
    if arguments.pretty or is_terminal():
        try:
            print_conversation(directory)
        except FileNotFoundError:
            raise places.no_session(directory) from None
    else:
        copy(f"{directory}/messages.jsonl")
    return OK
