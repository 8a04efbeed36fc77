"""``/ctx/status``: key=value lines about the mount, of values that change with events only (spec 1.2)."""

from typing import TYPE_CHECKING

from ctxfs.subjects import Nothing

if TYPE_CHECKING:
    from ctxfs.core import Core


def mount_status(core: "Core", _: Nothing) -> bytes:
    """Health of the store, without anything that tells one user of another."""
    lines = {
        "state": "ok" if core.health.failure is None else "failing",
        "mounted_at": core.subjects.started_ns // 10**9,
    }
    if core.health.failure is not None:
        lines["failure"] = core.health.failure
    return "".join(f"{key}={value}\n" for key, value in lines.items()).encode()


def status_changed_at(core: "Core", _: Nothing) -> int:
    """When the store began to fail, or recovered; ns."""
    return core.health.changed_ns
