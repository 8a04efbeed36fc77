"""Which mount serves a store: only root and the store's owner are believed (spec 4.6, backup, restore, doctor)."""

import os
from pathlib import Path

import pytest

from ctxfs import mounts
from ctxfs.config import Config, load
from mountctl.cli import Failure
from mountctl.copying import refuse_mounted, serving

SOMEBODY, STRANGER = 1001, 1002


def mount_of(uid: int, store: Path) -> mounts.Mount:
    """As ``fusermount3`` makes it for whoever asks, with any names: nothing answers there."""
    options = ("rw", f"user_id={uid}")
    return mounts.Mount(uid, (0, 1_000_000 + uid), f"/nowhere/of/{uid}", mounts.FSTYPE, str(store), options)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load({"store": str(tmp_path / "store"), "runtime_dir": str(tmp_path / "run")}, {"HOME": str(tmp_path)})


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a store to another user")
@pytest.mark.parametrize(
    ("owner", "mounted_by", "believed"),
    [
        (0, [0], 0),
        (0, [STRANGER], None),
        (0, [STRANGER, 0], 0),
        (SOMEBODY, [0], 0),
        (SOMEBODY, [SOMEBODY], SOMEBODY),
        (SOMEBODY, [STRANGER], None),
        (SOMEBODY, [STRANGER, SOMEBODY], SOMEBODY),
        (None, [STRANGER], None),
        (None, [0], 0),
    ],
)
def test_only_mounts_of_root_and_of_the_stores_owner_serve_it(
    config: Config, monkeypatch: pytest.MonkeyPatch, owner: int | None, mounted_by: list[int], believed: int | None
) -> None:
    """``owner`` None: there is no such directory."""
    if owner is not None:
        config.store.mkdir()
        os.chown(config.store, owner, owner)
    monkeypatch.setattr(mounts, "ctxfs_mounts", lambda: [mount_of(uid, config.store) for uid in mounted_by])
    health = serving(config, config.store)
    assert (health and health.mount.owner_uid) == believed
    if believed is None:
        refuse_mounted(config, config.store, "go on")
    else:
        with pytest.raises(Failure, match=f"is mounted on /nowhere/of/{believed}: go away"):
            refuse_mounted(config, config.store, "go away")
