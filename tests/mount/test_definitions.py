"""Spec 1.2: what the files of ``agent/<agent>.d/`` take, and what they refuse at the very call."""

import errno
import os
from pathlib import Path

import pytest

from tests.mount.acting import opened, refused

ACCEPTED = [
    ("owner", "1001\n"),
    ("owner", "0\n"),
    ("exec", '["/bin/agent","--flag","é"]\n'),
    ("root", "/\n"),
    ("cwd", "/work/project\n"),
    ("mount", "/srv/a\t/a\tro\n/srv/b\t/b\trw\tnoexec\n"),
    ("model", "openai/gpt\n"),
    ("model", "local\n"),
    ("meta.json", '{"adapter":"cosh"}\n'),
]
REFUSED = [
    ("owner", "01\n"),
    ("owner", "root\n"),
    ("owner", "4294967295\n"),
    ("exec", "/bin/agent\n"),
    ("exec", "[]\n"),
    ("exec", '["a\\u0000b"]\n'),
    ("exec", '["a",1]\n'),
    ("exec", "[" * 5000 + "\n"),
    ("root", "relative\n"),
    ("cwd", "/a/../b\n"),
    ("mount", "/srv/a /a ro\n"),
    ("mount", "/srv/a\t/a\tsuid\n"),
    ("mount", "/srv/a\t/a\tro\tx\0\n"),
    ("model", "a/b/c\n"),
    ("meta.json", "[1]\n"),
    ("meta.json", '{"a":1,"a":2}\n'),
    ("meta.json", '{"a":' * 5000 + "\n"),
    ("status", "active\n"),
]


@pytest.fixture
def definition(ctx: Path) -> Path:
    made = ctx / "agent" / f"made{len(os.listdir(ctx / 'agent'))}.d"
    made.mkdir()
    return made


@pytest.mark.parametrize(("name", "text"), ACCEPTED)
def test_a_value_is_shown_as_it_was_written_and_a_later_one_replaces_it(definition: Path, name: str, text: str) -> None:
    for _ in range(2):
        with opened(definition / name, os.O_WRONLY | os.O_TRUNC) as descriptor:
            os.write(descriptor, text.encode())
        assert (definition / name).read_text() == text


@pytest.mark.parametrize("name", ["owner", "exec", "root", "cwd", "mount", "model", "meta.json"])
def test_a_newline_alone_takes_a_value_back(definition: Path, name: str) -> None:
    text = next(text for file, text in ACCEPTED if file == name)
    for written, shown in ((text, text), ("\n", "")):
        with opened(definition / name, os.O_WRONLY | os.O_TRUNC) as descriptor:
            os.write(descriptor, written.encode())
        assert (definition / name).read_text() == shown


@pytest.mark.parametrize(("name", "text"), REFUSED)
def test_what_is_no_such_value_is_refused_and_changes_nothing(definition: Path, name: str, text: str) -> None:
    before = (definition / name).read_bytes()
    with refused(errno.EACCES if name == "status" else errno.EINVAL):
        (definition / name).write_text(text)
    assert (definition / name).read_bytes() == before
