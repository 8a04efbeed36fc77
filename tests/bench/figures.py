"""Figures, the bounds they must keep, and their tables; pure, so that a test can feed it what no machine gave.

A row of the benchmark gives a ``Report``: medians of each system under each placement, and claims about their ratios.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

BEGIN = "<!-- figures: written by `./run bench --write` -->"
END = "<!-- end of figures -->"


class Placement(StrEnum):
    """Where client and servers run: all on one CPU, or wherever the scheduler puts them."""

    PINNED = "pinned"
    UNPINNED = "unpinned"


@dataclass(frozen=True)
class AtLeast:
    """``limit`` or more is needed."""

    limit: float

    def holds(self, value: float) -> bool:
        return value >= self.limit

    def __str__(self) -> str:
        return f"≥ {self.limit:g}"


@dataclass(frozen=True)
class AtMost:
    """``limit`` or less is needed."""

    limit: float

    def holds(self, value: float) -> bool:
        return value <= self.limit

    def __str__(self) -> str:
        return f"≤ {self.limit:g}"


Bound = AtLeast | AtMost


@dataclass(frozen=True)
class Claim:
    """One ratio (or, with a unit, one value), and its bound; None only reports it."""

    what: str
    value: float
    bound: Bound | None
    placement: Placement | None = None
    unit: str = ""

    @property
    def holds(self) -> bool:
        return self.bound is None or self.bound.holds(self.value)

    def __str__(self) -> str:
        where = f", {self.placement}" if self.placement else ""
        bound = f" (bound {self.bound})" if self.bound else ""
        return f"{self.what}{where}: {_short(self.value)}{self.unit}{bound}"


@dataclass(frozen=True)
class Measured:
    """The medians of one system at one kind of work; a placement that was not tried has none."""

    what: str
    unit: str
    medians: Mapping[Placement, float]


@dataclass
class Report:
    """What a row found. ``note`` says what the reader must know, such as what could not be measured."""

    title: str
    measured: list[Measured] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    note: str = ""

    def missed(self) -> Iterator[Claim]:
        """The claims that do not hold."""
        return (claim for claim in self.claims if not claim.holds)


def interleave(rounds: int, systems: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Measures A B A B …; the median of each system's rounds."""
    values: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name, measure in systems.items():
            values[name].append(measure())
    return {name: statistics.median(found) for name, found in values.items()}


def text(reports: Sequence[Report]) -> str:
    """The tables of all reports, as Markdown."""
    return "\n".join([*_summary(reports), *(line for report in reports for line in _details(report))])


def replaced(document: str, tables: str) -> str:
    """``document`` with ``tables`` between its two marks."""
    before, _, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the document has no {BEGIN!r} … {END!r}")
    return f"{before}{BEGIN}\n\n{tables}\n{END}{after}"


def _summary(reports: Sequence[Report]) -> list[str]:
    lines = ["| work | bound | pinned | unpinned |", "| --- | --- | --- | --- |"]
    for report in reports:
        for what, claims in _by_subject(report.claims).items():
            bound = next((str(claim.bound) for claim in claims if claim.bound), "–")
            lines.append(
                f"| {what} | {bound} | {_cell(claims, Placement.PINNED)} | {_cell(claims, Placement.UNPINNED)} |"
            )
    return [*lines, ""]


def _by_subject(claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        found.setdefault(claim.what, []).append(claim)
    return found


def _cell(claims: Sequence[Claim], placement: Placement) -> str:
    """The claim for that placement; one that is about none stands under unpinned."""
    for claim in claims:
        if claim.placement is placement or (claim.placement is None and placement is Placement.UNPINNED):
            value = f"{_short(claim.value)}{claim.unit}"
            return value if claim.holds else f"**{value}** (missed)"
    return "–"


def _details(report: Report) -> list[str]:
    lines = [f"### {report.title}", ""]
    if report.note:
        lines += [report.note, ""]
    if report.measured:
        lines += ["| | pinned | unpinned |", "| --- | --- | --- |"]
    for measured in report.measured:
        cells = (measured.medians.get(placement) for placement in Placement)
        values = " | ".join("–" if value is None else f"{_short(value)} {measured.unit}" for value in cells)
        lines.append(f"| {measured.what} | {values} |")
    return [*lines, ""] if report.measured else lines


def _short(value: float) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f}"
