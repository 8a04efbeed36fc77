"""The embedded default store: one SQLite database in a directory (spec 2.9, ``schema.sql``)."""

from backend.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
