"""The daemon's log is for whoever runs the daemon: one line an event, in files that nobody else can read (spec 4.6)."""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxfs import logs


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    """The loggers as they were, afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_every_file_of_the_log_is_its_owner_s_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES", 500)
    log = tmp_path / "daemon.log"
    log.touch(0o666)
    before = os.umask(umask)
    try:
        logs.configure("info", log)
        for number in range(30):
            logging.getLogger("ctxfs").info("event %d", number)
    finally:
        os.umask(before)
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {
        "daemon.log": 0o600,
        "daemon.log.1": 0o600,
    }
    assert "event 29" in log.read_text()


def test_the_log_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    (tmp_path / "daemon.log").symlink_to("other")
    with pytest.raises(OSError, match="symbolic links"):
        logs.configure("info", tmp_path / "daemon.log")


def test_a_stack_is_on_the_line_of_its_event(tmp_path: Path) -> None:
    logs.configure("info", tmp_path / "daemon.log")
    try:
        raise RuntimeError("a\nb")
    except RuntimeError:
        logging.getLogger("ctxfs").exception("it failed")
    (line,) = (tmp_path / "daemon.log").read_text().splitlines()
    assert line.endswith("RuntimeError: a | b")
