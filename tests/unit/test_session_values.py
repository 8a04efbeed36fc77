"""What the listing commands read of a mount that changes meanwhile."""

import builtins
import io
from collections.abc import Iterator
from typing import Any

import pytest

from mountctl import sessions


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What each opening of a file finds in it, the last for all that follow."""
    found: list[str] = []

    def opened(*_: Any, **__: Any) -> io.StringIO:
        return io.StringIO(found.pop(0) if len(found) > 1 else found[0])

    monkeypatch.setattr(builtins, "open", opened)
    yield found


def test_zeros_that_the_kernel_shows_once_are_read_again(contents: list[str]) -> None:
    contents += ["one\n\0\0\0\0", "one\ntwo\n"]
    assert sessions.names("session") == ["one", "two"]


def test_a_file_that_has_zeros_is_read_all_the_same(contents: list[str]) -> None:
    contents += ["a\0\n"]
    assert sessions.read_value("state") == "a\0"
