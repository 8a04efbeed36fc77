"""``/sbin/mount.fuse.ctxfs``: what mount(8) calls for fstab entries and ``mount -t fuse.ctxfs`` (spec 4.6).

Its command line is mount(8)'s: ``SOURCE MOUNTPOINT [-sfnv] [-N NAMESPACE] [-t TYPE] [-o OPTIONS]``. SOURCE is the
store's directory, or any word (``ctxfs``, ``none``) where the option ``store=`` or the configuration names it. Exit
codes are mount(8)'s: 1 for usage, 32 for a mount that failed.
"""

import argparse
import sys
from collections.abc import Sequence

from backend.errors import CtxError, InvalidValue
from ctxfs.options import parse_options
from mountctl import mount
from mountctl.cli import Failure, open_standard_streams, parser_of

USAGE, FAILED = 1, 32


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one mount; the reason of a failure is one line on stderr."""
    open_standard_streams()
    try:
        return _mount(_parsed(sys.argv[1:] if arguments is None else arguments))
    except InvalidValue as error:
        return _complain(str(error), USAGE)
    except (CtxError, Failure) as error:
        return _complain(str(error), FAILED)
    except OSError as error:
        return _complain(f"{error.filename or 'mount'}: {error.strerror}", FAILED)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mount.fuse.ctxfs", description=__doc__, allow_abbrev=False)
    parser.add_argument("source")
    parser.add_argument("mountpoint")
    parser.add_argument("-o", dest="options", default="", metavar="OPTIONS")
    parser.add_argument("-f", dest="fake", action="store_true", help="check, but do not mount")
    for ignored in ("-n", "-v", "-s"):
        parser.add_argument(ignored, action="store_true", help="accepted for mount(8)")
    for ignored in ("-N", "-t"):
        parser.add_argument(ignored, help="accepted for mount(8)")
    return parser.parse_args(arguments)


def _mount(wanted: argparse.Namespace) -> int:
    if "remount" in wanted.options.split(","):
        raise Failure("a ctxfs mount cannot be remounted: unmount it and mount it again")
    options = parse_options(wanted.options)
    if wanted.fake:
        return 0
    store = options.store or (wanted.source if wanted.source.startswith("/") else None)
    command = [wanted.mountpoint, "-o", wanted.options, *(["--store", store] if store else [])]
    return mount.run(parser_of(["mount.fuse.ctxfs"], mount).parse_args(command))


def _complain(message: str, exit_code: int) -> int:
    print(f"mount.fuse.ctxfs: {message}", file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
