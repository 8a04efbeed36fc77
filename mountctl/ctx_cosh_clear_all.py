"""``ctx cosh clear-all``: removes the sessions of a workspace (spec 5.1)."""

import argparse
import json
import sys

from ctxfs.cosh.client import Cleared, ClearPlan
from mountctl.cli import ERROR, OK, USAGE, Failure, complain
from mountctl.cosh_options import add_core, as_json, ask, workspace
from mountctl.text import counted, escaped, is_confirmed

DESCRIPTION = """Removes every session of cosh-core that a workspace has, but for the protected ones. What that would be
is shown first, and somebody has to agree. What could not be removed, or may not have been, is said one by one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "a session that stays; more than once"
    parser.add_argument("--protect", metavar="UUID", action="append", default=[], help=text)
    parser.add_argument("--yes", action="store_true", help="nobody has to agree")
    add_core(parser)


def run(arguments: argparse.Namespace) -> int:
    where = workspace(arguments)
    plan = ask(arguments, lambda client: client.plan_clear_all(where, arguments.protect))
    if not arguments.json or not arguments.yes:
        _show(plan)
    question = f"Remove {counted(len(plan.session_ids), 'session')} of {where}?"
    if plan.session_ids and not arguments.yes and not is_confirmed(question):
        raise Failure("nothing was removed: confirm it at a terminal, or pass --yes", USAGE)
    done = ask(arguments, lambda client: client.clear(where, plan.session_ids, arguments.protect))
    if arguments.json:
        print(json.dumps(as_json(done)))
    else:
        _report(done)
    return ERROR if done.skipped or done.error is not None else OK


def _show(plan: ClearPlan) -> None:
    """On stderr where an answer may follow on stdout."""
    for id in plan.session_ids:
        print(f"remove {escaped(id)}", file=sys.stderr)
    for id in plan.protected_session_ids:
        print(f"keep {escaped(id)}", file=sys.stderr)


def _report(done: Cleared) -> None:
    for id in done.deleted:
        print(f"removed {escaped(id)}")
    for entry in done.skipped:
        complain("ctx", f"{entry.error.message} ({entry.error.code})", ERROR)
    for id in done.unknown_session_ids:
        complain("ctx", f"{id}: it is not known whether it was removed", ERROR)
    for id in done.unattempted_session_ids:
        complain("ctx", f"{id}: not removed", ERROR)
    if done.error is not None:
        complain("ctx", f"{done.error.message} ({done.error.code})", ERROR)
