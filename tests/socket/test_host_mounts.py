"""Spec 3.6: a run has mounts of its own, and keeps none of the host's: what is unmounted there is gone."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import PATIENCE_S, running_mount, umount
from tests.socket.client import request
from tests.socket.workshop import Workshop


@pytest.fixture
def shared_directory(workshop: Workshop) -> Iterator[Path]:
    """A directory whose mounts others hear of, as all are where systemd runs."""
    path = Path(tempfile.mkdtemp(dir=workshop.mount.base))
    path.chmod(0o755)
    subprocess.run(["mount", "--bind", path, path], check=True)
    try:
        subprocess.run(["mount", "--make-shared", path], check=True)
        yield path
    finally:
        umount(path)


def ends_beside_a_run(workshop: Workshop, other_below: Path, **definition: str) -> None:
    """Claims that a mount which is unmounted during a run of another one's agent ends."""
    bot = workshop.bot()
    bot.define(exec='["/usr/bin/sleep", "600"]', **definition)
    with running_mount(below=other_below) as other, bot.talk() as client:
        client.send(bot.sending(id="c1"))
        assert client.frame()["type"] == "start"
        umount(other.path)
        assert other.process is not None
        assert other.process.wait(PATIENCE_S) == 0
        client.send(request("cancel", id="c1") + b"\n")
        assert client.frame()["status"] == "cancelled"


def test_a_run_in_a_root_of_its_own_keeps_no_mount_of_the_host(workshop: Workshop) -> None:
    ends_beside_a_run(workshop, workshop.mount.base)


@pytest.mark.parametrize("definition", [{}, {"root": "/"}], ids=["in a root of its own", "on the host"])
def test_a_run_hears_of_what_is_unmounted_where_mounts_are_shared(
    workshop: Workshop, shared_directory: Path, definition: dict[str, str]
) -> None:
    ends_beside_a_run(workshop, shared_directory, **definition)
