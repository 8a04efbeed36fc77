"""Group commit and fsync: what is queued is committed together, each writer gets their own answer."""

import threading
from collections.abc import Iterator, Sequence

import pytest

from backend.errors import CtxError, StoreFull
from backend.lines import parse_line
from backend.memory import MemoryStore
from backend.rows import Append, Appended
from ctxfs.commits import Commits
from ctxfs.disk_health import DiskHealth
from ctxfs.loop import Future, Loop
from ctxfs.statistics import Statistics


class Store(MemoryStore):
    """A memory store that notes the batches it gets, and fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.syncs: list[str] = []
        self.failure: Exception | None = None
        self.may_sync = threading.Semaphore(1000)

    def append(self, batch: Sequence[Append]) -> Sequence[Appended | CtxError]:
        self.batches.append(len(batch))
        if self.failure is not None:
            raise self.failure
        return super().append(batch)

    def sync(self) -> None:
        self.may_sync.acquire()
        self.syncs.append(threading.current_thread().name)
        if self.failure is not None:
            raise self.failure


class World:
    def __init__(self) -> None:
        self.loop = Loop()
        self.store = Store()
        self.health = DiskHealth(lambda: None)
        self.published: list[Appended] = []
        self.statistics = Statistics()
        self.commits = Commits(self.loop, self.store, self.health, self.statistics, self)
        self.commits.writers = 8
        self.store.add_space("home/1", 1, 1, 0o700)
        owner = self.store.add_owner("home/1", "agent", "a", 1, 1)
        self.session = self.store.create_session(owner.id, "s", 1).id
        self.answers: list[int | Exception] = []
        self.bug: Exception | None = None
        self.hidden_until: Future[None] | None = None

    def appended(self, change: Appended) -> None:
        if self.bug is not None:
            raise self.bug
        self.published.append(change)

    def hidden(self, session: int) -> Future[None] | None:
        return self.hidden_until

    def line(self, *, expected_n: int | None = None) -> Append:
        return Append(self.session, [parse_line("messages", b'{"role":"user","content":"x"}')], expected_n)

    async def write(self, append: Append) -> None:
        try:
            self.answers.append((await self.commits.append(append)).session.n)
        except Exception as error:
            self.answers.append(error)

    async def sync(self) -> None:
        try:
            await self.commits.sync()
            self.answers.append(0)
        except Exception as error:
            self.answers.append(error)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.store.may_sync.release(1000)
    world.commits.close()


def test_writers_that_wait_together_share_a_commit_in_their_order(world: World) -> None:
    async def main() -> None:
        for _ in range(8):
            world.loop.start(world.write(world.line()))

    world.loop.run(main)
    assert world.store.batches == [8]
    assert world.answers == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_lone_writer_waits_for_nothing(world: World) -> None:
    world.commits.writers = 1
    seen: list[int] = []

    async def other() -> None:
        seen.append(world.store.batches.count(1))

    async def main() -> None:
        world.loop.start(other())
        await world.write(world.line())

    world.loop.run(main)
    assert seen == [1]


def test_each_gets_their_own_refusal_and_the_others_are_stored(world: World) -> None:
    async def main() -> None:
        for append in (world.line(), world.line(expected_n=7), world.line()):
            world.loop.start(world.write(append))

    world.loop.run(main)
    assert world.store.batches == [3]
    assert [answer for answer in world.answers if isinstance(answer, int)] == [1, 2]
    assert len(world.answers) == 3


def test_readers_are_told_before_the_writer_is_answered(world: World) -> None:
    seen: list[int] = []

    async def main() -> None:
        await world.commits.append(world.line())
        seen.append(len(world.published))

    world.loop.run(main)
    assert seen == [1]


def test_the_writer_is_answered_once_readers_can_see_the_lines(world: World) -> None:
    events: list[str] = []
    until = world.hidden_until = Future(world.loop)

    async def write() -> None:
        await world.commits.append(world.line())
        events.append("answered")

    async def show() -> None:
        events.append("shown")
        until.set(None)

    async def main() -> None:
        for part in (write(), show()):
            world.loop.start(part)

    world.loop.run(main)
    assert events == ["shown", "answered"]


@pytest.mark.parametrize("failure", [StoreFull("full"), RuntimeError("bug"), OSError(5, "x")])
def test_what_the_store_raises_is_every_writers_and_the_loop_goes_on(world: World, failure: Exception) -> None:
    world.store.failure = failure

    async def main() -> None:
        world.loop.start(world.write(world.line()))
        world.loop.start(world.write(world.line()))

    world.loop.run(main)
    assert world.answers == [failure, failure]
    world.store.failure = None
    world.loop.run(lambda: world.write(world.line()))
    assert world.answers[-1] == 1


def test_a_failure_to_publish_is_counted_and_the_writer_who_is_stored_is_told_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.bug = RuntimeError("bug")
    world.loop.run(lambda: world.write(world.line()))
    assert world.answers == [1]
    assert world.statistics.last_error == "publish: RuntimeError"
    assert "readers were not told of an append" in caplog.text


def test_sync_waits_on_a_thread_of_its_own_and_is_shared(world: World) -> None:
    world.store.may_sync = threading.Semaphore(0)

    async def release() -> None:
        await world.commits.append(world.line())
        world.store.may_sync.release(2)

    async def main() -> None:
        for _ in range(5):
            world.loop.start(world.sync())
        world.loop.start(release())

    world.loop.run(main)
    assert world.answers == [0] * 5
    assert set(world.store.syncs) == {"ctxfs-sync"}
    assert len(world.store.syncs) <= 2


def test_what_sync_raises_is_raised_in_all_who_wait(world: World) -> None:
    world.store.failure = OSError(5, "x")

    async def main() -> None:
        world.loop.start(world.sync())
        world.loop.start(world.sync())

    world.loop.run(main)
    assert all(isinstance(answer, OSError) for answer in world.answers)
    assert len(world.answers) == 2
