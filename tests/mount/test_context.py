"""Derived files of ``context/`` (spec 1.7; field report 35): contents, exact sizes, following, coming back."""

import contextlib
import json
import os
import select
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.acting import EXCHANGE, NOREPLACE, opened, renameat2
from tests.mount.scenery import (
    CONTEXT_FILES,
    PROMPT,
    PROMPT_HEADER,
    Home,
    append,
    described,
    event,
    line,
    listing,
    said,
)
from tests.mount.test_sizes import READERS
from tests.mounting import RunningMount, running_mount
from tests.people import ALICE, ROOT, Person, outcome

ALICES = (ALICE.uid, ALICE.gid)
CUT = event("cut", before=1, summary=[{"role": "user", "content": "short"}], reason="manual")


@pytest.fixture(scope="module", params=["sqlite", "jsonl"])
def module_mount(request: pytest.FixtureRequest, fuse_device: None) -> Iterator[RunningMount]:
    """A mount of each store."""
    with running_mount(request.param) as mounted:
        yield mounted


def test_what_is_in_it(context: Path) -> None:
    """By hand: what was sent is what the log says, and what people read has it all."""
    assert (context / "messages.jsonl").read_bytes() == line("user", "Hello") + said("Hi")
    entries = [json.loads(text) for text in (context / "log.jsonl").read_text().splitlines()]
    assert [(entry["n"], entry["kind"]) for entry in entries] == [(0, "message"), (1, "mark"), (2, "message")]
    assert entries[1]["name"] == "prompt"
    assert json.loads((context / "request.json").read_text()) == {
        "header": PROMPT_HEADER,
        "context": None,
        "messages": [{"role": "user", "content": "Hello"}],
    }
    transcript = (context / "transcript.md").read_text()
    assert transcript.startswith("# Session one\n\n## 0 · user · ")
    assert "\n\nHello\n\n## 2 · assistant · " in transcript


def test_a_cut_begins_the_projection_anew_and_leaves_the_rest(context: Path) -> None:
    before = {name: (context / name).read_bytes() for name in CONTEXT_FILES}
    append(context.parent / "events.jsonl", CUT)
    append(context.parent / "messages.jsonl", said("after"))
    assert (context / "messages.jsonl").read_bytes() == b'{"content":"short","role":"user"}\n' + said("after")
    assert (context / "request.json").read_bytes() == before["request.json"]
    for name in ("log.jsonl", "transcript.md"):
        assert (context / name).read_bytes().startswith(before[name])


def test_without_a_prompt_there_is_no_request(home: Home) -> None:
    context = home.session("one") / "context"
    assert listing(context) == CONTEXT_FILES - {"request.json"}
    assert outcome((context / "request.json").stat) == "ENOENT"
    for make in (os.mkdir, os.mkfifo, lambda path: os.symlink("x", path), lambda path: path.write_bytes(b"x")):
        assert outcome(make, context / "request.json") == "EACCES"
    append(context.parent / "events.jsonl", PROMPT)
    assert listing(context) == CONTEXT_FILES
    assert json.loads((context / "request.json").read_text())["messages"] == []


def test_modes_and_owners(context: Path, home: Home) -> None:
    assert described(context) == ("drwx------", ALICES)
    for name in CONTEXT_FILES:
        assert described(context / name) == ("-r--------", ALICES)
    old = home.put_away("one") / "context"
    assert described(old) == ("dr-x------", ALICES)
    for name in CONTEXT_FILES:
        assert described(old / name) == ("-r--------", ALICES)


def test_attributes_say_what_they_are_and_about_how_long(context: Path) -> None:
    for name in CONTEXT_FILES:
        size = (context / name).stat().st_size
        assert os.getxattr(context / name, "user.ctx.kind") == name.encode()
        assert os.getxattr(context / name, "user.ctx.token_estimate") == str((size + 3) // 4).encode()
        assert os.listxattr(context / name) == []


@pytest.mark.parametrize("person", [ALICE, ROOT], ids=["alice", "root"])
def test_derived_files_are_not_written(context: Path, person: Person) -> None:
    own = context / "own"
    ALICE.does(own.write_bytes, b"own")
    before = {name: (context / name).read_bytes() for name in CONTEXT_FILES}
    for name in CONTEXT_FILES:
        path = context / name
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC | os.O_CREAT):
            assert person.outcome(os.open, path, flags) == "EACCES"
        assert person.outcome(os.truncate, path, 0) == "EACCES"
        assert person.outcome(os.rename, own, path) == "EACCES"
        assert person.outcome(renameat2, own, path, NOREPLACE) == "EEXIST"
        assert person.outcome(renameat2, own, path, EXCHANGE) == "EACCES"
        assert person.outcome(os.rename, path, context / "away") == "EPERM"
        assert person.outcome(os.link, own, path) == "EEXIST"
        assert person.outcome(os.link, path, context / "away") == "EPERM"
        assert person.outcome(os.chmod, path, 0o600) == "EPERM"
        assert person.outcome(os.mkdir, path) == "EEXIST"
        assert person.outcome(os.rmdir, path) == "ENOTDIR"
    assert {name: (context / name).read_bytes() for name in CONTEXT_FILES} == before
    assert own.read_bytes() == b"own"


