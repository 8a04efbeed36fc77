"""``mountctl mount --metrics``: figures that a monitor can read, and that name nobody (spec 4.6)."""

import os
import re
import signal
import stat
import threading

from ctxfs.control import Figures
from ctxfs.metrics import prometheus_text
from tests.commands.conftest import Place
from tests.mounting import wait_until

SAMPLE = re.compile(r'ctxfs_[a-z_]+(\{[a-z]+="[A-Za-z_]+"\})? [0-9]+')


def test_the_text_is_as_prometheus_reads_it() -> None:
    figures = Figures({"read": 2, "lookup": 1}, {"ENOENT": 3}, 4, None, 5, 6, 7)
    lines = prometheus_text(figures).splitlines()
    samples = [line for line in lines if not line.startswith("# ")]
    assert samples == [
        'ctxfs_requests_total{operation="lookup"} 1',
        'ctxfs_requests_total{operation="read"} 2',
        'ctxfs_errors_total{errno="ENOENT"} 3',
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
    wait_until(lambda: "ctxfs_sessions 1\n" in file.read_text(), "the next figures", 30)
    text = file.read_text()
    assert all(line.startswith("# ") or SAMPLE.fullmatch(line) for line in text.splitlines())
    assert not re.search("secret|hidden", text)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert place.umount().code == 0
    assert not list(place.base.glob("*ctxfs.prom*"))


def test_a_place_that_cannot_be_is_refused(place: Place) -> None:
    for path in (place.mountpoint / "metrics", place.base / "nowhere/metrics"):
        assert place.mount("--metrics", str(path)).code == 2
    assert place.mounted() is None


def test_a_look_at_the_stacks_disturbs_nobody(place: Place) -> None:
    assert place.mount().code == 0
    session = place.mountpoint / f"home/{os.geteuid()}/agent/a/session/s"
    session.mkdir(parents=True)
    ended = threading.Event()

    def signalling() -> None:
        while not ended.wait(0.01):
            os.kill(daemon, signal.SIGUSR1)

    daemon = place.daemon()
    signals = threading.Thread(target=signalling)
    signals.start()
    try:
        for number in range(500):
            with (session / "messages.jsonl").open("a") as file:
                file.write(f'{{"role":"user","content":"{number}"}}\n')
    finally:
        ended.set()
        signals.join()
    assert (session / "messages.jsonl").read_text().count("\n") == 500
    [log] = place.runtime.glob("*.log")
    assert "stack of thread" in log.read_text()
    assert place.umount().code == 0
