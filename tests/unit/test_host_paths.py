"""Where on the host a path of an agent's view is: what the launcher finds when it makes the view (spec 3.4, 6.8)."""

import os
from pathlib import Path

import pytest

from ctxfs.agents.cwd import resolve_cwd
from ctxfs.agents.host_paths import host_path
from ctxfs.agents.launch import Identity, View
from ctxfs.agents.mount_table import MountRow
from ctxfs.agents.views import build
from tests.people import ROOT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    for name in ("root/dir/below", "root/work", "one/below", "one/dir", "two/below", "tree/home", "root/ctx"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "root/file").touch()
    for name, target in {
        "root/to row": "/work",
        "root/relative": "dir/../work/below",
        "root/loop": "loop",
        "root/out": "/etc",
        "root/up": "../../../../dir",
        "root/dangling": "none",
        "root/dir/up": "..",
        "root/chain": "to row",
        "one/to root": "/dir/below",
        "one/to other": "/work/two",
        "one/up": "../dir",
        "linked": "one",
    }.items():
        (tmp_path / name).symlink_to(target)
    return tmp_path


ONE, TWO, LINKED = ("one", "/work"), ("two", "/work/two"), ("linked", "/work")
OVER = ("two", "/work/below")

CASES = [
    ([], "/"),
    ([], "/dir/below"),
    ([], "/dir/up/dir"),
    ([], "/up"),
    ([], "/work"),
    ([], "/ctx/home"),
    ([], "/ctx"),
    ([ONE], "/work"),
    ([ONE], "/work/below"),
    ([ONE], "/to row"),
    ([ONE], "/to row/below"),
    ([ONE], "/chain/below"),
    ([ONE], "/relative"),
    ([ONE], "/work/to root"),
    ([ONE], "/work/up"),
    ([LINKED], "/work/below"),
    ([ONE, TWO], "/work/two/below"),
    ([ONE, TWO], "/work/to other/below"),
    ([ONE, OVER], "/work/below"),
    ([OVER, ONE], "/work/below"),
    ([("tree", "/work/new/place")], "/work/new/place/home"),
    ([("/ctx/home", "/work")], "/work"),
    ([("two", "/ctx")], "/ctx/below"),
]


def view_of(host: Path, rows: list[tuple[str, str]], root: Path | None) -> View:
    table = tuple(MountRow(os.path.join(host, source), target, True) for source, target in rows)
    return View(None if root is None else str(root), str(host / "tree"), table)


def as_the_launcher(view: View, cwd: str) -> tuple[int, int]:
    """Which directory it starts an agent in."""
    identity = Identity(0, 0)
    built = build(view, identity, cwd)
    found = os.fstat(resolve_cwd(built.root, cwd, on_host=built.on_host))
    return found.st_dev, found.st_ino


@pytest.mark.parametrize(("rows", "cwd"), CASES)
def test_what_the_launcher_finds(host: Path, rows: list[tuple[str, str]], cwd: str) -> None:
    view = view_of(host, rows, host / "root")
    launched = ROOT.does(as_the_launcher, view, cwd)
    found = host_path(view, cwd)
    assert found == os.path.realpath(found)
    assert (os.stat(found).st_dev, os.stat(found).st_ino) == launched


@pytest.mark.parametrize("rows", [[ONE], [ONE, TWO]])
def test_on_the_host_itself(host: Path, rows: list[tuple[str, str]]) -> None:
    place = host / "place"
    place.mkdir()
    view = view_of(host, [(source, str(place) + target.removeprefix("/work")) for source, target in rows], Path("/"))
    for cwd in (f"{place}/below", f"{host}/linked/below", f"{place}/dir"):
        found = os.stat(host_path(view, cwd))
        assert (found.st_dev, found.st_ino) == ROOT.does(as_the_launcher, view, cwd)


@pytest.mark.parametrize(
    ("cwd", "kind"),
    [
        ("/none", FileNotFoundError),
        ("/dangling", FileNotFoundError),
        ("/out", FileNotFoundError),
        ("/file", NotADirectoryError),
        ("/file/below", NotADirectoryError),
        ("/loop", OSError),
    ],
)
def test_what_is_no_directory_of_the_view(host: Path, cwd: str, kind: type[OSError]) -> None:
    view = view_of(host, [ONE], host / "root")
    with pytest.raises(kind):
        host_path(view, cwd)
    with pytest.raises(OSError):
        ROOT.does(as_the_launcher, view, cwd)


def test_an_empty_view_has_what_is_attached(host: Path) -> None:
    view = view_of(host, [ONE], None)
    assert host_path(view, "/work/below") == str(host / "one/below")
    for cwd in ("/", "/dir"):
        with pytest.raises(FileNotFoundError):
            host_path(view, cwd)
