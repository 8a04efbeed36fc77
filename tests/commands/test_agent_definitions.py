"""``mountctl agent …`` and ``mountctl shared …`` (spec 4.6): through the mount, and checked before they are made."""

import grp
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import make_root, script
from tests.commands.conftest import Place, stop
from tests.commands.running import Ran, mountctl
from tests.mounting import RunningMount, running_mount
from tests.people import ALICE, ROOT
from tests.socket.client import connected, request
from tests.socket.workshop import SAYS_HI, to_the_end, types

GROUP = grp.getgrgid(1).gr_name


@pytest.fixture(scope="module")
def mount(fuse_device: None) -> Iterator[RunningMount]:
    with running_mount() as mounted:
        make_root(mounted.base / "root")
        script(mounted.base / "root", "hi", SAYS_HI)
        yield mounted


@pytest.fixture(scope="module")
def root(mount: RunningMount) -> Path:
    return mount.base / "root"


def run(mount: RunningMount, *arguments: str) -> Ran:
    return mountctl(*arguments, "--mountpoint", str(mount.path), environment=mount.environment)


def send(mount: RunningMount, name: str) -> list[str]:
    with connected(mount.path / f"{name}.sock", ALICE) as client:
        client.send(request("send", id="c1", input="x") + b"\n")
        return types(to_the_end(client))


def test_an_agent_is_added_and_answers_at_once(mount: RunningMount, root: Path) -> None:
    added = run(
        mount,
        "agent",
        "add",
        "coder",
        "--exec",
        "/agents/hi --flag",
        "--root",
        str(root),
        "--mount",
        "/usr:/usr:ro",
        "--cwd",
        "/work",
        "--model",
        "acme/big",
    )
    assert added == (0, "", "")
    assert send(mount, "agent/coder") == ["start", "message", "done"]
    definition = mount.path / "agent/coder.d"
    assert {name: (definition / name).read_text() for name in os.listdir(definition) if name != "status"} == {
        "exec": '["/agents/hi", "--flag"]\n',
        "root": f"{root}\n",
        "cwd": "/work\n",
        "mount": "/usr\t/usr\tro\n",
        "model": "acme/big\n",
        "owner": "",
        "meta.json": "",
    }


def test_it_is_changed_listed_and_removed(mount: RunningMount, root: Path) -> None:
    run(
        mount,
        "agent",
        "add",
        "one",
        "--exec",
        '["/agents/hi"]',
        "--root",
        str(root),
        "--mount",
        "/usr:/usr:ro",
        "--owner",
        "1001",
    )
    assert run(mount, "agent", "set", "one", "--owner", "", "--cwd", "/tmp", "--adapter", "cosh") == (0, "", "")
    listed = json.loads(run(mount, "agent", "list", "--json").out)["agents"]
    assert [one for one in listed if one["name"] == "one"] == [
        {
            "name": "one",
            "exec": ["/agents/hi"],
            "root": str(root),
            "cwd": "/tmp",
            "owner": None,
            "model": None,
            "mounts": [["/usr", "/usr", "ro"]],
            "adapter": "cosh",
        }
    ]
    rows = [line.split("\t") for line in run(mount, "agent", "list").out.splitlines()]
    assert ["one", "/agents/hi", str(root), "/tmp", "everybody", ""] in rows
    assert run(mount, "agent", "remove", "one") == (0, "", "")
    assert not (mount.path / "agent/one.d").exists()


def test_a_model_is_defined_too(mount: RunningMount, root: Path) -> None:
    assert (
        run(
            mount,
            "agent",
            "add",
            "model:acme/big",
            "--exec",
            "/agents/hi",
            "--root",
            str(root),
            "--mount",
            "/usr:/usr:ro",
        ).code
        == 0
    )
    assert send(mount, "model/acme/big") == ["start", "message", "done"]
    assert "model:acme/big" in run(mount, "agent", "list").out


