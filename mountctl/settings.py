"""The options that admin commands share, and the configuration they end in (spec 4.6)."""

import argparse

from ctxfs import logs
from ctxfs.config import Config, load
from ctxfs.stores import FORMATS


def add_mountpoint(parser: argparse.ArgumentParser) -> None:
    """MOUNTPOINT, by default the configured one."""
    parser.add_argument("mountpoint", nargs="?", metavar="MOUNTPOINT", help="default: /ctx, as a user ~/ctx")


def add_mount_options(parser: argparse.ArgumentParser) -> None:
    """What only mounting takes."""
    parser.add_argument("--store", metavar="DIR", help="default: /var/lib/ctxfs, as a user $XDG_DATA_HOME/ctxfs")
    parser.add_argument("--format", choices=FORMATS, help="default: what the store is, sqlite for a new one")
    parser.add_argument("-o", dest="options", metavar="OPTS", help="ro, noexec, noatime, sync … as mount(8) has them")
    parser.add_argument("--log-level", choices=logs.LEVELS, help="default: info")


def config_of(arguments: argparse.Namespace) -> Config:
    """The configuration with whatever of the options above was given."""
    keys = ("mountpoint", "store", "format", "options", "log_level", "metrics", "umount_timeout")
    return load({key: getattr(arguments, key, None) for key in keys})
