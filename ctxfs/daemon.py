"""The daemon of one mount, in the foreground: store, FUSE thread, control socket, signals (spec 4.6, design).

Threads: the main thread runs trio (signals, control socket, timers) and never touches the mount or the store but for
``store.sync`` and ``store.maintain``, which are made to be called beside the FUSE thread, whose store it is.
Ends in this order: unmount, FUSE thread, sync and close of the store, runtime files. SIGUSR1 logs every thread's stack.
"""

import contextlib
import faulthandler
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import msgspec
import trio

from backend.errors import CtxError, StoreFailed
from backend.lines import BUILT_IN_MARKS
from backend.store import StoreStatus
from ctxfs import control_server, logs, metrics, metrics_socket, mountpoint, mounts, probe, stores
from ctxfs.agents import launcher
from ctxfs.agents.keeper import Keeper
from ctxfs.agents.preparing import Preparing
from ctxfs.agents.processes import Launcher
from ctxfs.agents.runs import Runs
from ctxfs.agents.service import Agents
from ctxfs.control import Figures
from ctxfs.copies import Copies
from ctxfs.ctx_socket import service as ctx_socket
from ctxfs.ctx_socket.searching import Searches
from ctxfs.fuse_thread import FuseThread
from ctxfs.options import fuse_options
from ctxfs.plan import Plan, parse_command
from ctxfs.runtime import DaemonState, RuntimeFiles, start_time
from ctxfs.service_manager import ServiceManager
from ctxfs.sockets.server import Sockets
from ctxfs.statistics import Statistics
from ctxfs.version import version

MAINTAIN_EVERY_S = 1.0
STATUS_TIMEOUT_S = 0.8
SWITCH_INTERVAL_S = 0.0005
EXIT_INTERNAL = 70
# All but SIGUSR1 stop it, as none may end it with the mount left behind.
SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGALRM,
    signal.SIGUSR2,
    signal.SIGUSR1,
)

log = logging.getLogger("ctxfs.daemon")


