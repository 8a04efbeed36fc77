"""Spec 3.6: a guardian ends with the daemon's side of its socket, whenever that goes."""

import os

from ctxfs.agents.guardian import Guardian
from ctxfs.agents.launch import socket_pair


def test_a_launch_that_is_given_up_before_it_is_said_is_the_end() -> None:
    ours, theirs = socket_pair()
    ours.close()
    null = os.open(os.devnull, os.O_RDWR)
    with theirs:
        Guardian(theirs, null, null).run()
    os.close(null)
