"""``mountctl mount --metrics``: figures that a monitor can read, and that name nobody (spec 4.6)."""

import contextlib
import os
import re
import socket
import stat
from pathlib import Path

from ctxfs.control import Figures
from ctxfs.metrics import prometheus_text
from ctxfs.metrics_socket import CLIENTS
from tests.commands.conftest import Place
from tests.mounting import wait_until

SAMPLE = re.compile(r'ctxfs_[a-z_]+(\{[a-z]+="[A-Za-z_]+"\})? [0-9]+')


def test_the_text_is_as_prometheus_reads_it() -> None:
    figures = Figures({"read": 2, "lookup": 1}, {"ENOENT": 3}, 4, None, 5, 6, 7, {"sessions": 8}, {"sessions": 9})
    lines = prometheus_text(figures).splitlines()
    samples = [line for line in lines if not line.startswith("# ")]
    assert samples == [
        'ctxfs_requests_total{operation="lookup"} 1',
        'ctxfs_requests_total{operation="read"} 2',
        'ctxfs_errors_total{errno="ENOENT"} 3',
        'ctxfs_cache_hits_total{cache="sessions"} 8',
        'ctxfs_cache_misses_total{cache="sessions"} 9',
        "ctxfs_dropped_rests_total 4",
        "ctxfs_failing 0",
        "ctxfs_sessions 5",
        "ctxfs_spaces 6",
        "ctxfs_store_bytes 7",
    ]
    for name in {re.split(r"[ {]", sample)[0] for sample in samples}:
        assert [line.split()[1] for line in lines if line.startswith("# ") and line.split()[2] == name] == [
            "HELP",
            "TYPE",
        ]


def test_a_mount_keeps_its_file_whole_and_takes_it_away(place: Place) -> None:
    file = place.base / "ctxfs.prom"
    assert place.mount("--metrics", str(file)).code == 0
    wait_until(file.exists, "the first figures")
    (place.mountpoint / f"home/{os.geteuid()}/agent/secret/session/hidden").mkdir(parents=True)
    wait_until(lambda: "ctxfs_sessions 1\n" in file.read_text(), "the next figures")
    text = file.read_text()
    assert all(line.startswith("# ") or SAMPLE.fullmatch(line) for line in text.splitlines())
    assert not re.search("secret|hidden", text)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert place.umount().code == 0
    assert not list(place.base.glob("*ctxfs.prom*"))


def test_a_place_that_cannot_be_is_refused(place: Place) -> None:
    (place.base / "mine").write_text("not figures")
    (place.base / "directory").mkdir()
    os.mkfifo(place.base / "fifo")
    (place.base / "link").symlink_to(place.base / "mine")
    (place.base / "file.sock").write_text("no socket")
    before = sorted(place.base.rglob("*"))
    refused = ("ctx/metrics", "nowhere/metrics", "mine", "directory", "fifo", "link", "file.sock", "ctx/metrics.sock")
    assert [place.mount("--metrics", str(place.base / path)).code for path in refused] == [2] * len(refused)
    assert place.mounted() is None
    assert sorted(place.base.rglob("*")) == before


def ask(path: Path, request: bytes) -> str:
    """What is answered to a request, after which nothing more is sent; nothing where it was not let in."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        try:
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            with client.makefile("rb") as file:
                return file.read().decode()
        except (BrokenPipeError, ConnectionResetError):
            return ""


def answer(path: Path, request: bytes) -> str:
    """What is answered once the daemon has had the time for its figures."""
    while (said := ask(path, request)) == "" or said.startswith("HTTP/1.1 503 "):
        pass
    return said


def test_a_socket_answers_scrapers_and_whoever_says_nothing(place: Place) -> None:
    path = place.base / "metrics.sock"
    assert place.mount("--metrics", str(path)).code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    head, _, body = answer(path, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert f"Content-Length: {len(body)}\r\n" in head
    assert all(line.startswith("# ") or SAMPLE.fullmatch(line) for line in body.splitlines())
    assert answer(path, b"").startswith("# HELP ctxfs_requests_total ")
    assert ask(path, b"POST / HTTP/1.1\r\n\r\n").startswith("HTTP/1.1 405 ")
    assert place.umount().code == 0
    assert not path.exists()


def test_a_socket_is_put_in_the_place_of_a_stale_one_and_of_none_that_lives(place: Place) -> None:
    path = place.base / ("deep" * 50) / "metrics.sock"  # deeper than a socket's address is long
    path.parent.mkdir()
    assert place.mount("--metrics", str(path)).code == 0
    place.kill()
    assert path.is_socket()
    assert place.mount("--metrics", str(path)).code == 0
    other = place.mountctl("mount", str(place.base / "b"), "--store", str(place.base / "s"), "--metrics", str(path))
    assert (other.code, "another process answers" in other.err) == (2, True)
    assert [each.name for each in path.parent.iterdir()] == ["metrics.sock"]


def test_silent_clients_keep_nobody_from_the_mount_or_the_figures(place: Place) -> None:
    path = place.base / "metrics.sock"
    assert place.mount("--metrics", str(path)).code == 0
    with contextlib.ExitStack() as silent:
        for _ in range(3 * CLIENTS):
            silent.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))
        assert (place.mountpoint / "status").read_text()
        wait_until(lambda: ask(path, b"") != "", "an answer")
    assert place.umount().code == 0
