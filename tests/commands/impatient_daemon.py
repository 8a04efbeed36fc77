"""The daemon, signalled at one moment of its life: ``python -m tests.commands.impatient_daemon SIGNAL WHEN ARGUMENT…``.

``WHEN`` names a method of ``ctxfs.daemon.Daemon``; the signal comes as soon as it has returned.
"""

import functools
import os
import signal
import sys
from typing import Any

from ctxfs import daemon


def main() -> int:
    name, when, *arguments = sys.argv[1:]
    method = getattr(daemon.Daemon, when)

    @functools.wraps(method)
    def signalled(self: daemon.Daemon, *args: Any) -> Any:
        result = method(self, *args)
        os.kill(os.getpid(), signal.Signals[name])
        return result

    setattr(daemon.Daemon, when, signalled)
    return daemon.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
