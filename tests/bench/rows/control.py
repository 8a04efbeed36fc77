"""Session control as cosh-shell asks for it (spec 5): a process a request, and what it takes of time and memory."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend.envelopes.control import MAX_IDS, MAX_PLAN
from tests.bench.bench import OURS, Bench, System, cost, measured
from tests.bench.figures import AtMost, Claim, Report
from tests.bench.rows.commands import BARE, COUNT, SCRIPT
from tests.cosh_store import CoshStore, message, session_id
from tests.mounting import PROJECT

FEW, MANY = 3, 27_000
LARGE = 32 << 20

# What an installation makes of the entry point `ctx = mountctl.ctx:main`, and a request in place of its stdin.
_SCRIPT = """\
import os, sys
os.environ["HOME"] = {home!r}
os.dup2(os.open({request!r}, os.O_RDONLY), 0)
from mountctl.ctx import main
if __name__ == "__main__":
    sys.exit(main())
"""
# In a process of its own: a child's peak counts that of whoever forked it.
_MEASURE = """\
import resource, subprocess, sys
subprocess.run([sys.executable, *sys.argv[1:]], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
"""


def start(bench: Bench) -> Report:
    """From the start to the answer of a store with a few sessions, beside an interpreter that does nothing."""
    shell = _Shell(bench.disk, FEW)
    script = shell.script("list")
    os.environ["PYTHONPATH"] = str(PROJECT)

    def system(*arguments: str | Path) -> System:
        return lambda cpu: bench.client("run", sys.executable, *arguments, cpu=cpu, count=COUNT).median_ns / 1e6

    systems = {OURS: system(script, "session-control"), BARE: system("-c", "pass")}
    medians = bench.compare(systems, [])
    title = f"ctx session-control: a list of {FEW} sessions, start to end"
    return Report(title, measured(medians, "ms"), cost(title, medians, BARE, AtMost(3)))


def flow(bench: Bench) -> Report:
    """All that cosh-shell asks to be rid of 27 000 sessions, and sessions of 32 MiB, which are read whole."""
    shell = _Shell(bench.disk, MANY)
    pages = {
        "a page of 100 sessions": (shell.script("list", limit=100), 160),
        f"a page of {MAX_PLAN} ids": (shell.script("prepare_clear_all", protected_session_ids=[], limit=MAX_PLAN), 40),
    }
    for number, (name, body) in enumerate(_BODIES.items()):
        shell.put_large(number, body)
        pages[f"32 MiB of {name}"] = (shell.script("validate", session_id=session_id(number)), 160)
    claims = [_peak(what, script, limit) for what, (script, limit) in pages.items()]
    claims += [_answered(what, script) for what, (script, _) in pages.items()]
    cleared = sum(1 for _ in shell.clear_all())
    what = f"list, validate, plan and clear {cleared} sessions in batches of {MAX_IDS}"
    claims.append(Claim(f"{what}: the slowest answer", max(shell.answers_s), AtMost(10), unit=" s"))
    count = len(shell.answers_s)
    claims.append(Claim(f"{what}: all {count} answers", sum(shell.answers_s), AtMost(10), unit=" s"))
    claims.append(Claim(f"{count} times {BARE}", shell.bare_s(count), None, unit=" s"))
    claims.append(Claim(f"{cleared} files removed by one process", _removals_s(bench.disk, cleared), None, unit=" s"))
    return Report(
        "ctx session-control of 27 000 sessions",
        claims=claims,
        note="A client waits 10 s for an answer; each is a process of its own.",
    )


class _Shell:
    """A store, and requests about it, each to a process of its own; its large sessions are its oldest."""

    def __init__(self, above: Path, count: int) -> None:
        self._directory = Path(tempfile.mkdtemp(dir=above))
        self._store = CoshStore(self._directory)
        self._scripts = 0
        self.answers_s: list[float] = []
        for number in range(len(_BODIES), len(_BODIES) + count):
            self._store.put(number)

    def put_large(self, number: int, item: bytes) -> None:
        """A session of as many messages as 32 MiB hold."""
        head = json.dumps(self._store.envelope(number, messages=[])).encode().removesuffix(b"]}")
        items = b",".join([item] * ((LARGE - len(head) - 2) // (len(item) + 1)))
        self._store.put(number, (head + items + b"]").ljust(LARGE - 1) + b"}")

    def request(self, action: str, **fields: Any) -> bytes:
        return json.dumps({"action": action, "workspace_scope": str(self._store.workspace), **fields}).encode()

    def script(self, action: str, **fields: Any) -> Path:
        """A program that asks this."""
        self._scripts += 1
        request = self._directory / f"request-{self._scripts}"
        request.write_bytes(self.request(action, **fields))
        script = self._directory / f"ask-{self._scripts}"
        script.write_text(_SCRIPT.format(home=str(self._store.home), request=str(request)))
        return script

    def ask(self, action: str, **fields: Any) -> Any:
        script = self._directory / "ctx"
        script.write_text(SCRIPT)
        request = self.request(action, **fields)
        begun = time.perf_counter()
        answer = self._run(request, str(script), "session-control")
        self.answers_s.append(time.perf_counter() - begun)
        return json.loads(answer)["data"]

    def bare_s(self, count: int) -> float:
        """What as many interpreters that do nothing take."""
        begun = time.perf_counter()
        for _ in range(count):
            self._run(b"", "-c", "pass")
        return time.perf_counter() - begun

    def _run(self, request: bytes, *arguments: str) -> bytes:
        environment = {**os.environ, "HOME": str(self._store.home), "PYTHONPATH": str(PROJECT)}
        command = [sys.executable, *arguments]
        return subprocess.run(command, input=request, stdout=subprocess.PIPE, env=environment, check=True).stdout

    def clear_all(self) -> Iterator[str]:
        """As cosh-shell does it; the ids that are gone."""
        newest = self.ask("list")["sessions"][0]["session_id"]
        self.ask("validate", session_id=newest)
        planned, cursor = list[str](), None
        while not planned or cursor is not None:
            page = self.ask("prepare_clear_all", protected_session_ids=[], limit=MAX_PLAN, cursor=cursor)
            planned += page["session_ids"]
            cursor = page["next_cursor"]
        for start in range(0, len(planned), MAX_IDS):
            batch = planned[start : start + MAX_IDS]
            yield from self.ask("clear", session_ids=batch, protected_session_ids=[])["deleted"]


_BODIES = {
    "one message": json.dumps(message("x" * (LARGE - 1000))).encode(),
    "messages of 1 KiB": json.dumps(message("x" * 1000)).encode(),
    "the smallest messages": b'{"role":"","content":""}',
    "the smallest blocks": b'{"role":"","content":[%b]}' % b",".join([b'{"type":"text","text":""}'] * 1_000_000),
}


def _removals_s(above: Path, count: int) -> float:
    """What the file system takes for as many small files, one after another."""
    directory = Path(tempfile.mkdtemp(dir=above))
    for number in range(count):
        (directory / session_id(number)).write_bytes(b"{}")
    begun = time.perf_counter()
    for entry in os.scandir(directory):
        os.unlink(entry)
    return time.perf_counter() - begun


def _peak(what: str, script: Path, limit: float) -> Claim:
    command = [sys.executable, "-c", _MEASURE, str(script), "session-control"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return Claim(f"{what}: resident memory", float(done.stdout), AtMost(limit), unit=" MiB")


def _answered(what: str, script: Path) -> Claim:
    """The CPU time: a client gives up after 10 s of any time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, script, "session-control"], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Claim(f"{what}: CPU time of an answer", spent, AtMost(10), unit=" s")
