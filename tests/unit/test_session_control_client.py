"""The client of session control against our own core, and against children that do everything wrong (spec 5.1)."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from ctxfs.cosh.client import ControlError, SessionControlClient
from tests.cosh_store import CoshStore, session_id
from tests.mounting import PATIENCE_S, PROJECT, wait_until

_PRELUDE = "import json, os, signal, subprocess, sys, time\n"
_ANSWER = (
    'print(json.dumps({"ok": True, "data": {"action": "list", "sessions": [], "next_cursor": None}}), flush=True)\n'
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CoshStore:
    made = CoshStore(tmp_path)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    return made


def core(deadline: float = PATIENCE_S) -> SessionControlClient:
    return SessionControlClient([sys.executable, "-m", "mountctl.ctx", "session-control"], deadline)


def child(script: str, deadline: float = PATIENCE_S) -> SessionControlClient:
    return SessionControlClient([sys.executable, "-c", _PRELUDE + script], deadline)


def run(call: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        with trio.fail_after(PATIENCE_S):
            return await call()

    return trio.run(main)


def refused(call: Callable[[], Awaitable[Any]]) -> ControlError:
    with pytest.raises(ControlError) as found:
        run(call)
    return found.value


def test_every_operation_reaches_our_core(store: CoshStore) -> None:
    for number in range(3):
        store.put(number)
    workspace = str(store.workspace)

    async def all_of_them() -> None:
        client = core()
        page = await client.list(workspace, 2)
        assert [entry.session_id for entry in page.sessions] == [session_id(2), session_id(1)]
        assert len((await client.list(workspace, cursor=page.next_cursor)).sessions) == 1
        assert len((await client.list(workspace, all_workspaces=True)).sessions) == 3
        assert (await client.inspect(workspace, session_id(1))).first_prompt == "hello"
        assert (await client.validate(workspace, session_id(1))).health == "ready"
        plan = await client.plan_clear_all(workspace, [session_id(0)])
        assert plan.session_ids == (session_id(1), session_id(2))
        assert plan.protected_session_ids == (session_id(0),)
        done = await client.clear(workspace, [*plan.session_ids, session_id(9)], [session_id(0)])
        assert done.deleted == plan.session_ids
        assert [entry.error.code for entry in done.skipped] == ["not_found"]

    run(all_of_them)
    assert os.listdir(store.scope) == [f"{session_id(0)}.json"]


def test_ids_that_core_shows_cut_are_the_ones_it_was_asked_for(store: CoshStore) -> None:
    bad = ["x" * 5000, "é" * 200, "a\x1b[31m", ""]
    store.put(1)
    done = run(lambda: core().clear(str(store.workspace), [*bad, session_id(1)]))
    assert (done.deleted, done.unknown_session_ids) == ((session_id(1),), ())
    assert [entry.error.code for entry in done.skipped] == ["invalid_id"] * len(bad)


def test_what_core_refuses_has_cores_code(store: CoshStore) -> None:
    error = refused(lambda: core().validate(str(store.workspace), session_id(1)))
    assert (error.code, str(error)) == ("not_found", f"session not found: {session_id(1)}")
    assert error.hint == "Refresh the session list and choose an existing entry."


def test_too_many_protected_ids_are_refused_before_anything_is_started() -> None:
    client = SessionControlClient(["/nonexistent"])
    assert refused(lambda: client.plan_clear_all("/", ["x"] * 129)).code == "invalid_request"
    assert refused(lambda: client.clear("/", ["x"], ["x"] * 129)).code == "invalid_request"


_MISBEHAVIOUR = {
    "says nothing": "",
    "is no JSON": "print('hello')",
    "is no object": "print('[]')",
    "has neither data nor error": "print('{\"ok\": true}')",
    "answers another action": _ANSWER.replace('"list"', '"clear"'),
    "has no sessions": _ANSWER.replace('"sessions": [], ', ""),
    "has a wrong type": _ANSWER.replace('"sessions": []', '"sessions": [1]'),
    "says ok and exits 1": _ANSWER + "sys.exit(1)",
    "floods stdout": "os.write(1, b'x' * (1 << 21)); time.sleep(600)",
    "floods stdout for ever": "\nwhile True: os.write(1, b'x' * 65536)",
    "floods stderr": "os.write(2, b'x' * (1 << 19)); time.sleep(600)",
    "is ended by a signal": "os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.mark.parametrize("script", _MISBEHAVIOUR.values(), ids=_MISBEHAVIOUR)
def test_an_answer_of_another_form_is_a_transport_error(script: str) -> None:
    assert refused(lambda: child(script).list("/")).code == "transport"


def test_a_core_that_cannot_be_started_is_a_transport_error(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    for path in ("/nonexistent", str(tmp_path / "plain"), "a\0b"):
        assert refused(lambda path=path: SessionControlClient([path]).list("/")).code == "transport"  # type: ignore[misc]


_SILENT = {
    "never reads": "time.sleep(600)",
    "never writes": "sys.stdin.read(); time.sleep(600)",
    "ignores SIGTERM": "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
    "closes its pipes": "os.close(0); os.close(1); os.close(2); time.sleep(600)",
    "stops itself": "os.kill(os.getpid(), signal.SIGSTOP)",
    "answers but does not end": _ANSWER + "time.sleep(600)",
    "has a child that keeps the pipes": "subprocess.run(['sleep', '600'])",
}


@pytest.mark.parametrize("script", _SILENT.values(), ids=_SILENT)
def test_the_deadline_ends_a_child_whatever_it_does(script: str, tmp_path: Path) -> None:
    """Its time is over as soon as it has begun."""
    told, new = tmp_path / "pid", tmp_path / "new"
    script = f"open({str(new)!r}, 'w').write(str(os.getpid())); os.rename({str(new)!r}, {str(told)!r}); " + script
    big = ["x" * 4000] * 200  # more than a pipe holds
    clock = trio.testing.MockClock(rate=1.0)

    async def pass_time() -> None:
        await trio.to_thread.run_sync(wait_until, told.exists, "its start")
        clock.jump(3600)

    async def main() -> ControlError:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_time)
            with pytest.raises(ControlError) as found:
                await child(script, 3600)._ask(dict, "list", "/", {"padding": big})
        return found.value

    error = trio.run(main, clock=clock)
    assert error.code == "transport"
    assert "within 3600 s" in str(error)
    wait_until(lambda: not alive_in_group(int(told.read_text())), "the end of the group")


def alive_in_group(group: int) -> list[str]:
    """Its processes but for zombies, which who inherited them reaps when it likes."""
    found: list[str] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of, *_ = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(of) == group and state not in "ZX":
                found.append(stat.parent.name)
    return found


def test_a_descendant_that_left_the_group_with_the_pipes_delays_nobody(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    script = f"""
pid = os.fork()
if pid == 0:
    os.setsid()
    open({str(told)!r}, "w").write(str(os.getpid()))
    time.sleep(600)
