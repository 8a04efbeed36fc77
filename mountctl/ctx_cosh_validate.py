"""``ctx cosh validate``: whether a session can be resumed (spec 5.1)."""

import argparse

from ctxfs.cosh.client import SessionControlClient
from mountctl.cosh_options import add_session, show

DESCRIPTION = "Shows a session of cosh-core if it can be resumed; it is an error if it cannot."

add_arguments = add_session


def run(arguments: argparse.Namespace) -> int:
    return show(arguments, SessionControlClient.validate)
