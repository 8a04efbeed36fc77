-- The sqlite store (specs 1 and 2), format 4.
--
-- Files of a store directory: ctxfs.db (this), ctxfs.db-wal while it is open, lock (flock by the one process that has
-- it open), disk/ (ordinary directories, not ours). No absolute path is stored: a store can be moved.
--
-- application_id 0x63747866 ("ctxf") says that a database is a ctxfs store, user_version is the format's version.
--
-- Words. Times called mtime are ns, of a file whose content changed, and only ever grow; other times are ms. n numbers
-- a log's entries from 0. seq is the store-wide commit sequence. Offsets count bytes of messages.jsonl or events.jsonl
-- as a reader sees them, newlines included; those of a branch include the prefix it shares with its parent.
--
-- What is true and what is derived. `log`, `segment` and `pending` are the log, the only truth. `run_line`, `value_line`, the columns
-- of `session` from updated_at to cwd_key, the by-cwd rows of `mapping`, list_size and list_mtime are views of `log` and
-- `segment` that change in the transaction that puts lines there.

PRAGMA application_id = 0x63747866;
PRAGMA user_version = 4;

-- One row. `openings` counts the openings that wrote something: seq = openings << 40 | a count in memory. So seq grows
-- with every commit, across restarts and whatever the clock says, and no append has to store it here.
CREATE TABLE store (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    openings INTEGER NOT NULL
) STRICT;
INSERT INTO store VALUES (1, 0);

-- A private home ("home/<uid>") or a shared place ("shared/<name>").
CREATE TABLE space (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    name  TEXT    NOT NULL UNIQUE,
    uid   INTEGER NOT NULL,
    gid   INTEGER NOT NULL,
    mode  INTEGER NOT NULL,
    mtime INTEGER NOT NULL
) STRICT;

-- An agent or a model inside a space. `current` is a live session of its own, by name, or NULL.
-- Invariant: list_size = the sum over its live sessions of the name's bytes + 1.
CREATE TABLE owner (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    space         TEXT    NOT NULL REFERENCES space (name),
    kind          TEXT    NOT NULL CHECK (kind IN ('agent', 'model')),
    name          TEXT    NOT NULL,
    uid           INTEGER NOT NULL,
    gid           INTEGER NOT NULL,
    mtime         INTEGER NOT NULL,
    current       TEXT,
    current_mtime INTEGER NOT NULL,
    list_size     INTEGER NOT NULL,
    list_mtime    INTEGER NOT NULL,
    UNIQUE (space, kind, name)
) STRICT;

