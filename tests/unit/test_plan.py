"""The command line of a daemon says its whole plan."""

from pathlib import Path

import pytest

from ctxfs.agents.settings import Settings
from ctxfs.plan import Plan, daemon_command, parse_command

LEAST = Plan("/ctx", Path("/store"), "jsonl", frozenset(), Path("/run/ctxfs"))
WHOLE = Plan(
    "/a mount,point",
    Path("/-store"),
    "sqlite",
    frozenset(("ro", "noatime")),
    Path("/run/ctxfs"),
    log_level="debug",
    log_file=Path("/log"),
    marks={"demo/seen": {"page": "number"}},
    agents=Settings(home="/h", wall_s=4),
    metrics=Path("/metrics.sock"),
)


@pytest.mark.parametrize("plan", [LEAST, WHOLE])
def test_the_daemon_reads_what_it_was_started_with(plan: Plan) -> None:
    assert all(getattr(WHOLE, field) != default for field, default in Plan._field_defaults.items())
    _, _, _, *arguments = daemon_command(plan, 7)
    assert parse_command(arguments) == (plan, 7)
