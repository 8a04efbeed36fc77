"""The daemon that dies (kill -9) at a chosen step of a send: its name is in the file ``step`` beside the mountpoint.

Run in place of ``ctxfs.daemon`` (``running_mount(module=…)``). The steps are those of ``ctxfs.agents.steps``.
"""

import os
import signal
import sys
from pathlib import Path

from ctxfs import daemon
from ctxfs.agents import steps


def die_if_chosen(step: str) -> None:
    chosen = Path(os.environ["CTX_ROOT"]).parent / "step"
    if chosen.exists() and chosen.read_text() == step:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    steps.reached = die_if_chosen
    sys.exit(daemon.main())
