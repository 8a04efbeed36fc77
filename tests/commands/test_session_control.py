"""``ctx session-control`` as a process (spec 5): exit codes, what it costs, and a whole session of cosh-shell."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cosh_store import CoshStore, message, session_id

# In a process of its own: a child's peak counts that of whoever forked it.
_MEASURE = """
import resource, subprocess, sys
code = subprocess.run([sys.executable, "-m", "mountctl.ctx", "session-control"]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, file=sys.stderr)
sys.exit(code)
"""

MISSING = session_id(999)


@pytest.fixture
def store(tmp_path: Path) -> CoshStore:
    return CoshStore(tmp_path)


def environment(store: CoshStore) -> dict[str, str]:
    return {**os.environ, "HOME": str(store.home)}


def run(store: CoshStore, raw: bytes) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "mountctl.ctx", "session-control"]
    return subprocess.run(command, input=raw, capture_output=True, env=environment(store), timeout=60, check=False)


def request(store: CoshStore, action: str, **fields: Any) -> bytes:
    return json.dumps({"action": action, "workspace_scope": str(store.workspace), **fields}).encode()


def measured(store: CoshStore, raw: bytes) -> tuple[Any, int, int]:
    """The data, the answer's bytes, and the most MiB of memory that it took."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE],
        input=raw,
        capture_output=True,
        env=environment(store),
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout)["data"], len(done.stdout), int(done.stderr)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"{", 1),
        (b"\xff\xfe", 1),
        (b"", 1),
        (b" " * ((1 << 20) + 1), 1),
        (b'{"action":"list","workspace_scope":"/"}', 0),
    ],
)
def test_the_exit_code_says_ok(store: CoshStore, raw: bytes, code: int) -> None:
    done = run(store, raw)
    assert (done.returncode, done.stderr) == (code, b"")
    assert done.stdout.endswith(b"}\n") and done.stdout.count(b"\n") == 1
    assert json.loads(done.stdout)["ok"] is (code == 0)


def test_clear_that_skips_everything_is_ok(store: CoshStore) -> None:
    done = run(store, request(store, "clear", session_ids=["x", session_id(1)], protected_session_ids=[]))
    assert done.returncode == 0
    assert len(json.loads(done.stdout)["data"]["skipped"]) == 2


def test_a_reader_that_is_gone_is_an_error(store: CoshStore) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "mountctl.ctx", "session-control"]
    done = subprocess.run(command, input=b"{", stdout=writer, env=environment(store), timeout=60, check=False)
    os.close(writer)
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("stdin", "code", "message"),
    [
        (
            "0>/dev/null",
            "io",
            "session read session-control request failed for <stdin>: Bad file descriptor (os error 9)",
        ),
        (
            "<&-",  # which is as empty as /dev/null
            "invalid_request",
            "invalid session management request: invalid session-control request: "
            "Expecting value: line 1 column 1 (char 0)",
        ),
    ],
)
def test_a_request_that_cannot_be_read_is_refused(store: CoshStore, stdin: str, code: str, message: str) -> None:
    command = ["sh", "-c", f'exec "$@" {stdin}', "sh", sys.executable, "-m", "mountctl.ctx", "session-control"]
    done = subprocess.run(command, capture_output=True, env=environment(store), timeout=60, check=False)
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"], error["message"], done.stderr) == (1, code, message, b"")


def test_a_request_that_never_ends_is_refused_early(store: CoshStore) -> None:
    command = [sys.executable, "-m", "mountctl.ctx", "session-control"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(store)) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(b" " * ((1 << 20) + 1))
        child.stdin.flush()
        assert b"exceeds the 1048576 byte limit" in child.stdout.read()
        child.stdin.close()


def test_called_as_cosh_shell_calls_its_core_it_is_that(store: CoshStore) -> None:
    command = [sys.executable, "-m", "mountctl.ctx", "--session-control"]
    raw = request(store, "list")
    done = subprocess.run(command, input=raw, capture_output=True, env=environment(store), timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, run(store, raw).stdout)


def test_a_warning_goes_to_stderr_and_steers_no_terminal(store: CoshStore) -> None:
    layer = store.workspace / "a\x1b[31m/.copilot-shell/config.toml"
    layer.parent.mkdir(parents=True)
    layer.write_text("[")
    done = run(store, request(store, "list", workspace_scope=str(layer.parents[1])))
    assert json.loads(done.stdout)["ok"]
    assert rb"/a\x1b[31m/.copilot-shell/config.toml: " in done.stderr and b"\x1b" not in done.stderr


def test_a_warning_that_nobody_can_see_is_not_in_the_answer(store: CoshStore) -> None:
    store.configure("x")
    (store.workspace / ".copilot-shell/config.toml").write_text("[")
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-m", "mountctl.ctx", "session-control"]
    done = subprocess.run(
        command, input=request(store, "list"), stdout=subprocess.PIPE, env=environment(store), timeout=60, check=True
    )
    assert json.loads(done.stdout)["ok"]