def test_all_of_it_can_be_deleted_and_what_is_derived_comes_back(context: Path) -> None:
    ALICE.does((context / "pack.json").touch)
    ALICE.does((context / "swap").mkdir)
    ALICE.does((context / "swap/index.jsonl").touch)
    before = {name: ((context / name).read_bytes(), (context / name).stat()) for name in CONTEXT_FILES}
    with (context / "log.jsonl").open("rb") as still_open:
        subprocess.run(f"rm -r {context}/*", shell=True, check=True)
        assert still_open.read() == before["log.jsonl"][0]
        assert os.fstat(still_open.fileno()).st_size == len(before["log.jsonl"][0])
    assert listing(context) == CONTEXT_FILES
    for name, (content, status) in before.items():
        now = (context / name).stat()
        assert (context / name).read_bytes() == content
        assert (now.st_ino, now.st_mtime_ns, now.st_nlink) == (status.st_ino, status.st_mtime_ns, 1)
    assert outcome(context.rmdir) == "EPERM"


# Field report 35, for these files.


@pytest.mark.parametrize("tool", READERS)
def test_every_tool_reads_as_many_bytes_as_stat_says(context: Path, tool: str, tmp_path: Path) -> None:
    append(context.parent / "messages.jsonl", b"".join(line("user", "ü" * size) for size in range(0, 9000, 100)))
    append(context.parent / "events.jsonl", PROMPT)
    for name in CONTEXT_FILES:
        size = (context / name).stat().st_size
        assert len(READERS[tool](context / name, tmp_path)) == size > 0


def test_sizes_and_contents_are_those_of_the_last_append(context: Path) -> None:
    """Whoever appended, a stat and a read after it see it, in every file that it changes and in no other."""
    files = [context / name for name in sorted(CONTEXT_FILES)]
    appends: list[tuple[str, bytes, set[str]]] = [
        ("messages.jsonl", said("x"), {"messages.jsonl", "log.jsonl", "transcript.md"}),
        ("events.jsonl", event("delta", run="r", text="x"), {"log.jsonl"}),
        ("events.jsonl", PROMPT, {"log.jsonl", "request.json"}),
        ("events.jsonl", CUT, {"messages.jsonl", "log.jsonl", "transcript.md"}),
        ("messages.jsonl", said("y") * 500, {"messages.jsonl", "log.jsonl", "transcript.md"}),
    ]
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(opened(file, os.O_RDONLY)) for file in files]
        for log, data, changes in appends * 3:
            before = {file.name: file.stat() for file in files}
            append(context.parent / log, data)
            after = {file.name: file.stat() for file in files}
            assert {n for n in CONTEXT_FILES if after[n].st_mtime_ns > before[n].st_mtime_ns} == changes
            for file, descriptor in zip(files, held, strict=True):
                whole = file.read_bytes()
                assert len(whole) == after[file.name].st_size == os.fstat(descriptor).st_size
                assert os.pread(descriptor, 1 << 20, 0) == whole


def test_while_others_append_every_look_is_one_state_of_the_log(context: Path) -> None:
    """A stat and what is then read of as many bytes: whole lines, each entry once, in order."""
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            append(context.parent / "messages.jsonl", said("x" * 300))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            with (context / "log.jsonl").open("rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                content = file.read(size)
            assert len(content) == size
            assert [json.loads(text)["n"] for text in content.splitlines()] == list(range(content.count(b"\n")))
    finally:
        over.set()
        writer.join()


def test_times_and_bytes_are_the_same_after_a_restart(mount: RunningMount) -> None:
    session = Home(mount, "coder").session("one")
    append(session / "messages.jsonl", said("x"))
    append(session / "events.jsonl", PROMPT + CUT)
    before = {
        name: ((session / "context" / name).read_bytes(), os.stat(session / "context" / name)) for name in CONTEXT_FILES
    }
    mount.restart()
    for name, (content, status) in before.items():
        path = session / "context" / name
        assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, status.st_mtime_ns)


def test_tail_follows(context: Path) -> None:
    with subprocess.Popen(["tail", "-n1", "-f", context / "log.jsonl"], stdout=subprocess.PIPE) as tail:
        assert tail.stdout is not None
        assert b'"Hi"' in tail.stdout.readline()
        append(context.parent / "messages.jsonl", said("followed"))
        assert b"followed" in tail.stdout.readline()
        tail.terminate()


def test_a_poller_is_woken_by_what_changes_its_file_only(context: Path) -> None:
    def changed(descriptor: int) -> bool:
        return bool(select.select([], [], [descriptor], 0)[2])

    with contextlib.ExitStack() as stack:
        held = {name: stack.enter_context(opened(context / name, os.O_RDONLY)) for name in sorted(CONTEXT_FILES)}
        assert not any(map(changed, held.values()))
        append(context.parent / "events.jsonl", event("delta", run="r", text="x"))
        assert {name for name, descriptor in held.items() if changed(descriptor)} == {"log.jsonl"}
        append(context.parent / "messages.jsonl", said("x"))
        assert {name for name, descriptor in held.items() if changed(descriptor)} == CONTEXT_FILES - {"request.json"}
        waiting = select.poll()
        waiting.register(held["request.json"], select.POLLPRI)
        writer = threading.Thread(target=append, args=(context.parent / "events.jsonl", PROMPT))
        writer.start()
        assert waiting.poll(60_000) == [(held["request.json"], select.POLLPRI)]
        writer.join()
