"""``mountctl shared remove``: removes a shared space (spec 4.6)."""

import argparse
import errno
import os

from mountctl.cli import OK, UNAVAILABLE, Failure
from mountctl.shared_spaces import add_space, path_of

DESCRIPTION = "Removes a shared space that holds no sessions and no files."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_space(parser)


def run(arguments: argparse.Namespace) -> int:
    path = path_of(arguments)
    try:
        os.rmdir(path)
    except FileNotFoundError:
        raise Failure(f"no shared space {arguments.name!r}: `mountctl shared list` shows what there is") from None
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        raise Failure(f"shared space {arguments.name!r} holds agents or files: see {path}", UNAVAILABLE) from None
    return OK
