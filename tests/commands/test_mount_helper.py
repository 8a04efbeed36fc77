"""``mount -t fuse.ctxfs`` and fstab: every option that people write (spec 4.6; field report 39)."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mountctl import mount_helper
from tests.commands.running import Ran, mountctl, run_program
from tests.mounting import PROJECT, SCRATCH
from tests.own_mounts import in_own_mounts

FSTAB = (
    "defaults",
    "nofail",
    "_netdev",
    "noauto",
    "auto",
    "user",
    "x-systemd.automount",
    "x-systemd.requires=network-online.target",
    "x-systemd.mount-timeout=30",
    "x-gvfs-hide",
    "comment=mine",
    "rw",
    "exec",
    "noexec",
    "sync",
    "dirsync",
    "async",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "strictatime",
    "lazytime",
    "nodev",
    "nosuid",
    "allow_other",
    "default_permissions",
    "agent_timeout=60",
)
TYPOS = ("nofial", "allow_others", "agent_timeout=soon", "agent_timeout", "store=", "x_systemd.automount")


def helper(*arguments: str) -> Ran:
    return run_program("mountctl.mount_helper", *arguments, environment=os.environ)


@pytest.mark.parametrize("option", [*FSTAB, ",".join(FSTAB)], ids=[*FSTAB, "all together"])
def test_options_for_others_are_taken(option: str) -> None:
    assert mount_helper.main(["ctxfs", "/nowhere", "-f", "-o", option]) == 0


@pytest.mark.parametrize("option", TYPOS)
def test_a_typo_fails_by_name(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert mount_helper.main(["ctxfs", "/nowhere", "-f", "-n", "-o", f"nofail,{option}"]) == 1
    assert option.partition("=")[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 1),
        (["ctxfs"], 1),
        (["ctxfs", "/nowhere", "--fake"], 1),
        (["var/lib/ctxfs", "/nowhere", "-f"], 1),
        (["./store", "/nowhere", "-f", "-o", "store=/x"], 1),
        (["ctxfs", "/nowhere", "-o", "remount"], 32),
        (["ctxfs", "/no/\x1b[2J", "-o", "store=/no"], 32),
    ],
)
def test_a_refusal_has_mount_s_code_and_one_line_that_cannot_steer_a_terminal(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mount_helper.main(arguments) == code
    said = capsys.readouterr().err
    assert said.startswith("mount.fuse.ctxfs: ") and said.count("\n") == 1 and "\x1b" not in said


@pytest.fixture
def place(fuse_device: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = Path(subprocess.check_output(["mktemp", "-d", SCRATCH / "helper.XXXXXX"], text=True).strip())
    (base / "ctx").mkdir()
    try:
        yield base
    finally:
        mountctl("umount", str(base / "ctx"), "--lazy")
        subprocess.run(["rm", "-rf", base], check=True)


def test_an_fstab_line_mounts_and_umount_ends_it(place: Path) -> None:
    ran = helper(str(place / "store"), str(place / "ctx"), "-n", "-o", ",".join(FSTAB))
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert (place / "ctx/status").read_text()
    assert helper(str(place / "store"), str(place / "ctx")).code == mount_helper.FAILED
    assert mountctl("umount", str(place / "ctx")).code == 0


def test_mount_finds_the_helper(place: Path) -> None:
    """In a mount namespace whose /sbin holds nothing else, so that this machine keeps its own."""
    assert mountctl("install", "--root", str(place / "root")).code == 0
    script = f"""
        set -e
        mount --bind {place}/root/sbin /sbin
        mount -t fuse.ctxfs {place}/store {place}/ctx -o nofail,x-systemd.automount,_netdev
        cat {place}/ctx/status
        umount {place}/ctx
    """
    command = in_own_mounts(place, "sh", "-c", script)
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "=" in done.stdout
