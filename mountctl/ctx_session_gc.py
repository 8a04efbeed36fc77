"""``ctx agent session gc``: archives or deletes the sessions that are left over (spec 4.4).

By default a preview that writes nothing. Preview and work choose by the same rules, at the moment each of them runs.
"""

import argparse
import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager

from mountctl import archiving, places
from mountctl.archiving import Changed, Owner
from mountctl.cli import OK, USAGE, Failure, complain
from mountctl.progress import followed
from mountctl.session_options import add_agent, add_archive_dir, natural
from mountctl.sessions import names, read_value
from mountctl.text import escaped_name

DESCRIPTION = """Archives an agent's sessions: all, or those that meet every condition given. The default session, the
current one, active ones and those of --keep always stay. Without --yes it only says what it would do."""

_DAY_S = 86400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_agent(parser)
    parser.add_argument("--match", action="append", metavar="GLOB", help="names like it, * for any text; repeatable")
    parser.add_argument("--older-than-days", metavar="N", help="not updated for N days")
    parser.add_argument("--keep", action="append", metavar="S", default=[], help="a session that stays; repeatable")
    parser.add_argument("--delete", action="store_true", help="delete for good instead")
    parser.add_argument("--yes", dest="apply", action="store_true", help="do it")
    parser.add_argument("--dry-run", dest="apply", action="store_false", help="only say it (the last of the two wins)")
    add_archive_dir(parser)
    parser.set_defaults(apply=False)


def run(arguments: argparse.Namespace) -> int:
    if arguments.delete and arguments.archive_dir is not None:
        raise Failure("agent session gc --archive-dir cannot be used with --delete", USAGE)
    chosen = archiving.archive_dir(arguments.archive_dir)
    before = _updated_before(arguments.older_than_days)
    kept = {places.session_name(name) for name in arguments.keep}
    owner = archiving.owner_of(arguments.agent, arguments.space)
    shelf = archiving.shelf_of(owner, chosen)
    found = eligible(owner, arguments.match, before, kept)
    if not found:
        print("ctx: no matching agent sessions")
        return OK
    verb = "delete" if arguments.delete else "archive"
    conflicts = [] if arguments.delete else [taken for name in found if (taken := archiving.conflict(shelf, name))]
    if not arguments.apply:
        return _preview(verb, found, conflicts)
    if conflicts:
        raise conflicts[0]
    return _work(verb, found, archiving.deleting(owner) if arguments.delete else archiving.archiving(owner, shelf))


def _updated_before(days: str | None) -> int | None:
    """Sessions that were updated earlier, in seconds since the epoch, are old enough; None: all are."""
    if days is None:
        return None
    try:
        return int(time.time()) - natural(days) * _DAY_S
    except argparse.ArgumentTypeError:
        raise Failure(f"invalid --older-than-days value: {escaped_name(days)}", USAGE) from None


def eligible(owner: Owner, patterns: Sequence[str] | None, before: int | None, kept: Collection[str]) -> list[str]:
    """The sessions that are chosen and not protected, by name; in a shared space those that the caller may remove."""
    listed = sorted(names(owner.sessions))
    if patterns is not None:
        listed = [name for name in listed if any(matches(pattern, name) for pattern in patterns)]
    return [
        name
        for name in followed(listed, len(listed))
        if not archiving.protection(owner, name, kept) and _may_go(f"{owner.sessions}/{name}", before)
    ]


def matches(pattern: str, name: str) -> bool:
    """Whether a name is like a pattern, in which ``*`` stands for any text and everything else for itself."""
    first, *middle = pattern.split("*")
    if not middle:
        return name == pattern
    last = middle.pop()
    at, end = len(first), len(name) - len(last)
    if at > end or not name.startswith(first) or not name.endswith(last):
        return False
    for part in middle:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def _may_go(directory: str, before: int | None) -> bool:
    """Whether a session is the caller's, and old enough; one that is not there any more, or does not say, stays."""
    try:
        uid = os.geteuid()
        is_own = os.stat(directory).st_uid == uid or uid == 0
        return is_own and (before is None or _last_touched(directory) < before)
    except (OSError, ValueError):
        return False


def _last_touched(directory: str) -> int:
    """When a session was updated, in seconds; a branch that nobody wrote to since it was made: then."""
    return max(int(read_value(f"{directory}/{name}")) for name in ("updated_at", "created_at"))


def _preview(verb: str, found: Sequence[str], conflicts: Sequence[Failure]) -> int:
    print(f"ctx: dry-run; pass --yes to {verb}")
    for name in found:
        print(f"{verb} {name}")
    for failure in conflicts:
        complain("ctx", str(failure), failure.exit_code)
    return OK


def _work(verb: str, found: Sequence[str], work: AbstractContextManager[Callable[[str], None]]) -> int:
    """One session after the other, a line for each; the first failure ends it, but one that had to stay does not."""
    code = OK
    with work as take:
        for name in found:
            try:
                take(name)
            except Changed as changed:
                code = complain("ctx", str(changed), changed.exit_code)
            else:
                print(f"{verb}d {name}", flush=True)
    return code
