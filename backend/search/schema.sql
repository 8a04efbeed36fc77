-- The words of one owner's sessions. Everything here is derived: the file may be dropped at any time.

-- One row: up to where the owner was looked at.
--   owner_mtime, list_mtime: those of the owner then; while both stay, only session `top` can have grown.
--   seq: every session whose last entry has at most this sequence is indexed whole.
CREATE TABLE state (
    format INTEGER NOT NULL,
    owner_mtime INTEGER NOT NULL,
    list_mtime INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    top INTEGER NOT NULL
) STRICT;

-- Live sessions, by their id in the store. Entries start..n-1 are indexed here; those before `start` in the session
-- that this one was branched from (0 once that one is not live any more).
CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    start INTEGER NOT NULL,
    n INTEGER NOT NULL
) STRICT;

-- Entries that have text; `id` is the rowid in `text`.
CREATE TABLE entry (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    n INTEGER NOT NULL,
    time INTEGER NOT NULL
) STRICT;
CREATE INDEX entry_session ON entry (session, n);

-- Words only: no content, no sizes.
CREATE VIRTUAL TABLE text USING fts5 (content, content = '', columnsize = 0, tokenize = 'unicode61 remove_diacritics 2');
