"""Fixtures of the mount's tests: a home, an agent or a session, on the module's mount or one of the test's own."""

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxfs.agents import launcher
from tests.agents import make_root
from tests.mount.acting import message, new_session, write_once
from tests.mount.launching import Bench
from tests.mount.scenery import PROMPT, Home, append, line, said
from tests.mounting import RunningMount, running_mount, wait_until

_agents = itertools.count(1)


@pytest.fixture
def fresh_home(mount: RunningMount) -> Home:
    """Alice's home with an agent ``coder``, on a mount of the test's own."""
    return Home(mount, "coder")


@pytest.fixture
def home(module_mount: RunningMount) -> Home:
    """Alice's home with an agent of the test's own, on the module's mount."""
    return Home(module_mount, f"coder{next(_agents)}")


@pytest.fixture(scope="module")
def module_mount(fuse_device: None) -> Iterator[RunningMount]:
    """A running mount that the tests of a module share; it must end without a warning in its log."""
    with running_mount() as mounted:
        yield mounted


@pytest.fixture
def ctx(module_mount: RunningMount) -> Path:
    """The mountpoint of the module's mount; each test makes sessions of its own (``acting.new_session``)."""
    return module_mount.path


@pytest.fixture
def session(ctx: Path) -> Path:
    """A new, empty session of the caller's home."""
    return new_session(ctx)


@pytest.fixture
def log(session: Path) -> Path:
    """messages.jsonl of a new session."""
    return session / "messages.jsonl"


@pytest.fixture
def started(session: Path) -> Path:
    """A session with one message, ``message("a")``."""
    write_once(session / "messages.jsonl", message("a"))
    return session


@pytest.fixture
def context(home: Home) -> Path:
    """``context/`` of a session in which something was said, asked and answered."""
    session = home.session("one")
    append(session / "messages.jsonl", line("user", "Hello"))
    append(session / "events.jsonl", PROMPT)
    append(session / "messages.jsonl", said("Hi"))
    return session / "context"


@pytest.fixture
def place(module_mount: RunningMount) -> Iterator[Path]:
    """A directory of the host that others can reach."""
    path = Path(tempfile.mkdtemp(prefix="place-", dir=module_mount.base))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def bench(module_mount: RunningMount, place: Path) -> Iterator[Bench]:
    link, pid = launcher.start()
    yield Bench(link, pid, module_mount, make_root(place / "root"))
    link.close()
    wait_until(lambda: os.waitpid(pid, os.WNOHANG) != (0, 0), "the launcher's end")
