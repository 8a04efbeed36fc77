"""Listings (field report 37): whatever the buffer, whoever makes and archives meanwhile, what stays is there once."""

import ctypes
import errno
import os
import struct
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mount.scenery import Home, append, event, listing, put
from tests.people import ALICE

_LIBC = ctypes.CDLL(None, use_errno=True)
_GETDENTS64 = 217
_HEAD = struct.Struct("=QqHB")


class DirectoryReader:
    """getdents64(2) on a directory, with a buffer of one's own size."""

    def __init__(self, path: Path, size: int) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self._buffer = ctypes.create_string_buffer(size)

    def __enter__(self) -> "DirectoryReader":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def next_entries(self) -> list[tuple[str, int]]:
        """Names of one call, each with the position to go on from; none at the end."""
        count = _LIBC.syscall(_GETDENTS64, self.descriptor, self._buffer, len(self._buffer))
        if count < 0:
            raise OSError(ctypes.get_errno(), errno.errorcode[ctypes.get_errno()])
        found, at = [], 0
        while at < count:
            _, position, length, _ = _HEAD.unpack_from(self._buffer, at)
            name = self._buffer.raw[at + _HEAD.size : at + length].split(b"\0", 1)[0]
            found.append((os.fsdecode(name), position))
            at += length
        return found

    def rest(self) -> Iterator[tuple[str, int]]:
        while entries := self.next_entries():
            yield from entries

    def seek(self, position: int) -> None:
        os.lseek(self.descriptor, position, os.SEEK_SET)


def names_of(path: Path, size: int = 4096) -> list[str]:
    with DirectoryReader(path, size) as reader:
        return [name for name, _ in reader.rest() if name not in (".", "..")]


@pytest.fixture(scope="module")
def crowd(request: pytest.FixtureRequest) -> Home:
    """A home in which every directory that lists names of many kinds has many."""
    home = Home(request.getfixturevalue("module_mount"), "crowded")

    def fill() -> None:
        for number in range(300):
            (home.sessions / f"s{number}").mkdir()
            append(home.sessions / f"s{number}/events.jsonl", event("cwd", cwd=f"/srv/{number}"))
        for number in range(60):
            put(home.index / f"by-hash/h{number}", "s0")
            put(home.index / f"by-uuid/00000000-0000-4000-8000-{number:012x}", "s0")
            (home.path / f"agent/a{number}").mkdir()
            (home.path / f"model/m{number}.d").mkdir()
            (home.path / f"model/p{number}").mkdir()
            (home.path / f"model/p{number % 7}/n{number}.d").mkdir()
            (home.archive / f"d{number}").mkdir()
        for number in range(60):
            (home.archive / f"d0/n{number}").mkdir()
        (home.archive / "d0" / home.agent.name).mkdir()
        for number in range(200, 300):
            (home.sessions / f"s{number}").rename(home.archive / "d0" / home.agent.name / f"s{number}")

    ALICE.does(fill)
    for number in range(60):
        (home.mount.path / f"agent/a{number}.d").mkdir()
        (home.mount.path / f"model/p{number}").mkdir()
        (home.mount.path / f"model/p0/m{number}.d").mkdir()
        (home.mount.path / f"shared/s{number}").mkdir()
    return home


