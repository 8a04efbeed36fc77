"""Sizes are exact (spec 1.2; field report 35): what stat says is what every tool gets, also while others append."""

import contextlib
import io
import mmap
import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mount.scenery import Home, append, event, line, put, said
from tests.mounting import wait_until
from tests.people import ALICE, outcome

UUID = "0f1e2d3c-4b5a-4697-8877-665544332211"

# What a tool gets of a file; the second argument is a directory for it to work in.
Reader = Callable[[Path, Path], bytes]


@pytest.fixture(scope="module")
def files(request: pytest.FixtureRequest) -> dict[str, Path]:
    """One file of every kind, by kind."""
    home = Home(request.getfixturevalue("module_mount"), "sized")
    one, archived = home.session("one"), home.session("old")
    text = "ü😀 and more\n" * 500
    for session in (one, archived):
        append(session / "messages.jsonl", b"".join(line("user", "x" * size) for size in range(0, 9000, 100)))
        append(session / "messages.jsonl", said(text))
        append(session / "events.jsonl", event("delta", run="r", text=text) * 3)
        put(session / "state", "done")
        put(session / "cwd", "/srv/with/ümlaut")
        put(session / "meta.json", '{"client":"x","scope":"private","more":[1,2,{"ü":"😀"}]}')
        (session / "AGENTS.md").write_text(text)
        (session / "SKILLS.md").write_text("")
    (home.index / "by-hash/h").write_text("one\n")
    (home.index / f"by-uuid/{UUID}").write_text("one\n")
    (home.agent / "data/plain").write_text(text)
    definition = home.mount.path / "agent/sized.d"
    definition.mkdir()
    put(definition / "cwd", "/srv")
    old = home.archived("old")
    found = {f"live {path.name}": path for path in one.iterdir() if path.is_file()}
    found |= {f"archived {path.name}": path for path in old.iterdir() if path.is_file()}
    found |= {path.name: path for path in home.index.iterdir() if path.is_file()}
    found |= {kind: next((home.index / kind).iterdir()) for kind in ("by-cwd", "by-hash", "by-uuid")}
    found |= {f"definition {path.name}": path for path in definition.iterdir()}
    found |= {"mount status": home.mount.path / "status", "ordinary": home.agent / "data/plain"}
    # A list that became shorter has no shared mapping for a moment (``ctxfs.kernel_cache``).
    wait_until(lambda: outcome(by_mmap, found["list"], home.agent) == "ok", "the list's rest")
    return found


def by_mmap(path: Path, _: Path) -> bytes:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return b""
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            return bytes(mapped)


def by_tar(path: Path, _: Path) -> bytes:
    done = subprocess.run(["tar", "-cf", "-", "-C", path.parent, path.name], capture_output=True, check=False)
    # 1: "file changed as we read it", and then it has as much as it said.
    assert done.returncode in (0, 1), done.stderr
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        member = tar.extractfile(path.name)
        assert member is not None
        return member.read()


def by_copy(*command: str) -> Reader:
    def copy(path: Path, scratch: Path) -> bytes:
        target = scratch / "copy"
        target.unlink(missing_ok=True)
        subprocess.run([*command, path, target], check=True, capture_output=True)
        return target.read_bytes()

    return copy


def by_output(*command: str) -> Reader:
    return lambda path, _: subprocess.run([*command, path], capture_output=True, check=True).stdout


def by_dd(path: Path, _: Path) -> bytes:
    return subprocess.run(["dd", f"if={path}", "bs=777"], capture_output=True, check=True).stdout


def by_single_bytes(path: Path, _: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        return b"".join(iter(lambda: file.read(1013), b""))


READERS: dict[str, Reader] = {
    "cat": by_output("cat"),
    "cp": by_copy("cp"),
    "install": by_copy("install", "-m600"),
    "dd": by_dd,
    "mmap": by_mmap,
    "tar": by_tar,
    "tail": by_output("tail", "-c", "+1"),
    "small reads": by_single_bytes,
}
if shutil.which("rsync"):
    READERS["rsync"] = by_copy("rsync", "-a", "--no-owner", "--no-group")


@pytest.mark.parametrize("tool", READERS)
def test_every_tool_reads_as_many_bytes_as_stat_says(files: dict[str, Path], tool: str, tmp_path: Path) -> None:
    assert len(files) == 35
    for kind, path in files.items():
        content = READERS[tool](path, tmp_path)
        assert len(content) == path.stat().st_size, kind
        assert content == path.read_bytes(), kind


def test_wc_counts_what_stat_says(files: dict[str, Path]) -> None:
    for kind, path in files.items():
        counted = subprocess.run(["wc", "-c", path], capture_output=True, check=True).stdout
        assert int(counted.split()[0]) == path.stat().st_size, kind


def test_every_value_is_utf8_and_ends_in_one_newline(files: dict[str, Path]) -> None:
    empty = {
        "live SKILLS.md",
        "archived SKILLS.md",
        *(f"definition {name}" for name in ("owner", "exec", "root", "mount", "model", "meta.json")),
    }
    for kind, path in files.items():
        text = path.read_bytes().decode()
        assert text == "" if kind in empty else text.endswith("\n"), kind
        if kind.split()[-1] not in ("latest.md", "AGENTS.md", "plain"):
            assert not text.endswith("\n\n"), kind


def test_a_seek_from_the_end_and_reads_beyond_it(files: dict[str, Path]) -> None:
    for kind, path in files.items():
        size = path.stat().st_size
        with path.open("rb", buffering=0) as file:
            assert file.seek(0, os.SEEK_END) == size, kind
            assert file.read(1) == b"", kind
            file.seek(max(0, size - 1))
            assert len(file.read()) == min(1, size), kind
            assert os.pread(file.fileno(), 10, size + 5000) == b"", kind


@contextlib.contextmanager
def being_appended_to(session: Path, lines: int) -> Iterator[threading.Thread]:
    """A thread that appends lines of changing length, and ends."""

    def work() -> None:
        for number in range(lines):
            append(session / "messages.jsonl", said(f"{number} " + "y" * (number * 37 % 5000)))
            append(session / "events.jsonl", event("delta", run="r", text="z" * (number * 13 % 700)))

    thread = threading.Thread(target=work)
    thread.start()
    yield thread
    thread.join()


@pytest.mark.parametrize("tool", READERS)
def test_what_a_tool_reads_during_appends_ends_on_a_line(home: Home, tool: str, tmp_path: Path) -> None:
    session = home.session("busy")
    ALICE.does(append, session / "messages.jsonl", said("first"))
    rounds = 0
    with being_appended_to(session, 120) as writer:
        while writer.is_alive() or rounds == 0:
            rounds += 1
            for name in ("messages.jsonl", "events.jsonl"):
                content = READERS[tool](session / name, tmp_path)
                assert content.endswith(b"\n") or (name == "events.jsonl" and not content), (name, rounds)
                assert b"\0" not in content, (name, rounds)


def test_sizes_during_appends_are_of_whole_lines_and_match_what_is_there(home: Home) -> None:
    """One descriptor: whatever size fstat names, exactly that many bytes can be read, and they end on a line."""
    session = home.session("busy")
    with being_appended_to(session, 300) as writer, (session / "messages.jsonl").open("rb", buffering=0) as log:
        sizes = set()
        while writer.is_alive():
            size = os.fstat(log.fileno()).st_size
            content = os.pread(log.fileno(), size, 0)
            assert len(content) == size
            assert not content or content.endswith(b"\n")
            sizes.add(size)
    assert len(sizes) > 2
    assert os.stat(session / "messages.jsonl").st_size == len((session / "messages.jsonl").read_bytes())