REFUSED: dict[str, tuple[list[str], int]] = {
    "an executable that is nowhere": (["--exec", "/nowhere/agent"], 1),
    "one that is not in the root": (["--exec", "/agents/none", "--root", "{root}"], 1),
    "one of the host that is not in the root": (["--exec", "/usr/bin/env", "--root", "{root}"], 1),
    "one that cannot be executed": (["--exec", "/etc/passwd", "--root", "/"], 1),
    "a name that is not in PATH": (["--exec", "no-such-program"], 1),
    "a root that is missing": (["--exec", "/agents/hi", "--root", "{root}/none"], 1),
    "an argv of no words": (["--exec", "[]"], 2),
    "a quote that is not closed": (["--exec", "'x"], 2),
    "a mount without a mode": (["--exec", "/bin/sh", "--mount", "/usr:/usr"], 2),
    "a mount of a relative path": (["--exec", "/bin/sh", "--mount", "usr:/usr:ro"], 2),
    "a mount on the root": (["--exec", "/bin/sh", "--mount", "/usr:/:ro"], 2),
    "an unknown user": (["--exec", "/bin/sh", "--owner", "no-such-user"], 1),
    "a cwd that is none": (["--exec", "/bin/sh", "--cwd", "a/b"], 1),
    "a relative cwd": (["--exec", "/bin/sh", "--root", "/", "--cwd", "tmp"], 1),
    "a relative root": (["--exec", "/bin/sh", "--root", "."], 1),
    "a uid that is none": (["--exec", "/bin/sh", "--root", "/", "--owner", "99999999999"], 1),
    "a model that is none": (["--exec", "/bin/sh", "--root", "/", "--model", "a/b/c"], 1),
    "a number in an argv": (["--exec", '["/bin/sh", 1]', "--root", "/"], 2),
    "a mount of what is missing": (["--exec", "/bin/sh", "--root", "/", "--mount", "/nowhere:/x:ro"], 1),
    "an unknown adapter": (["--exec", "/bin/sh", "--adapter", "other"], 2),
    "no executable": ([], 2),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_an_agent_is_refused_and_leaves_nothing(mount: RunningMount, root: Path, what: str) -> None:
    arguments, code = REFUSED[what]
    ran = run(mount, "agent", "add", "bad", *(argument.replace("{root}", str(root)) for argument in arguments))
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("mountctl: ")
    assert "--" in ran.err, "an option says what is wrong"
    assert "Invalid argument" not in ran.err
    assert not (mount.path / "agent/bad.d").exists()


@pytest.mark.parametrize(("option", "bad"), [("--cwd", "tmp"), ("--owner", "99999999999"), ("--model", "a/b/c")])
def test_a_change_is_made_whole_or_not_at_all(mount: RunningMount, option: str, bad: str) -> None:
    definition = mount.path / "agent/changed.d"
    if not definition.exists():
        assert run(mount, "agent", "add", "changed", "--exec", "/bin/sh", "--root", "/").code == 0
    before = {file.name: file.read_text() for file in definition.iterdir()}
    assert run(mount, "agent", "set", "changed", "--root", "/usr", "--exec", "/bin/env", option, bad).code == 1
    assert {file.name: file.read_text() for file in definition.iterdir()} == before


def test_who_defines_what_only_the_host_has_is_told_that_users_have_to_have_it_too(mount: RunningMount) -> None:
    ran = run(mount, "agent", "add", "hosts", "--exec", "/bin/sh -c true")
    assert (ran.code, ran.out) == (0, "")
    assert "--root /" in ran.err


@pytest.mark.parametrize(
    "name", ["ctx", "model", "a/b", "a.d", "a.sock", "../x", "model:x", "model:a/b/c", "", "x" * 65]
)
def test_a_bad_name_is_a_usage_error(mount: RunningMount, name: str) -> None:
    assert run(mount, "agent", "add", name, "--exec", "/bin/sh").code == 2


def test_an_agent_is_defined_once_and_changed_only_where_it_is(mount: RunningMount) -> None:
    assert run(mount, "agent", "add", "twice", "--exec", "/bin/sh", "--root", "/").code == 0
    assert "mountctl agent set" in run(mount, "agent", "add", "twice", "--exec", "/bin/sh", "--root", "/").err
    assert run(mount, "agent", "set", "none", "--cwd", "/").code == 1
    assert run(mount, "agent", "set", "twice").code == 2
    assert run(mount, "agent", "remove", "none").code == 1


def test_a_shared_space_is_made_listed_and_removed(mount: RunningMount) -> None:
    assert run(mount, "shared", "create", "team", "--group", GROUP) == (0, "", "")
    status = (mount.path / "shared/team").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (0o2770, 0, 1)
    assert json.loads(run(mount, "shared", "list", "--json").out) == {
        "spaces": [{"name": "team", "group": GROUP, "gid": 1, "mode": "2770"}]
    }
    assert run(mount, "shared", "list").out == f"team\t{GROUP}\t2770\n"
    ROOT.does(os.makedirs, mount.path / "shared/team/agent/coder/session/s")
    assert run(mount, "shared", "remove", "team").code == 69
    assert run(mount, "shared", "create", "team", "--group", GROUP).code == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["x", "--group", "no-such-group"], 1),
        (["x", "--group", "4294967000"], 1),
        (["x"], 2),
        (["a/b", "--group", GROUP], 2),
        (["x", "--group", GROUP, "--mode", "9"], 2),
        (["x", "--group", GROUP, "--mode", "27777"], 2),
    ],
)
def test_what_cannot_be_a_shared_space_is_refused(mount: RunningMount, arguments: list[str], code: int) -> None:
    assert run(mount, "shared", "create", *arguments).code == code
    assert not (mount.path / "shared/x").exists()


def test_another_mode_is_taken(mount: RunningMount) -> None:
    assert run(mount, "shared", "create", "open", "--group", "1", "--mode", "2775").code == 0
    assert stat.S_IMODE((mount.path / "shared/open").stat().st_mode) == 0o2775
    assert run(mount, "shared", "remove", "open") == (0, "", "")
    assert run(mount, "shared", "remove", "open").code == 1


def test_without_a_mount_it_says_so(tmp_path: Path) -> None:
    ran = mountctl("agent", "list", "--mountpoint", str(tmp_path), environment={"PATH": "/usr/bin:/bin"})
    assert (ran.code, ran.out) == (69, "")
    assert f"no ctxfs at {tmp_path}" in ran.err


@pytest.mark.parametrize(
    "command",
    [
        ("agent", "list"),
        ("agent", "add", "x", "--root", "/", "--exec", "/bin/true"),
        ("agent", "set", "x", "--cwd", "/"),
        ("agent", "remove", "x"),
        ("shared", "list"),
        ("shared", "create", "x", "--group", GROUP),
        ("shared", "remove", "x"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_beside_a_stopped_daemon_no_command_hangs(place: Place, command: tuple[str, ...]) -> None:
    place.mount()
    stop(place.daemon())
    ran = place.mountctl(*command, "--mountpoint", str(place.mountpoint))
    assert (ran.code, ran.out) == (69, "")
    assert ran.err == f"mountctl: the daemon of {place.mountpoint} does not answer: see `mountctl status`\n"
