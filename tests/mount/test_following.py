"""Following a session (spec 1.10, 1.3): every reader sees a line from the moment its write returns."""

import contextlib
import json
import os
import select
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.names import cwd_key
from tests.mount.scenery import Home, append, event, put, said
from tests.mounting import PATIENCE_S, wait_until

ROUNDS = 2000
DEADLINE_MS = PATIENCE_S * 1000


@contextlib.contextmanager
def reader_process(read: Callable[[], bytes]) -> Iterator[Callable[[], bytes]]:
    """A process that reads once each time it is asked over a pipe, and sends what it got."""
    ask_read, ask_write = os.pipe()
    tell_read, tell_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(ask_write)
            while os.read(ask_read, 1):
                answer = read()
                os.write(tell_write, len(answer).to_bytes(4, "big") + answer)
        finally:
            os._exit(0)
    for descriptor in (ask_read, tell_write):
        os.close(descriptor)

    def ask() -> bytes:
        os.write(ask_write, b"?")
        return os.read(tell_read, int.from_bytes(os.read(tell_read, 4), "big"))

    try:
        yield ask
    finally:
        for descriptor in (ask_write, tell_read):
            os.close(descriptor)
        os.waitpid(child, 0)


Open = contextlib.ExitStack


def written(files: Open, path: Path, data: bytes, flags: int = os.O_APPEND) -> None:
    """One write; its descriptor stays open, so that no close has waited for anything when the reader looks."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags)
    files.callback(os.close, descriptor)
    assert os.write(descriptor, data) == len(data)


def value(files: Open, path: Path, text: str) -> None:
    written(files, path, f"{text}\n".encode(), os.O_TRUNC)


# What is written in round N, what a reader looks at then, and what it must find.
FRESH: dict[str, tuple[Callable[[Home, int, Open], None], Callable[[Home], bytes], Callable[[int], bytes]]] = {
    "latest.md": (
        lambda home, n, files: written(files, home.sessions / "one/messages.jsonl", said(str(n))),
        lambda home: (home.sessions / "one/latest.md").read_bytes(),
        lambda n: b"%d\n" % n,
    ),
    "the end of messages.jsonl": (
        lambda home, n, files: written(files, home.sessions / "one/messages.jsonl", said(str(n))),
        lambda home: (home.sessions / "one/messages.jsonl").read_bytes()[-80:].splitlines(keepends=True)[-1],
        lambda n: said(str(n)),
    ),
    "the size of messages.jsonl": (
        lambda home, n, files: written(files, home.sessions / "one/messages.jsonl", said(f"{n:04}")),
        lambda home: b"%d" % os.stat(home.sessions / "one/messages.jsonl").st_size,
        lambda n: b"%d" % ((n + 1) * len(said("0000"))),
    ),
    "state by an event": (
        lambda home, n, files: written(
            files,
            home.sessions / "one/events.jsonl",
            event("state", **{"from": ("idle", "done")[n % 2], "state": ("done", "idle")[n % 2]}),
        ),
        lambda home: (home.sessions / "one/state").read_bytes(),
        lambda n: (b"done\n", b"idle\n")[n % 2],
    ),
    "cwd by a write": (
        lambda home, n, files: value(files, home.sessions / "one/cwd", f"/srv/{n}"),
        lambda home: (home.sessions / "one/cwd").read_bytes(),
        lambda n: b"/srv/%d\n" % n,
    ),
    "events.jsonl by a write to state": (
        lambda home, n, files: value(files, home.sessions / "one/state", ("done", "idle")[n % 2]),
        lambda home: str(
            json.loads((home.sessions / "one/events.jsonl").read_text().splitlines()[-1])["state"]
        ).encode(),
        lambda n: (b"done", b"idle")[n % 2],
    ),
    "list": (
        lambda home, n, files: written(files, home.sessions / ("one", "two")[n % 2] / "messages.jsonl", said(str(n))),
        lambda home: (home.index / "list").read_bytes(),
        lambda n: (b"one\ntwo\n", b"two\none\n")[n % 2],
    ),
    "by-cwd": (
        lambda home, n, files: written(
            files,
            home.sessions / ("one", "two")[n % 2] / "events.jsonl",
            event("start", run="r", id="r", client_id="c", scope="private", cwd="/srv"),
        ),
        lambda home: (home.index / "by-cwd" / cwd_key("/srv")).read_bytes(),
        lambda n: (b"one\n", b"two\n")[n % 2],
    ),
    "current": (
        lambda home, n, files: value(files, home.index / "current", ("one", "two")[n % 2]),
        lambda home: (home.index / "current").read_bytes(),
        lambda n: (b"one\n", b"two\n")[n % 2],
    ),
    "by-hash": (
        lambda home, n, files: value(files, home.index / "by-hash/h", ("one", "two")[n % 2]),
        lambda home: (home.index / "by-hash/h").read_bytes(),
        lambda n: (b"one\n", b"two\n")[n % 2],
    ),
    "AGENTS.md": (
        lambda home, n, files: put(home.sessions / "one/AGENTS.md", str(n)),
        lambda home: (home.sessions / "one/AGENTS.md").read_bytes(),
        lambda n: b"%d\n" % n,
    ),
    "a listing": (
        lambda home, n, files: os.mkdir(home.sessions / f"s{n}"),
        lambda home: b"%d" % (len(os.listdir(home.sessions)) - 4),
        lambda n: b"%d" % n,
    ),
}


@pytest.mark.parametrize("what", FRESH)
def test_another_process_sees_each_write_as_soon_as_it_returns(home: Home, what: str) -> None:
    write, read, expected = FRESH[what]
    home.session("one")
    home.session("two")
    rounds = ROUNDS if what in ("latest.md", "the size of messages.jsonl") else 200
    stale = []
    with reader_process(lambda: read(home)) as ask:
        for number in range(rounds):
            with contextlib.ExitStack() as files:
                write(home, number, files)
                if (answer := ask()) != expected(number):
                    stale.append((number, answer))
    assert stale == []


def test_an_open_descriptor_reads_past_the_old_end_at_once(home: Home) -> None:
    log = home.session("one") / "messages.jsonl"
    append(log, said("first"))
    with log.open("rb", buffering=0) as file:
        assert file.read() == said("first")
        assert file.read(100) == b""
        with reader_process(lambda: os.read(file.fileno(), 1000)) as ask:
            for number in range(500):
                append(log, said(str(number)))
                assert ask() == said(str(number))


def test_a_descriptor_sees_the_new_size_at_once(home: Home) -> None:
    session = home.session("one")
    with (session / "latest.md").open("rb") as latest:
        for number in (1, 100, 5, 5000, 0):
            append(session / "messages.jsonl", said("x" * number) if number else said("é"))
            size = os.fstat(latest.fileno()).st_size
            assert size == (number or 2) + 1
            assert len(os.pread(latest.fileno(), 10_000, 0)) == size


@pytest.mark.parametrize("command", [["tail", "-n", "+1", "-f"], ["tail", "-n", "+1", "-F"]])
def test_tail_follows(home: Home, command: list[str]) -> None:
    log = home.session("one") / "messages.jsonl"
    append(log, said("0"))
    with subprocess.Popen([*command, log], stdout=subprocess.PIPE) as tail:
        assert tail.stdout is not None
        try:
            for number in range(4):
                assert tail.stdout.readline() == said(str(number))
                append(log, said(str(number + 1)))
        finally:
            tail.kill()


@contextlib.contextmanager
def polled(path: Path) -> Iterator[tuple[int, select.poll]]:
    """A descriptor, and a poll object that waits for POLLPRI on it."""
    descriptor = os.open(path, os.O_RDONLY)
    poll = select.poll()
    poll.register(descriptor, select.POLLPRI)
    try:
        yield descriptor, poll
    finally:
        os.close(descriptor)


def test_a_file_is_always_readable_and_writable(home: Home) -> None:
    path = home.session("one") / "messages.jsonl"
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN | select.POLLOUT | select.POLLPRI)
        assert poll.poll(0) == [(descriptor, select.POLLIN | select.POLLOUT)]
        append(path, said("x"))
        assert poll.poll(0) == [(descriptor, select.POLLIN | select.POLLOUT | select.POLLPRI)]
        assert poll.poll(0) == [(descriptor, select.POLLIN | select.POLLOUT)]
    finally:
        os.close(descriptor)


def test_what_grew_between_open_and_the_first_poll_is_not_missed(home: Home) -> None:
    path = home.session("one") / "messages.jsonl"
    with polled(path) as (descriptor, poll):
        append(path, said("x"))
        assert poll.poll(0) == [(descriptor, select.POLLPRI)]
        assert poll.poll(0) == []


def test_a_waiting_poll_is_woken_by_an_append(home: Home) -> None:
    path = home.session("one") / "messages.jsonl"
    with polled(path) as (descriptor, poll):
        for _ in range(20):
            waiter = threading.Thread(target=lambda: append(path, said("x")))
            waiter.start()
            assert poll.poll(DEADLINE_MS) == [(descriptor, select.POLLPRI)]
            waiter.join()
            assert poll.poll(0) == []


def test_select_is_woken_too(home: Home) -> None:
    path = home.session("one") / "events.jsonl"
    with polled(path) as (descriptor, _):
        writer = threading.Thread(target=lambda: append(path, event("delta", run="r", text="x")))
        writer.start()
        assert select.select([], [], [descriptor], PATIENCE_S) == ([], [], [descriptor])
        writer.join()


def test_epoll_is_woken_too(home: Home) -> None:
    path = home.session("one") / "messages.jsonl"
    with polled(path) as (descriptor, _), select.epoll() as epoll:
        epoll.register(descriptor, select.EPOLLPRI)
        assert epoll.poll(0) == []
        writer = threading.Thread(target=lambda: append(path, said("x")))
        writer.start()
        assert epoll.poll(PATIENCE_S) == [(descriptor, select.EPOLLPRI)]
        writer.join()


def test_every_derived_file_that_changed_wakes_its_poller(home: Home) -> None:
    session = home.session("one")
    home.session("two")
    with contextlib.ExitStack() as stack:
        pollers = {
            path.name: stack.enter_context(polled(path))[1]
            for path in (session / "latest.md", session / "state", session / "cwd", home.index / "list")
        }
        append(session / "messages.jsonl", said("x"))
        assert {name for name, poll in pollers.items() if poll.poll(0)} == {"latest.md", "list"}
        put(session / "state", "done")
        assert {name for name, poll in pollers.items() if poll.poll(0)} == {"state"}


@pytest.mark.parametrize("how", ["made", "branched"])
def test_a_new_session_wakes_the_pollers_of_the_list(home: Home, how: str) -> None:
    one = home.session("one")
    with polled(home.index / "list") as (descriptor, poll):
        if how == "made":
            home.session("two")
        else:
            os.setxattr(one, "user.ctx.branch", b"two")
        assert poll.poll(0) == [(descriptor, select.POLLPRI)]
        assert poll.poll(0) == []


def test_two_pollers_of_one_file_are_both_woken(home: Home) -> None:
    path = home.session("one") / "messages.jsonl"
    woken: list[int] = []

    def wait() -> None:
        with polled(path) as (_, poll):
            started.release()
            woken.append(len(poll.poll(DEADLINE_MS)))

    started = threading.Semaphore(0)
    waiters = [threading.Thread(target=wait) for _ in range(4)]
    for waiter in waiters:
        waiter.start()
        started.acquire()
    append(path, said("x"))
    for waiter in waiters:
        waiter.join()
    assert woken == [1, 1, 1, 1]


def test_a_look_by_one_thread_does_not_forget_who_waits_on_the_same_descriptor(home: Home) -> None:
    path = home.session("one") / "messages.jsonl"
    with polled(path) as (descriptor, poll):
        woken = threading.Event()

        def wait() -> None:
            assert poll.poll(DEADLINE_MS) == [(descriptor, select.POLLPRI)]
            woken.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        other = select.poll()
        other.register(descriptor, select.POLLPRI)
        for _ in range(50):
            assert other.poll(0) == []
        append(path, said("x"))
        wait_until(woken.is_set, "the waiting poll's return")
        waiter.join()
