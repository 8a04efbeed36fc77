"""What SQLite itself takes to commit a row, from Python, with the store's settings."""

import sqlite3
from pathlib import Path


class BareCommit:
    """Commits bytes as the next row of a log in a database of its own."""

    def __init__(self, path: Path) -> None:
        self._start = 0
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for setting in ("journal_mode = WAL", "synchronous = NORMAL", "cache_size = -16384"):
            self._database.execute(f"PRAGMA {setting}").fetchall()
        self._database.execute("CREATE TABLE line (log INTEGER NOT NULL, start INTEGER NOT NULL, data BLOB NOT NULL)")
        self._database.execute("CREATE UNIQUE INDEX line_start ON line (log, start)")

    def __call__(self, data: bytes) -> None:
        self._database.execute("BEGIN IMMEDIATE")
        self._database.execute("INSERT INTO line VALUES (1, ?, ?)", (self._start, data))
        self._database.execute("COMMIT")
        self._start += len(data)
