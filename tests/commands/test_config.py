"""The configuration: file < user's file < environment < options; unknown keys name their line (spec 4.6)."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxfs import config
from ctxfs.config import ConfigError, load


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The system's file and the user's, neither of which is there yet; ``XDG_CONFIG_HOME`` is ``tmp_path``."""
    monkeypatch.setattr(config, "SYSTEM_FILE", tmp_path / "system.toml")
    (tmp_path / "ctxfs").mkdir()
    return tmp_path / "system.toml", tmp_path / "ctxfs/config.toml"


def give_away(file: Path) -> None:
    file.touch()
    os.chown(file, 1000, 1000)


def environment_of(files: tuple[Path, Path], **more: str) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(files[0].parent), "HOME": "/home/u", **more}


def test_each_source_overrides_the_ones_before_it(files: tuple[Path, Path]) -> None:
    system, user = files
    environment = environment_of(files)
    seen = [load({}, environment).values["store"].origin]
    system.write_text('store = "/a"\n')
    seen.append(load({}, environment).values["store"].origin)
    user.write_text('\n# mine\nstore = "/b"\n')
    seen.append(load({}, environment).values["store"].origin)
    environment["CTXFS_STORE"] = "/c"
    seen.append(load({}, environment).values["store"].origin)
    found = load({"store": "/d"}, environment)
    assert [*seen, found.values["store"].origin] == [
        "default",
        f"{system}:1",
        f"{user}:3",
        "environment CTXFS_STORE",
        "option",
    ]
    assert found.store == Path("/d")


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("storre = '/x'\n", 1, "storre"),
        ("# a\n\nstore = '/x'\numount_timeout = 'soon'\n", 4, "umount_timeout"),
        ("store = 5\n", 1, "store"),
        ("log_level = 'loud'\n", 1, "log_level"),
        ("options = 'noatime,nofial'\n", 1, "options .*'nofial'"),
        ("options = 'store='\n", 1, "options .*'store' needs a directory"),
        ("options = 5\n", 1, "options must be text"),
        ("\n[limits]\nx = 1\n", 2, "limits"),
        ("umount_timeout = -1\n", 1, "umount_timeout"),
        ("umount_timeout = 99999999999999999999\n", 1, "umount_timeout"),
        ("agent_timeout = 1000000001\n", 1, "agent_timeout"),
        ("agent_output = 9223372036854775808\n", 1, "agent_output"),
        ("umount_timeout = true\n", 1, "umount_timeout"),
        ("# marks = 1\nmarks = 5\n", 2, "marks"),
        ("[marks]\nx = 'string'\n", 2, "marks.x"),
        ('[marks."demo/a"]\nkey = "string"\n[marks."demo/b"]\nkey = "text"\n', 4, "key must be one of string"),
        ('[marks."demo/a"]\nkey = "string"\nother = ["string"]\n', 3, "other"),
        ('[marks.demo.a]\nkey = "string"\n', 1, "marks.demo: a"),
        ('store = "/x"\n[marks."prompt"]\n', 2, "prompt"),
        ('[marks."x"]\n[marks.delta]\ntext = "string"\n', 2, "delta"),
        ('[marks.""]\n', 1, "mark ''"),
    ],
)
def test_a_mistake_names_file_line_and_key(files: tuple[Path, Path], text: str, line: int, word: str) -> None:
    files[1].write_text(text)
    with pytest.raises(ConfigError, match=rf"{files[1]}:{line}: .*{word}"):
        load({}, environment_of(files))


def test_files_define_marks_and_a_later_one_wins(files: tuple[Path, Path]) -> None:
    system, user = files
    assert load({}, environment_of(files)).marks == {}
    system.write_text('[marks."demo/a"]\nkey = "string"\n\n[marks.b]\n')
    user.write_text('store = "/x"\nmarks."demo/a" = {count = "number", done = "boolean"}\n')
    found = load({}, environment_of(files))
    assert found.marks == {"demo/a": {"count": "number", "done": "boolean"}, "b": {}}
    rows = {key: (value, origin) for key, value, origin, _ in config.rows(found)}
    assert rows["marks.demo/a"] == ({"count": "number", "done": "boolean"}, f"{user}:2")
    assert rows["marks.b"] == ({}, f"{system}:4")


def test_broken_toml_names_file_and_line(files: tuple[Path, Path]) -> None:
    files[0].write_text("store = '/x'\nformat = \n")
    with pytest.raises(ConfigError, match=rf"{files[0]}.*line 2"):
        load({}, environment_of(files))


def test_a_misspelt_variable_is_an_error_not_the_default(files: tuple[Path, Path]) -> None:
    with pytest.raises(ConfigError, match="environment CTXFS_STROE"):
        load({}, environment_of(files, CTXFS_STROE="/x"))


def test_every_setting_has_a_default_and_says_what_it_is_for(files: tuple[Path, Path]) -> None:
    rows = list(config.rows(load({}, environment_of(files))))
    assert len(rows) == len(config.SETTINGS)
    assert all(origin == "default" and text for _, _, origin, text in rows)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda file: file.write_text(f"options = {'[' * 20_000}"), "nested too deeply"),
        (lambda file: file.write_text(f"umount_timeout = {'9' * 5000}"), "4300 digits"),
        (lambda file: file.write_bytes(b"\xff\xfe"), "utf-8"),
        (lambda file: file.mkdir(), "Is a directory"),
        (lambda file: file.symlink_to(file), "symbolic links"),
        (lambda file: file.symlink_to("/dev/zero"), "more than 1048576 bytes"),
        (give_away, "belongs to uid 1000"),
    ],
    ids=["deep", "number", "utf-8", "directory", "loop", "endless", "another's"],
)
def test_whatever_a_file_is_it_is_one_error_that_names_it(
    files: tuple[Path, Path], make: Callable[[Path], object], reason: str
) -> None:
    make(files[1])
    with pytest.raises(ConfigError, match=rf"{files[1]}: .*{reason}"):
        load({}, environment_of(files))


def test_a_pipe_without_a_writer_is_an_empty_file(files: tuple[Path, Path]) -> None:
    os.mkfifo(files[1])
    assert load({}, environment_of(files)).values["store"].origin == "default"


def test_a_variable_of_many_digits_is_no_number(files: tuple[Path, Path]) -> None:
    with pytest.raises(ConfigError, match="environment CTXFS_UMOUNT_TIMEOUT: umount_timeout must be"):
        load({}, environment_of(files, CTXFS_UMOUNT_TIMEOUT="9" * 5000))
