"""What the daemon does unasked: auto-cleanup and a look at how full the disk is (notes 2.11). trio."""

import logging
import math
import time

import trio

from backend.checkpoints.catalogue import by_age
from backend.checkpoints.service import Service
from backend.checkpoints.times import parse_duration, parse_timestamp
from backend.checkpoints.wire import FULL_PERCENT, Count, Retention
from backend.checkpoints.workspace import Workspace
from backend.checkpoints.workspaces import ROOT

log = logging.getLogger("ctxfs.checkpoints")


async def clean_up_regularly(service: Service) -> None:
    """Cleans up once an interval, the first time one interval after the start or a reload."""
    while True:
        running = service.configuration
        interval = running.auto_cleanup_interval_secs if _is_on(running.auto_cleanup, running.auto_cleanup_keep) else 0
        if await _reloaded_within(service, interval):
            continue
        await service.clean_up(lambda workspace: victims(workspace, running.auto_cleanup_keep, time.time_ns()))  # noqa: B023


def victims(workspace: Workspace, keep: Retention, now_ns: int) -> list[str]:
    """The snapshots that a retention does not keep, oldest first; never a pinned one."""
    if isinstance(keep, Count):
        return workspace.superfluous(keep.count)
    oldest = now_ns - parse_duration(keep.age) * 1_000_000_000
    snapshots = by_age(workspace.catalogue.snapshots)
    return [id for id, record in snapshots if not record.pinned and parse_timestamp(record.created_at) < oldest]


async def watch_disk(service: Service) -> None:
    """Warns in the log once an interval while the disk is nearly full."""
    while True:
        if await _reloaded_within(service, service.configuration.health_check_interval_secs):
            continue
        total, used = await service.usage(ROOT)
        if used * 100 > total * FULL_PERCENT:
            log.warning(
                "the disk of the snapshots is full by more than %d %%: %d of %d bytes", FULL_PERCENT, used, total
            )


def _is_on(wanted: bool, keep: Retention) -> bool:
    return wanted and (keep.count if isinstance(keep, Count) else parse_duration(keep.age)) > 0


async def _reloaded_within(service: Service, seconds: int) -> bool:
    """Waits until the configuration is reloaded or an interval is over, an interval of 0 for ever; which it was."""
    reloaded = service.reloaded
    with trio.move_on_after(seconds or math.inf) as scope:
        await reloaded.wait()
    return not scope.cancelled_caught
