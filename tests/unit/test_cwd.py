"""Spec 3.4: a cwd is resolved in the agent's view with the peer's rights, and a host path never gets past its root."""

import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxfs.agents.cwd import find_executable, is_on_host, resolve_cwd
from tests.mounting import SCRATCH
from tests.people import ALICE, ROOT, Person, outcome


@pytest.fixture(scope="module")
def host() -> Iterator[Path]:
    """A directory of the host with a view's root in it, and beside that root what a view must not reach."""
    base = Path(tempfile.mkdtemp(prefix="ctxfs-test-", dir=SCRATCH))
    base.chmod(0o755)
    root = base / "root"
    for directory in ("root/work/deep", "root/closed/inner", "root/sealed", "outside/data", "hidden/data", "root/var"):
        (base / directory).mkdir(parents=True)
    for file in ("root/file", "outside/file"):
        (base / file).touch()
    links = {
        "inside": "/work",
        "relative": "work/deep",
        "up": "../outside",
        "up-and-back": "../../../work",
        "absolute": str(base / "outside/data"),
        "to-file": str(base / "outside/file"),
        "to-hidden": str(base / "hidden/data"),
        "dangling": "/nowhere",
        "loop": "loop",
        "magic": "/proc/self/root",
        "to-etc": "/etc",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    (root / "closed").chmod(0o700)
    (root / "sealed").chmod(0o644)
    (base / "hidden").chmod(0o700)
    yield base
    shutil.rmtree(base)


def resolved(root: Path, cwd: str) -> str:
    """Which directory of the host the cwd is."""
    opened = os.open(root, os.O_PATH | os.O_DIRECTORY)
    descriptor = resolve_cwd(opened, cwd, on_host=is_on_host(opened, cwd))
    return os.readlink(f"/proc/self/fd/{descriptor}")


FOUND = {
    "/": "",
    "/work": "/work",
    "/work/deep": "/work/deep",
    "/inside/deep": "/work/deep",
    "/relative": "/work/deep",
    "/up-and-back": "/work",
}


@pytest.mark.parametrize(("cwd", "where"), FOUND.items())
def test_what_is_in_the_view_is_found_there(host: Path, cwd: str, where: str) -> None:
    assert ALICE.does(resolved, host / "root", cwd) == f"{host}/root{where}"


REFUSED = {
    "missing": ("/nowhere", "ENOENT"),
    "missing below what is there": ("/work/nowhere", "ENOENT"),
    "a link to nothing": ("/dangling", "ENOENT"),
    "a loop of links": ("/loop", "ENOENT"),
    "a name that is too long": ("/" + "n" * 300, "ENOENT"),
    "a path that is too long": ("/work" * 1000, "ENOENT"),
    "a file": ("/file", "ENOTDIR"),
    "below a file": ("/file/x", "ENOTDIR"),
    "not searchable": ("/sealed", "EACCES"),
    "below what is not searchable": ("/closed/inner", "EACCES"),
    "a host path": ("/usr", "EACCES"),
    "a host file": ("/etc/passwd", "EACCES"),
    "a link with ..": ("/up", "EACCES"),
    "below a link with ..": ("/up/data", "EACCES"),
    "an absolute link": ("/absolute", "EACCES"),
    "an absolute link to a file": ("/to-file", "EACCES"),
    "a link to a host directory": ("/to-etc", "EACCES"),
    "a magic link": ("/magic", "EACCES"),
    "the host's own magic link": ("/proc/self/cwd", "EACCES"),
    "a link to what the peer cannot see": ("/to-hidden", "ENOENT"),
    "a host path that the peer cannot see": ("/root/.bashrc", "ENOENT"),
    "the root's own host path": ("{root}/work", "EACCES"),
}


@pytest.mark.parametrize(("cwd", "expected"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_not_in_the_view_is_refused(host: Path, cwd: str, expected: str) -> None:
    path = cwd.replace("{root}", str(host / "root"))
    assert ALICE.outcome(resolved, host / "root", path) == expected


def test_the_peers_rights_decide(host: Path) -> None:
    assert ROOT.does(resolved, host / "root", "/closed/inner") == f"{host}/root/closed/inner"
    assert ROOT.outcome(resolved, host / "root", "/to-hidden") == "EACCES"


def test_a_group_of_the_peer_counts(host: Path) -> None:
    shared = host / "root/shared"
    shared.mkdir()
    os.chown(shared, 0, 4242)
    shared.chmod(0o750)
    assert ALICE.outcome(resolved, host / "root", "/shared") == "EACCES"
    assert Person(1001, 1001, (4242,)).outcome(resolved, host / "root", "/shared") == "ok"


def test_a_link_that_is_swapped_meanwhile_never_leads_out(host: Path) -> None:
    """A directory that becomes a link out of the root, and back: what is resolved is inside, or nothing is."""
    base = host / "root/var"
    (base / "real").mkdir()
    os.symlink(host / "outside", base / "link")
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            os.rename(base / "real", base / "current")
            os.rename(base / "current", base / "real")
            os.rename(base / "link", base / "current")
            os.rename(base / "current", base / "link")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        outcomes = ALICE.does(_until_both_seen, host / "root", "/var/current")
    finally:
        over.set()
        swapper.join()
    assert outcomes <= {"inside", "ENOENT", "EACCES"}


def _until_both_seen(root: Path, cwd: str) -> set[str]:
    """Resolves at least 2000 times, and until the directory and the link were met."""
    seen: set[str] = set()
    tries = 0
    while tries < 2000 or not {"inside", "EACCES"} <= seen:
        tries += 1
        opened = os.open(root, os.O_PATH | os.O_DIRECTORY)
        try:
            descriptor = resolve_cwd(opened, cwd, on_host=is_on_host(opened, cwd))
        except OSError as error:
            assert error.errno is not None
            seen.add(errno.errorcode[error.errno])
        else:
            place = os.readlink(f"/proc/self/fd/{descriptor}")
            seen.add("inside" if place.startswith(f"{root}/") else place)
            os.close(descriptor)
        os.close(opened)
    return seen


@pytest.fixture(scope="module")
def tools(host: Path) -> Path:
    root = host / "root"
    for name, mode in (("bin/tool", 0o755), ("bin/plain", 0o644), ("opt/tool", 0o755), ("work/local", 0o755)):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).touch()
        (root / name).chmod(mode)
    return root


EXECUTABLES = {
    "/opt/tool": "/opt/tool",
    "tool": "/bin/tool",
    "./local": "/work/./local",
    "deep/../local": "/work/deep/../local",
}


@pytest.mark.parametrize(("name", "path"), EXECUTABLES.items())
def test_an_executable_is_found_as_execvp_does(tools: Path, name: str, path: str) -> None:
    opened = os.open(tools, os.O_PATH)
    assert ALICE.does(find_executable, opened, "/work", name, "/nowhere:/bin:/opt") == path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/bin/none", "ENOENT"),
        ("none", "ENOENT"),
        ("/bin/plain", "EACCES"),
        ("/bin", "EACCES"),
        ("/usr/bin/env", "ENOENT"),
    ],
)
def test_what_cannot_be_executed_is_refused(tools: Path, name: str, expected: str) -> None:
    opened = os.open(tools, os.O_PATH)
    assert ALICE.does(outcome, find_executable, opened, "/work", name, "/bin") == expected
