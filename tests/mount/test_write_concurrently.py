"""Field reports 2 and 6: writers and readers at the same time."""

import json
import os
import re
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.mount.acting import entries, message, new_session, opened, write_once
from tests.mounting import PROJECT

WRITERS, LINES = 8, 200


def in_processes(script: str, arguments: list[tuple[str, ...]]) -> None:
    """Runs a Python script in one process per tuple of arguments, all at the same time; all must succeed."""
    command = [sys.executable, "-c", textwrap.dedent(script)]
    running = [subprocess.Popen([*command, *each], cwd=PROJECT, stdin=subprocess.DEVNULL) for each in arguments]
    assert [process.wait() for process in running] == [0] * len(running)


APPEND = """
    import os, sys
    path, writer, lines, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    log = os.open(path, os.O_WRONLY | os.O_APPEND)
    for number in range(lines):
        line = '{"role":"user","content":"%s %d %s"}\\n' % (writer, number, "x" * (size * (number % 3)))
        assert os.write(log, line.encode()) == len(line)
    os.close(log)
"""


def contents(log: Path) -> list[str]:
    return [json.loads(line)["content"] for line in log.read_bytes().splitlines()]


def test_eight_writers_lose_nothing_and_store_nothing_twice(session: Path) -> None:
    log = session / "messages.jsonl"
    in_processes(APPEND, [(str(log), f"w{number}", str(LINES), "10") for number in range(WRITERS)])
    assert entries(session) == WRITERS * LINES
    stored = [text.split(" ")[:2] for text in contents(log)]
    for number in range(WRITERS):
        mine = [int(count) for writer, count in stored if writer == f"w{number}"]
        assert mine == list(range(LINES))


def test_lines_of_any_size_never_mix(session: Path) -> None:
    """Lines of up to 400 KB from six writers, beside one that writes byte by byte."""
    log = session / "messages.jsonl"
    slow = threading.Thread(target=write_in_pieces, args=(log, message("slow" * 100), 7))
    slow.start()
    in_processes(APPEND, [(str(log), f"w{number}", "9", "200000") for number in range(6)])
    slow.join()
    counted = Counter(text.split(" ")[0][:4] for text in contents(log))
    assert counted == {f"w{number}": 9 for number in range(6)} | {"slow": 1}
    assert all(re.fullmatch(r"w\d \d x*|(slow)+", text) for text in contents(log))


def write_in_pieces(log: Path, line: bytes, size: int) -> None:
    with log.open("ab", buffering=0) as file:
        for start in range(0, len(line), size):
            file.write(line[start : start + size])


