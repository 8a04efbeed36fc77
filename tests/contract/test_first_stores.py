"""Stores that the first commits with one have made say today what they said then, and can be written (spec 4.6).

``first_stores/`` holds what the code of commits 7be9406 (sqlite) and 202fa29 (jsonl) made through their own harness: a
session with a cwd, non-ASCII text and a branch, one with a run and 300 more lines, an archived one; and what they said.
"""

import contextlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from backend.doctor.stores import StoreExamination
from backend.rows import Append, Appended
from backend.store import DiskStore
from ctxfs import stores
from tests.contract.harness import say

MADE = Path(__file__).with_name("first_stores")


@pytest.fixture(params=stores.FORMATS)
def form(request: pytest.FixtureRequest) -> stores.Format:
    found: stores.Format = request.param
    return found


@pytest.fixture
def made(form: stores.Format, tmp_path: Path) -> Path:
    """A directory with ``store`` and ``expected.json``."""
    with tarfile.open(MADE / f"{form}.tar.xz") as archive:
        archive.extraction_filter = lambda member, _: member  # a keyword before 3.11.4 did not know
        archive.extractall(tmp_path)
    return tmp_path


def owner_in(store: DiskStore) -> int:
    owner = store.owner("home/1000", "agent", "coder")
    assert owner is not None
    return owner.id


def said(store: DiskStore) -> dict[str, Any]:
    """What the live sessions of the one agent hold."""
    found: dict[str, Any] = {"list": store.list_content(owner_in(store)).decode()}
    for session in store.sessions(owner_in(store)):
        found[session.name] = {
            "id": session.session_id,
            "n": session.n,
            "cwd": session.cwd,
            "state": session.state,
            "updated_at": session.updated_at,
            "messages": store.read_stream(session.id, "messages", 0, 1 << 22).decode(),
            "events": store.read_stream(session.id, "events", 0, 1 << 22).decode(),
            "latest": store.latest(session.id).decode(),
        }
    return found


def test_it_says_what_it_said_and_goes_on(form: stores.Format, made: Path) -> None:
    expected = json.loads((made / "expected.json").read_text(encoding="utf-8"))
    assert stores.detect(made / "store") == form
    for turn in range(2):
        with contextlib.closing(stores.open_store(made / "store", form)) as store:
            assert said(store) == expected
            assert [*store.integrity(), *store.drift()] == []
            assert list(StoreExamination(store).faults()) == []
            if turn == 1:
                [one] = [session for session in store.sessions(owner_in(store)) if session.name == "one"]
                [appended] = store.append([Append(one.id, (say("still here"),))])
                assert isinstance(appended, Appended)
                assert appended.session.n == expected["one"]["n"] + 1
