"""``ctx cosh inspect``: shows one session (spec 5.1)."""

import argparse

from ctxfs.cosh.client import SessionControlClient
from mountctl.cosh_options import add_session, show

DESCRIPTION = "Shows a session of cosh-core, whatever its health."

add_arguments = add_session


def run(arguments: argparse.Namespace) -> int:
    return show(arguments, SessionControlClient.inspect)
