"""A run's sessions on the mount: found, made and appended to as by file operations. FUSE thread only (spec 3.3)."""

import errno
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from pyfuse3 import FUSEError

from backend.derived import SentView
from backend.errors import Missing, SessionArchived, SessionConflictError
from backend.projection import PAGE, Lines, Projection
from backend.rows import Append, Owner, Session
from ctxfs.agents import steps
from ctxfs.agents.history import Recorded, Wanted, find_recorded
from ctxfs.files.appends import writable_session
from ctxfs.files.directories import Caller
from ctxfs.files.sessions import make_session
from ctxfs.files.snapshots import NAMES, put_snapshot, remove_snapshot
from ctxfs.files.spaces import make_agent, make_model, make_provider_model
from ctxfs.inodes import Kind, Node
from ctxfs.subjects import ProviderSubject, SpaceSubject

if TYPE_CHECKING:
    from ctxfs.agents.ledger import LinesOf, Place
    from ctxfs.core import Core

_OPEN_TRIES = 3


def find_session(core: "Core", place: "Place") -> Session | None:
    """The live session of that place, None where there is none."""
    owner = core.store.owner(place.space, place.kind, place.name)
    return None if owner is None else core.store.session(owner.id, place.session)


async def open_session(core: "Core", place: "Place") -> Session:
    """The live session of that place, made with what is missing above it, as its user's mkdir would."""
    # Whose group a home has must be known before anything in it is made.
    number = core.subjects.space_id(place.space)
    if place.space.startswith("home/"):
        await core.users.learn(number)
    owner = core.store.owner(place.space, place.kind, place.name) or _make_owner(core, place, number)
    session = core.store.session(owner.id, place.session)
    if session is None:
        made = make_session(core, core.subjects.owner(owner.id), place.session, Caller(place.uid, place.gid))
        core.kernel.names_changed(Node(Kind.SESSIONS, owner.id), owner.mtime)
        session = core.subjects.session(made).session
    return session


def _make_owner(core: "Core", place: "Place", number: int) -> Owner:
    space, caller = core.subjects.space(number), Caller(place.uid, place.gid)
    if place.kind == "agent":
        made, directory = make_agent(core, space, place.name, caller), Node(Kind.SPACE_AGENTS, number)
    else:
        made, directory = _make_model(core, space, place.name, caller), Node(Kind.SPACE_MODELS, number)
    core.kernel.names_changed(directory, space.mtime)
    return core.subjects.owner(made).owner


def _make_model(core: "Core", space: SpaceSubject, name: str, caller: Caller) -> int:
    provider, slash, model = name.partition("/")
    if not slash:
        return make_model(core, space, f"{name}.d", caller)
    return make_provider_model(core, ProviderSubject(space, provider, space.access, space.mtime), f"{model}.d", caller)


async def find_recorded_send(core: "Core", place: "Place", client_id: str, wanted: Wanted) -> Recorded | None:
    """What the session of that place has of a send."""
    session = find_session(core, place)
    if session is None:
        return None
    await index_runs(core, session.id)
    return find_recorded(core.store, session, client_id, wanted)


async def index_runs(core: "Core", session: int) -> None:
    """Sees to it that what a log says of runs is found at once; requests that wait go first meanwhile."""
    while core.store.index_runs(session):
        await core.commits.others_first()


async def begin(core: "Core", place: "Place", lines_of: "LinesOf", run: str, definition: int | None) -> Session:
    """Lines by which a run begins, in a session that is made where it is missing.

    Where the session was archived just now, a fresh one is made.
    """
    for _ in range(_OPEN_TRIES):
        session = await open_session(core, place)
        steps.reached("opened")
        try:
            session = await append(core, session.id, lines_of, begins=run)
        except (SessionArchived, Missing) as gone:
            refusal: Exception = gone
        except FUSEError as error:
            if error.errno != errno.EROFS:
                raise
            refusal = error
        else:
            if definition is not None:
                core.activity.begun(definition, run)
            steps.reached("recorded")
            return session
    raise refusal


async def end(core: "Core", number: int, lines_of: "LinesOf", run: str) -> Session:
    """Lines by which a run ends."""
    session = await append(core, number, lines_of)
    core.activity.ended(run)
    steps.reached("end recorded")
    return session


async def append(core: "Core", number: int, lines_of: "LinesOf", *, begins: str | None = None) -> Session:
    """Appends what ``lines_of`` makes of the session as it is then, whoever else appends meanwhile."""
    while True:
        session = writable_session(core, number)
        wanted = Append(number, lines_of(session), session.n, begins=begins)
        try:
            return (await core.commits.append(wanted)).session
        except SessionConflictError:
            core.subjects.drop(number)


async def sent(core: "Core", session: Session) -> Lines:
    """What the model is sent of a session as it was then (spec 2.5); what was looked at before is known."""
    await core.contexts.ready(session.id, "messages.jsonl")
    present = core.subjects.session(session.id).session
    view = core.contexts.view(present, "messages.jsonl")
    if present.n == session.n and isinstance(view, SentView):
        return view.lines()
    # Somebody has appended meanwhile.
    projection = Projection(partial(core.store.rows, session.id))
    for length in range(PAGE, session.n + PAGE, PAGE):
        projection.advance(min(length, session.n))
        await core.commits.others_first()
    return projection.lines()


def put_snapshots(core: "Core", number: int, contents: Mapping[str, bytes]) -> None:
    """AGENTS.md and SKILLS.md of a session; empty ones go."""
    for kind, name in NAMES.items():
        content = contents.get(name, b"")
        if content:
            put_snapshot(core, Node(kind, number), content)
        elif core.store.snapshot(number, name) is not None:
            remove_snapshot(core, Node(kind, number))
        else:
            continue
        core.kernel.names_changed(Node(Kind.SESSION, number), core.subjects.session(number).session.updated_mtime)


def lead(core: "Core", place: "Place", old: str | None, new: str | None) -> None:
    """by-uuid/ leads to the session with ``new``, and no longer with ``old``."""
    owner = core.store.owner(place.space, place.kind, place.name)
    if owner is None:
        return
    mapping = None if old is None else core.store.mapping(owner.id, "by-uuid", old)
    if mapping is not None and mapping.session == place.session:
        core.store.remove_mapping(mapping.id)
        core.kernel.unmapped(owner.id, "by-uuid", mapping.key)
    if new is not None and core.store.session(owner.id, place.session) is not None:
        core.store.set_mapping(owner.id, "by-uuid", new, place.session)
        core.kernel.mapped(owner.id, "by-uuid", new)
