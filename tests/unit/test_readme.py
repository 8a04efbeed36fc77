"""What the README says of the tree and of the first steps is so."""

import re

from tests.mounting import PROJECT

README = (PROJECT / "README.md").read_text(encoding="utf-8")


def test_it_names_every_directory_of_the_tests() -> None:
    (row,) = re.findall(r"^\| `tests/` \|.*$", README, re.M)
    there = {path.parent.name for path in (PROJECT / "tests").glob("*/__init__.py")}
    assert set(re.findall(r"`(\w+)/`", row)) == there | {"tests"}


def test_its_commands_work_on_a_mount_of_root_s_and_on_a_user_s_own() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", README, re.S)
    commands = [line.partition("#")[0] for block in blocks for line in block.split("\n")]
    assert [line for line in commands if re.search(r"(?<!:-)/ctx\b", line)] == []