class Daemon:
    """One mount, from ``start`` to the end of ``run``."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.files = RuntimeFiles(plan.runtime, plan.mountpoint)
        self._owner_uid = None if os.geteuid() == 0 else os.getuid()
        self._manager = ServiceManager(os.environ)
        self._stop = trio.Event()
        self._noted: list[int] = []

    def start(self) -> None:
        """Opens and mounts; the mount answers afterwards (``CtxError``; nothing is left behind then)."""
        with contextlib.ExitStack() as undo:
            self.files.make_directory()
            undo.callback(os.close, self.files.take_lock())
            undo.callback(self.files.clear)
            for name, schema in self.plan.marks.items():
                BUILT_IN_MARKS.define(name, schema)
            link, _ = launcher.start()
            undo.callback(link.close)
            self.launcher = Launcher(link)
            self.store = stores.open_store(self.plan.store, self.plan.format)
            undo.callback(self.store.close)
            self._listen(undo)
            self._mount(undo)
            self._undo = undo.pop_all()
        log.info("mounted %s on %s (pid %d)", self.plan.store, self.plan.mountpoint, os.getpid())

    def _listen(self, undo: contextlib.ExitStack) -> None:
        """Before it mounts, as there may be no place for a socket (``MetricsRefused``, ``OSError``)."""
        self.control = control_server.listen(self.files.socket)
        self.metrics: trio.SocketListener | None = None
        path = self.plan.metrics
        if path is not None and metrics.is_socket(path):
            self.metrics = undo.enter_context(metrics_socket.listening(path))

    def _mount(self, undo: contextlib.ExitStack) -> None:
        owner = self._owner_uid
        options = fuse_options(str(self.plan.store), self.plan.options, owner_uid=owner)
        disk = stores.disk_directory(self.plan.store, self.plan.format)
        self.fuse = FuseThread(
            self.store, self.plan.store, disk, self.plan.mountpoint, options=options, owner_uid=owner
        )
        self.fuse.start()
        undo.callback(self.fuse.stop)
        mount = mounts.mount_at(self.plan.mountpoint)
        if mount is None or mount.fstype != mounts.FSTYPE:
            raise StoreFailed(f"{self.plan.mountpoint} is not mounted, although mounting it succeeded")
        self.mount = mount
        undo.callback(self._unmount)
        self.launcher.watch(mount.device[1])
        os.statvfs(self.plan.mountpoint)  # releases the GIL; answered only after FUSE's INIT, which resets read-ahead
        if owner is None:
            self._set_read_ahead()
        self.files.write_state(self._state())

    def _set_read_ahead(self) -> None:
        """What is read at once is a matter of speed only: a container's /sys cannot be written."""
        try:
            mounts.set_read_ahead(self.mount.device)
        except OSError as error:
            log.info("the read-ahead of %s stays as it is: %s", self.plan.mountpoint, error)

    def _state(self) -> DaemonState:
        plan, pid = self.plan, os.getpid()
        return DaemonState(
            pid=pid,
            started=start_time(pid),
            mountpoint=plan.mountpoint,
            store=str(plan.store),
            format=plan.format,
            version=version(),
            device=self.mount.device,
            since=int(time.time()),
            log=str(plan.log_file) if plan.log_file else None,
        )

    def _unmount(self) -> None:
        """Unmounts if nobody has yet; lazily, naming who, if somebody still uses the mount."""
        if not mounts.is_mounted(self.mount):
            return
        try:
            mountpoint.unmount(self.mount)
        except OSError as error:
            for holder in mounts.holders(self.mount.device):
                log.warning("still used by pid %d (%s): %s", *holder)
            log.warning("detaching %s: %s", self.plan.mountpoint, error.strerror)
            mountpoint.unmount(self.mount, probe.MNT_DETACH)

    async def run(self, ready: Callable[[], None]) -> None:
        """Serves until it is unmounted, told to stop, or signalled; ``ready`` is called once everything answers.

        Never, if a signal to stop came while it was mounting.
        """
        async with trio.open_nursery() as nursery:
            await nursery.start(self._signals)
            if self._stop.is_set():
                nursery.cancel_scope.cancel()
                return
            nursery.start_soon(control_server.serve, self.control, self._handlers(nursery))
            nursery.start_soon(self._watch_fuse)
            nursery.start_soon(self._maintain)
            if self.metrics is not None:
                nursery.start_soon(metrics_socket.serve, self.metrics, self._figures)
            elif self.plan.metrics is not None:
                nursery.start_soon(metrics.keep_file, self.plan.metrics, self._figures)
            await nursery.start(self._serve_sockets)
            nursery.start_soon(self._manager.watch, self._answers)
            ready()
            self._manager.ready(self.plan.mountpoint)
            await self._stop.wait()
            self._manager.stopping()
            nursery.cancel_scope.cancel()

    def close(self) -> None:
        """Unmounts, syncs, removes the runtime files."""
        self._undo.close()
        self._heed()
        log.info("unmounted %s", self.plan.mountpoint)

    def _handlers(self, nursery: trio.Nursery) -> Mapping[str, control_server.Handler]:
        async def status(_: Any) -> Mapping[str, Any]:
            answer: dict[str, Any] = msgspec.to_builtins(await self._figures())
            return answer

        async def sync(_: Any) -> Mapping[str, Any]:
            await trio.to_thread.run_sync(self.store.sync)
            return {}

        async def stop(_: Any) -> Mapping[str, Any]:
            self._stop.set()
            return {}

        copies = Copies(self.store, self.fuse.bridge, nursery, self._stop)
        return {"status": status, "sync": sync, "stop": stop, "backup": copies.answer}

    async def _figures(self) -> Figures:
        """``TimeoutError``: the FUSE thread is busy with something else."""
        store = await trio.to_thread.run_sync(self.fuse.store_status().result, STATUS_TIMEOUT_S)
        return _figures(self.fuse.statistics(), store)

    def note(self, number: int, _frame: FrameType | None = None) -> None:
        """What a signal of ``SIGNALS`` does, also while trio does not run, so that no mount is left behind.

        Then it may come in the middle of a line of the log, which takes no other: ``_heed`` says so later.
        """
        if number == signal.SIGUSR1:
            logs.log_stacks()
        else:
            self._noted.append(number)

    def _heed(self) -> None:
        while self._noted:
            log.info("stopping on %s", signal.Signals(self._noted.pop(0)).name)
            self._stop.set()

    async def _signals(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(*SIGNALS) as signals:
            self._heed()
            task_status.started()
            async for number in signals:
                self.note(number)
                self._heed()

    async def _serve_sockets(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Without its sockets a mount is still a mount: why it has none is in the log."""
        bridge, indexes = self.fuse.bridge, stores.search_directory(self.plan.store, self.plan.format)
        sockets = Sockets(self.mount, bridge, self.fuse.statistics(), self._owner_uid)
        service = ctx_socket.CtxService(bridge, Searches(bridge, indexes, self.store.sync))
        runs = Runs(Preparing(self.launcher, self.plan.mountpoint, self.plan.agents))
        agents = Agents(bridge, runs)
        await agents.recover()
        async with runs.working(), trio.open_nursery() as nursery:
            await nursery.start(sockets.run)
            await nursery.start(Keeper(bridge, sockets, agents.service_of).run)
            try:
                await sockets.open(ctx_socket.ADDRESS, service)
            except OSError as error:
                log.warning("no socket %s: %s", ctx_socket.ADDRESS.file, error.strerror)
            task_status.started()
            # What runs holds the mount, too.
            await sockets.over.wait()
            nursery.cancel_scope.cancel()

    async def _watch_fuse(self) -> None:
        await trio.to_thread.run_sync(self.fuse.wait_finished, abandon_on_cancel=True)
        self._stop.set()

    async def _answers(self) -> bool:
        """Whether the FUSE thread does what it is told, were it only to fail at it."""
        try:
            await trio.to_thread.run_sync(self.fuse.store_status().exception, STATUS_TIMEOUT_S, abandon_on_cancel=True)
        except TimeoutError:
            return False
        return True

    async def _maintain(self) -> None:
        while True:
            await trio.sleep(MAINTAIN_EVERY_S)
            try:
                await trio.to_thread.run_sync(self.store.maintain)
            except CtxError as error:
                log.warning("maintenance failed, trying again: %s", error)
            except Exception:
                log.exception("internal error in maintenance, trying again")


def _figures(counted: Statistics, store: StoreStatus) -> Figures:
    """What ``status`` answers; the counters go on counting, so they are copied first."""
    caches = {"sessions": counted.sessions, "contents": counted.contents}
    return Figures(
        requests=dict(counted.requests),
        errors=dict(counted.errors),
        dropped_rests=counted.dropped_rests,
        last_error=counted.last_error or store.failure,
        sessions=store.sessions,
        homes=store.spaces,
        bytes=store.bytes,
        cache_hits={name: cache.hits for name, cache in caches.items()},
        cache_misses={name: cache.misses for name, cache in caches.items()},
    )


def serve(plan: Plan, ready: Callable[[], None]) -> None:
    """Mounts and serves ``plan`` until it ends (``CtxError`` if it cannot be mounted); a bug's stack is in the log."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        _serve(Daemon(plan), ready)
    except (CtxError, OSError):
        raise
    except Exception:
        log.exception("the daemon failed")
        raise


def _serve(daemon: Daemon, ready: Callable[[], None]) -> None:
    for number in SIGNALS:
        signal.signal(number, daemon.note)
    daemon.start()
    # Each file that is open in an ordinary directory is one of ours; what was forked before keeps the usual limit.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        trio.run(daemon.run, ready)
    finally:
        daemon.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m ctxfs.daemon``: what ``mountctl mount`` starts; it has checked the mountpoint.

    ``--ready-fd`` gets ``ok``, or the exit code and the reason, as one line.
    """
    plan, ready = parse_command(sys.argv[1:] if arguments is None else arguments)
    logs.configure(plan.log_level, plan.log_file)
    faulthandler.enable()
    os.chdir("/")
    report = _Report(ready)
    try:
        serve(plan, report.ready)
    except CtxError as error:
        return report.failed(error.exit_code, str(error))
    except OSError as error:
        return report.failed(1, f"cannot mount {plan.mountpoint}: {error.strerror or error}")
    except Exception as error:
        return report.failed(EXIT_INTERNAL, f"internal error: {error!r}")
    return 0


class _Report:
    """Tells who started the daemon, once, how that went; a failure later on is for the log."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def ready(self) -> None:
        self._send("ok\n")

    def failed(self, exit_code: int, reason: str) -> int:
        log.error("%s", reason)
        self._send(f"{exit_code} {reason}".replace("\n", " ") + "\n")
        return exit_code

    def _send(self, line: str) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(BrokenPipeError), os.fdopen(self._descriptor, "w") as pipe:
                pipe.write(line)
            self._descriptor = None


if __name__ == "__main__":
    sys.exit(main())
