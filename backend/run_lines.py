"""Which entries of a log say what became of a run, found by client id or run (spec 3.3, Retry).

Pure. ``run_lines`` says it of lines; ``RunIndex`` is the index of the stores that keep it in memory. The sqlite store
has it as a table.
"""

from collections.abc import Iterator, Sequence

from backend.rows import MAX_RUN_LINES, Line, RunLine, RunLineKind

MAX_STARTS = 2
"""Of one client id: two are one too many, so nobody needs to know of more."""

_KINDS: dict[str, RunLineKind] = {"user": "user", "start": "start", "done": "done"}


def run_lines(lines: Sequence[Line], first: int) -> Iterator[RunLine]:
    """What consecutive entries from ``first`` on say of runs."""
    return (RunLine(n, _KINDS[line.key], line.run, line.client) for n, line in enumerate(lines, first) if line.run)


class RunIndex:
    """The run lines of one log, by client id and by run."""

    def __init__(self) -> None:
        self._starts: dict[str, list[RunLine]] = {}
        self._runs: dict[str, list[RunLine]] = {}

    def extend(self, lines: Sequence[Line], first: int) -> None:
        """Takes in entries that follow, the first of them number ``first``."""
        for line in run_lines(lines, first):
            if line.client is not None:
                _add(self._starts.setdefault(line.client, []), line, MAX_STARTS)
            _add(self._runs.setdefault(line.run, []), line, MAX_RUN_LINES)

    def starts(self, client: str, stop: int) -> Sequence[RunLine]:
        """Starts of a client id among the entries below ``stop``."""
        return [line for line in self._starts.get(client, ()) if line.n < stop]

    def lines(self, run: str, stop: int) -> Sequence[RunLine]:
        """Lines of a run among the entries below ``stop``."""
        return [line for line in self._runs.get(run, ()) if line.n < stop]


def _add(known: list[RunLine], line: RunLine, most: int) -> None:
    if len(known) < most:
        known.append(line)
