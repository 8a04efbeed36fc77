"""Opening a store directory: its lock, a new database, and the judgement of an existing one.

Refuses with the kinds of ``OpenError`` (exit codes of spec 4.6), and then nothing on disk has changed. A new database
is made whole under another name and renamed, so one that lacks anything is damage, never a beginning.

``ctxfs.db`` must not be opened by anything but SQLite while a connection exists: closing such a descriptor would drop
SQLite's own locks, as POSIX has it. So everything here looks at it first, under the lock, and connects then.
"""

import contextlib
import errno
import fcntl
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

from backend.durable import sync_directory
from backend.errors import OpenError, StoreCorrupt, StoreFormat, StoreLocked, StoreReadOnly
from backend.sqlite.database import SECONDARY, connect
from backend.sqlite.durability import INDEX_BYTES
from backend.sqlite.migrations import MIGRATIONS
from backend.sqlite.segments import UNREADABLE
from backend.unfinished import refuse_unfinished

DATABASE = "ctxfs.db"
LOCK = "lock"
VERSION = 4
APPLICATION_ID = 0x63747866

QUICK_CHECK_LIMIT = 32 << 20
"""A database of up to so many bytes is checked whole when it is opened (0.1 s), a bigger one by ``doctor`` only."""

_SETTINGS = (
    "journal_mode = WAL",
    "synchronous = NORMAL",
    # KiB. What is not here is in the kernel's page cache; more would make long reads slower, not faster.
    "cache_size = -4096",
    # A -wal that one big transaction has made longer is cut back to that when it begins anew.
    f"journal_size_limit = {64 << 20}",
)
_NEW = f".{DATABASE}.new"
_SIDE_FILES = ("-wal", "-shm", "-journal")
_KNOWN = frozenset((DATABASE, LOCK, "disk", "lost+found", *(DATABASE + side for side in _SIDE_FILES)))
NOT_COPIED = frozenset((*_KNOWN - {"disk"}, "search", *(_NEW + side for side in ("", *_SIDE_FILES))))
"""What of a store's directory is the database's own, or a view that is made anew."""
_MAGIC = b"SQLite format 3\0"
_HEADER_SIZE = 100
_NOT_WRITABLE = frozenset((errno.EROFS, errno.EACCES, errno.EPERM))


def open_directory(path: Path) -> tuple[sqlite3.Connection, int]:
    """The store's connection and the descriptor of its lock, which holds until it is closed."""
    with _as_open_errors(path):
        _make(path)
        refuse_unfinished(path)
        _refuse_foreign(path)
        lock, undo = _lock(path)
        try:
            refuse_unfinished(path)  # again, as the lock is there now
            _refuse_unwritable(path)
            if (path / DATABASE).exists():
                _judge(path / DATABASE)
            else:
                _create(path)
            connection = _connect(path)
        except BaseException:
            undo()
            os.close(lock)
            raise
    return connection, lock


@contextlib.contextmanager
def _as_open_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = StoreReadOnly if error.errno in _NOT_WRITABLE else OpenError
        raise kind(f"cannot open the store {path}: {error.strerror}") from error
    except sqlite3.Error as error:
        raise _open_error(path / DATABASE, error) from error
    except UNREADABLE as error:
        # Of a schema that is no text; of a row that was to be migrated.
        raise StoreCorrupt(f"{path / DATABASE} is damaged ({error}): restore a backup") from error


def _open_error(database: Path, error: sqlite3.Error) -> OpenError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & SECONDARY
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
        return StoreCorrupt(f"{database} is damaged ({error}): restore a backup, or see `mountctl doctor --store`")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return StoreReadOnly(f"{database} cannot be written: {error}")
    return OpenError(f"{database} cannot be opened: {error}")


def _make(path: Path) -> None:
    if path.is_dir():
        return
    if path.exists():
        raise StoreFormat(f"{path} is not a directory")
    for missing in reversed([made for made in (path, *path.parents) if not made.exists()]):
        missing.mkdir()
        missing.chmod(0o700 if missing == path else 0o755)
        sync_directory(missing.parent)


def _refuse_foreign(path: Path) -> None:
    names = frozenset(os.listdir(path))
    if DATABASE in names:
        return
    if names & {DATABASE + side for side in _SIDE_FILES}:
        raise StoreCorrupt(f"{path} holds parts of a store but no {DATABASE}: restore a backup")
    if any(name not in _KNOWN and not name.startswith(".") for name in names):
        raise StoreFormat(f"{path} is not a sqlite store and not empty: choose another directory")


