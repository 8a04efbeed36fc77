"""``mountctl checkpointd``: the daemon of workspace checkpoints, in the foreground (spec 6.3)."""

import argparse
import os
from pathlib import Path

from backend.checkpoints.config import BACKENDS, DEFAULT_FILE, DEFAULT_MOUNT, DEFAULT_STATE
from backend.checkpoints.wire import DEFAULT_SOCKET
from ctxfs import logs
from mountctl.cli import DENIED, OK, Failure

DESCRIPTION = """Serves the ws-ckpt protocol: snapshots of directories, taken and brought back at a user's request.
Runs in the foreground and logs to stderr; SIGTERM stops it. See docs/checkpoints.md."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--socket", metavar="P", default=DEFAULT_SOCKET, help=f"default: {DEFAULT_SOCKET}")
    parser.add_argument("--state-dir", metavar="D", default=str(DEFAULT_STATE), help=f"default: {DEFAULT_STATE}")
    parser.add_argument("--config", metavar="F", default=str(DEFAULT_FILE), help=f"default: {DEFAULT_FILE}")
    parser.add_argument("--backend", choices=BACKENDS, help="default: as configured, else auto")
    parser.add_argument(
        "--mount-path", metavar="M", default=str(DEFAULT_MOUNT), help=f"for btrfs; default: {DEFAULT_MOUNT}"
    )
    parser.add_argument("--log-level", choices=logs.LEVELS, default="info", help="default: info")


def run(arguments: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise Failure("checkpointd must be run by root: it keeps owners and serves every user", DENIED)
    from ctxfs.checkpoints.daemon import Options, serve

    logs.configure(arguments.log_level)
    serve(
        Options(
            socket=Path(os.path.abspath(arguments.socket)),
            state=Path(os.path.abspath(arguments.state_dir)),
            configuration=Path(os.path.abspath(arguments.config)),
            backend=arguments.backend,
            mount_path=Path(os.path.abspath(arguments.mount_path)),
            log_level=arguments.log_level,
        )
    )
    return OK
