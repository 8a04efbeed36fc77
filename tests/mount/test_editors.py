"""Field report 43: how editors and libraries save, on every file that can be written.

Each way is tried on each file: it works, and nothing but the change is stored; or it fails, says so, and the file
has what it had. None may leave anything behind in the listing.
"""

import contextlib
import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mount.acting import EXCHANGE, NOREPLACE, message, new_session, opened, renameat2, write_once
from tests.mounting import PATIENCE_S

A, B, C = message("a"), message("b"), message("c")
UUID = "0f1e2d3c-4b5a-4697-8877-665544332211"


class Edit(NamedTuple):
    """A file with its content before and after, where ``{one}`` and ``{two}`` are names of sessions."""

    name: str
    before: bytes
    after: bytes


EDITS = [
    Edit("messages.jsonl", A + B, A + B + C),
    Edit("messages.jsonl", b"", A),
    Edit("events.jsonl", b'{"type":"cwd","cwd":"/x"}\n', b'{"type":"cwd","cwd":"/x"}\n{"type":"cwd","cwd":"/y"}\n'),
    Edit("state", b"idle\n", b"active\n"),
    Edit("cwd", b"/\n", b"/home/me\n"),
    Edit("meta.json", b'{"client":"a"}\n', b'{"client":"b","x":[1,2]}\n'),
    Edit("AGENTS.md", b"be kind\n", b"be kind\nbe brief\n"),
    Edit("SKILLS.md", b"be kind\n", b"be brief\n"),
    Edit("../index/current", b"{one}\n", b"{two}\n"),
    Edit("../index/by-hash/h", b"{one}\n", b"{two}\n"),
    Edit(f"../index/by-uuid/{UUID}", b"{one}\n", b"{two}\n"),
]
IDS = [f"{edit.name.split('/')[-1]}-{len(edit.before)}" for edit in EDITS]

# What changes history, or is no value: refused by every way, without a trace.
WRONG = [
    Edit("messages.jsonl", A + B, A.replace(b"a", b"x") + B),
    Edit("messages.jsonl", A + B, A),
    Edit("messages.jsonl", A + B, A + B + b"garbage\n"),
    Edit("state", b"idle\n", b"running\n"),
    Edit("cwd", b"/\n", b"nowhere\n"),
    Edit("meta.json", b'{"client":"a"}\n', b'{"client":1}\n'),
    Edit("latest.md", b"", b"I never said that\n"),
    Edit("created_at", None, b"0\n"),  # type: ignore[arg-type]
    Edit("../index/current", b"{one}\n", b"nobody\n"),
]
WRONG_IDS = [f"{edit.name.split('/')[-1]}-{number}" for number, edit in enumerate(WRONG)]


# Ways to save. Each writes ``content`` to ``path`` or raises OSError, or CalledProcessError where a program did.


def vim(path: Path, content: bytes, *settings: str) -> None:
    with tempfile.NamedTemporaryFile() as source:
        source.write(content)
        source.flush()
        commands = [*settings, "%delete _", f"call setline(1, readfile('{source.name}'))", "wq", "cquit 3"]
        _program("vim", "-u", "NONE", "-e", "-s", *(part for command in commands for part in ("-c", command)), path)


def sed(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as source:
        source.write(content)
        source.flush()
        if not path.stat().st_size:
            # sed has no line to act on.
            raise OSError(errno.ENODATA, "nothing to edit")
        _program("sed", "-i", "-e", f"1r {source.name}", "-e", "d", path)


def perl(path: Path, content: bytes) -> None:
    if not path.stat().st_size:
        raise OSError(errno.ENODATA, "nothing to edit")
    _program("perl", "-i", "-0777", "-pe", "$_ = $ENV{CONTENT}", path, environment={"CONTENT": content})


def cp(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as source:
        source.write(content)
        source.flush()
        _program("cp", source.name, path)


def mv_beside(path: Path, content: bytes) -> None:
    _beside(path, b".mv-me").write_bytes(content)
    _program("mv", _beside(path, b".mv-me"), path)


def shell_redirection(path: Path, content: bytes) -> None:
    _program("sh", "-c", 'printf %s "$CONTENT" > "$1"', "sh", path, environment={"CONTENT": content})


def python_write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def python_read_and_write(path: Path, content: bytes) -> None:
    with path.open("r+b") as file:
        file.read()
        file.seek(0)
        file.truncate()
        file.write(content)


def python_tempfile(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".tmp", delete=False) as file:
        file.write(content)
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
    os.replace(file.name, path)
    _sync_directory(path.parent)


def rust_atomic_write(path: Path, content: bytes) -> None:
    """tempfile's ``persist``: NOREPLACE for new files, a plain rename for old ones."""
    temporary = _beside(path, b".tmpAb12Cd")
    with opened(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC) as descriptor:
        os.write(descriptor, content)
        os.fsync(descriptor)
    try:
        renameat2(temporary, path, NOREPLACE)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EEXIST):
            raise
        temporary.rename(path)
    _sync_directory(path.parent)


def exchange(path: Path, content: bytes) -> None:
    """Swaps the new file in, and removes the old one; falls back to a rename where that is not supported."""
    temporary = _beside(path, b".swap-in")
    temporary.write_bytes(content)
    try:
        renameat2(temporary, path, EXCHANGE)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOENT):
            raise
        temporary.rename(path)
    else:
        temporary.unlink()


