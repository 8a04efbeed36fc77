"""``mountctl install`` and ``uninstall``: everything in its place, and nothing else touched (spec 4.6)."""

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from mountctl.cli import run
from mountctl.main import PROGRAM
from tests.commands.running import mountctl
from tests.mounting import PROJECT

UNITS = ("ctxfs.service", "ctxfs@.service", "ws-ckpt.service")


def files_below(root: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(root)): (path.read_text(), path.stat().st_mode & 0o777)
        for path in root.rglob("*")
        if path.is_file()
    }


def install(root: Path, *options: str) -> str:
    ran = mountctl("install", "--root", str(root), *options)
    assert (ran.code, ran.err) == (0, "")
    return ran.out


def test_everything_is_in_its_place_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        install(tmp_path)
    finally:
        os.umask(old)
    found = files_below(tmp_path)
    assert found["sbin/mount.fuse.ctxfs"][1] == 0o755
    assert {found[f"etc/systemd/system/{unit}"][1] for unit in UNITS} == {0o644}
    assert {"usr/local/share/man/man8/mountctl-mount.8", "usr/share/bash-completion/completions/ctx"} <= found.keys()
    assert [path for path, (text, _) in found.items() if "@mountctl@" in text or "@python@" in text] == []


def test_a_second_time_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert install(tmp_path)
    assert install(tmp_path) == ""


def test_a_dry_run_says_what_it_would_do_and_does_nothing(tmp_path: Path) -> None:
    said = install(tmp_path, "--dry-run")
    assert list(tmp_path.iterdir()) == []
    assert [line.replace("would install", "installed") for line in said.splitlines()] == install(tmp_path).splitlines()


def test_uninstall_removes_what_install_made_and_nothing_else(tmp_path: Path) -> None:
    other = tmp_path / "etc/systemd/system/other.service"
    other.parent.mkdir(parents=True)
    other.write_text("mine")
    install(tmp_path)
    assert mountctl("uninstall", "--root", str(tmp_path), "--dry-run").code == 0
    assert len(files_below(tmp_path)) > 1
    assert mountctl("uninstall", "--root", str(tmp_path)).code == 0
    assert files_below(tmp_path) == {"etc/systemd/system/other.service": ("mine", 0o644)}


def test_what_is_not_ours_is_neither_replaced_nor_removed(tmp_path: Path) -> None:
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    (units / "ws-ckpt.service").write_text("[Service]\nExecStart=/usr/bin/other\n")
    (units / "ctxfs.service").symlink_to("/dev/null")
    (units / "ctxfs@.service").mkdir()
    (tmp_path / "sbin").mkdir()
    (tmp_path / "sbin/mount.fuse.ctxfs").write_bytes(b"\x7fELF\xff")
    before = sorted(tmp_path.rglob("*"))
    ran = mountctl("install", "--root", str(tmp_path))
    assert ran.code == 69
    assert all(str(path) in ran.err for path in (*(units / name for name in UNITS), tmp_path / "sbin/mount.fuse.ctxfs"))
    assert sorted(tmp_path.rglob("*")) == before
    ran = mountctl("uninstall", "--root", str(tmp_path))
    assert (ran.code, ran.out.count("kept ")) == (0, 4)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("command", "step"), [("install", "replace"), ("uninstall", "unlink")])
def test_what_was_not_permitted_is_not_told_as_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, step: str
) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    if command == "uninstall":
        install(tmp_path)
    monkeypatch.setattr(Path, step, refuse)
    assert run("mountctl", PROGRAM, [command, "--root", str(tmp_path)]) == 13
    said = capsys.readouterr()
    assert (said.out, said.err.count("Permission denied")) == ("", 1)


def test_pages_of_an_older_version_go_too(tmp_path: Path) -> None:
    install(tmp_path)
    pages = tmp_path / "usr/local/share/man/man8"
    (pages / "mountctl-gone.8").write_text('.TH MOUNTCTL-GONE "8" "ctxfs" "ctxfs"\n')
    (pages / "mountctl-theirs.8").write_text(".TH OTHER 8\n")
    assert mountctl("uninstall", "--root", str(tmp_path)).code == 0
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["mountctl-theirs.8"]


def test_an_older_version_s_files_are_replaced(tmp_path: Path) -> None:
    install(tmp_path)
    unit = tmp_path / "etc/systemd/system/ctxfs.service"
    new = unit.read_text()
    unit.write_text("# ctxfs of long ago\n")
    assert install(tmp_path) == f"installed {unit}\n"
    assert unit.read_text() == new


# With User= each implies NoNewPrivileges= (systemd.exec(5)), which makes the setuid fusermount3 an ordinary program.
KEEPS_A_USER_FROM_MOUNTING = frozenset(
    (
        *("NoNewPrivileges", "DynamicUser", "LockPersonality", "MemoryDenyWriteExecute", "PrivateDevices"),
        *("ProtectClock", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables"),
        *("RestrictAddressFamilies", "RestrictFileSystems", "RestrictNamespaces", "RestrictRealtime"),
        *("RestrictSUIDSGID", "SystemCallArchitectures", "SystemCallFilter", "SystemCallLog"),
    )
)


def test_a_user_s_unit_lets_fusermount_mount() -> None:
    unit = (PROJECT / "mountctl/share/systemd/ctxfs@.service").read_text()
    assert "\nUser=%i\n" in unit
    assert {line.partition("=")[0] for line in unit.splitlines()} & KEEPS_A_USER_FROM_MOUNTING == set()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
@pytest.mark.parametrize("unit", ["ctxfs.service", "ctxfs@root.service"])
def test_systemd_takes_the_units(tmp_path: Path, unit: str) -> None:
    install(tmp_path)
    source = tmp_path / "etc/systemd/system" / unit.replace("@root", "@")
    (tmp_path / unit).write_text(source.read_text().replace("Documentation=man:", "Documentation=https://x/"))
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / unit], capture_output=True, text=True, check=False, timeout=60
    )
    assert [line for line in done.stderr.splitlines() if unit in line] == []