_SLOW = {"msgspec", "argparse", "tomllib", "hashlib", "typing", "dataclasses", "inspect", "uuid", "threading"}
_SLOWER_THAN_CLEARING = {*_SLOW, "json", "re", "enum", "contextlib", "collections", "functools"}


def imported(store: CoshStore, program: str, raw: bytes) -> tuple[bytes, set[str]]:
    """What a program answers to a request, and what it imports."""
    command = [sys.executable, "-X", "importtime", "-c", program, "session-control"]
    done = subprocess.run(command, input=raw, capture_output=True, env=environment(store), timeout=60, check=True)
    return done.stdout, {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}


@pytest.mark.parametrize(
    ("action", "fields", "unwanted"),
    [
        ("list", {}, _SLOW),
        ("prepare_clear_all", {"protected_session_ids": []}, _SLOWER_THAN_CLEARING),
        ("clear", {"session_ids": [session_id(1), MISSING], "protected_session_ids": []}, _SLOWER_THAN_CLEARING),
    ],
)
def test_a_small_store_is_answered_without_slow_imports(
    store: CoshStore, action: str, fields: dict[str, Any], unwanted: set[str]
) -> None:
    store.put(1)
    answer, ours = imported(store, "from mountctl.ctx import main; main()", request(store, action, **fields))
    _, anybodys = imported(store, "pass", b"")
    assert session_id(1).encode() in answer
    assert not (ours - anybodys) & unwanted


_LIMIT = 32 << 20


def _filled(store: CoshStore, body: bytes) -> bytes:
    head = json.dumps(store.envelope(1, messages=[]), indent=2).encode()[: -len("[]\n}")]
    return head + body.ljust(_LIMIT - len(head) - 1) + b"}"


_BODIES = {
    "one text": b'[{"role":"user","content":"' + b"x" * (_LIMIT - 2000) + b'"}]',
    "one wide text": b'[{"role":"user","content":"' + "😀".encode() + b"x" * (_LIMIT - 2000) + b'"}]',
    "escapes": b'[{"role":"user","content":"' + b"\\u4e00" * (_LIMIT // 6 - 400) + b'"}]',
    "messages": b"[" + b",".join([b'{"role":"user","content":"%b"}' % (b"ab" * 500)] * 32_000) + b"]",
    "no messages": b"[" + b"0," * (_LIMIT // 2 - 2000) + b"0]",
}


@pytest.mark.parametrize("body", _BODIES)
def test_a_session_of_32_mib_takes_less_than_160(store: CoshStore, body: str) -> None:
    assert store.put(1, _filled(store, _BODIES[body])).stat().st_size == _LIMIT
    found, _, peak = measured(store, request(store, "inspect", session_id=session_id(1)))
    assert found["session"]["health"] == ("corrupt" if body == "no messages" else "ready")
    assert peak < 160


def test_a_shell_lists_validates_plans_and_clears_27_000_sessions(store: CoshStore) -> None:
    first, newest = store.put(0), session_id(12_345)
    for number in range(1, 27_000):  # corrupt all of them but the newest, which clearing does not look at
        os.link(first, store.scope / f"{session_id(number)}.json")
    (store.scope / f"{newest}.json").unlink()
    store.put(12_345)

    page, _, peak = measured(store, request(store, "list", limit=100))
    assert (page["sessions"][0]["session_id"], len(page["sessions"])) == (newest, 100)
    assert peak < 160
    assert json.loads(run(store, request(store, "validate", session_id=newest)).stdout)["ok"]

    planned: list[str] = []
    cursor = None
    while True:
        fields = {"protected_session_ids": [newest], "limit": 4096, "cursor": cursor}
        plan, size, peak = measured(store, request(store, "prepare_clear_all", **fields))
        assert size < 1 << 20
        assert peak < 40
        planned += plan["session_ids"]
        cursor = plan["next_cursor"]
        if cursor is None:
            break
    assert planned == [session_id(number) for number in range(27_000) if number != 12_345]

    for start in (0, 128, len(planned) - 128):
        batch = planned[start : start + 128]
        done = run(store, request(store, "clear", session_ids=[*batch, newest][:128], protected_session_ids=[newest]))
        assert json.loads(done.stdout)["data"]["deleted"] == batch
    assert len(os.listdir(store.scope)) == 27_000 - 3 * 128


def test_a_session_with_a_huge_page_is_still_answered(store: CoshStore) -> None:
    for number in range(100):
        store.put(number, messages=[message("😀" * 5000)], workspace_scope=f"/{'w' * 5000}")
    page, size, _ = measured(store, request(store, "list", limit=100))
    assert len(page["sessions"]) == 100
    assert size < 1 << 20
