"""Every file of index/, for agents and models, at home and shared, on the stores that last (spec 1.2, 1.4)."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.names import cwd_key
from tests.mount.acting import write_once
from tests.mount.scenery import append, put, said
from tests.mounting import RunningMount, running_mount
from tests.people import outcome

UUID = "0f1e2d3c-4b5a-4697-8877-665544332211"
OTHER_UUID = "00000000-4b5a-4697-8877-665544332211"
OWNERS = ("agent/coder", "model/small.d", "model/maker/big.d")
SPACES = ("home/0", "shared/team")


@pytest.fixture(scope="module", params=["sqlite", "jsonl"])
def stored(request: pytest.FixtureRequest, fuse_device: None) -> Iterator[RunningMount]:
    with running_mount(request.param) as mount:
        (mount.path / "shared/team").mkdir()
        yield mount


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("owner", OWNERS)
def test_the_index_of_every_owner_is_complete_and_true(stored: RunningMount, space: str, owner: str) -> None:
    home = stored.path / space
    sessions, archive = home / owner / "session", home / "archived_sessions" / owner.removeprefix("agent/")
    (home / owner).mkdir(parents=True)
    index = sessions / "index"
    assert everything(index) == {"list": ""}
    for name in ("one", "two", "three"):
        (sessions / name).mkdir()
        put(sessions / name / "cwd", "/srv")
    append(sessions / "one/messages.jsonl", said("x"))
    put(index / "current", "two")

    for key in (index / "by-hash/abc", index / f"by-uuid/{UUID}"):
        assert outcome(put, key, "nobody") == "ENOENT"
        put(key, "one")
        put(key, "three")
        temporary = key.with_name(f".{key.name}.tmp")
        write_once(temporary, b"three\n", os.O_WRONLY | os.O_CREAT)
        temporary.rename(key)
        assert outcome(os.symlink, "one", key.with_name("link" if key.name == "abc" else OTHER_UUID)) == "EPERM"
        assert stat.S_ISREG(key.lstat().st_mode)
    put(index / "by-hash/gone", "two")
    (index / "by-hash/gone").unlink()
    expected = {
        "list": "one\nthree\ntwo\n",
        "current": "two\n",
        f"by-cwd/{cwd_key('/srv')}": "three\n",
        "by-hash/abc": "three\n",
        f"by-uuid/{UUID}": "three\n",
    }
    assert everything(index) == expected

    archive.mkdir(parents=True)
    assert outcome((sessions / "two").rename, archive / "two") == "EBUSY"
    (sessions / "three").rename(archive / "three")
    expected = {"list": "one\ntwo\n", "current": "two\n", f"by-cwd/{cwd_key('/srv')}": "two\n"}
    assert everything(index) == expected
    stored.restart()
    assert everything(index) == expected
    put(index / f"by-uuid/{UUID}", "one")
    os.setxattr(sessions / "one", "user.ctx.delete", b"one")
    assert everything(index) == expected | {"list": "two\n"}


def everything(index: Path) -> dict[str, str]:
    return {str(path.relative_to(index)): path.read_text() for path in index.rglob("*") if path.is_file()}
