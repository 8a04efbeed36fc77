"""A daemon that is told to stop ends, whatever the kernel is doing with its mount then."""

import contextlib
import os
import subprocess

from tests.mount.acting import message, new_session, write_once
from tests.mounting import PATIENCE_S, running_mount, wait_until


def test_a_daemon_that_is_to_end_answers_the_reads_that_its_own_threads_wait_for(fuse_device: None) -> None:
    """Whoever drops a page waits for the read of it, in the kernel, where nothing but its answer ends that."""
    line = message("x" * 8000)
    with running_mount(module="tests.holding_daemon", allow=["still used by", "detaching"]) as mount:
        log = new_session(mount.path) / "messages.jsonl"
        write_once(log, line)
        reader = os.open(log, os.O_RDONLY)
        assert os.pread(reader, len(line), 0) == line
        with subprocess.Popen(["tee", "-a", log], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as writer:
            assert writer.stdin is not None and mount.process is not None
            writer.stdin.write(line)
            writer.stdin.close()
            wait_until((mount.base / "dropping").exists, "an append that hides a line")
            mount.process.terminate()
            wait_until((mount.base / "stopping").exists, "the unmount")
            os.posix_fadvise(reader, 0, 0, os.POSIX_FADV_DONTNEED)
            assert os.pread(reader, len(line), 0) == line
            (mount.base / "drop").touch()
            assert mount.process.wait(PATIENCE_S) == 0
        with contextlib.suppress(OSError):  # nobody is there to answer the close
            os.close(reader)