def emacs(path: Path, content: bytes) -> None:
    """Moves the old file to a backup and writes a new one; where it cannot be moved, copies it and writes in place."""
    backup = path.with_name(f"{path.name}~")
    try:
        path.rename(backup)
    except OSError:
        backup.write_bytes(path.read_bytes())
    with opened(path, os.O_WRONLY | os.O_CREAT) as descriptor:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, content)
        os.fsync(descriptor)


def lock_file_beside(path: Path, content: bytes) -> None:
    """Emacs' lock is a symlink, others' a file made with O_EXCL; neither may be in the way of the save."""
    with contextlib.suppress(PermissionError):
        os.symlink("me@here.1", path.with_name(f".#{path.name}"))
    lock = path.with_name(f".{path.name}.lock~")
    with opened(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL):
        python_tempfile(path, content)
    lock.unlink()


def _beside(path: Path, name: bytes) -> Path:
    return path.parent / name.decode()


def _sync_directory(path: Path) -> None:
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


def _program(*command: str | Path, environment: dict[str, bytes] | None = None) -> None:
    if shutil.which(str(command[0])) is None:
        pytest.skip(f"{command[0]} is not installed")
    values = {key.encode(): value for key, value in (environment or {}).items()}
    subprocess.run(
        command,
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_S,
        env=dict(os.environb) | values,
    )


def _vim(*settings: str) -> Callable[[Path, bytes], None]:
    return lambda path, content: vim(path, content, *settings)


WAYS: dict[str, Callable[[Path, bytes], None]] = {
    "vim": _vim(),
    "vim backupcopy=yes": _vim("set backupcopy=yes writebackup"),
    "vim backupcopy=no": _vim("set backupcopy=no writebackup"),
    "vim backup": _vim("set backup backupcopy=auto"),
    "vim nowritebackup": _vim("set nowritebackup"),
    "sed -i": sed,
    "perl -i": perl,
    "cp": cp,
    "mv": mv_beside,
    "sh >": shell_redirection,
    "python write": python_write,
    "python r+": python_read_and_write,
    "python tempfile": python_tempfile,
    "rust": rust_atomic_write,
    "exchange": exchange,
    "emacs": emacs,
    "lock file": lock_file_beside,
}

# Where a way cannot work, and the file says so: they empty or remove history before they write.
EMPTIES_HISTORY = ("cp", "sh >", "python write")

# These make their temporary under a name that is a key in by-hash/, and no key can be renamed.
EDITS_IN_PLACE = ("sed -i", "perl -i")


def works(way: str, edit: Edit) -> bool:
    """What this way of saving does on that file, by spec 1.4."""
    if way in EDITS_IN_PLACE:
        return bool(edit.before) and "/by-hash/" not in edit.name
    return not (way in EMPTIES_HISTORY and edit.name.endswith(".jsonl") and edit.before)


@pytest.fixture
def file_of(ctx: Path) -> Callable[[Edit], tuple[Path, Edit]]:
    """Makes a file as ``Edit`` says it is before; returns it, and the edit with the names filled in."""

    def prepare(edit: Edit) -> tuple[Path, Edit]:
        one, two = new_session(ctx), new_session(ctx)
        path = Path(os.path.normpath(one / edit.name))

        def named(text: bytes) -> bytes:
            return text.replace(b"{one}", one.name.encode()).replace(b"{two}", two.name.encode())

        before = named(edit.before) if edit.before is not None else path.read_bytes()
        if before and edit.before is not None and (not path.exists() or path.read_bytes() != before):
            write_once(path, before, os.O_WRONLY | os.O_CREAT)
        return path, Edit(edit.name, before, named(edit.after))

    return prepare


def left_behind(path: Path) -> set[str]:
    """Names in the directory that spec 1.2 does not know."""
    known = {
        "messages.jsonl", "events.jsonl", "latest.md", "state", "cwd", "created_at", "updated_at", "meta.json",
        "AGENTS.md", "SKILLS.md", "context", "list", "current", "by-cwd", "by-hash", "by-uuid", path.name,
    }  # fmt: skip
    return set(os.listdir(path.parent)) - known


@pytest.mark.parametrize("edit", EDITS, ids=IDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_save_works_or_says_so_and_loses_nothing(
    file_of: Callable[[Edit], tuple[Path, Edit]], way: str, edit: Edit
) -> None:
    path, edit = file_of(edit)
    if works(way, edit):
        WAYS[way](path, edit.after)
        assert path.read_bytes() == edit.after
    else:
        with pytest.raises((OSError, subprocess.CalledProcessError)):
            WAYS[way](path, edit.after)
        assert path.read_bytes() == edit.before
    assert path.stat().st_size == len(path.read_bytes())
    assert left_behind(path) == set()


@pytest.mark.parametrize("edit", WRONG, ids=WRONG_IDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_wrong_save_is_refused_and_loses_nothing(
    file_of: Callable[[Edit], tuple[Path, Edit]], way: str, edit: Edit
) -> None:
    path, edit = file_of(edit)
    with pytest.raises((OSError, subprocess.CalledProcessError)):
        WAYS[way](path, edit.after)
    assert path.read_bytes() == edit.before
    assert left_behind(path) == set()
