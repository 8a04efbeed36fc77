"""How texts of stored sessions are cut, previewed and freed of secrets (spec 5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.envelopes.redaction import redacted, redacted_message, redacted_value
from backend.envelopes.texts import bounded, preview, typed_by_user

_FIRST = "Handle this natural-language shell prompt request for a Shell-first assistant.\n"


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("", 4, ""),
        ("abcd", 4, "abcd"),
        ("abcde", 4, "a…"),
        ("é" * 3, 6, "ééé"),
        ("é" * 4, 6, "é…"),  # 3 bytes are left: a whole character and no half one
        ("😀" * 2, 7, "😀…"),
        ("a\x00\x1b[1m\x7f\x9bb\n", 64, "a[1mb"),
        ("\x01" * 100 + "abcd", 4, "abcd"),  # control characters count for nothing
    ],
)
def test_a_text_is_cut_to_bytes_at_a_whole_character(text: str, limit: int, shown: str) -> None:
    assert bounded(text, limit) == shown


@given(st.text(), st.integers(3, 40))
def test_what_is_cut_fits_and_begins_as_the_text(text: str, limit: int) -> None:
    shown = bounded(text, limit)
    assert len(shown.encode()) <= limit
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in shown)
    if "…" not in text and shown.endswith("…"):
        assert bounded(text, 1 << 20).startswith(shown[:-1])


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        ([], None),
        (["", " \t\n"], None),
        (["  a\u00a0b\u3000\u2028c\n"], "a b c"),
        (["a\x1cb"], "ab"),  # U+001C is no white space in Unicode, only a control character
        (["a", "b c"], "a b c"),
        (["x" * 160], "x" * 160),
        (["x" * 161], "x" * 159 + "…"),
        (["x" * 159 + " y"], "x" * 159 + "…"),
        (["x" * 10_000], "x" * 159 + "…"),
        (["\x07\x1b[31mred"], "[31mred"),
    ],
)
def test_a_preview_is_one_line_of_160_characters(texts: list[str], line: str | None) -> None:
    assert preview(texts) == line


def wrapped(
    typed: str, frame: str = "\n\nruntime_frame:\ncwd: /", contract: str = "\n\ncosh-shell Agent contract:\n- x"
) -> str:
    return f"{_FIRST}Decide.\n\nuser_input: {typed}{frame}{contract}"


@pytest.mark.parametrize(
    ("prompt", "typed"),
    [
        ("plain", "plain"),
        ("user_input: plain", "user_input: plain"),
        (wrapped("  list files \n"), "list files"),
        (wrapped("a\n\nruntime_frame:\nquoted"), "a\n\nruntime_frame:\nquoted"),
        (wrapped("user_input: b\n\ncosh-shell Agent contract: q"), "user_input: b\n\ncosh-shell Agent contract: q"),
        (wrapped("a\n\ncosh-shell Agent contract:\nq"), "a\n\ncosh-shell Agent contract:\nq"),
        *[
            (text, text)
            for text in (wrapped("a", frame=""), wrapped("a", contract=""), wrapped("  "), "x" + wrapped("a"))
        ],
        (
            _FIRST + "\n\ncosh-shell Agent contract:\n\nuser_input: a",
            _FIRST + "\n\ncosh-shell Agent contract:\n\nuser_input: a",
        ),
    ],
)
def test_of_a_prompt_that_cosh_shell_wrapped_the_typed_text_is_found(prompt: str, typed: str) -> None:
    assert typed_by_user(prompt) == typed


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("nothing here: a=b, see https://example.org/x", "nothing here: a=b, see https://example.org/x"),
        ("Authorization: Bearer abc.def-1", "Authorization: Bearer <redacted>"),
        ("use bearer abc123==", "use bearer <redacted>"),
        ("a\nSet-Cookie: sid=1; path=/\nb", "a\nSet-Cookie: <redacted>\nb"),
        ("https://me:hunter2@host/x", "https://me:<redacted>@host/x"),
        ("run --password hunter2 --verbose", "run --password <redacted> --verbose"),
        ("--api-key='k1' x", "--api-key='<redacted>' x"),
        ("OPENAI_API_KEY=abc, next", "OPENAI_API_KEY=<redacted>, next"),
        ('{"client_secret": "s3"}', '{"client_secret": "<redacted>"}'),
        ("ghp_" + "a" * 36, "<redacted>"),
        ("github_pat_" + "a" * 30, "<redacted>"),
        ("key sk-abcdefghijklmn.", "key <redacted>."),
        ("xoxb-1234567890-abc", "<redacted>"),
        ("eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl", "<redacted>"),
        ("AKIA1234567890ABCDEF", "<redacted>"),
        ("LTAI5tExampleAccessKey", "<redacted>"),
        ("a\n-----BEGIN RSA PRIVATE KEY-----\nxx\nyy\n-----END RSA PRIVATE KEY-----\nb", "a\n<redacted>\nb"),
        ("a -----BEGIN PRIVATE KEY-----\nnever ended", "a <redacted>"),
    ],
)
def test_a_secret_in_a_text_is_redacted(text: str, clean: str) -> None:
    assert redacted(text) == clean


@pytest.mark.parametrize(
    ("edge", "unit"),
    [
        *[("://", "a."), ("a://b:", "c"), ("", "a://"), ("://", "a:")],
        *[("authorization:", " "), ("", "authorization:   "), ("", "authorization: token ")],
        *[("bearer", " "), ("--token", " "), ("token", " "), ("", "token"), ("", '"token" '), ("", "access_key_")],
        *[("", "-----BEGIN PRIVATE KEY-----"), ("cookie", "\n"), ("", "cookie:")],
        *[("", "ghp_"), ("sk-", "a"), ("", "sk-"), ("", "eyJaaaaaa."), ("", "AKIA")],
    ],
)
def test_no_text_takes_much_longer_than_it_is_long(edge: str, unit: str) -> None:
    """What takes time by the square of it would not end here."""
    text = unit * ((512 << 10) // len(unit))
    assert redacted(edge + text) and redacted(text + edge)


def test_secrets_are_redacted_wherever_a_message_holds_text() -> None:
    secret = "sk-abcdefghijklmn"
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "f", "arguments": f'{{"token": "x", "n": 1, "a": ["{secret}"]}}'},
    }
    message = {
        "role": "user",
        "content": [
            {"type": "text", "text": secret},
            {"type": "tool_result", "tool_use_id": "1", "content": secret},
        ],
        "tool_calls": [call, {**call, "function": {"name": "f", "arguments": f"not JSON {secret}"}}],
    }
    clean = redacted_message(message)
    assert secret not in repr(clean)
    assert clean["tool_calls"][0]["function"]["arguments"] == '{"token":"<redacted>","n":1,"a":["<redacted>"]}'
    assert secret in repr(message)


def test_a_value_under_a_telling_key_is_redacted_whole() -> None:
    assert redacted_value({"API-Key": {"a": 1}, "b": [None, 1.5, True]}) == {
        "API-Key": "<redacted>",
        "b": [None, 1.5, True],
    }


@given(st.text())
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    assert redacted(redacted(text)) == redacted(text)
