"""The guardian of one run: prepares the agent, starts it, and outlives every process that it starts (spec 3.6).

A process of its own, forked by the launcher; single-threaded. It is a subreaper, so what an agent leaves behind (a
fork, a session of its own) becomes the guardian's child and is killed with the run. The agent is its only child that
lives: forked once all is prepared, it takes on the peer's ids and calls execve(2).
"""

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import traceback
from typing import NoReturn

from ctxfs.agents.cwd import find_executable, resolve_cwd
from ctxfs.agents.gathering import gather
from ctxfs.agents.identity import acting_as, become
from ctxfs.agents.kernel_calls import become_subreaper, close_others_on_exec, set_no_new_privileges
from ctxfs.agents.launch import (
    CHUNK,
    MAX_PACKET,
    ExecFailed,
    Exited,
    Gathered,
    Go,
    Launch,
    Order,
    Prepared,
    Refused,
    Report,
    Signal,
    pack,
    unpack,
)
from ctxfs.agents.views import BuiltView, build

PREPARE_TIMEOUT_S = 20
MAX_STDERR = 64 << 10
_EXIT_INTERNAL = 70
_UMASK = 0o022


class Guardian:
    """``control`` leads to the daemon; ``stdin`` and ``stdout`` are the agent's."""

    def __init__(self, control: socket.socket, stdin: int, stdout: int) -> None:
        self._control = control
        self._stdin = stdin
        self._stdout = stdout
        self._stderr = b""

    def run(self) -> None:
        """Returns when the run is over: refused, never started, or ended with all its processes."""
        packet = self._receive()
        if not packet:
            # The send was given up before it said what it wants, or the daemon died.
            return
        launch = unpack(packet, Launch)
        try:
            view, cwd, executable = self._prepare(launch)
        except OSError as error:
            self._report(Refused(error.errno or 0, error.strerror or str(error)))
            return
        self._report(Prepared(view.ctx))
        order = self._order()
        if isinstance(order, Go):
            become_subreaper()
            self._watch(launch, self._start(launch, view, cwd, executable, order.environment))

    def _prepare(self, launch: Launch) -> tuple[BuiltView, int, str]:
        # A root on a file system that does not answer would keep this process for ever.
        signal.alarm(PREPARE_TIMEOUT_S)
        view = build(launch.view, launch.identity, launch.cwd)
        executable = ""
        with acting_as(launch.identity):
            cwd = resolve_cwd(view.root, launch.cwd, on_host=view.on_host)
            if launch.argv:
                executable = find_executable(view.root, launch.cwd, launch.argv[0], launch.path)
                self._gather(view.root, launch)
        signal.alarm(0)
        return view, cwd, executable

    def _gather(self, root: int, launch: Launch) -> None:
        for name, text in gather(root, launch.cwd, launch.home).items():
            content = text.encode()
            for start in range(0, max(len(content), 1), CHUNK):
                self._report(Gathered(name, content[start : start + CHUNK]))

    def _start(self, launch: Launch, view: BuiltView, cwd: int, executable: str, environment: dict[str, str]) -> int:
        """Forks the agent; its pid. The ends that are its own are closed here."""
        failed, fails = os.pipe()
        self._errors, errors = os.pipe()
        pid = os.fork()
        if pid == 0:
            _exec(launch, view, cwd, executable, environment, (self._stdin, self._stdout, errors), fails)
        for descriptor in (fails, errors, self._stdin, self._stdout):
            os.close(descriptor)
        with os.fdopen(failed, "rb", buffering=0) as pipe:
            if not select.select([pipe], [], [], PREPARE_TIMEOUT_S)[0]:
                os.kill(pid, signal.SIGKILL)
                self._report(ExecFailed(errno.ETIMEDOUT))
            elif number := pipe.read():
                self._report(ExecFailed(int(number)))
        return pid

    def _watch(self, launch: Launch, pid: int) -> None:
        ended = os.pidfd_open(pid)
        poll = select.poll()
        for descriptor in (ended, self._errors, self._control.fileno()):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._errors in ready and not self._take_stderr():
                poll.unregister(self._errors)
            if self._control.fileno() in ready and not self._obey(pid):
                poll.unregister(self._control.fileno())
            if ended in ready:
                break
        self._finish(launch, pid)

    def _take_stderr(self) -> bool:
        """Keeps the end of what was said; False at the end of the stream."""
        data = os.read(self._errors, CHUNK)
        self._stderr = (self._stderr + data)[-MAX_STDERR:]
        return bool(data)

    def _obey(self, pid: int) -> bool:
        """Does what the daemon says; without a daemon, ends the run."""
        order = self._order()
        number = order.number if isinstance(order, Signal) else signal.SIGKILL
        if number == signal.SIGKILL:
            _kill_tree(pid)
        # The leader was not waited for, so the group is still its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
        return order is not None

    def _finish(self, launch: Launch, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        _reap_all()
        os.set_blocking(self._errors, False)
        with contextlib.suppress(BlockingIOError):
            while self._take_stderr():
                pass
        if launch.log is not None and self._stderr:
            with acting_as(launch.identity):
                _write_log(launch.log, self._stderr)
        self._report(Exited(os.waitstatus_to_exitcode(status)))

    def _receive(self) -> bytes:
        """What the daemon says; empty once it is gone, also where it died with reports unread."""
        try:
            return self._control.recv(MAX_PACKET)
        except ConnectionResetError:
            return b""

    def _order(self) -> Order | None:
        packet = self._receive()
        order: Order | None = unpack(packet, Order) if packet else None
        return order

    def _report(self, report: Report) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.send(pack(report))


def guard(control: socket.socket, stdin: int, stdout: int) -> NoReturn:
    """All that a guardian's process does; a bug's stack goes to stderr, which is the daemon's."""
    status = 0
    try:
        Guardian(control, stdin, stdout).run()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        status = _EXIT_INTERNAL
    finally:
        os._exit(status)


def _exec(
    launch: Launch,
    view: BuiltView,
    cwd: int,
    executable: str,
    environment: dict[str, str],
    streams: tuple[int, int, int],
    fails: int,
) -> NoReturn:
    """The forked child: becomes the agent, or says on ``fails`` why not."""
    try:
        os.setsid()
        _reset_signals()
        os.umask(_UMASK)
        if not view.is_host:
            os.fchdir(view.root)
            os.chroot(".")
        become(launch.identity)
        set_no_new_privileges()
        os.fchdir(cwd)
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        close_others_on_exec(3)
        os.execve(executable, launch.argv, environment)
    except OSError as error:
        os.write(fails, str(error.errno).encode())
    finally:
        os._exit(_EXIT_INTERNAL)


def _reset_signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _kill_tree(pid: int) -> None:
    """SIGKILL to a process and all its descendants, those that it makes meanwhile too."""
    found: set[int] = set()
    while new := ({pid} | _descendants(pid)) - found:
        found |= new
        _kill_each(new)


def _kill_each(processes: set[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _reap_all() -> None:
    """Kills and waits for what an agent that ended has left behind."""
    with contextlib.suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                _kill_each(_descendants(os.getpid()))
                os.waitpid(-1, 0)


def _descendants(pid: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        new = [child for child in children.get(waiting.pop(), ()) if child not in found]
        found.update(new)
        waiting += new
    return found


def _write_log(path: str, content: bytes) -> None:
    """A new file with what an agent said on stderr; best effort, as its directory is the user's."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)
