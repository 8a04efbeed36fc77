"""Figures of a mount as Prometheus text (spec 4.6, ``--metrics``): in a file that is replaced whole, or on a socket.

Everybody may read it: it holds counts by operation and errno, never names of users, sessions or files. It is there for
as long as the daemon lives, so a monitor sees by its age or its absence that something is wrong.
"""

import contextlib
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import trio

from backend.errors import CtxError
from ctxfs.control import Figures
from ctxfs.public_files import write_public

EVERY_S = 5.0
SOCKET_SUFFIXES = (".sock", ".socket")
"""A path that ends so is a socket's."""
HEADER = "# HELP ctxfs_"

log = logging.getLogger("ctxfs.metrics")


class MetricsRefused(CtxError):
    """Figures cannot be put there."""

    exit_code = 2


def prometheus_text(figures: Figures) -> str:
    """One family after the other, each with its help and type; labels are in the order of their names."""
    hits, misses = figures.cache_hits, figures.cache_misses
    failing = int(figures.last_error is not None)
    return "".join(
        [
            *_family("requests_total", "counter", "Requests of the kernel.", "operation", figures.requests),
            *_family("errors_total", "counter", "Requests that were answered with an error.", "errno", figures.errors),
            *_family("cache_hits_total", "counter", "Found in a cache of the daemon.", "cache", hits),
            *_family("cache_misses_total", "counter", "Not found in a cache of the daemon.", "cache", misses),
            *_single("dropped_rests_total", "counter", "Unfinished lines and values refused.", figures.dropped_rests),
            *_single("failing", "gauge", "1 after an error, with the text in mountctl status.", failing),
            *_single("sessions", "gauge", "Live sessions.", figures.sessions),
            *_single("spaces", "gauge", "Homes and shared spaces.", figures.homes),
            *_single("store_bytes", "gauge", "Bytes of the store on its disk.", figures.bytes),
        ]
    )


def check_place(path: Path) -> None:
    """Nothing of somebody else's is there, and what is to be there can be made (``MetricsRefused``)."""
    if not path.parent.is_dir():
        raise MetricsRefused(f"the directory of the metrics {path} is missing: make it first")
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise MetricsRefused(f"the metrics {path}: {error.strerror}") from error
    ours = stat.S_ISSOCK(kind) if is_socket(path) else stat.S_ISREG(kind) and _holds_figures(path)
    if not ours:
        raise MetricsRefused(f"{path} is there and holds no metrics: choose another path, or remove it")


def _holds_figures(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(len(HEADER)) in (b"", HEADER.encode())
    except OSError:
        return False


def is_socket(path: Path) -> bool:
    """Whether figures are to be asked for at a socket."""
    return path.suffix in SOCKET_SUFFIXES


async def keep_file(path: Path, figures: Callable[[], Awaitable[Figures]]) -> None:
    """Replaces the file again and again until it is cancelled, which removes it; what fails is tried again."""
    try:
        while True:
            try:
                await trio.to_thread.run_sync(write_metrics, path, await figures())
            except (OSError, CtxError) as error:
                log.warning("metrics were not written, trying again: %s", error)
            except Exception:
                log.exception("internal error in the metrics, trying again")
            await trio.sleep(EVERY_S)
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def write_metrics(path: Path, figures: Figures) -> None:
    """Replaces the file (``OSError``)."""
    write_public(path, prometheus_text(figures).encode())


def _family(name: str, kind: str, text: str, label: str, counts: Mapping[str, int]) -> Iterator[str]:
    yield f"# HELP ctxfs_{name} {text}\n# TYPE ctxfs_{name} {kind}\n"
    for value, count in sorted(counts.items()):
        yield f'ctxfs_{name}{{{label}="{value}"}} {count}\n'


def _single(name: str, kind: str, text: str, count: int) -> Iterator[str]:
    yield f"# HELP ctxfs_{name} {text}\n# TYPE ctxfs_{name} {kind}\nctxfs_{name} {count}\n"
