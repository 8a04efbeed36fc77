"""The files of index/ (spec 1.2): order, current, by-cwd, and what archiving and deleting take out of them."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE

import pytest

from backend.names import cwd_key
from tests.mount.scenery import Home, append, event, listing, put, said
from tests.people import ALICE, outcome

UUID = "0f1e2d3c-4b5a-4697-8877-665544332211"


def listed(home: Home) -> list[str]:
    return (home.index / "list").read_text().splitlines()


def by_cwd(home: Home, cwd: str) -> str | None:
    """The session of a cwd, None where it has none."""
    path = home.index / "by-cwd" / cwd_key(cwd)
    answer = path.read_text().removesuffix("\n") if outcome(path.stat) == "ok" else None
    assert (path.name in listing(home.index / "by-cwd")) == (answer is not None)
    return answer


def run_in(session: Path, cwd: str | None) -> None:
    """A start event, as a run writes it."""
    append(session / "events.jsonl", event("start", run="r", id="r", client_id="c", scope="private", cwd=cwd))


def test_list_is_by_last_entry(home: Home) -> None:
    one, two, three = (home.session(name) for name in ("one", "two", "three"))
    assert listed(home) == ["three", "two", "one"]
    append(one / "messages.jsonl", said("x"))
    assert listed(home) == ["one", "three", "two"]
    append(two / "events.jsonl", event("delta", run="r", text="x"))
    assert listed(home) == ["two", "one", "three"]
    put(three / "state", "done")
    assert listed(home) == ["three", "two", "one"]


def test_what_is_no_entry_changes_no_order(home: Home) -> None:
    one, _ = home.session("one"), home.session("two")
    put(one / "state", "idle")
    put(one / "AGENTS.md", "x")
    put(home.index / "current", "one")
    put(home.index / "by-hash/h", "one")
    assert outcome(append, one / "messages.jsonl", b"garbage\n") == "EINVAL"
    assert listed(home) == ["two", "one"]


def test_order_is_that_of_commits_whatever_the_sessions(home: Home) -> None:
    names = [f"s{number}" for number in range(30)]
    for name in names:
        home.session(name)
    order = names[::3] + names[1::3] + names[2::3]
    for name in order:
        append(home.sessions / name / "messages.jsonl", said("x"))
    assert listed(home) == order[::-1]


def test_a_branch_is_listed_first_and_its_parent_stays(home: Home) -> None:
    one = home.session("one")
    home.session("two")
    os.setxattr(one, "user.ctx.branch", b"branched")
    assert listed(home) == ["branched", "two", "one"]
    assert (home.index / "current").read_text() == "one\n"


def test_current_is_the_first_until_another_is_chosen(home: Home) -> None:
    home.session("one")
    home.session("two")
    assert (home.index / "current").read_text() == "one\n"
    put(home.index / "current", "two")
    assert (home.index / "current").read_text() == "two\n"
    assert outcome(put, home.index / "current", "three") == "ENOENT"
    assert outcome(put, home.index / "current", "no name") == "EINVAL"
    assert outcome((home.index / "current").unlink) == "EPERM"
    assert (home.index / "current").read_text() == "two\n"


def test_by_cwd_is_the_session_that_recorded_it_last(home: Home) -> None:
    one, two = home.session("one"), home.session("two")
    assert by_cwd(home, "/") is None
    put(one / "cwd", "/srv")
    assert by_cwd(home, "/srv") == "one"
    run_in(two, "/srv")
    assert by_cwd(home, "/srv") == "two"
    run_in(one, "/srv")
    assert by_cwd(home, "/srv") == "one"
    run_in(one, None)
    assert by_cwd(home, "/srv") == "one"


def test_a_session_that_moves_on_uncovers_the_one_before(home: Home) -> None:
    one, two = home.session("one"), home.session("two")
    run_in(one, "/srv")
    run_in(two, "/srv")
    run_in(two, "/tmp")
    assert (by_cwd(home, "/srv"), by_cwd(home, "/tmp")) == ("one", "two")
    run_in(one, "/tmp")
    assert (by_cwd(home, "/srv"), by_cwd(home, "/tmp")) == (None, "one")
    run_in(one, "/srv")
    assert (by_cwd(home, "/srv"), by_cwd(home, "/tmp")) == ("one", "two")


def test_a_branch_takes_over_the_cwd_that_it_inherits(home: Home) -> None:
    """Also where its key was read before, and the kernel keeps what it read."""
    one = home.session("one")
    run_in(one, "/srv")
    run_in(one, "/tmp")
    assert (by_cwd(home, "/srv"), by_cwd(home, "/tmp")) == (None, "one")
    os.setxattr(one, "user.ctx.branch", b"two")
    assert (by_cwd(home, "/srv"), by_cwd(home, "/tmp")) == (None, "two")
    os.setxattr(one, "user.ctx.branch", b"three 1")
    assert (by_cwd(home, "/srv"), by_cwd(home, "/tmp")) == ("three", "two")


@pytest.mark.parametrize("way", ["archive", "delete"])
def test_a_session_that_goes_uncovers_the_one_before_and_leaves_the_index(home: Home, way: str) -> None:
    home.session("first")
    for name in ("one", "two"):
        run_in(home.session(name), "/srv")
    run_in(home.sessions / "two", "/only/two")
    run_in(home.sessions / "two", "/srv")
    for name, session in (("h1", "one"), ("h2", "two")):
        put(home.index / f"by-hash/{name}", session)
    put(home.index / f"by-uuid/{UUID}", "two")
    keys = [home.index / "by-hash/h2", home.index / f"by-uuid/{UUID}"]
    assert [path.read_text() for path in keys] == ["two\n", "two\n"]
    if way == "archive":
        home.archived("two")
    else:
        ALICE.does(os.setxattr, home.sessions / "two", "user.ctx.delete", b"two")
    assert listed(home) == ["one", "first"]
    assert listing(home.sessions) == {"index", "one", "first"}
    assert by_cwd(home, "/srv") == "one"
    assert by_cwd(home, "/only/two") is None
    for path in keys:
        assert outcome(path.stat) == "ENOENT"
        assert outcome(path.read_bytes) == "ENOENT"
    assert listing(home.index / "by-hash") == {"h1"}
    assert listing(home.index / "by-uuid") == set()


def test_what_was_taken_out_of_the_index_can_be_made_again_at_once(home: Home) -> None:
    home.session("one")
    for number in range(100):
        session = home.sessions / "again"
        session.mkdir()
        put(home.index / "by-hash/h", "again")
        append(session / "messages.jsonl", said(f"{number}"))
        assert (session / "latest.md").read_text() == f"{number}\n"
        os.setxattr(session, "user.ctx.delete", b"again")
        assert outcome((session / "latest.md").read_text) == "ENOENT"
        put(home.index / "by-hash/h", "one")
        (home.index / "by-hash/h").unlink()


def test_protected_sessions_stay(home: Home) -> None:
    for name in ("current", "default", "busy", "free"):
        home.session(name)
    put(home.sessions / "busy/state", "active")
    ALICE.does((home.archive / home.agent.name).mkdir)
    for name in ("current", "default", "busy"):
        target = home.archive / home.agent.name / name
        assert ALICE.outcome((home.sessions / name).rename, target) == "EBUSY", name
        assert ALICE.outcome(os.setxattr, home.sessions / name, "user.ctx.delete", name.encode()) == "EBUSY", name
    assert set(listed(home)) == {"current", "default", "busy", "free"}


def test_archiving_never_replaces(home: Home) -> None:
    home.session("first")
    one = home.session("one")
    append(one / "messages.jsonl", said("old"))
    archived = home.archived("one")
    append(home.session("one") / "messages.jsonl", said("new"))
    assert ALICE.outcome((home.sessions / "one").rename, archived) == "EEXIST"
    assert (archived / "latest.md").read_text() == "old\n"
    assert (home.sessions / "one/latest.md").read_text() == "new\n"


def test_a_session_is_archived_under_its_own_agent_only(home: Home) -> None:
    home.session("first")
    session = home.session("one")
    ALICE.does((home.path / "agent/other").mkdir)
    for name in ("other", home.agent.name, f"kept/{home.agent.name}", "kept/deep"):
        ALICE.does((home.archive / name).mkdir, parents=True, exist_ok=True)
    for place in ("other/one", "kept/deep/one", "kept/one", "one", f"{home.agent.name}/two"):
        assert ALICE.outcome(session.rename, home.archive / place) == "EPERM", place
    ALICE.does(session.rename, home.archive / f"kept/{home.agent.name}/one")
    assert listing(home.archive / f"kept/{home.agent.name}") == {"one"}
    assert listed(home) == ["first"]


def test_models_are_archived_below_model(home: Home) -> None:
    model = home.path / "model" / f"{home.agent.name}p"
    for path in (model, model / "big.d", model / "big.d/session/one", model / "big.d/session/two"):
        ALICE.does(path.mkdir)
    target = home.archive / f"model/{model.name}/big.d"
    ALICE.does(target.mkdir, parents=True)
    ALICE.does((model / "big.d/session/two").rename, target / "two")
    assert (target / "two/state").read_text() == "idle\n"
    assert (model / "big.d/session/index/list").read_text() == "one\n"


def test_an_archived_session_is_the_whole_session_byte_for_byte(home: Home) -> None:
    home.session("first")
    session = home.session("one")
    append(session / "messages.jsonl", said("x"))
    run_in(session, "/srv")
    put(session / "AGENTS.md", "kind")
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in session.iterdir() if path.is_file()}
    inode = session.stat().st_ino
    archived = home.archived("one")
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in archived.iterdir() if path.is_file()}
    assert after == before
    assert archived.stat().st_ino == inode
    assert outcome(session.stat) == "ENOENT"


def test_the_index_is_the_same_after_a_restart(fresh_home: Home) -> None:
    home = fresh_home
    for name in ("one", "two", "three", "four"):
        run_in(home.session(name), "/srv")
    put(home.index / "current", "two")
    put(home.index / "by-hash/h", "three")
    home.archived("four")

    def state() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in home.index.rglob("*") if path.is_file()}

    before = state()
    assert before[str(home.index / "list")] == b"three\ntwo\none\n"
    assert before[str(home.index / f"by-cwd/{cwd_key('/srv')}")] == b"three\n"
    home.mount.restart()
    assert state() == before


def look_on(path: str, kind: str) -> bytes:
    """Looks at a list for a while as another process: ``stat``, or ``read``; all that was read."""
    code = f"import os\nfor _ in range(1500): {'os.stat(path)' if kind == 'stat' else 'print(open(path).read())'}"
    return subprocess.run([sys.executable, "-c", f"path = {path!r}\n{code}"], stdout=PIPE, check=True).stdout


def test_a_list_that_is_read_while_sessions_come_and_go_has_no_zeros(home: Home) -> None:
    """The kernel fills a page up with them where it hears of a bigger size than that which was read."""
    home.session("stays")
    path, goes = str(home.index / "list"), home.sessions / "goes"
    with ThreadPoolExecutor(4) as pool:
        looking = [pool.submit(look_on, path, kind) for kind in ("stat", "stat", "read", "read")]
        while not all(future.done() for future in looking):
            goes.mkdir()
            os.setxattr(goes, "user.ctx.delete", b"goes")
    assert {content.count(b"\0") for content in (future.result() for future in looking)} == {0}


def test_directories_of_keys_take_no_directories(home: Home) -> None:
    home.session("one")
    for kind in ("by-cwd", "by-hash", "by-uuid"):
        assert outcome((home.index / kind / "x").mkdir) in ("EPERM", "EINVAL"), kind
        assert outcome((home.index / kind).rmdir) in ("EPERM", "ENOTEMPTY"), kind
    assert outcome(put, home.index / "by-cwd/cwd-0000000000000000", "one") == "EACCES"
    assert outcome((home.index / "list").unlink) == "EPERM"
