"""Names and paths (spec 1.1, 1.2, 1.6): the functions say what these patterns say."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from backend import names

NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._+-]{0,63}(?<!\.sock)(?<!\.d)")
UID = re.compile(r"0|[1-9][0-9]{0,9}")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
STABLE = re.compile(r"/|(/(?!\.{1,2}(/|\Z))[^/\x00-\x1f\x7f]+)+")
SOME = st.text(max_size=4) | st.sampled_from(("..", ".", "/", "", "\n", "\0", "é", "٣", "\ud800", " ", "index"))


def near(pattern: re.Pattern[str]) -> st.SearchStrategy[str]:
    """Texts that are like a pattern, or nearly: something is put in, or cut off."""
    like = st.from_regex(pattern, fullmatch=True)
    put_in = st.builds(lambda text, at, more: text[:at] + more + text[at:], like, st.integers(0, 70), SOME)
    cut_off = st.builds(lambda text, at: text[:at] + text[at + 1 :], like, st.integers(0, 40))
    return like | put_in | cut_off | SOME


@given(near(NAME))
@example("a" * 64)
@example("a" * 65)
@example("a.sock")
@example("a.d\n")
@example("-a")
def test_a_name(text: str) -> None:
    assert names.is_name(text) == bool(NAME.fullmatch(text))
    assert names.is_session_name(text) == (names.is_name(text) and text != "index")


@given(near(UID))
@example("4294967294")
@example("4294967295")
@example("00")
def test_a_uid(text: str) -> None:
    assert names.is_uid(text) == bool(UID.fullmatch(text) and int(text) <= 4294967294)


@given(near(UUID))
@example("00000000-0000-0000-0000-00000000000A")
@example("{00000000-0000-0000-0000-000000000000}")
@example("00000000-0000-0000-0000-000000000000\n")
@example("٠" * 36)
def test_a_uuid(text: str) -> None:
    assert names.is_uuid(text) == bool(UUID.fullmatch(text))


@given(near(STABLE), st.sampled_from(("", "/", "/.", "/..", "\x7f")))
def test_a_stable_path(text: str, end: str) -> None:
    assert names.is_stable_path(text + end) == bool(STABLE.fullmatch(text + end))