def _lock(path: Path) -> tuple[int, Callable[[], None]]:
    """The locked descriptor, and what takes a lock file back that was not there before."""
    file = path / LOCK
    while True:
        existed = file.exists()
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise StoreLocked(f"the store {path} is open in another process: see `mountctl status`") from None
        # A file that its last holder took back is no lock for those who come after us.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), file.stat()):
                os.fchmod(descriptor, 0o600)
                return descriptor, (lambda: None) if existed else file.unlink
        os.close(descriptor)


def _refuse_unwritable(path: Path) -> None:
    if not os.access(path, os.W_OK | os.X_OK, effective_ids=True):
        raise StoreReadOnly(f"the directory {path} cannot be written")
    with contextlib.suppress(FileNotFoundError):
        os.close(os.open(path / DATABASE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))
    disk = os.statvfs(path)
    if disk.f_blocks and disk.f_bavail * disk.f_frsize < INDEX_BYTES:
        raise OpenError(f"the disk of {path} is full: free some space to open the store")


def _create(path: Path) -> None:
    new = path / _NEW
    _remove_new(path)
    try:
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.fchmod(descriptor, 0o600)
        os.close(descriptor)
        with contextlib.closing(connect(new)) as connection:
            connection.execute("PRAGMA journal_mode = MEMORY").fetchall()
            connection.execute("PRAGMA auto_vacuum = NONE")
            schema = resources.files("backend.sqlite").joinpath("schema.sql").read_text("utf-8")
            connection.executescript(f"BEGIN;\n{schema}COMMIT;")
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        new.rename(path / DATABASE)
    except BaseException:
        _remove_new(path)
        raise
    sync_directory(path)


def _remove_new(path: Path) -> None:
    for side in ("", *_SIDE_FILES):
        (path / f"{_NEW}{side}").unlink(missing_ok=True)


def _judge(database: Path) -> None:
    """Refuses a database that is not ours or is damaged, by looking at it only."""
    if not stat.S_ISREG(database.lstat().st_mode):
        # Opening a FIFO would wait for ever.
        raise StoreCorrupt(f"{database} is not a regular file: restore a backup")
    with database.open("rb") as file:
        header = file.read(_HEADER_SIZE)
    if len(header) < _HEADER_SIZE or not header.startswith(_MAGIC):
        raise StoreCorrupt(f"{database} is not a database: restore a backup")
    _refuse_version(database, int.from_bytes(header[68:72], "big"), int.from_bytes(header[60:64], "big"))
    wal = Path(f"{database}-wal")
    if wal.exists() and wal.stat().st_size:
        _examine_with_wal(database)
    else:
        _examine(database, "mode=ro&immutable=1")


def _examine_with_wal(database: Path) -> None:
    # Read-only, so that closing cannot write the log back into the database: a damaged one stays as it was found.
    index = Path(f"{database}-shm")
    existed = index.exists()
    try:
        _examine(database, "mode=ro")
    except BaseException:
        if not existed:
            index.unlink(missing_ok=True)
        raise


def _examine(database: Path, mode: str) -> None:
    with contextlib.closing(connect(database, mode)) as connection:
        _refuse_version(database, *(_pragma(connection, name) for name in ("application_id", "user_version")))
        connection.execute("SELECT openings FROM store").fetchone()
        if database.stat().st_size <= QUICK_CHECK_LIMIT:
            fault = in_one_line(*connection.execute("PRAGMA quick_check(1)").fetchone())
            if fault != "ok":
                raise StoreCorrupt(f"{database} is damaged ({fault}): restore a backup, or see `mountctl doctor`")


def in_one_line(fault: str) -> str:
    """What SQLite says of a page comes below a line that names the database."""
    return " ".join(fault.split())


def _refuse_version(database: Path, application: int, version: int) -> None:
    if application != APPLICATION_ID:
        raise StoreFormat(f"{database} is a database of another program")
    if version != VERSION and version not in MIGRATIONS:
        raise StoreFormat(f"{database} is of format {version}, this program knows {VERSION}: use the program it is of")


def _connect(path: Path) -> sqlite3.Connection:
    database = path / DATABASE
    path.chmod(0o700)
    database.chmod(0o600)
    connection = connect(database)
    try:
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}").fetchall()
        _migrate(connection)
        # The first read makes the -wal; it gets the database's mode whatever the umask.
        connection.execute("SELECT openings FROM store").fetchone()
    except BaseException:
        connection.close()
        raise
    sync_directory(path)
    return connection


def _migrate(connection: sqlite3.Connection) -> None:
    while (version := _pragma(connection, "user_version")) != VERSION:
        connection.execute("BEGIN IMMEDIATE")
        MIGRATIONS[version](connection)
        connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.execute("COMMIT")
        # An older program judges the database by the header of its file alone.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    [value] = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
