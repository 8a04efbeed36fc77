"""An empty FUSE file system that is not ctxfs: ``python -m tests.commands.foreign_mount MOUNTPOINT``."""

import sys

import pyfuse3
import trio


def main() -> None:
    pyfuse3.init(pyfuse3.Operations(), sys.argv[1], {"fsname=elsewhere", "subtype=other", "default_permissions"})
    print("mounted", flush=True)
    trio.run(pyfuse3.main)


if __name__ == "__main__":
    main()
