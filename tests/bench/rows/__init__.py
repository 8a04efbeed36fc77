"""The rows of the benchmark by name: each measures one kind of work and says which bounds hold (design, Speed)."""

from collections.abc import Callable, Mapping

from tests.bench.bench import Bench
from tests.bench.figures import Report
from tests.bench.rows import (
    appending,
    attributes,
    commands,
    control,
    growth,
    importing,
    log,
    memory,
    reading,
    requests,
    sends,
)

Row = Callable[[Bench], Report]

ROWS: Mapping[str, Row] = {
    "stat-warm": attributes.stat_warm,
    "ls-warm": attributes.ls_warm,
    "ls-cold": attributes.ls_cold,
    "read-warm": reading.read_warm,
    "read-cold": reading.read_cold,
    "append": appending.append,
    "append-synced": appending.append_synced,
    "requests": requests.requests,
    "growth-entries": growth.entries,
    "growth-sessions": growth.sessions,
    "branches": log.branching,
    "projection": log.projection,
    "memory": memory.resident,
    "sends": sends.sends,
    "import": importing.claude_code,
    "command": commands.agent_output,
    "control-start": control.start,
    "control-flow": control.flow,
}