while not os.path.exists({str(told)!r}): time.sleep(0.01)
{_ANSWER}"""
    try:
        assert run(lambda: child(script).list("/")).sessions == ()
    finally:
        os.kill(int(told.read_text()), signal.SIGKILL)


def test_an_answer_before_the_request_is_read_counts() -> None:
    big = "x" * 500_000
    assert run(lambda: child(_ANSWER).list(big)).sessions == ()


def _pages(*pages: dict[str, Any]) -> str:
    """A core that gives the next of these pages at each call, by the cursor that it is asked with."""
    return f"""
cursor = json.load(sys.stdin)["cursor"]
pages = json.loads({json.dumps(json.dumps(pages))})
cursors = [None] + [page["next_cursor"] for page in pages]
print(json.dumps({{"ok": True, "data": {{"action": "prepare_clear_all", **pages[cursors.index(cursor)]}}}}))
"""


@pytest.mark.parametrize("cursors", [("b", "b"), ("b", "a"), ("", None)])
def test_a_cursor_that_does_not_grow_is_a_transport_error(cursors: tuple[str, str]) -> None:
    pages = [{"session_ids": ["x"], "protected_session_ids": [], "next_cursor": cursor} for cursor in cursors]
    assert refused(lambda: child(_pages(*pages)).plan_clear_all("/")).code == "transport"


@pytest.mark.parametrize(
    "fault",
    ["print('nothing')", "print(json.dumps({'ok': False, 'error': {'code': 'io', 'message': 'm'}})); sys.exit(1)"],
)
@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_batch_that_fails_leaves_what_came_before(tmp_path: Path, fault: str, failing: int) -> None:
    script = f"""
ids = json.load(sys.stdin)["session_ids"]
open({str(tmp_path / "batches")!r}, "a").write(f"{{len(ids)}} ")
if ids[0] == "{failing * 128:04}":
    {fault}
else:
    skipped = [{{"session_id": ids[0], "error": {{"code": "conflict", "message": "m"}}}}]
    print(json.dumps({{"ok": True, "data": {{"action": "clear", "deleted": ids[1:], "skipped": skipped}}}}))
"""
    ids = [f"{number:04}" for number in range(300)]
    done = run(lambda: child(script).clear("/", ids))
    batches = [ids[:128], ids[128:256], ids[256:]]
    assert list(done.deleted) == [id for batch in batches[:failing] for id in batch[1:]]
    assert [entry.session_id for entry in done.skipped] == [batch[0] for batch in batches[:failing]]
    assert list(done.unknown_session_ids) == batches[failing]
    assert list(done.unattempted_session_ids) == [id for batch in batches[failing + 1 :] for id in batch]
    assert done.error is not None
    assert (tmp_path / "batches").read_text().split() == [str(len(batch)) for batch in batches[: failing + 1]]


def test_an_answer_for_other_ids_leaves_the_batch_unknown() -> None:
    script = 'print(json.dumps({"ok": True, "data": {"action": "clear", "deleted": ["b"], "skipped": []}}))'
    done = run(lambda: child(script).clear("/", ["a"]))
    assert (done.deleted, done.unknown_session_ids) == ((), ("a",))
