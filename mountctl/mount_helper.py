"""``/sbin/mount.fuse.ctxfs``: what mount(8) calls for fstab entries and ``mount -t fuse.ctxfs`` (spec 4.6).

Its command line is mount(8)'s: ``SOURCE MOUNTPOINT [-sfnv] [-N NAMESPACE] [-t TYPE] [-o OPTIONS]``. SOURCE is the
store's directory as an absolute path, or a word (``ctxfs``, ``none``) where the option ``store=`` or the configuration
names it. Exit codes are mount(8)'s: 1 for usage, 32 for a mount that failed.
"""

import argparse
import sys
from collections.abc import Sequence

from backend.errors import CtxError
from mountctl import cli, mount
from mountctl.cli import Failure

PROGRAM = "mount.fuse.ctxfs"
DESCRIPTION = "Mounts a store for mount(8), which calls this for entries of /etc/fstab too."
USAGE, FAILED = 1, 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source")
    parser.add_argument("mountpoint")
    parser.add_argument("-o", dest="options", default="", metavar="OPTIONS")
    parser.add_argument("-f", dest="fake", action="store_true", help="check, but do not mount")
    for ignored in ("-n", "-v", "-s"):
        parser.add_argument(ignored, action="store_true", help="accepted for mount(8)")
    for ignored in ("-N", "-t"):
        parser.add_argument(ignored, help="accepted for mount(8)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one mount; the reason of a failure is one line on stderr."""
    cli.open_standard_streams()
    parser = cli.parser_of([PROGRAM], sys.modules[__name__])
    try:
        return _mount(parser.parse_args(arguments))
    except (CtxError, Failure, OSError) as error:
        message, exit_code = cli.explained(error)
        return cli.complain(PROGRAM, message, USAGE if exit_code == cli.USAGE else FAILED)


def _mount(wanted: argparse.Namespace) -> int:
    if "remount" in wanted.options.split(","):
        raise Failure("a ctxfs mount cannot be remounted: unmount it and mount it again")
    if "/" in wanted.source and not wanted.source.startswith("/"):
        raise Failure(f"the store {wanted.source} is no absolute path", cli.USAGE)
    options = mount.options_of(wanted.options)
    if wanted.fake:
        return 0
    store = options.store or (wanted.source if wanted.source.startswith("/") else None)
    command = [wanted.mountpoint, "-o", wanted.options, *(["--store", store] if store else [])]
    return mount.run(cli.parser_of([PROGRAM], mount).parse_args(command))


if __name__ == "__main__":
    sys.exit(main())
