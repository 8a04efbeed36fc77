"""Figures that cannot be had are said to be none, and are asked for again; whatever it was, the daemon goes on."""

from pathlib import Path

import pytest
import trio

from backend.errors import StoreFailed
from ctxfs import metrics, metrics_socket
from ctxfs.control import Figures

FIGURES = Figures({}, {}, 0, None, 0, 0, 0)
FAILURES = [TimeoutError(), StoreFailed("the disk failed"), RuntimeError("bug")]


class Source:
    """Figures that cannot be had at first, and once afterwards (``had``); whoever asks again waits."""

    def __init__(self, failure: Exception) -> None:
        self.failure: Exception | None = failure
        self.had = trio.Event()

    async def __call__(self) -> Figures:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        if self.had.is_set():
            await trio.sleep_forever()
        self.had.set()
        return FIGURES


@pytest.mark.parametrize("failure", FAILURES, ids=repr)
def test_a_file_is_written_by_the_next_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metrics, "EVERY_S", 0)
    file = tmp_path / "ctxfs.prom"
    written: list[str] = []

    async def main() -> None:
        source = Source(failure)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(metrics.keep_file, file, source)
            await source.had.wait()
            while not file.exists():
                await trio.sleep(0)
            written.append(file.read_text())
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert written == [metrics.prometheus_text(FIGURES)]
    assert "trying again" in caplog.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failure", FAILURES, ids=repr)
def test_a_scraper_is_told_and_the_next_one_answered(tmp_path: Path, failure: Exception) -> None:
    path = tmp_path / "metrics.sock"
    answers: list[bytes] = []

    async def ask(request: bytes) -> None:
        async with await trio.open_unix_socket(path) as stream:
            await stream.send_all(request)
            await stream.send_eof()
            answers.append(b"".join([chunk async for chunk in stream]))

    async def main() -> None:
        with metrics_socket.listening(path) as listener:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(metrics_socket.serve, listener, Source(failure))
                for _ in range(2):
                    await ask(b"GET / HTTP/1.1\r\n\r\n")
                nursery.cancel_scope.cancel()

    trio.run(main)
    assert [answer.split(b" ", 2)[1] for answer in answers] == [b"503", b"200"]
