"""An owner's ``index/`` against its sessions (spec 1.2; field report 14).

Everything is looked at while it may change, so what is found is a suspicion first: each comes with a proof, one look at
the store of that moment, and is a fault if that confirms it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

from backend.asking import Ask, live_sessions
from backend.doctor.faults import Fault
from backend.log_contract import listed_key
from backend.rows import IndexKind, Mapping
from backend.store import Store

MOST = 1000
_PAGE = 500
_OUTER: tuple[IndexKind, IndexKind] = ("by-hash", "by-uuid")

Proof = Callable[[Store], bool]
Suspicion = tuple[str, str, Proof]
"""A file of the index, what is wrong with it, and whether that is so now."""


def check_owner(ask: Ask, owner: int, path: str) -> list[Fault]:
    """All that is wrong with the index in the directory ``path``; at most a thousand faults."""
    if ask(lambda store: store.owner_by_id(owner)) is None:
        return []
    faults: list[Fault] = []
    for file, reason, proof in _suspicions(ask, owner):
        if len(faults) < MOST and ask(proof):
            faults.append(Fault("index", f"{path}/{file}", reason))
    return faults


def _suspicions(ask: Ask, owner: int) -> Iterator[Suspicion]:
    sequences: dict[str, int] = {}
    holders: dict[str, tuple[int, str]] = {}
    for session in live_sessions(ask, owner):
        sequences[session.name] = session.seq
        if key := listed_key(session):
            holders[key] = max(holders.get(key, (0, "")), (session.cwd_seq, session.name))
    yield "list", "its recorded size is not that of its content", partial(_has_another_size, owner)
    yield from _in_list(owner, ask(partial(_names, owner)), sequences)
    yield "current", "it names no session", partial(_names_no_session, owner)
    yield from _in_by_cwd(owner, _mapped(ask, owner, "by-cwd"), {key: name for key, (_, name) in holders.items()})
    for kind in _OUTER:
        for key, session_name in _mapped(ask, owner, kind).items():
            if session_name not in sequences:
                yield f"{kind}/{key}", "it names no session", partial(_leads_nowhere, owner, kind, key)


def _names(owner: int, store: Store) -> list[str]:
    return store.list_content(owner).decode().splitlines()


def _mapped(ask: Ask, owner: int, kind: IndexKind) -> dict[str, str]:
    found: dict[str, str] = {}
    after = 0
    while page := ask(partial(_mappings_after, owner, kind, after)):
        found |= {mapping.key: mapping.session for mapping in page}
        after = page[-1].id
    return found


def _mappings_after(owner: int, kind: IndexKind, after: int, store: Store) -> list[Mapping]:
    return list(store.mappings(owner, kind, after, _PAGE))


def _in_list(owner: int, names: list[str], sequences: dict[str, int]) -> Iterator[Suspicion]:
    known = set(names)
    for name in sorted(sequences.keys() - known):
        yield "list", f"session {name} is not in it", partial(_is_not_listed, owner, name)
    for name in sorted(known - sequences.keys()):
        yield "list", f"{name} is in it, and is no session", partial(_is_listed_only, owner, name)
    if len(known) != len(names):
        yield "list", "a session is in it twice", partial(_has_twice, owner)
    for one, next_one in pairwise(name for name in names if name in sequences):
        if sequences[one] <= sequences[next_one]:
            reason = f"{one} comes before {next_one}, whose last entry is newer"
            yield "list", reason, partial(_is_before_a_newer, owner, one, next_one)


def _in_by_cwd(owner: int, found: dict[str, str], holders: dict[str, str]) -> Iterator[Suspicion]:
    for key in sorted(found.keys() | holders.keys()):
        if found.get(key) != holders.get(key):
            reason = "it is missing" if key not in found else "it does not name the session that recorded that last"
            yield f"by-cwd/{key}", reason, partial(_is_not_the_holders, owner, key, holders.get(key))


def _has_another_size(owner: int, store: Store) -> bool:
    row = store.owner_by_id(owner)
    return row is not None and row.list_size != len(store.list_content(owner))


def _is_not_listed(owner: int, name: str, store: Store) -> bool:
    return store.session(owner, name) is not None and name not in _names(owner, store)


def _is_listed_only(owner: int, name: str, store: Store) -> bool:
    return store.session(owner, name) is None and name in _names(owner, store)


def _has_twice(owner: int, store: Store) -> bool:
    names = _names(owner, store)
    return len(set(names)) != len(names)


def _is_before_a_newer(owner: int, one: str, other: str, store: Store) -> bool:
    names = _names(owner, store)
    if one not in names or other not in names or names.index(one) > names.index(other):
        return False
    sessions = [store.session(owner, name) for name in (one, other)]
    sequences = [session.seq for session in sessions if session is not None]
    return len(sequences) == 2 and sequences[0] <= sequences[1]


def _names_no_session(owner: int, store: Store) -> bool:
    row = store.owner_by_id(owner)
    return row is not None and row.current is not None and store.session(owner, row.current) is None


def _is_not_the_holders(owner: int, key: str, holder: str | None, store: Store) -> bool:
    """Whether a key is missing, leads to a session that has another cwd, or to one that recorded it earlier."""
    mapping = store.mapping(owner, "by-cwd", key)
    wanted = None if holder is None else store.session(owner, holder)
    if wanted is not None and listed_key(wanted) != key:
        wanted = None
    if mapping is None:
        return wanted is not None
    named = store.session(owner, mapping.session)
    if named is None or listed_key(named) != key:
        return True
    return wanted is not None and named.cwd_seq < wanted.cwd_seq


def _leads_nowhere(owner: int, kind: IndexKind, key: str, store: Store) -> bool:
    mapping = store.mapping(owner, kind, key)
    return mapping is not None and store.session(owner, mapping.session) is None
