"""All cases of the table, and what is known to differ (spec 1.8)."""

import pwd
import sys
from typing import Any, NamedTuple

from tests.posix import (
    cases_attributes,
    cases_data,
    cases_listing,
    cases_mmap,
    cases_names,
    cases_open,
    cases_random,
    cases_rename,
    cases_rights,
    cases_special,
    table,
)

GROUPS = (
    *(cases_open, cases_data, cases_mmap, cases_names, cases_listing, cases_rename, cases_rights),
    *(cases_attributes, cases_special, cases_random),
)


class Difference(NamedTuple):
    """What a case gives in a mount, where it differs from the disk, and why that is accepted."""

    result: Any
    reason: str


NO_FALLOCATE = "pyfuse3 has no handler for fallocate; posix_fallocate falls back to writing"
NO_DEVICES = "no device nodes, not even root's (the mount is nodev)"
NO_ACLS = "ACLs are not kept"
NO_HOLES = "pyfuse3 has no handler for lseek: a file is data from end to end"
KERNEL_KEEPS_SETGID = (
    "the kernel's FUSE leaves setgid without group execute, which gives no rights, when one writes "
    "who is not in the group"
)
OWNER = pwd.getpwnam("nobody").pw_uid
"""Whose mount an ordinary user's is here: fusermount3 only serves users that have a name."""
A_HOME_IS_ITS_UIDS = "in a home nobody else opens anything, whatever its modes say and however they got there"
ALL_REFUSED = ["ENOTSUP", "ENOTSUP", "ENOTSUP", [], "ENOTSUP", "ENOTSUP"]

DIFFERENCES = {
    "create: O_TMPFILE": Difference("ENOTSUP", "pyfuse3 has no handler for tmpfile"),
    "fallocate: allocate": Difference(["ENOTSUP", 10000], NO_FALLOCATE),
    "fallocate: keep size": Difference(["ENOTSUP", 10000], NO_FALLOCATE),
    "fallocate: punch a hole": Difference(["ENOTSUP", 10000], NO_FALLOCATE),
    "fallocate: zero": Difference(["ENOTSUP", 10000], NO_FALLOCATE),
    "sparse: SEEK_HOLE and SEEK_DATA": Difference([(1 << 30) + 3, 8192], NO_HOLES),
    "xattr name: system.posix_acl_access (23)": Difference([ALL_REFUSED, ALL_REFUSED], NO_ACLS),
    "xattr: ACLs": Difference(["ENOTSUP", []], NO_ACLS),
    **{
        f"mknod: {kind} device {mode}": Difference(["EPERM", "ENOENT", "ok"], NO_DEVICES)
        for kind in ("character", "block")
        for mode in ("600", "666")
    },
    **{
        f"setid: {change} of other {mode}": Difference([result, f"0o2{mode[1:]}"], KERNEL_KEEPS_SETGID)
        for mode in ("2666", "6666")
        for change, result in {
            "write": 1,
            "append": 1,
            "O_SYNC write": 1,
            "truncate": "ok",
            "truncate to the same size": "ok",
            "ftruncate": "ok",
            "open truncating": "ok",
        }.items()
    },
}

OWN_MOUNT_DIFFERENCES = {
    **DIFFERENCES,
    "setid: mapped writes": Difference(
        [["file", "0o755", 1, OWNER, OWNER, 4096], "XYZx"],
        "mapped pages come back as writes of the daemon, which has no rights to spare setuid and setgid",
    ),
}

HOME_DIFFERENCES = {
    **DIFFERENCES,
    "rights: a change of mode counts at once for another user": Difference(["EACCES"] * 8, A_HOME_IS_ITS_UIDS),
    "rights: a change of a directory's mode counts at once for what is below": Difference(
        ["EACCES"] * 10, A_HOME_IS_ITS_UIDS
    ),
}

if __name__ == "__main__":
    table.main(*sys.argv[1:])
