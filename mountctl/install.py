"""``mountctl install``: units, the mount helper, man pages and completions in their places (spec 4.6).

What is installed is data of this package (``mountctl/share``), with the program's own path put in. ``mountctl
uninstall`` removes just those files. What is in one of their places and is not ours (another package's, or a masked
unit) is never touched; we know our own, of any version, by what they name.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

from mountctl.cli import OK, UNAVAILABLE, Failure

DESCRIPTION = """Puts the systemd units, the mount helper, man pages and shell completions in place. Nothing is started:
`systemctl daemon-reload && systemctl enable --now ctxfs` does that."""

_PLACES = {
    "systemd": "etc/systemd/system/{name}",
    "man": "usr/local/share/man/man{section}/{name}",
    "completions/bash": "usr/share/bash-completion/completions/{name}",
    "completions/zsh": "usr/share/zsh/vendor-completions/{name}",
    "completions/fish": "usr/share/fish/vendor_completions.d/{name}",
}
_HELPER = "mount.fuse.ctxfs"
_OURS = re.compile("ctxfs|mountctl|_shtab_ctx_")
_PAGES = ("usr/local/share/man/man1/ctx*.1", "usr/local/share/man/man8/mountctl*.8")


class File(NamedTuple):
    """One file to install: where, what, with which mode."""

    path: Path
    text: str
    mode: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser)


def add_place(parser: argparse.ArgumentParser) -> None:
    """What install and uninstall share."""
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument(
        "--root", metavar="DIR", type=Path, default=Path("/"), help="below this directory, to make a package"
    )


def run(arguments: argparse.Namespace) -> int:
    wanted = [file for file in files(arguments.root) if not _is_there(file)]
    if foreign := [str(file.path) for file in wanted if not is_ours(file.path)]:
        raise Failure(f"not ours, and in the way: {', '.join(foreign)}; nothing was installed", UNAVAILABLE)
    for file in wanted:
        if not arguments.dry_run:
            _put(file)
        print(f"{'would install' if arguments.dry_run else 'installed'} {file.path}")
    return OK


def files(root: Path) -> Iterator[File]:
    """Everything that belongs to an installation below ``root``."""
    share = resources.files("mountctl").joinpath("share")
    yield File(root / "sbin" / _HELPER, _text(share.joinpath(_HELPER)), 0o755)
    for directory, place in _PLACES.items():
        for source in sorted(share.joinpath(directory).iterdir(), key=lambda found: found.name):
            path = place.format(name=source.name, section=source.name.rpartition(".")[2])
            yield File(root / path, _text(source), 0o644)


def stale(root: Path) -> list[Path]:
    """Pages of commands that an older version had."""
    now = {file.path for file in files(root)}
    return sorted(path for pages in _PAGES for path in root.glob(pages) if path not in now and is_ours(path))


def is_ours(path: Path) -> bool:
    """Whether nothing is there, or what a version of this program put there."""
    try:
        return not path.is_symlink() and _OURS.search(path.read_text(encoding="utf-8")) is not None
    except FileNotFoundError:
        return True
    except (IsADirectoryError, UnicodeDecodeError):
        return False


def _text(source: Traversable) -> str:
    text = source.read_text(encoding="utf-8")
    return text.replace("@mountctl@", _program()).replace("@python@", sys.executable)


def _program() -> str:
    program = Path(sys.executable).parent / "mountctl"
    if not program.exists():
        raise Failure(f"{program} is missing: install the package (pip install .) first", UNAVAILABLE)
    return str(program)


def _is_there(file: File) -> bool:
    try:
        return file.path.read_bytes() == file.text.encode() and file.path.stat().st_mode & 0o777 == file.mode
    except (FileNotFoundError, IsADirectoryError):
        return False


def _put(file: File) -> None:
    file.path.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.path.with_name(f".{file.path.name}.{os.getpid()}")
    temporary.write_text(file.text, encoding="utf-8")
    temporary.chmod(file.mode)
    temporary.replace(file.path)
