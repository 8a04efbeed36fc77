"""The log without a mount: branches of logs of any length, an append and the projection after it (spec 2.5, 2.8)."""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import trio

from backend.entries import NewMessage
from backend.rows import Append, Session
from backend.sessions import SessionHandle, Sessions
from backend.sqlite import SqliteStore
from tests.bench.bench import Bench, Medians, System, measured
from tests.bench.figures import AtMost, Claim, Report
from tests.bench.places import LINE

AS_EMPTY, FLAT = AtMost(1.2), AtMost(1.5)
BRANCHED = 200_000
PROJECTED = (10, 10_000, 1_000_000)
LAST = 10
_BATCH = 4096


def branching(bench: Bench) -> Report:
    """A branch of a session with 200k entries, at its end and in its middle, beside one of an empty session."""
    numbers = itertools.count()
    with _store(bench) as store:
        empty, long = _sessions(store, (0, BRANCHED))

        def system(session: Session, at: int) -> System:
            return lambda _: _median_us(
                bench.sizes.operations // 10, lambda: store.branch_session(session.id, at, f"b{next(numbers)}")
            )

        none, middle = "of an empty one", f"of {BRANCHED // 2:,} of {BRANCHED:,} entries"
        systems = {
            none: system(empty, 0),
            f"of {BRANCHED:,} entries": system(long, BRANCHED),
            middle: system(long, BRANCHED // 2),
        }
        medians = bench.compare(systems, [])
    ends = {placement: {of: values[of] for of in values if of != middle} for placement, values in medians.items()}
    report = _grown("Branches", "a branch", ends, AS_EMPTY)
    for placement, values in medians.items():
        report.claims.append(Claim(f"a branch: {middle} beside {none}", values[middle] / values[none], None, placement))
    report.measured = measured(medians, "µs", "a branch ")
    report.note = "In the middle the row that holds its last entry is read too, and what set latest.md: two look-ups."
    return report


def projection(bench: Bench) -> Report:
    """One message more, the projection's length and its last ten, in logs from ten entries to a million."""
    with _store(bench) as store:
        sessions = Sessions(store)
        systems = {}
        for session in _sessions(store, PROJECTED):
            handle = trio.run(sessions.open, session.session_id)
            systems[f"{session.n:,} entries"] = _projecting(handle, bench.sizes.operations // 10)
            handle.messages()
        medians = bench.compare(systems, [])
    return _grown("An append and the projection after it", "append, length and last ten messages", medians, FLAT)


@contextmanager
def _store(bench: Bench) -> Iterator[SqliteStore]:
    directory = bench.disk / "log"
    directory.mkdir(exist_ok=True, mode=0o700)
    store = SqliteStore.open_now(directory)
    try:
        yield store
    finally:
        store.close()


def _sessions(store: SqliteStore, lengths: Sequence[int]) -> list[Session]:
    """Sessions of so many messages of 1 KiB."""
    name = f"of-{time.monotonic_ns()}"
    store.space("home/0") or store.add_space("home/0", 0, 0, 0o700)
    owner = store.add_owner("home/0", "agent", name, 0, 0)
    made = [store.create_session(owner.id, f"s{length}", 0).id for length in lengths]
    for session, length in zip(made, lengths, strict=True):
        for start in range(0, length, _BATCH):
            store.append([Append(session, [LINE] * min(length - start, _BATCH))])
            store.maintain()
    return [row for session in made if (row := store.session_by_id(session)) is not None]


def _projecting(handle: SessionHandle, count: int) -> System:
    message = NewMessage({"role": "user", "content": "x" * 200})

    async def once() -> None:
        await handle.write([message])
        messages = handle.messages()
        assert len(messages) == handle.length and len(messages[-LAST:]) == LAST

    async def run() -> float:
        times = []
        for _ in range(count):
            begun = time.perf_counter_ns()
            await once()
            times.append(time.perf_counter_ns() - begun)
        return statistics.median(times) / 1000

    return lambda _: trio.run(run)


def _median_us(count: int, call: Callable[[], object]) -> float:
    times = []
    for _ in range(count):
        begun = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - begun)
    return statistics.median(times) / 1000


def _grown(title: str, what: str, medians: Medians, bound: AtMost) -> Report:
    """The highest figure beside that of the shortest log, which comes first."""
    claims = []
    for placement, values in medians.items():
        first, *_ = values
        slowest = max(values, key=values.__getitem__)
        claims.append(Claim(f"{what}: {slowest} beside {first}", values[slowest] / values[first], bound, placement))
    return Report(title, measured(medians, "µs", f"{what} "), claims)
