"""The checkpoint daemon, in the foreground (spec 6.3): state directory, socket, signals, upkeep.

The main thread runs trio; disks are touched in its worker threads. SIGTERM and SIGINT stop it: it accepts no more,
gives running requests ten seconds, and leaves the rest to the repair at its next start. SIGUSR1 logs all stacks, SIGHUP
does nothing from its start on.
"""

import logging
import resource
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import trio

from backend.checkpoints import wire
from backend.checkpoints.backends import Backends
from backend.checkpoints.config import (
    DEFAULT_FILE,
    DEFAULT_MOUNT,
    DEFAULT_STATE,
    Configuration,
    ConfigurationError,
    read_configuration,
)
from backend.checkpoints.service import Places, Service
from backend.checkpoints.state import StateDirectory
from backend.checkpoints.upkeep import clean_up_regularly, watch_disk
from backend.checkpoints.workspaces import Workspaces
from ctxfs import logs
from ctxfs.checkpoints.server import Server, listen

GRACE_S = 10.0

log = logging.getLogger("ctxfs.checkpoints")


class Options(NamedTuple):
    """How the daemon was started; ``backend`` None: as configured."""

    socket: Path = Path(wire.DEFAULT_SOCKET)
    state: Path = DEFAULT_STATE
    configuration: Path = DEFAULT_FILE
    backend: str | None = None
    mount_path: Path = DEFAULT_MOUNT
    log_level: str = "info"


def serve(options: Options) -> None:
    """Serves until a signal stops it (``CtxError``, ``OSError``: it could not start)."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _raise_descriptor_limit()
    directory = StateDirectory(options.state)
    directory.prepare()
    with directory.locked():
        trio.run(_run, options, directory)


async def _run(options: Options, directory: StateDirectory) -> None:
    configuration = _configuration(options.configuration)
    backends = Backends(directory, options.backend or configuration.backend, options.mount_path)
    await trio.to_thread.run_sync(backends.start, configuration)
    workspaces = Workspaces(directory, backends)
    places = Places(str(options.socket), backends.mount_path, options.configuration, options.log_level)
    service = Service(workspaces, places, configuration)
    await trio.to_thread.run_sync(workspaces.load)
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGUSR1) as signals:
        listener = listen(options.socket)
        log.info("listening on %s, %d workspaces", options.socket, len(workspaces.all()))
        try:
            await _serve_until_stopped(service, listener, signals)
        finally:
            options.socket.unlink(missing_ok=True)


async def _serve_until_stopped(service: Service, listener: trio.SocketListener, signals: AsyncIterator[int]) -> None:
    async with trio.open_nursery() as running:
        async with trio.open_nursery() as accepting:
            accepting.start_soon(Server(service).serve, listener, running)
            accepting.start_soon(clean_up_regularly, service)
            accepting.start_soon(watch_disk, service)
            accepting.start_soon(service.arm_watches)
            await _stop(signals)
            accepting.cancel_scope.cancel()
        running.cancel_scope.deadline = trio.current_time() + GRACE_S


async def _stop(signals: AsyncIterator[int]) -> None:
    """Returns when one comes that stops the daemon."""
    async for number in signals:
        if number != signal.SIGUSR1:
            log.info("stopping on %s", signal.Signals(number).name)
            return
        logs.log_stacks()


def _configuration(file: Path) -> Configuration:
    try:
        return read_configuration(file)
    except ConfigurationError as error:
        log.warning("the configuration is not used: %s", error)
        return Configuration()


def _raise_descriptor_limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
