"""Ctrl-C while an agent answers (spec 4.2): the first cancels the run, the second leaves."""

import signal
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from mountctl.conversing import _cancels


def test_leaving_is_offered_once_the_run_was_asked_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    requests, said_by_then = list[Any](), list[str]()

    def send(request: Any) -> None:
        requests.append(request)
        said_by_then.append(capsys.readouterr().err)

    conversation: Any = SimpleNamespace(fields={}, connected=lambda: nullcontext(SimpleNamespace(send=send)))
    with _cancels(conversation, "c1"):
        signal.raise_signal(signal.SIGINT)
    assert requests == [{"op": "cancel", "id": "c1"}]
    assert said_by_then == ["\nctx: cancelling"]
    assert capsys.readouterr().err == "; press Ctrl-C again to leave\n"
