"""Ordinary directories of a mount behave as the disk below does, but for the differences spec 1.8 names."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.mounting import running_mount
from tests.people import Person
from tests.posix.cases import DIFFERENCES, HOME_DIFFERENCES, OWN_MOUNT_DIFFERENCES, OWNER, Difference
from tests.posix.conftest import AS_ROOT, Place
from tests.posix.table import CASES, run_confined_table, run_table

pytestmark = AS_ROOT
UIDS = (0, 1001, 1002)
PERSON = Person(1001, 1001)
Results = dict[str, Any]


def group(name: str) -> str:
    return name.split(":", maxsplit=1)[0]


@pytest.fixture(scope="session")
def both(place: Place) -> dict[int, tuple[Results, Results]]:
    runs = [(where, uid) for uid in UIDS for where in (place.plain, place.mount)]
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(run_table, *zip(*runs, strict=True)))
    return dict(zip(UIDS, zip(results[::2], results[1::2], strict=True), strict=True))


@pytest.fixture(scope="session")
def both_own(own_place: Place) -> tuple[Results, Results]:
    plain = run_confined_table(own_place.plain, OWNER, own_place.server)
    return plain, run_confined_table(own_place.mount, OWNER, own_place.server)


def unexpected(of: str, plain: Results, mount: Results, known: dict[str, Difference]) -> dict[str, tuple[Any, Any]]:
    """Case → (plain, mount) of a group, where they differ in another way than the known one."""
    different = [name for name in CASES if group(name) == of and mount[name] != plain[name]]
    return {
        name: (plain[name], mount[name]) for name in different if name not in known or mount[name] != known[name].result
    }


@pytest.fixture(scope="session")
def whole(place: Place) -> Iterator[Results]:
    """The table in an ordinary directory of a whole mount, as the owner of the home that it is in."""
    with running_mount(below=place.plain.parent) as mount:
        agent = mount.path / "home" / str(PERSON.uid) / "agent" / "coder"
        PERSON.does(os.mkdir, agent)
        yield run_table(agent / "data", PERSON.uid)


GROUPS = sorted({group(name) for name in CASES})


@pytest.mark.parametrize("uid", UIDS)
@pytest.mark.parametrize("of", GROUPS)
def test_mount_does_what_the_disk_does(both: dict[int, tuple[Results, Results]], of: str, uid: int) -> None:
    assert unexpected(of, *both[uid], DIFFERENCES) == {}


@pytest.mark.parametrize("of", GROUPS)
def test_own_mount_does_what_the_disk_does(both_own: tuple[Results, Results], of: str) -> None:
    assert unexpected(of, *both_own, OWN_MOUNT_DIFFERENCES) == {}


@pytest.mark.parametrize("of", GROUPS)
def test_whole_mount_does_what_the_disk_does(both: dict[int, tuple[Results, Results]], whole: Results, of: str) -> None:
    plain, _ = both[PERSON.uid]
    assert unexpected(of, plain, whole, HOME_DIFFERENCES) == {}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_known_difference_is_one(both: dict[int, tuple[Results, Results]], name: str) -> None:
    assert any(plain[name] != mount[name] == DIFFERENCES[name].result for plain, mount in both.values())


@pytest.mark.parametrize("uid", UIDS)
def test_no_case_of_the_table_hangs_or_is_left_out(both: dict[int, tuple[Results, Results]], uid: int) -> None:
    plain, mount = both[uid]
    assert [list(plain), list(mount)] == [list(CASES), list(CASES)]
    assert "the case took too long" not in (*plain.values(), *mount.values())


def test_table_is_big_enough() -> None:
    assert len(CASES) >= 300
