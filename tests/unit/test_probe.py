"""Calls that may hang, in a child with a time limit: what the limit is for, and what it is not."""

import os

import pytest

from ctxfs import probe


def test_an_answer_is_one_though_its_child_takes_long_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_KILL_TIMEOUT_S", 0.0)
    probe.answers("/")
    assert probe.realpath("/proc/self/..") == "/proc"


def test_a_call_that_does_not_come_back_is_hung(monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]) -> None:
    script = os.path.join(tmp_path, "script.py")
    with open(script, "w", encoding="ascii") as file:
        file.write("import os, signal\nos.write(1, b'\\0')\nsignal.pause()\n")
    monkeypatch.setattr(probe, "__file__", script)
    with pytest.raises(probe.HungError):
        probe.answers("/", 0.1)
