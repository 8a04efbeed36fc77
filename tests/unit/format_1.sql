-- The schema of the first commit that had a sqlite store.
PRAGMA application_id = 0x63747866;
PRAGMA user_version = 1;

CREATE TABLE store (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    openings INTEGER NOT NULL
) STRICT;
INSERT INTO store VALUES (1, 0);

CREATE TABLE space (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    name  TEXT    NOT NULL UNIQUE,
    uid   INTEGER NOT NULL,
    gid   INTEGER NOT NULL,
    mode  INTEGER NOT NULL,
    mtime INTEGER NOT NULL
) STRICT;

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

CREATE TABLE unused_log (
    log INTEGER PRIMARY KEY REFERENCES log (id) ON DELETE CASCADE
) STRICT;

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
CREATE UNIQUE INDEX session_name ON session (owner, name) WHERE archive IS NULL;
CREATE INDEX session_page ON session (owner, archive, id);
CREATE UNIQUE INDEX session_archived_name ON session (archive, name) WHERE archive IS NOT NULL;
CREATE INDEX session_archived_page ON session (archive, id) WHERE archive IS NOT NULL;
CREATE INDEX session_listed ON session (owner, listed, name) WHERE archive IS NULL;
CREATE INDEX session_cwd ON session (owner, cwd_key, cwd_seq) WHERE archive IS NULL AND cwd_key IS NOT NULL;
CREATE INDEX session_created ON session (created_at DESC, session_id);
CREATE INDEX session_children ON session (parent, created_at DESC, session_id) WHERE parent IS NOT NULL;

CREATE TABLE snapshot (
    id      INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    name    TEXT    NOT NULL,
    mtime   INTEGER NOT NULL,
    content BLOB,
    UNIQUE (session, name)
) STRICT;

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
