"""The options that admin commands share, and the configuration they end in (spec 4.6)."""

import argparse

from ctxfs.config import Config, load


def add_mountpoint(parser: argparse.ArgumentParser) -> None:
    """MOUNTPOINT, by default the configured one."""
    parser.add_argument("mountpoint", nargs="?", metavar="MOUNTPOINT", help="default: /ctx, as a user ~/ctx")


def add_store(parser: argparse.ArgumentParser) -> None:
    """``--store``, by default the configured one."""
    parser.add_argument("--store", metavar="DIR", help="default: /var/lib/ctxfs, as a user $XDG_DATA_HOME/ctxfs")


def config_of(arguments: argparse.Namespace) -> Config:
    """The configuration with whatever of those options was given."""
    keys = ("mountpoint", "store", "format", "options", "log_level", "metrics", "umount_timeout")
    return load({key: getattr(arguments, key, None) for key in keys})