-- A directory below archived_sessions/; parent NULL: directly below it.
CREATE TABLE archive_directory (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    space  TEXT    NOT NULL REFERENCES space (name),
    parent INTEGER REFERENCES archive_directory (id),
    name   TEXT    NOT NULL,
    uid    INTEGER NOT NULL,
    mtime  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX archive_directory_place ON archive_directory (space, ifnull(parent, 0), name);
CREATE INDEX archive_directory_parent ON archive_directory (parent) WHERE parent IS NOT NULL;

-- Where a log begins: 0 entries, or the first base_n entries of the log `parent`, shared by reference. A row never
-- changes. A log lives while a session or a child log needs it, so deleting a session leaves its children whole.
-- The other columns say what those base_n entries amount to: bytes of each stream, and the last entry that set each
-- value (NULL: none did). Invariant: `parent` itself, not one of its own parents, holds entry base_n - 1.
CREATE TABLE log (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    parent        INTEGER REFERENCES log (id),
    base_n        INTEGER NOT NULL,
    base_messages INTEGER NOT NULL,
    base_events   INTEGER NOT NULL,
    latest_n      INTEGER,
    state_n       INTEGER,
    cwd_n         INTEGER,
    meta_n        INTEGER
) STRICT;
CREATE INDEX log_parent ON log (parent, base_n) WHERE parent IS NOT NULL;

-- A run of consecutive entries of one log: which they are, and the bytes of their lines by stream.
--
-- `entries` holds 13 bytes an entry, little-endian: time (int64), where its line begins in `messages` or `events` of
-- this row (uint32), and flags (uint8: 1 = events; 2, 4 = mark, cut; 8, 16, 32, 64 = sets latest.md, state, cwd,
-- meta.json). A line ends before the next newline. `n` is the first entry's number, `start` the bytes of both streams
-- before it, `messages_start` and `events_start` the offset of the first byte of each stream here, NULL if there is
-- none; latest_n … meta_n are those of `log`, for the entries before this row.
--
-- Invariants, for a log's rows by n: the first has n = base_n; each next n = n + entries / 13; start and *_start go
-- on where the row before ended; the last row ends at the session's n, messages_size and events_size.
--
-- An append extends the last row while that fits a database page, else it begins a new one. When a row begins in a
-- later window of 256 KiB of `start`, the rows of the window before become one (several, where lines are so short that
-- it would hold more than a thousand). So a row costs a page to append to, and reading a long log costs a row for
-- 256 KiB. Not a row a line: that is 2–4 times slower to read and a fifth bigger.
CREATE TABLE segment (
    id             INTEGER PRIMARY KEY,
    log            INTEGER NOT NULL REFERENCES log (id),
    n              INTEGER NOT NULL,
    start          INTEGER NOT NULL,
    messages_start INTEGER,
    events_start   INTEGER,
    latest_n       INTEGER,
    state_n        INTEGER,
    cwd_n          INTEGER,
    meta_n         INTEGER,
    entries        BLOB    NOT NULL,
    messages       BLOB    NOT NULL,
    events         BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX segment_n ON segment (log, n);
CREATE INDEX segment_messages ON segment (log, messages_start);
CREATE INDEX segment_events ON segment (log, events_start);

-- Lines that are committed but not yet in the rows of their sessions: a row for each commit of appends, in order.
-- `data` is MessagePack (`backend.sqlite.pending.Commit`): when it was made (ns) and, for each append, the session, the
-- seq, the times and the lines. Everything else follows from these: what a session says is its row in `session`
-- advanced by its lines here, in order, and its log is `segment` followed by them.
--
-- So a commit costs one page, whatever it touches, and sessions get their rows written once for many commits: in the
-- transaction that makes too much wait, and before anything else is changed, which finds this table empty.
-- Invariant: no row holds an append that records a cwd.
CREATE TABLE pending (
    id   INTEGER PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;

-- Which entries of a log say what became of a run: user messages and dones with a run, starts with a client id too
-- (spec 3.3). A view of `segment`, changed where that is, so that a retry is found without reading the log.
CREATE TABLE run_line (
    log    INTEGER NOT NULL REFERENCES log (id) ON DELETE CASCADE,
    n      INTEGER NOT NULL,
    kind   TEXT    NOT NULL CHECK (kind IN ('user', 'start', 'done')),
    run    TEXT    NOT NULL,
    client TEXT,
    PRIMARY KEY (log, n)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_line_run ON run_line (log, run);
CREATE INDEX run_line_client ON run_line (log, client) WHERE client IS NOT NULL;

-- What the lines that set latest.md, state, cwd or meta.json set it to (of latest.md its size, the newline counted), NULL
-- for what a line does not set. A view of `segment` as `run_line` is, so that a branch from the middle of a log knows
-- what its files say without reading a line of it.
CREATE TABLE value_line (
    log         INTEGER NOT NULL REFERENCES log (id) ON DELETE CASCADE,
    n           INTEGER NOT NULL,
    latest_size INTEGER,
    state       TEXT,
    cwd         TEXT,
    meta        TEXT,
    PRIMARY KEY (log, n)
) STRICT, WITHOUT ROWID;

-- Work that a deletion leaves: logs without a session whose rows beyond what child logs need are still to be removed.
CREATE TABLE unused_log (
    log INTEGER PRIMARY KEY REFERENCES log (id) ON DELETE CASCADE
) STRICT;

-- A session: what it is, where it is, and what its files say (`backend.rows.Session`, in that order).
--
-- id is that of its log. `owner` is NULL for one without a place (made through the API), or archived from an agent that
-- is gone. It is live while `archive` is NULL. `listed` orders index/list: the seq at which the session last came to
-- its top (so it orders as seq does, but an append to the session on top need not change it). cwd_key is the name of
-- its cwd in by-cwd, NULL while it recorded none.
CREATE TABLE session (
    id               INTEGER PRIMARY KEY REFERENCES log (id),
    owner            INTEGER REFERENCES owner (id) ON DELETE SET NULL,
    name             TEXT    NOT NULL,
    uid              INTEGER NOT NULL,
    session_id       TEXT    NOT NULL UNIQUE,
    scope            TEXT    NOT NULL,
    archive          INTEGER REFERENCES archive_directory (id),
    parent           TEXT,
    at               INTEGER,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    n                INTEGER NOT NULL,
    seq              INTEGER NOT NULL,
    messages_size    INTEGER NOT NULL,
    events_size      INTEGER NOT NULL,
    latest_size      INTEGER NOT NULL,
    latest_n         INTEGER,
    state            TEXT    NOT NULL,
    cwd              TEXT    NOT NULL,
    cwd_seq          INTEGER NOT NULL,
    meta             TEXT    NOT NULL,
    created_mtime    INTEGER NOT NULL,
    updated_mtime    INTEGER NOT NULL,
    messages_mtime   INTEGER NOT NULL,
    events_mtime     INTEGER NOT NULL,
    latest_mtime     INTEGER NOT NULL,
    state_mtime      INTEGER NOT NULL,
    cwd_mtime        INTEGER NOT NULL,
    meta_mtime       INTEGER NOT NULL,
    listed           INTEGER NOT NULL,
    cwd_key          TEXT,
    format_version   INTEGER NOT NULL,
    delegation_depth INTEGER NOT NULL,
    title            TEXT,
    origin           TEXT
) STRICT;
-- Every listing pages on (parent, id). None of these holds a column that an ordinary append changes.
CREATE UNIQUE INDEX session_name ON session (owner, name) WHERE archive IS NULL;
CREATE INDEX session_page ON session (owner, archive, id);
CREATE UNIQUE INDEX session_archived_name ON session (archive, name) WHERE archive IS NOT NULL;
CREATE INDEX session_archived_page ON session (archive, id) WHERE archive IS NOT NULL;
CREATE INDEX session_listed ON session (owner, listed, name) WHERE archive IS NULL;
CREATE INDEX session_cwd ON session (owner, cwd_key, cwd_seq) WHERE archive IS NULL AND cwd_key IS NOT NULL;
CREATE INDEX session_created ON session (created_at DESC, session_id);
CREATE INDEX session_children ON session (parent, created_at DESC, session_id) WHERE parent IS NOT NULL;

-- AGENTS.md and SKILLS.md beside a session. A removed one keeps its row (content NULL), so that a later one is newer.
CREATE TABLE snapshot (
    id      INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    name    TEXT    NOT NULL,
    mtime   INTEGER NOT NULL,
    content BLOB,
    UNIQUE (session, name)
) STRICT;

-- The run that a session has now: set by the append that begins it, and nothing else says it, as a start may be
-- anybody's; removed when a done of it comes into `segment`. What is here, and in no done that waits, when the store is
-- opened is a run that died with who had it open.
CREATE TABLE live_run (
    session INTEGER PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
    run     TEXT    NOT NULL
) STRICT;

-- The files of by-cwd/, by-hash/ and by-uuid/: key → a live session of that owner.
-- Invariant of by-cwd: a key has a row exactly while a live session of the owner has that cwd_key, and it leads to the
-- one of them with the highest cwd_seq.
CREATE TABLE mapping (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    owner   INTEGER NOT NULL REFERENCES owner (id) ON DELETE CASCADE,
    kind    TEXT    NOT NULL CHECK (kind IN ('by-cwd', 'by-hash', 'by-uuid')),
    key     TEXT    NOT NULL,
    session INTEGER NOT NULL REFERENCES session (id),
    mtime   INTEGER NOT NULL,
    UNIQUE (owner, kind, key)
) STRICT;
CREATE INDEX mapping_page ON mapping (owner, kind, id);
CREATE INDEX mapping_session ON mapping (session);

-- agent/<agent>.d/ and model/<provider>/<model>.d/, and the values in them.
CREATE TABLE definition (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    kind  TEXT    NOT NULL CHECK (kind IN ('agent', 'model')),
    name  TEXT    NOT NULL,
    mtime INTEGER NOT NULL,
    UNIQUE (kind, name)
) STRICT;
CREATE TABLE definition_value (
    id         INTEGER PRIMARY KEY,
    definition INTEGER NOT NULL REFERENCES definition (id) ON DELETE CASCADE,
    file       TEXT    NOT NULL,
    mtime      INTEGER NOT NULL,
    content    BLOB    NOT NULL,
    UNIQUE (definition, file)
) STRICT;
