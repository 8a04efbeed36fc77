"""Mount options: fstab's never reach the kernel, typos fail by name (spec 4.6; field report 39)."""

import itertools

import pytest

from backend.errors import InvalidValue
from ctxfs.options import fuse_options, parse_options

FSTAB = ("defaults", "auto", "noauto", "user", "users", "nofail", "_netdev", "x-systemd.automount", "comment=mine")


@pytest.mark.parametrize("options", [*((one,) for one in FSTAB), *itertools.permutations(FSTAB, 2), FSTAB])
def test_options_for_fstab_and_systemd_are_left_out(options: tuple[str, ...]) -> None:
    assert parse_options(",".join(options)).kernel == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        "nofial",
        "rw,x_systemd",
        "noatime,nofail,storre=/x",
        "max_read=4096",
        "suid",
        "fsname=mine",
        "subtype=other",
        "allow_root",
        "store=",
        *(f"agent_timeout={bad}" for bad in ("", "-1", "1.5", "soon", "9" * 5000, "\u0661")),
    ],
)
def test_a_typo_or_an_option_that_breaks_the_mount_fails_by_name(text: str) -> None:
    bad = text.rpartition(",")[2].partition("=")[0]
    with pytest.raises(InvalidValue, match=bad):
        parse_options(text)


def test_kernel_options_and_our_own_are_told_apart() -> None:
    parsed = parse_options("ro,noatime,nofail,store=/srv/x,agent_timeout=30")
    assert (parsed.kernel, parsed.store, parsed.agent_timeout) == (frozenset(("ro", "noatime")), "/srv/x", 30)


def test_root_mounts_for_everyone_with_the_kernel_checking_permissions() -> None:
    assert fuse_options("/s", frozenset(), owner_uid=None) == frozenset(
        ("allow_other", "default_permissions", "nosuid", "nodev", "fsname=/s", "subtype=ctxfs")
    )


def test_a_user_mounts_for_nobody_else() -> None:
    assert "allow_other" not in fuse_options("/s", frozenset(), owner_uid=1000)
    with pytest.raises(InvalidValue, match="allow_other"):
        fuse_options("/s", frozenset(("allow_other",)), owner_uid=1000)


def test_a_comma_in_the_store_is_not_an_option() -> None:
    assert r"fsname=/a\,b\\c" in fuse_options(r"/a,b\c", frozenset(), owner_uid=None)
    assert r"fsname=/\\xe9\\udcff" in fuse_options("/é\udcff", frozenset(), owner_uid=None)
