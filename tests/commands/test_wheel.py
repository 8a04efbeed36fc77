"""An installed wheel is all that it takes: no source tree, no network, another directory."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.commands.conftest import Place
from tests.commands.test_install import files_below
from tests.mounting import PROJECT

PACKAGES = ("backend", "ctxfs", "mountctl")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of a virtual environment that the wheel was installed in; what it needs is lent by this one."""
    base = tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(PROJECT / name, base / "src" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(PROJECT / name, base / "src")
    pip = [sys.executable, "-m", "pip", "--isolated", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps"]
    subprocess.run([*pip, "wheel", *offline, "--no-build-isolation", "-w", base, base / "src"], check=True)
    shutil.rmtree(base / "src")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", base / "venv"], check=True)
    python = base / "venv/bin/python"
    [wheel] = base.glob("*.whl")
    subprocess.run([*pip, "--python", python, "install", *offline, wheel], check=True)
    [packages] = base.glob("venv/lib/python*/site-packages")
    # A path that a .pth names is not searched for others, so the project itself does not come with it.
    (packages / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    return base / "venv/bin"


def test_it_mounts_reads_and_unmounts(place: Place, programs: Path) -> None:
    def run(*words: str) -> str:
        environment = {key: value for key, value in place.environment.items() if key != "PYTHONPATH"}
        done = subprocess.run(
            [programs / words[0], *words[1:]],
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    for name in PACKAGES:
        assert run("python", "-c", f"import {name}; print({name}.__file__)").startswith(f"{programs.parent}/")
    run("mountctl", "mount", str(place.mountpoint), "--store", str(place.store))
    assert place.daemon()
    line = '{"role":"user","content":"hello"}\n'
    session = Path(run("ctx", "agent", "session", "new", "demo", "first").strip())
    with (session / "messages.jsonl").open("a") as file:
        file.write(line)
    assert run("ctx", "agent", "history", "demo", "-s", "first") == line
    assert run("ctx", "search", "hello").count("hello") == 1
    run("mountctl", "umount", str(place.mountpoint))
    assert place.mounted() is None
    run("mountctl", "doctor", "--store", str(place.store))


def test_it_installs_what_belongs_to_it(place: Place, programs: Path) -> None:
    root = place.base / "root"
    subprocess.run([programs / "mountctl", "install", "--root", root], check=True, stdout=subprocess.DEVNULL, cwd="/")
    found = files_below(root)
    assert f"ExecStart={programs}/mountctl mount -f\n" in found["etc/systemd/system/ctxfs.service"][0]
    assert f"exec {programs}/python -m mountctl.mount_helper" in found["sbin/mount.fuse.ctxfs"][0]
    assert {"usr/local/share/man/man8/mountctl.8", "usr/share/bash-completion/completions/mountctl"} <= found.keys()
