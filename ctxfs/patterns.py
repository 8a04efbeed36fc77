"""The rest of the table of files: which kinds with names of many kinds (``<…>``) are in which directories.

``NAMED`` and ``FOUND`` turn both parts around: what is in each kind of directory.
"""

from collections.abc import Iterator

from backend.names import (
    is_agent_definition_name,
    is_agent_name,
    is_archive_directory_name,
    is_model_directory_name,
    is_name,
    is_session_name,
    is_uid,
    is_uuid,
)
from ctxfs.files import archives, definitions, index, sessions, sockets, spaces
from ctxfs.inodes import Kind
from ctxfs.rows import Pattern, Row
from ctxfs.table import TABLE

PATTERNS = (
    Pattern(
        Kind.AGENTS,
        Kind.AGENT_DEFINITION,
        is_agent_definition_name,
        definitions.find_agent_definition,
        definitions.each_agent_definition,
        definitions.make_agent_definition,
        definitions.remove_agent_definition,
    ),
    Pattern(
        Kind.MODELS,
        Kind.MODEL_PROVIDER,
        is_name,
        *definitions.PROVIDERS,
    ),
    Pattern(
        Kind.MODEL_PROVIDER,
        Kind.MODEL_DEFINITION,
        is_model_directory_name,
        definitions.find_model_definition,
        definitions.each_model_definition,
        definitions.make_model_definition,
        definitions.remove_model_definition,
    ),
    *(
        Pattern(
            directory,
            Kind.SOCKET,
            sockets.is_socket_name,
            sockets.find_socket,
            sockets.each_socket,
            remove=sockets.unlink_socket,
            bind=sockets.bind_socket,
        )
        for directory in (Kind.AGENTS, Kind.MODEL_PROVIDER)
    ),
    Pattern(Kind.HOMES, Kind.HOME, is_uid, spaces.find_home, spaces.each_home, spaces.make_home),
    Pattern(
        Kind.SHARED,
        Kind.SHARED_SPACE,
        is_name,
        spaces.find_shared,
        spaces.each_shared,
        spaces.make_shared,
        spaces.remove_shared,
    ),
    Pattern(
        Kind.SPACE_AGENTS,
        Kind.AGENT,
        is_agent_name,
        spaces.find_agent,
        spaces.each_agent,
        spaces.make_agent,
        spaces.remove_agent,
    ),
    Pattern(
        Kind.SPACE_MODELS,
        Kind.MODEL,
        is_model_directory_name,
        spaces.find_model,
        spaces.each_model,
        spaces.make_model,
        spaces.remove_model,
    ),
    Pattern(
        Kind.SPACE_MODELS,
        Kind.SPACE_PROVIDER,
        is_name,
        *spaces.PROVIDERS,
    ),
    Pattern(
        Kind.SPACE_PROVIDER,
        Kind.MODEL,
        is_model_directory_name,
        spaces.find_provider_model,
        spaces.each_provider_model,
        spaces.make_provider_model,
        spaces.remove_provider_model,
    ),
    Pattern(
        Kind.SESSIONS,
        Kind.SESSION,
        is_session_name,
        sessions.find_session,
        sessions.each_session,
        sessions.make_session,
        sessions.remove_session,
    ),
    Pattern(Kind.BY_CWD, Kind.CWD_KEY, is_name, *index.key_files("by-cwd")),
    Pattern(Kind.BY_HASH, Kind.HASH_KEY, is_name, *index.key_files("by-hash")),
    Pattern(Kind.BY_UUID, Kind.UUID_KEY, is_uuid, *index.key_files("by-uuid")),
    Pattern(
        Kind.ARCHIVE,
        Kind.ARCHIVE_DIRECTORY,
        is_archive_directory_name,
        *archives.DIRECTORIES,
    ),
    Pattern(Kind.ARCHIVE_DIRECTORY, Kind.SESSION, is_session_name, archives.find_archived, archives.each_archived),
    Pattern(
        Kind.ARCHIVE_DIRECTORY,
        Kind.ARCHIVE_DIRECTORY,
        is_archive_directory_name,
        *archives.NESTED_DIRECTORIES,
    ),
)

NAMED: dict[Kind, tuple[tuple[Kind, Row], ...]] = {
    parent: tuple((kind, row) for kind, row in TABLE.items() if parent in row.parents) for parent in Kind
}
BY_NAME: dict[Kind, dict[str, Kind]] = {parent: {row.name: kind for kind, row in NAMED[parent]} for parent in Kind}
FOUND: dict[Kind, tuple[Pattern, ...]] = {
    parent: tuple(pattern for pattern in PATTERNS if pattern.parent is parent) for parent in Kind
}


def _same_id(kind: Kind) -> Iterator[Kind]:
    yield kind
    for below, _ in NAMED[kind]:
        yield from _same_id(below)


# A kind of directory with all that has names of its own below it: their ids are the directory's.
SAME_ID: dict[Kind, tuple[Kind, ...]] = {kind: tuple(_same_id(kind)) for kind in Kind}