def test_each_request_of_many_lines_stays_together(session: Path) -> None:
    log = session / "messages.jsonl"

    def write(writer: str) -> None:
        for number in range(20):
            write_once(log, b"".join(message(f"{writer} {number} {part}") for part in range(5)))

    threads = [threading.Thread(target=write, args=(f"w{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = contents(log)
    assert len(texts) == 4 * 20 * 5
    for start in range(0, len(texts), 5):
        first = texts[start].rsplit(" ", 1)[0]
        assert texts[start : start + 5] == [f"{first} {part}" for part in range(5)]


READ = """
    import json, os, sys
    path, reads = sys.argv[1], int(sys.argv[2])
    log, seen = os.open(path, os.O_RDONLY), 0
    for number in range(reads):
        if number % 2000 == 0:
            os.close(log)
            log, seen = os.open(path, os.O_RDONLY), 0
        size = os.stat(path).st_size
        data = os.pread(log, 1 << 20, seen)
        if len(data) == 1 << 20:
            data = data[: data.rfind(b"\\n") + 1]
        assert data == b"" or data.endswith(b"\\n"), (seen, len(data), size)
        assert size == 0 or os.pread(log, 1, size - 1) == b"\\n"
        assert seen + len(data) >= min(size, seen + (1 << 19)), (seen, len(data), size)
        for line in data.splitlines():
            json.loads(line)
        seen += len(data)
    os.close(log)
"""


@pytest.mark.limit(600)
def test_readers_never_see_half_a_line(session: Path) -> None:
    """10⁵ calls (stat and two reads each) under writes; every line parses, every size ends on a newline."""
    log = session / "messages.jsonl"
    over = threading.Event()

    def write() -> None:
        number = 0
        with log.open("ab", buffering=0) as file:
            while not over.is_set():
                file.write(message(f"{number} " + "é" * (number % 50)))
                number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        in_processes(READ, [(str(log), "17000"), (str(log), "17000")])
    finally:
        over.set()
        writer.join()
    assert log.stat().st_size == len(log.read_bytes())


def test_what_a_write_changed_is_seen_when_it_returns(session: Path) -> None:
    """Every file that a line changes, by stat and by content, in each of many rounds (spec 1.3)."""
    log, latest, listed = session / "messages.jsonl", session / "latest.md", session.parent / "index/list"
    size = 0
    with log.open("ab", buffering=0) as file:
        for number in range(300):
            before = {path: path.stat().st_mtime_ns for path in (log, latest)}
            line = f'{{"role":"assistant","content":"{"x" * (number % 7)} {number}"}}\n'.encode()
            file.write(line)
            size += len(line)
            assert log.stat().st_size == size
            assert latest.read_text() == f"{'x' * (number % 7)} {number}\n"
            assert latest.stat().st_size == len(f"{'x' * (number % 7)} {number}\n")
            assert all(path.stat().st_mtime_ns > mtime for path, mtime in before.items())
            assert listed.read_text().split("\n")[0] == session.name


def test_state_changes_at_the_same_time_say_the_state_they_left(session: Path) -> None:
    states = ("active", "idle", "done", "error")

    def write(first: int) -> Callable[[], None]:
        def act() -> None:
            for number in range(25):
                write_once(session / "state", f"{states[(first + number) % 4]}\n".encode(), os.O_WRONLY)

        return act

    threads = [threading.Thread(target=write(number)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = "idle"
    for line in (session / "events.jsonl").read_bytes().splitlines():
        change = json.loads(line)
        assert change["from"] == last
        last = change["state"]
    assert (session / "state").read_text() == f"{last}\n"


PUT = """
    import errno, os, sys
    path, text = sys.argv[1:]
    log = os.open(path, os.O_WRONLY)
    length = os.fstat(log).st_size
    print(length, flush=True)
    sys.stdin.readline()
    try:
        os.pwrite(log, b'{"role":"user","content":"%s"}\\n' % text.encode(), length)
        print("ok", end=" ")
    except OSError as error:
        print(errno.errorcode[error.errno], end=" ")
    print(os.stat(path).st_size)
"""


@pytest.mark.parametrize("attempt", range(5))
def test_of_two_processes_that_put_at_one_length_one_wins_and_the_other_sees_the_true_length(
    session: Path, attempt: int
) -> None:
    """Writing where the file ended when it was looked at is the mount's ``put(expectedN)`` (spec 2.7)."""
    log = session / "messages.jsonl"
    write_once(log, message("first"))
    command = [sys.executable, "-c", textwrap.dedent(PUT), str(log)]
    running = [
        subprocess.Popen([*command, text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for text in ("one", "two")
    ]
    lengths = [process.stdout.readline() for process in running if process.stdout]
    answers = dict.fromkeys(("one", "two"), "")
    with ThreadPoolExecutor(2) as pool:
        for text, (out, _) in zip(answers, pool.map(lambda process: process.communicate("go\n"), running), strict=True):
            answers[text] = out
    size = log.stat().st_size
    assert lengths == [f"{len(message('first'))}\n"] * 2
    assert sorted(answers.values()) == [f"EPERM {size}\n", f"ok {size}\n"]
    [winner] = [text for text, answer in answers.items() if answer.startswith("ok")]
    assert contents(log) == ["first", winner]


def test_more_writers_than_the_fuse_library_has_tasks_go_on_beside_readers(ctx: Path) -> None:
    """Each waits until the kernel has dropped its log's pages, and that waits for reads: none may be kept off."""
    logs = [new_session(ctx, agent=f"a{number}") / "messages.jsonl" for number in range(200)]
    lines, together = 10, threading.Barrier(2 * len(logs))

    def write(log: Path) -> None:
        with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor:
            together.wait()
            for _ in range(lines):
                os.write(descriptor, message())

    def read(log: Path) -> None:
        with opened(log, os.O_RDONLY) as descriptor:
            together.wait()
            while (size := os.fstat(descriptor).st_size) < lines * len(message()):
                os.pread(descriptor, 4096, max(0, size - 1))

    with ThreadPoolExecutor(2 * len(logs)) as pool:
        list(pool.map(lambda work: work[0](work[1]), [(work, log) for log in logs for work in (write, read)]))
    assert {log.stat().st_size for log in logs} == {lines * len(message())}
