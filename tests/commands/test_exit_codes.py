"""Whatever a command raises becomes an exit code and one line on stderr (spec 4)."""

import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from backend.errors import CtxError, InvalidValue, StoreCorrupt, StoreDenied, StoreLocked
from ctxfs.control import ControlDenied, ControlError
from ctxfs.mountpoint import DeadMountInTheWay
from mountctl.cli import Command, Failure, Group, run


def failing(error: BaseException) -> Callable[[object], int]:
    def body(_arguments: object) -> int:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (Failure("what and what next", 69), 69, "what and what next"),
        (CtxError("it"), 1, "it"),
        (InvalidValue("it"), 1, "it"),
        (StoreLocked("it"), 7, "it"),
        (StoreCorrupt("it"), 8, "it"),
        (DeadMountInTheWay("it"), 6, "it"),
        (ControlError("it"), 69, "it"),
        (ControlDenied("it"), 13, "it"),
        (PermissionError(13, "Permission denied", "/x"), 13, "/x: Permission denied"),
        (OSError(107, "Transport endpoint is not connected", "/ctx"), 69, "is gone, `mountctl mount` cleans up"),
        (StoreDenied("it"), 13, "it"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (RuntimeError("a bug"), 70, "internal error"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, words: str
) -> None:
    module = ModuleType("failing_command")
    module.__dict__.update(DESCRIPTION="fails", add_arguments=lambda parser: None, run=failing(error))
    monkeypatch.setitem(sys.modules, "failing_command", module)
    program = Group("help", {"fail": Command("failing_command", "fails")})
    assert run("ctx", program, ["fail"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == (1 if words else 0) and words in err
