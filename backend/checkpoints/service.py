"""Answers requests of the ws-ckpt protocol (spec 6.3, 6.4): who may, which workspace, under which lock.

trio, one thread; everything that touches a disk runs in worker threads, one at a time for each workspace but for
reading. An operation that has begun is never cancelled: its thread ends it, whatever becomes of the asker.
"""

import functools
import logging
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import trio

from backend.checkpoints import wire
from backend.checkpoints.catalogue import check_id, matches, parse_metadata
from backend.checkpoints.config import DEFAULT_KEEP, Configuration, ConfigurationError, read_configuration
from backend.checkpoints.errors import CheckpointError, InternalError, NotTheirs, SnapshotNotFound, WorkspaceNotFound
from backend.checkpoints.locks import ReadWriteLock
from backend.checkpoints.times import parse_timestamp
from backend.checkpoints.workspace import Workspace
from backend.checkpoints.workspaces import ROOT, Workspaces, is_path, place_of

LOCKED = "<locked>"
WORKERS = 8
"""How many operations of one user go on at once; the rest waits, and keeps nobody else from anything."""

log = logging.getLogger("ctxfs.checkpoints")

T = TypeVar("T")


class Places(NamedTuple):
    """Where the daemon listens and keeps things, for ``Config``."""

    socket: str
    mount_path: Path
    configuration: Path
    log_level: str


