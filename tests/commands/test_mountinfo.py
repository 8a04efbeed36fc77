"""mountinfo is read as the kernel writes it (spec 4.6; proc(5))."""

import os

import pytest

from ctxfs.mounts import Mount, parse_mountinfo

PLAIN = r"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue"
CTXFS = r"42 27 0:39 / /ctx rw,nosuid,nodev - fuse.ctxfs /var/lib/ctxfs rw,user_id=0,group_id=0,allow_other"
ESCAPED = r"43 27 0:40 / /a\040b\011c\012d\134e\043 rw - fuse.ctxfs /s\040t rw,user_id=1000"
UNTAGGED = r"44 27 0:41 / /x rw - tmpfs tmpfs rw"
MANY_TAGS = r"45 27 0:42 / /y rw shared:7 master:2 propagate_from:1 - tmpfs none rw"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (PLAIN, Mount(36, (98, 0), "/mnt2", "ext3", "/dev/root", ("rw", "noatime", "rw", "errors=continue"))),
        (
            CTXFS,
            Mount(
                42,
                (0, 39),
                "/ctx",
                "fuse.ctxfs",
                "/var/lib/ctxfs",
                ("rw", "nosuid", "nodev", "rw", "user_id=0", "group_id=0", "allow_other"),
            ),
        ),
        (ESCAPED, Mount(43, (0, 40), "/a b\tc\nd\\e#", "fuse.ctxfs", "/s t", ("rw", "rw", "user_id=1000"))),
        (UNTAGGED, Mount(44, (0, 41), "/x", "tmpfs", "tmpfs", ("rw", "rw"))),
        (MANY_TAGS, Mount(45, (0, 42), "/y", "tmpfs", "none", ("rw", "rw"))),
    ],
)
def test_a_line_gives_a_mount(line: str, expected: Mount) -> None:
    assert parse_mountinfo(f"{line}\n".encode()) == [expected]


def test_mounts_keep_their_order() -> None:
    content = f"{PLAIN}\n{CTXFS}\n{UNTAGGED}\n".encode()
    assert [mount.mount_id for mount in parse_mountinfo(content)] == [36, 42, 44]


@pytest.mark.parametrize(("line", "owner"), [(CTXFS, 0), (ESCAPED, 1000), (PLAIN, None)])
def test_the_owner_of_a_fuse_mount_is_its_user_id(line: str, owner: int | None) -> None:
    assert parse_mountinfo(line.encode())[0].owner_uid == owner


@pytest.mark.parametrize("odd", [*"\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", "\udcff", " - ", "\n", "\\134"])
def test_no_name_of_a_mount_ends_its_line(odd: str) -> None:
    written = odd.replace("\\", "\\134").replace(" ", "\\040").replace("\n", "\\012")
    line = f"46 27 0:43 / /a{written}b rw - fuse.x {written} rw,user_id=1000"
    found = parse_mountinfo(os.fsencode(f"{CTXFS}\n{line}\n{PLAIN}\n"))
    assert [mount.mountpoint for mount in found] == ["/ctx", f"/a{odd}b", "/mnt2"]
    assert (found[1].source, found[1].owner_uid) == (odd, 1000)


@pytest.mark.parametrize(
    "line", ["", "-", " - ", "x 27 0:43 / /a rw - tmpfs t rw", "1 2 3 / /a rw - tmpfs t rw", CTXFS[:30]]
)
def test_a_line_that_nobody_can_read_hides_no_other(line: str) -> None:
    content = f"{CTXFS}\n{line}\n{PLAIN}\n".encode()
    assert [mount.mountpoint for mount in parse_mountinfo(content)] == ["/ctx", "/mnt2"]
