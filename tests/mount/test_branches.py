"""Branches on the mount: what becomes of a parent does not reach its children (spec 2.8)."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mount.acting import message
from tests.mount.scenery import SESSION_FILES, Home, append, event, put, said

CUT = event("cut", before=1, summary=[{"role": "user", "content": "short"}], reason="r")


def contents(session: Path) -> dict[str, bytes]:
    names = (*SESSION_FILES, *(f"context/{name}" for name in ("messages.jsonl", "log.jsonl", "transcript.md")))
    return {name: (session / name).read_bytes() for name in names}


def delete(home: Home, parent: Path) -> None:
    os.setxattr(parent, "user.ctx.delete", parent.name.encode())


FATES: dict[str, Callable[[Home, Path], object]] = {
    "deleted": delete,
    "archived": lambda home, parent: home.archived(parent.name),
    "compacted": lambda _, parent: append(parent / "events.jsonl", CUT),
    "appended to": lambda _, parent: append(parent / "messages.jsonl", said("more")),
    "done": lambda _, parent: put(parent / "state", "done"),
}


@pytest.mark.parametrize("fate", FATES)
def test_what_becomes_of_a_parent_changes_no_byte_of_its_children(home: Home, fate: str) -> None:
    home.session("first")
    parent = home.session("parent")
    append(parent / "messages.jsonl", message("a") + said("b") + message("c"))
    put(parent / "cwd", "/srv")
    children = [home.sessions / name for name in ("all", "part", "below")]
    for source, value in ((parent, b"all"), (parent, b"part 2"), (children[1], b"below")):
        os.setxattr(source, "user.ctx.branch", value)
    append(children[1] / "messages.jsonl", said("own"))
    before = list(map(contents, children))
    FATES[fate](home, parent)
    assert list(map(contents, children)) == before
    for child in children:
        append(child / "messages.jsonl", said("later"))
        assert (child / "messages.jsonl").read_bytes().endswith(said("later"))