class Service:
    """The daemon's answers; ``uid`` is always the asker's."""

    def __init__(self, workspaces: Workspaces, places: Places, configuration: Configuration) -> None:
        self.configuration = configuration
        self.reloaded = trio.Event()
        self._workspaces = workspaces
        self._places = places
        self._started = time.monotonic()
        self._locks: dict[str, ReadWriteLock] = defaultdict(ReadWriteLock)
        self._init_locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()
        self._workers: dict[int, trio.CapacityLimiter] = defaultdict(lambda: trio.CapacityLimiter(WORKERS))
        self._handlers: dict[type, Callable[[Any, int], Awaitable[wire.Response]]] = {
            wire.Init: self._init,
            wire.Checkpoint: self._checkpoint,
            wire.Rollback: self._rollback,
            wire.Delete: self._delete,
            wire.List: self._list,
            wire.Diff: self._diff,
            wire.Status: self._status,
            wire.Cleanup: self._cleanup,
            wire.Config: self._config,
            wire.ReloadConfig: self._reload,
            wire.Recover: self._recover,
            wire.HealthAdvisory: self._health,
        }

    async def answer(self, request: wire.Request, uid: int) -> wire.Response:
        """The response to a request; never raises but when it is cancelled."""
        try:
            return await self._handlers[type(request)](request, uid)
        except CheckpointError as error:
            return wire.Error(error.code, str(error).encode("utf-8", "backslashreplace").decode())
        except Exception as error:
            log.exception("internal error in a %s", type(request).__name__)
            return wire.Error(wire.ErrorCode.InternalError, f"internal error: {type(error).__name__}")

    async def _init(self, request: wire.Init, uid: int) -> wire.Response:
        return wire.InitOk((await self._initialized(request.workspace, uid)).ws_id)

    async def _initialized(self, name: str, uid: int) -> Workspace:
        """The workspace at a path; whoever asks first for a new one makes it, the others wait for that."""
        async with self._registering(name):
            try:
                async with self._writing(name, uid):
                    return await self._work(uid, self._workspaces.init, name, uid)
            except WorkspaceNotFound:
                return await self._work(uid, self._workspaces.init, name, uid)

    @asynccontextmanager
    async def _registering(self, name: str) -> AsyncIterator[None]:
        """Nobody else registers what a name means; that may become a symlink to elsewhere while it is registered."""
        paths = {""}
        if is_path(name):
            paths = {await _in_thread(os.path.realpath, name), await _in_thread(place_of, name)}
        async with AsyncExitStack() as held:
            for path in sorted(paths):
                await held.enter_async_context(self._init_locks.setdefault(path, trio.Lock()))
            yield

    async def _checkpoint(self, request: wire.Checkpoint, uid: int) -> wire.Response:
        check_id(request.id)
        metadata = parse_metadata(request.metadata)
        try:
            found = await self._find(request.workspace, uid)
        except WorkspaceNotFound as not_found:
            try:
                found = await self._initialized(request.workspace, uid)
            except NotTheirs:
                raise WorkspaceNotFound(f"{not_found}, and no directory of yours") from None
        async with self._writing(found.ws_id, uid) as workspace:
            taken = await self._work(uid, workspace.checkpoint, request.id, request.message, metadata, request.pin)
        if not taken:
            return wire.CheckpointSkipped("Empty workspace, no snapshot created.")
        return wire.CheckpointOk(request.id)

    async def _rollback(self, request: wire.Rollback, uid: int) -> wire.Response:
        async with self._writing(request.workspace, uid) as workspace:
            return wire.RollbackOk(workspace.ws_id, await self._work(uid, workspace.rollback, request.to))

    async def _delete(self, request: wire.Delete, uid: int) -> wire.Response:
        name = request.workspace
        if name is None:
            name = await self._holder(request.snapshot, uid)
        async with self._writing(name, uid) as workspace:
            return wire.DeleteOk(await self._work(uid, workspace.delete, request.snapshot, request.force))

    async def _holder(self, reference: str, uid: int) -> str:
        """The id of the only workspace with the only snapshot that ``reference`` may mean."""
        mine = await _in_thread(self._workspaces.mine, uid)
        found = [each.ws_id for each in mine for _ in matches(each.catalogue.snapshots, reference)]
        if not found:
            raise SnapshotNotFound(f"snapshot not found: {reference}")
        if len(found) > 1:
            raise SnapshotNotFound(
                f"snapshot '{reference}' matches in multiple workspaces, please specify --workspace/-w"
            )
        return found[0]

    async def _list(self, request: wire.List, uid: int) -> wire.Response:
        if request.workspace is not None:
            async with self._reading(request.workspace, uid) as workspace:
                return wire.ListOk(tuple(await _in_thread(workspace.entries)))
        found: list[wire.SnapshotEntry] = []
        for known in await _in_thread(self._workspaces.mine, uid):
            with suppress(WorkspaceNotFound):
                async with self._reading(known.ws_id, uid) as workspace:
                    found += await _in_thread(workspace.entries)
        return wire.ListOk(tuple(sorted(found, key=lambda entry: parse_timestamp(entry.meta.created_at))))

    async def _diff(self, request: wire.Diff, uid: int) -> wire.Response:
        async with self._reading(request.workspace, uid) as workspace:
            return wire.DiffOk(tuple(await self._work(uid, workspace.diff, request.from_, request.to)))

    async def _status(self, request: wire.Status, uid: int) -> wire.Response:
        if request.workspace is not None:
            async with self._reading(request.workspace, uid) as workspace:
                found = [_info(workspace)]
        else:
            mine = await _in_thread(self._workspaces.mine, uid)
            found = [_locked(each) if self._locks[each.ws_id].is_writing else _info(each) for each in mine]
        uptime = int(time.monotonic() - self._started)
        return wire.StatusOk(wire.StatusReport(uptime, tuple(found), *await self.usage(uid)))

    async def _cleanup(self, request: wire.Cleanup, uid: int) -> wire.Response:
        keep = DEFAULT_KEEP if request.keep is None else request.keep
        async with self._writing(request.workspace, uid) as workspace:
            return wire.CleanupOk(tuple(await self._work(uid, workspace.cleanup, workspace.superfluous(keep))))

    async def _config(self, _request: wire.Config, _uid: int) -> wire.Response:
        running, places = self.configuration, self._places
        return wire.ConfigOk(
            wire.ConfigReport(
                str(places.mount_path),
                places.socket,
                places.log_level,
                running.auto_cleanup,
                running.auto_cleanup_keep,
                running.auto_cleanup_interval_secs,
                running.health_check_interval_secs,
                running.img_size,
                running.img_max_percent,
            )
        )

    async def _reload(self, _request: wire.ReloadConfig, uid: int) -> wire.Response:
        if uid != ROOT:
            raise InternalError("permission denied")
        try:
            new = await _in_thread(read_configuration, self._places.configuration)
        except ConfigurationError as error:
            raise InternalError(f"Failed to reload config: {error}") from error
        self.configuration = new.with_image_of(self.configuration)
        self.reloaded.set()
        self.reloaded = trio.Event()
        return wire.ReloadConfigOk()

    async def _recover(self, request: wire.Recover, uid: int) -> wire.Response:
        async with self._writing(request.workspace, uid) as workspace:
            await self._work(uid, self._workspaces.recover, workspace)
            return wire.RecoverOk(workspace.path)

    async def _health(self, _request: wire.HealthAdvisory, uid: int) -> wire.Response:
        mine = await _in_thread(self._workspaces.mine, uid)
        many = sum(len(workspace.catalogue.snapshots) > wire.MANY_SNAPSHOTS for workspace in mine)
        return wire.HealthAdvisoryOk(many, *await self.usage(uid))

    async def usage(self, uid: int) -> tuple[int, int]:
        """Total and used bytes of the fullest disk of a user's snapshots, zeros if it does not say."""
        try:
            return await _in_thread(self._workspaces.usage, uid)
        except OSError as error:
            log.warning("the disk of the snapshots does not say how full it is: %s", error)
            return 0, 0

    async def clean_up(self, victims: Callable[[Workspace], list[str]]) -> None:
        """Deletes what ``victims`` names in every workspace, for auto-cleanup."""
        for known in self._workspaces.all():
            with suppress(WorkspaceNotFound):
                async with self._writing(known.ws_id, ROOT) as workspace:
                    removed = await _in_thread(workspace.cleanup, victims(workspace))
                if removed:
                    log.info("%s: cleaned up %d snapshots", workspace.ws_id, len(removed))

    async def arm_watches(self) -> None:
        """Watches every workspace, so that its first checkpoint after a start knows who was writing."""
        for known in self._workspaces.all():
            with suppress(WorkspaceNotFound):
                async with self._reading(known.ws_id, ROOT) as workspace:
                    await _in_thread(workspace.watch.arm)

    async def _work(self, uid: int, call: Callable[..., T], *arguments: Any) -> T:
        """What may take long, as one of the few operations of a user that go on at once."""
        return await trio.to_thread.run_sync(functools.partial(call, *arguments), limiter=self._workers[uid])

    async def _find(self, name: str, uid: int) -> Workspace:
        return await _in_thread(self._workspaces.find, name, uid)

    @asynccontextmanager
    async def _writing(self, name: str, uid: int) -> AsyncIterator[Workspace]:
        """A workspace that nobody else uses. It is found again once that is so: it may have been recovered."""
        found = await self._find(name, uid)
        async with self._locks[found.ws_id].writing():
            yield await self._find(name, uid)

    @asynccontextmanager
    async def _reading(self, name: str, uid: int) -> AsyncIterator[Workspace]:
        """A workspace that nobody changes."""
        found = await self._find(name, uid)
        async with self._locks[found.ws_id].reading():
            yield await self._find(name, uid)


def _locked(workspace: Workspace) -> wire.WorkspaceInfo:
    return wire.WorkspaceInfo(workspace.ws_id, LOCKED, 0)


def _info(workspace: Workspace) -> wire.WorkspaceInfo:
    return wire.WorkspaceInfo(workspace.ws_id, workspace.path, len(workspace.catalogue.snapshots))


async def _in_thread(call: Callable[..., T], *arguments: Any) -> T:
    return await trio.to_thread.run_sync(functools.partial(call, *arguments))
