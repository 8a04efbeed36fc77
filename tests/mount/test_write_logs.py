"""Spec 1.4, Log files: what each single call on messages.jsonl and events.jsonl answers, and leaves behind."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from tests.mount.acting import entries, event, figures, message, opened, refused, write_once
from tests.mounting import RunningMount, wait_until

A, B, C = message("a"), message("b"), message("c")
MIB = 1 << 20
LONGEST = message("x" * (MIB - len(message("")) + 1))

INVALID = [
    ("not JSON", b"garbage\n", errno.EINVAL),
    ("two values", b'{"role":"user","content":"a"} {}\n', errno.EINVAL),
    ("no object", b'["role"]\n', errno.EINVAL),
    ("a blank line", b"\n", errno.EINVAL),
    ("a blank line after a valid one", A + b"\n", errno.EINVAL),
    ("an unknown role", b'{"role":"root","content":"a"}\n', errno.EINVAL),
    ("no content", b'{"role":"user"}\n', errno.EINVAL),
    ("a number as content", b'{"role":"user","content":1}\n', errno.EINVAL),
    ("a part without type", b'{"role":"user","content":[{}]}\n', errno.EINVAL),
    ("a duplicate key", b'{"role":"user","role":"user","content":"a"}\n', errno.EINVAL),
    ("a key twice, once escaped", b'{"role":"user","r\\u006fle":"user","content":"a"}\n', errno.EINVAL),
    ("a NUL", b'{"role":"user","content":"\0"}\n', errno.EINVAL),
    ("an escaped NUL", b'{"role":"user","content":"\\u0000"}\n', errno.EINVAL),
    ("a lone surrogate escape", b'{"role":"user","content":"\\ud83d"}\n', errno.EINVAL),
    ("bytes that are not UTF-8", b'{"role":"user","content":"\xff"}\n', errno.EINVAL),
    ("a byte order mark", b"\xef\xbb\xbf" + A, errno.EINVAL),
    ("CRLF", A[:-1] + b"\r\n", errno.EINVAL),
    ("NaN", b'{"role":"user","content":"a","x":NaN}\n', errno.EINVAL),
    ("129 levels", b'{"role":"user","content":"a","x":' + b"[" * 128 + b"]" * 128 + b"}\n", errno.EINVAL),
    ("an event", event(), errno.EINVAL),
    ("a valid line before a bad one", A + b"garbage\n", errno.EINVAL),
    ("a bad line before a valid one", b"garbage\n" + A, errno.EINVAL),
]


@pytest.mark.parametrize(("data", "number"), [case[1:] for case in INVALID], ids=[case[0] for case in INVALID])
def test_a_request_with_an_invalid_line_is_refused_whole(log: Path, data: bytes, number: int) -> None:
    write_once(log, A)
    with refused(number):
        write_once(log, data)
    assert log.read_bytes() == A
    assert entries(log.parent) == 1


def test_an_event_line_is_refused_in_messages_and_a_message_in_events(session: Path) -> None:
    with refused(errno.EINVAL):
        write_once(session / "events.jsonl", message())
    write_once(session / "events.jsonl", event())
    assert (session / "events.jsonl").read_bytes() == event()


def test_lines_are_stored_byte_for_byte(log: Path) -> None:
    line = b'  { "content" : "\\u00e9 \xc3\xa9 \xf0\x9f\x98\x80" ,\t"role":"user", "extra": [1.50, 1e3] }  \n'
    write_once(log, line)
    assert log.read_bytes() == line


def test_many_lines_in_one_write_are_entries_each(log: Path) -> None:
    assert write_once(log, A + B + C) == len(A + B + C)
    assert entries(log.parent) == 3


# Where a write must start.


def test_with_o_append_the_offset_is_irrelevant(log: Path) -> None:
    with opened(log, os.O_RDWR | os.O_APPEND) as descriptor:
        os.write(descriptor, A)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, B)
        os.pwrite(descriptor, C, 0)
    assert log.read_bytes() == A + B + C


@pytest.mark.parametrize("offset", [0, 1, len(A) - 1, len(A) + 1, 1 << 40])
def test_without_o_append_a_write_elsewhere_is_refused(log: Path, offset: int) -> None:
    write_once(log, A)
    with opened(log, os.O_WRONLY) as descriptor:
        with refused(errno.EPERM):
            os.pwrite(descriptor, B, offset)
        assert os.pwrite(descriptor, B, len(A)) == len(B)
    assert log.read_bytes() == A + B


def test_without_o_append_a_handle_goes_on_after_its_own_last_write(log: Path) -> None:
    with opened(log, os.O_WRONLY) as descriptor:
        os.write(descriptor, A)
        write_once(log, B)
        os.write(descriptor, C)
    assert log.read_bytes() == A + B + C


def test_a_handle_may_not_go_on_after_another_handles_write(log: Path) -> None:
    with opened(log, os.O_WRONLY) as first, opened(log, os.O_WRONLY) as second:
        os.write(first, A)
        with refused(errno.EPERM):
            os.write(second, B)
        os.pwrite(second, B, len(A))
    assert log.read_bytes() == A + B


def test_a_refused_write_does_not_count_as_the_last_one(log: Path) -> None:
    with opened(log, os.O_WRONLY) as descriptor:
        os.write(descriptor, A)
        write_once(log, B)
        with refused(errno.EINVAL):
            os.write(descriptor, b"garbage\n")
        os.write(descriptor, C)
    assert log.read_bytes() == A + B + C


# Unfinished rests.


@pytest.mark.parametrize("cut", [1, 9, len(A) - 2, len(A) - 1])
def test_a_rest_is_seen_by_nobody_until_it_is_complete(log: Path, cut: int) -> None:
    with opened(log, os.O_RDWR | os.O_APPEND) as descriptor:
        assert os.write(descriptor, A[:cut]) == cut
        assert (log.read_bytes(), log.stat().st_size, os.pread(descriptor, 100, 0)) == (b"", 0, b"")
        os.write(descriptor, A[cut:])
        assert log.read_bytes() == A


def test_a_line_may_come_byte_by_byte(log: Path) -> None:
    line = '{"role":"user","content":"é\\n😀 \\ud83d\\ude00"}\n'.encode()
    with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor:
        for byte in line:
            os.write(descriptor, bytes([byte]))
    assert log.read_bytes() == line


def test_a_rest_without_o_append_goes_on_where_it_ended(log: Path) -> None:
    with opened(log, os.O_WRONLY) as descriptor:
        os.write(descriptor, A[:5])
        write_once(log, B)
        os.write(descriptor, A[5:])
    assert log.read_bytes() == B + A


def test_a_request_may_complete_a_rest_and_begin_another(log: Path) -> None:
    with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor:
        os.write(descriptor, A + B[:4])
        assert log.read_bytes() == A
        os.write(descriptor, B[4:] + C[:7])
        assert log.read_bytes() == A + B
        os.write(descriptor, C[7:])
    assert log.read_bytes() == A + B + C


@pytest.mark.parametrize("rest", [b"garbage", b"[", b'{"role":"nobody"', b'{"role":1,', b'{"a":\x01', b"\xff", b"\r"])
def test_a_rest_that_can_become_no_line_fails_in_the_write(log: Path, rest: bytes) -> None:
    with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor:
        with refused(errno.EINVAL):
            os.write(descriptor, rest)
        os.write(descriptor, A)
    assert log.read_bytes() == A


def test_lines_before_an_impossible_rest_are_refused_with_it(log: Path) -> None:
    with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor, refused(errno.EINVAL):
        os.write(descriptor, A + b"garbage")
    assert log.read_bytes() == b""


def test_a_refused_request_drops_the_rest_of_its_handle(log: Path) -> None:
    with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor:
        os.write(descriptor, A[:-1])
        with refused(errno.EINVAL):
            os.write(descriptor, b"garbage\n")
        with refused(errno.EINVAL):
            os.write(descriptor, b"\n")
        os.write(descriptor, B)
    assert log.read_bytes() == B


def test_a_write_at_a_wrong_offset_drops_the_rest_too(log: Path) -> None:
    write_once(log, A)
    with opened(log, os.O_WRONLY) as descriptor:
        os.pwrite(descriptor, B[:-1], len(A))
        with refused(errno.EPERM):
            os.pwrite(descriptor, b"x", 3)
        os.pwrite(descriptor, C, len(A))
    assert log.read_bytes() == A + C


def test_a_cut_beyond_its_own_number_is_refused_with_all_of_its_request(session: Path) -> None:
    events = session / "events.jsonl"
    cut = b'{"type":"cut","before":%d,"summary":[],"reason":"manual"}\n'
    write_once(events, event())
    with refused(errno.EINVAL):
        write_once(events, event() + cut % 9)
    write_once(events, event() + cut % 2)
    assert events.read_bytes() == event() * 2 + cut % 2


def test_rests_of_two_handles_never_mix(log: Path) -> None:
    with opened(log, os.O_WRONLY | os.O_APPEND) as first, opened(log, os.O_WRONLY | os.O_APPEND) as second:
        os.write(first, A[:9])
        os.write(second, B[:12])
        os.write(first, A[9:])
        os.write(second, B[12:])
    assert log.read_bytes() == A + B


@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
@pytest.mark.parametrize("text", ["garbage", "garbage\\n", '{"role":"user"}\\n'])
def test_a_shell_sees_a_bad_printf_fail(log: Path, shell: str, text: str) -> None:
    script = f"printf '%b' '{text}' >> {log}"
    result = subprocess.run([shell, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "error" in result.stderr.lower() or "invalid" in result.stderr.lower()
    assert log.read_bytes() == b""


# close, fork, release.


def test_close_with_a_rest_is_refused(log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, A[:-1])
    with refused(errno.EINVAL):
        os.close(descriptor)
    assert log.read_bytes() == b""


def test_closing_a_copy_keeps_the_rest(log: Path) -> None:
    with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor:
        os.write(descriptor, A[:-1])
        with refused(errno.EINVAL):
            os.close(os.dup(descriptor))
        os.write(descriptor, b"\n")
    assert log.read_bytes() == A


def test_the_end_of_a_forked_child_keeps_the_rest(log: Path) -> None:
    with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor:
        os.write(descriptor, A[:-1])
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        os.write(descriptor, b"\n")
    assert log.read_bytes() == A


def test_fsync_with_a_rest_is_refused_and_keeps_it(log: Path) -> None:
    with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor:
        os.write(descriptor, A + B[:-1])
        with refused(errno.EINVAL):
            os.fsync(descriptor)
        os.write(descriptor, b"\n")
        os.fsync(descriptor)
    assert log.read_bytes() == A + B


def test_release_drops_the_rest_and_counts_it(module_mount: RunningMount, log: Path) -> None:
    before = figures(module_mount)["dropped_rests"]
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, A[:-1])
    with refused(errno.EINVAL):
        os.close(descriptor)
    wait_until(lambda: figures(module_mount)["dropped_rests"] == before + 1, "counting the dropped rest")
    write_once(log, B)
    assert log.read_bytes() == B


def test_closing_without_a_write_is_no_write(log: Path) -> None:
    write_once(log, A)
    before = log.stat()
    with opened(log, os.O_RDWR) as descriptor:
        os.close(os.dup(descriptor))
        os.fsync(descriptor)
    after = log.stat()
    assert (after.st_mtime_ns, after.st_size) == (before.st_mtime_ns, before.st_size)
    assert entries(log.parent) == 1


# Limits.


def test_a_line_of_1_mib_is_taken(log: Path) -> None:
    assert len(LONGEST) == MIB + 1
    with log.open("ab", buffering=0) as file:
        assert file.write(LONGEST[:MIB]) == MIB
        assert file.write(LONGEST[MIB:]) == 1
    assert log.read_bytes() == LONGEST


def test_a_longer_line_fails_in_the_request_that_passes_the_limit(log: Path) -> None:
    with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor:
        assert os.write(descriptor, LONGEST[:-3]) == MIB - 2
        assert os.write(descriptor, b"xx") == 2
        with refused(errno.EMSGSIZE):
            os.write(descriptor, b"x")
        os.write(descriptor, A)
    assert log.read_bytes() == A


def test_a_longer_line_that_is_completed_in_one_request_is_too_long_too(log: Path) -> None:
    half = MIB // 2
    line = message("x" * MIB)
    with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor:
        os.write(descriptor, line[:half])
        with refused(errno.EMSGSIZE):
            os.write(descriptor, line[half:])
    assert log.read_bytes() == b""


def test_a_write_of_more_than_1_mib_may_be_short_but_never_tears_a_line(log: Path) -> None:
    lines = [message(f"{number} " + "x" * 1000) for number in range(2500)]
    data = b"".join(lines)
    with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor:
        done = 0
        while done < len(data):
            done += os.write(descriptor, data[done:])
            assert log.read_bytes().endswith(b"\n")
    assert log.read_bytes() == data


def test_a_write_that_fails_later_than_its_first_request_is_short(log: Path) -> None:
    good = message("x" * 1000) * (MIB // 1000 + 10)
    with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor:
        written = os.write(descriptor, good + b"garbage\n")
        assert MIB - 4096 <= written <= MIB
        with refused(errno.EINVAL):
            os.write(descriptor, good[written:] + b"garbage\n")
    stored = log.read_bytes()
    assert stored == good[: good.rfind(b"\n", 0, written) + 1]


def test_appends_of_many_handles_are_bounded_by_the_budget_of_their_uid(log: Path) -> None:
    piece = LONGEST[:MIB]
    handles: list[int] = []
    try:
        with refused(errno.ENOSPC):
            for _ in range(65):
                handles.append(os.open(log, os.O_WRONLY | os.O_APPEND))
                os.write(handles[-1], piece)
        assert len(handles) == 65
        os.write(handles[0], LONGEST[MIB:])
        os.write(handles[-1], piece)
    finally:
        for handle in handles:
            try:
                os.close(handle)
            except OSError as error:
                assert error.errno == errno.EINVAL
    assert log.stat().st_size == MIB + 1
