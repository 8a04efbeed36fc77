"""The checkpoint daemon's configuration file: every value that is taken and refused (notes 2.12)."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from backend.checkpoints.config import Configuration, ConfigurationError, read_configuration
from backend.checkpoints.wire import Age, Count


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("", {}),
        ("unknown = 1\n[other]\nx = 2", {}),
        ("auto_cleanup = true", {"auto_cleanup": True}),
        ("auto_cleanup_keep = 0", {"auto_cleanup_keep": Count(0)}),
        ("auto_cleanup_keep = 4294967295", {"auto_cleanup_keep": Count(4294967295)}),
        ('auto_cleanup_keep = "30d"', {"auto_cleanup_keep": Age("30d")}),
        ("auto_cleanup_interval_secs = 0", {"auto_cleanup_interval_secs": 0}),
        ("health_check_interval_secs = 60", {"health_check_interval_secs": 60}),
        ('[backend]\ntype = "btrfs-loop"', {"backend": "btrfs-loop"}),
        ('[backend]\ntype = "overlayfs"', {"backend": "auto"}),
        ("[backend.btrfs-loop]\nimg_size = 5\nimg_max_percent = 12.5", {"img_size": 5, "img_max_percent": 12.5}),
        ("[backend.btrfs-loop]\nimg_max_percent = 100", {"img_max_percent": 100.0}),
    ],
)
def test_what_is_taken(tmp_path: Path, text: str, changed: dict[str, Any]) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    assert read_configuration(file) == msgspec.structs.replace(Configuration(), **changed)


@pytest.mark.parametrize(
    "text",
    [
        "auto_cleanup = 1",
        "auto_cleanup_keep = -1",
        "auto_cleanup_keep = 4294967296",
        "auto_cleanup_keep = true",
        'auto_cleanup_keep = "30"',
        'auto_cleanup_keep = "30y"',
        'auto_cleanup_interval_secs = "1"',
        "auto_cleanup_interval_secs = -1",
        "health_check_interval_secs = true",
        "backend = 1",
        "[backend]\ntype = 1",
        "[backend.btrfs-loop]\nimg_size = 1.5",
        "[backend.btrfs-loop]\nimg_max_percent = 101",
        "[backend.btrfs-loop]\nimg_max_percent = nan",
        "[backend.btrfs-loop]\nimg_max_percent = true",
        "= nonsense",
        "\udcff",
    ],
)
def test_what_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text, errors="surrogateescape")
    with pytest.raises(ConfigurationError, match=r"config\.toml: "):
        read_configuration(file)


def test_no_file_means_defaults(tmp_path: Path) -> None:
    assert read_configuration(tmp_path / "none") == Configuration()


def test_the_image_and_the_back_end_hold_from_start_to_start() -> None:
    new = Configuration(auto_cleanup=True, backend="copy", img_size=1, img_max_percent=2.0)
    assert new.with_image_of(Configuration()) == Configuration(auto_cleanup=True)
