"""Archive and GC, killed at every step: a session is live or archived (or deleted), whole, and the index true (4.4)."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.names import cwd_key
from mountctl import archiving
from tests.commands.running import in_process
from tests.contract.harness import Harness, cd, raws, say
from tests.crash import dying_daemon
from tests.mount.acting import message, write_once
from tests.mount.scenery import SESSION_FILES
from tests.mounting import RunningMount, running_mount

UUID = "0f1e2d3c-4b5a-4697-8877-665544332211"
MAX_STEPS = 60


class Scene:
    """An agent of root's with a session ``first``, and one at a time that is to go."""

    def __init__(self, mount: RunningMount) -> None:
        self.mount = mount
        self.sessions = mount.path / "home/0/agent/coder/session"
        self.index = self.sessions / "index"
        self.archived = mount.path / "home/0/archived_sessions/coder"
        self.sessions.parent.mkdir()
        for name in ("first", "other"):
            (self.sessions / name).mkdir()
            (self.sessions / name / "cwd").write_text("/srv\n")
        (self.index / "by-hash/other").write_text("other\n")

    def session(self, name: str) -> dict[str, bytes]:
        """A new one that is everywhere in the index; its files."""
        session = self.sessions / name
        session.mkdir()
        write_once(session / "messages.jsonl", message("a") + b'{"role":"assistant","content":"b"}\n')
        (session / "cwd").write_text("/srv\n")
        (session / "context/facts.jsonl").write_text("{}\n")
        (self.index / f"by-hash/{name}").write_text(f"{name}\n")
        (self.index / f"by-uuid/{UUID}").write_text(f"{name}\n")
        return contents(session)

    def is_live(self, name: str, files: dict[str, bytes]) -> bool:
        """Whether the session is; wherever it is it must be whole, and the index must say the same in all its files."""
        live = (self.sessions / name).exists()
        archived = (self.archived / name).exists()
        assert live + archived <= 1
        if live or archived:
            assert contents((self.sessions if live else self.archived) / name) == files
        names = [name] if live else []
        assert sorted((self.index / "list").read_text().split()) == sorted(["first", "other", *names])
        assert sorted(os.listdir(self.sessions)) == sorted(["first", "index", "other", *names])
        assert (self.index / "by-cwd" / cwd_key("/srv")).read_text() == f"{name if live else 'other'}\n"
        assert sorted(os.listdir(self.index / "by-hash")) == sorted(["other", *names])
        assert os.listdir(self.index / "by-uuid") == ([UUID] if live else [])
        assert (self.index / "current").read_text() == "first\n"
        return live


def contents(session: Path) -> dict[str, bytes]:
    return {name: (session / name).read_bytes() for name in (*SESSION_FILES, "context/facts.jsonl")}


def gc(scene: Scene, *options: str) -> int:
    """``ctx agent session gc`` of all that may go, but for ``other``, in this process."""
    return in_process(scene.mount.path, "session", "gc", "coder", "--yes", "--keep", "other", *options).code


def store_with_a_session(kind: str, directory: Path) -> Harness:
    at = Harness(kind, directory)
    at.archive()
    for name in ("first", "other", "s"):
        at.append(at.session(name), say("x", "assistant"), cd("/srv"))
        at.store.set_mapping(at.owner.id, "by-hash", name, name)
    return at


def what_is(at: Harness) -> tuple[list[Any], list[str], list[str]]:
    """The live sessions and all of the index, and the archived sessions."""
    rows = list(at.store.sessions(at.owner.id))
    archived = list(at.store.archived_sessions(at.archive().id))
    for row in (*rows, *archived):
        assert at.stream(row, "messages") == raws([say("x", "assistant")])
        assert at.stream(row, "events") == raws([cd("/srv")])
    index = [at.listed(), at.mapped("by-cwd"), at.mapped("by-hash"), at.owner_now().current]
    return index, [row.name for row in rows], [row.name for row in archived]


@pytest.mark.parametrize("what", ["archive_session", "delete_session"])
@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_a_store_whose_process_is_killed_at_any_step(kind: str, what: str, tmp_path: Path) -> None:
    at = store_with_a_session(kind, tmp_path)
    before = what_is(at)
    session = at.store.session(at.owner.id, "s")
    assert session is not None
    arguments = (session.id, at.archive().id) if what == "archive_session" else (session.id,)
    at.store.close()
    for step in range(MAX_STEPS):
        shutil.copytree(tmp_path, copy := tmp_path.with_name(f"{tmp_path.name}-{step}"), symlinks=True)
        child = os.fork()
        if child == 0:
            at.open_copy(copy)
            dying_daemon.arm(at.store, step)
            getattr(at.store, what)(*arguments)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        at.open_copy(copy)
        found = what_is(at)
        at.store.close()
        if found != before:
            index, live, archived = found
            assert (live, archived) == (["first", "other"], ["s"] if what == "archive_session" else [])
            by_hash = {name: name for name in live}
            assert index == [["other", "first"], {cwd_key("/srv"): "other"}, by_hash, "first"]
        if status == 0:
            assert found != before and step > 5
            break
        assert status == -signal.SIGKILL
    else:
        pytest.fail(f"it takes more than {MAX_STEPS} steps")


@pytest.mark.limit(600)
@pytest.mark.parametrize("options", [(), ("--delete",)], ids=["archive", "delete"])
@pytest.mark.parametrize("form", ["sqlite", "jsonl"])
def test_a_daemon_that_is_killed_on_the_way(form: Any, options: tuple[str, ...]) -> None:
    """At every few steps: a store by itself is killed at each of them, above."""
    with running_mount(form, module="tests.crash.dying_daemon") as mount:
        scene = Scene(mount)
        for step in range(0, MAX_STEPS, 6):
            name = f"s{step}"
            files = scene.session(name)
            (mount.base / "die").write_text(str(step))
            code = gc(scene, *options)
            (mount.base / "die").unlink()
            if code == 0:
                assert not scene.is_live(name, files)
                break
            mount.unmount()
            mount.start()
            if scene.is_live(name, files):
                assert gc(scene, *options) == 0
                assert not scene.is_live(name, files)
        else:
            pytest.fail(f"it takes more than {MAX_STEPS} steps")


def dying(calls: Iterator[None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes calls that end this process when ``calls`` does."""

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            if next(calls, False) is False:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        return wrapped

    return wrap


@pytest.mark.parametrize("options", [(), ("--delete",)], ids=["archive", "delete"])
def test_a_command_that_is_killed_at_any_step(mount: RunningMount, options: tuple[str, ...]) -> None:
    scene = Scene(mount)
    for step in range(MAX_STEPS):
        name = f"s{step}"
        files = scene.session(name)
        child = os.fork()
        if child == 0:
            wrap = dying(iter([None] * step))
            for call in ("mkdir", "open", "fsync", "setxattr", "close"):
                setattr(os, call, wrap(getattr(os, call)))
            archiving.rename = wrap(archiving.rename)  # type: ignore[attr-defined]
            os._exit(gc(scene, *options))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        live = scene.is_live(name, files)
        if status == 0:
            assert not live
            break
        assert status == -signal.SIGKILL
        if live:
            assert gc(scene, *options) == 0
    else:
        pytest.fail(f"it takes more than {MAX_STEPS} steps")
    assert step >= 1