CROWDED: dict[str, tuple[Callable[[Home], Path], set[str]]] = {
    "session": (lambda home: home.sessions, {"index", *(f"s{n}" for n in range(200))}),
    "by-hash": (lambda home: home.index / "by-hash", {f"h{n}" for n in range(60)}),
    "by-uuid": (lambda home: home.index / "by-uuid", {f"00000000-0000-4000-8000-{n:012x}" for n in range(60)}),
    "agents": (lambda home: home.path / "agent", {"crowded", *(f"a{n}" for n in range(60))}),
    "models": (lambda home: home.path / "model", {*(f"m{n}.d" for n in range(60)), *(f"p{n}" for n in range(60))}),
    "models of a provider": (lambda home: home.path / "model/p0", {f"n{n}.d" for n in range(0, 60, 7)}),
    "archive": (lambda home: home.archive, {f"d{n}" for n in range(60)}),
    "nested archive": (lambda home: home.archive / "d0", {"crowded", *(f"n{n}" for n in range(60))}),
    "archived": (lambda home: home.archive / "d0/crowded", {f"s{n}" for n in range(200, 300)}),
    "agent definitions": (
        lambda home: home.mount.path / "agent", {"ctx.sock", "echo.sock", *(f"a{n}.d" for n in range(60))},
    ),
    "model providers": (lambda home: home.mount.path / "model", {f"p{n}" for n in range(60)}),
    "model definitions": (lambda home: home.mount.path / "model/p0", {f"m{n}.d" for n in range(60)}),
    "shared": (lambda home: home.mount.path / "shared", {f"s{n}" for n in range(60)}),
    "an agent": (lambda home: home.agent, {"session", "root", "data", "cache", "log"}),
    "a session": (
        lambda home: home.sessions / "s0",
        {
            "messages.jsonl", "events.jsonl", "latest.md", "state", "cwd", "created_at", "updated_at", "meta.json",
            "context",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("size", [48, 200, 4096, 1 << 17])
@pytest.mark.parametrize("what", CROWDED)
def test_any_buffer_gets_every_name_once(crowd: Home, what: str, size: int) -> None:
    place, expected = CROWDED[what]
    path = place(crowd)
    assert Counter(names_of(path, max(size, 24 + max(map(len, expected)) + 8))) == Counter(expected)


def test_by_cwd_lists_what_was_recorded_and_is_live(crowd: Home) -> None:
    assert len(names_of(crowd.index / "by-cwd", 60)) == 200


@pytest.mark.parametrize("what", CROWDED)
def test_a_listing_goes_on_from_any_position(crowd: Home, what: str) -> None:
    place, _ = CROWDED[what]
    with DirectoryReader(place(crowd), 4096) as reader:
        entries = list(reader.rest())
        for at in {0, 1, len(entries) // 2, len(entries) - 2, len(entries) - 1}:
            reader.seek(entries[at][1])
            assert [name for name, _ in reader.rest()] == [name for name, _ in entries[at + 1 :]]
        reader.seek(0)
        assert list(reader.rest()) == entries


def test_rewinding_an_open_directory_sees_what_is_new(home: Home) -> None:
    home.session("one")
    with DirectoryReader(home.sessions, 4096) as reader:
        assert {name for name, _ in reader.rest()} == {"index", "one"}
        home.session("two")
        reader.seek(0)
        assert {name for name, _ in reader.rest()} == {"index", "one", "two"}


def test_a_position_outlives_the_name_it_was_given_for(home: Home) -> None:
    names = [f"s{number}" for number in range(20)]
    for name in names:
        home.session(name)
    with DirectoryReader(home.sessions, 4096) as reader:
        entries = dict(reader.rest())
        home.archived("s10")
        reader.seek(entries["s10"])
        assert [name for name, _ in reader.rest()] == names[11:]


@pytest.mark.parametrize("tool", [["ls", "-f"], ["ls", "-la"], ["find", ".", "-maxdepth", "1"]])
def test_common_tools_see_every_name_once(crowd: Home, tool: list[str]) -> None:
    done = subprocess.run(tool, cwd=crowd.sessions, capture_output=True, check=True, text=True)
    names = [text.split()[-1].removeprefix("./") for text in done.stdout.splitlines() if not text.startswith("total")]
    assert Counter(name for name in names if name not in (".", "..")) == Counter(CROWDED["session"][1])


@pytest.mark.limit(600)
def test_10_000_sessions_under_churn_are_listed_once_each(fresh_home: Home) -> None:
    home = fresh_home
    stable = {f"stable{number}" for number in range(10_000)}

    def make() -> None:
        os.chdir(home.sessions)
        for name in sorted(stable):
            os.mkdir(name)

    ALICE.does(make)
    ALICE.does((home.archive / "coder").mkdir)
    stop = threading.Event()

    def churn() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            (home.sessions / f"churn{number}").mkdir()
            if number > 5:
                (home.sessions / f"churn{number - 5}").rename(home.archive / f"coder/churn{number - 5}")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for size in (512, 1 << 15):
            seen = Counter(names_of(home.sessions, size))
            assert {name for name in seen if not name.startswith("churn")} == stable | {"index"}
            assert set(seen.values()) == {1}
    finally:
        stop.set()
        thread.join()
    archived = listing(home.archive / "coder")
    live = {name for name in listing(home.sessions) if name.startswith("churn")}
    assert len(archived) > 0
    assert not archived & live
    assert len((home.index / "list").read_text().splitlines()) == len(stable) + len(live)
