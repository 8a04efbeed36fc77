"""Figures of a mount as Prometheus text, in a file that is replaced whole (spec 4.6, ``--metrics``).

Everybody may read it: it holds counts by operation and errno, never names of users, sessions or files. It is there for
as long as the daemon lives, so a monitor sees by its age or its absence that something is wrong.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ctxfs.control import Figures

EVERY_S = 5.0


def prometheus_text(figures: Figures) -> str:
    """One family after the other, each with its help and type; labels are in the order of their names."""
    return "".join(
        [
            *_family("requests_total", "counter", "Requests of the kernel.", "operation", figures.requests),
            *_family("errors_total", "counter", "Requests that were answered with an error.", "errno", figures.errors),
            *_single("dropped_rests_total", "counter", "Unfinished lines and values refused.", figures.dropped_rests),
            *_single("failing", "gauge", "1 after an error, with the text in mountctl status.", int(_fails(figures))),
            *_single("sessions", "gauge", "Live sessions.", figures.sessions),
            *_single("spaces", "gauge", "Homes and shared spaces.", figures.homes),
            *_single("store_bytes", "gauge", "Bytes of the store on its disk.", figures.bytes),
        ]
    )


def write_metrics(path: Path, figures: Figures) -> None:
    """Replaces the file (``OSError``)."""
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o644)
            file.write(prometheus_text(figures))
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _fails(figures: Figures) -> bool:
    return figures.last_error is not None


def _family(name: str, kind: str, text: str, label: str, counts: Mapping[str, int]) -> Iterator[str]:
    yield f"# HELP ctxfs_{name} {text}\n# TYPE ctxfs_{name} {kind}\n"
    for value, count in sorted(counts.items()):
        yield f'ctxfs_{name}{{{label}="{value}"}} {count}\n'


def _single(name: str, kind: str, text: str, count: int) -> Iterator[str]:
    yield f"# HELP ctxfs_{name} {text}\n# TYPE ctxfs_{name} {kind}\nctxfs_{name} {count}\n"
