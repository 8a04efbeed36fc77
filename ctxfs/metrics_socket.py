"""Figures of a mount for whoever asks at a Unix socket (spec 4.6, ``--metrics PATH.sock``).

A scraper speaks HTTP/1 and gets an answer of it; whoever says nothing (``nc -U``, ``socat``) gets the bare text. Main
thread, on trio. Nothing that a client does, no number of clients and no bug in the figures ends or holds up more than
this socket.
"""

import contextlib
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import trio

from backend.errors import CtxError
from ctxfs.control import Figures
from ctxfs.metrics import MetricsRefused, prometheus_text

SILENCE_S = 1.0
CLIENT_S = 5.0
CLIENTS = 16
MAX_REQUEST_BYTES = 8192
TEXT = "text/plain; version=0.0.4; charset=utf-8"

log = logging.getLogger("ctxfs.metrics")


@contextlib.contextmanager
def listening(path: Path) -> Iterator[trio.SocketListener]:
    """A 0666 socket in the place of a stale one, and gone afterwards (``MetricsRefused``: somebody else listens)."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    new = f".{os.getpid()}.new"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _refuse_live(directory, path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new, dir_fd=directory)
        listener.bind(_short(directory, new))
        _open_to_all(directory, new)
        listener.listen()
        os.rename(new, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        try:
            yield trio.SocketListener(trio.socket.from_stdlib_socket(listener))
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path.name, dir_fd=directory)
    finally:
        listener.close()
        os.close(directory)


def _short(directory: int, name: str) -> str:
    """A path of a file in ``directory`` that fits into a socket's address, however deep that is."""
    return f"/proc/self/fd/{directory}/{name}"


def _open_to_all(directory: int, name: str) -> None:
    """Whatever the umask; never what somebody else has put there meanwhile."""
    bound = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        if stat.S_ISSOCK(os.fstat(bound).st_mode):
            os.chmod(f"/proc/self/fd/{bound}", 0o666)
    finally:
        os.close(bound)


def _refuse_live(directory: int, path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(_short(directory, path.name))
        except BlockingIOError:
            pass
        except OSError:
            return
    raise MetricsRefused(f"another process answers at the metrics {path}: choose another path, or end it")


async def serve(listener: trio.SocketListener, figures: Callable[[], Awaitable[Figures]]) -> None:
    """Answers until it is cancelled; more than ``CLIENTS`` at a time are turned away."""
    clients = trio.CapacityLimiter(CLIENTS)

    async def one_client(stream: trio.SocketStream) -> None:
        async with stream:
            with contextlib.suppress(trio.WouldBlock, trio.BrokenResourceError), trio.move_on_after(CLIENT_S):
                clients.acquire_nowait()
                try:
                    await stream.send_all(await _answer(stream, figures))
                finally:
                    clients.release()

    await trio.serve_listeners(one_client, [listener])


async def _answer(stream: trio.SocketStream, figures: Callable[[], Awaitable[Figures]]) -> bytes:
    request = await _request(stream)
    if request and not request.startswith(b"GET "):
        return _http("405 Method Not Allowed", "only GET is answered\n")
    try:
        text = prometheus_text(await figures())
    except (OSError, CtxError) as error:
        log.warning("metrics were not answered: %s", error)
        return _unavailable(request, str(error) or "the daemon is busy")
    except Exception:
        log.exception("internal error in the metrics")
        return _unavailable(request, "internal error")
    return _http("200 OK", text) if request else text.encode()


def _unavailable(request: bytes, reason: str) -> bytes:
    """Whoever said nothing gets bare text, and there is none."""
    return _http("503 Service Unavailable", f"{reason}\n") if request else b""


async def _request(stream: trio.SocketStream) -> bytes:
    """A request's head, or what there is of it when its sender falls silent."""
    head = b""
    with trio.move_on_after(SILENCE_S):
        async for chunk in stream:
            head += chunk
            if b"\r\n\r\n" in head or b"\n\n" in head or len(head) > MAX_REQUEST_BYTES:
                break
    return head


def _http(status: str, text: str) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {TEXT}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
