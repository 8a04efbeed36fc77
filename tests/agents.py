"""Agents for tests: real executables in a root that is not ``/``, run as somebody else.

``make_root`` makes a root with a shell, by the mount table; ``script`` puts an agent there. The root is an admin's,
and open to all, as uid 1001 must write to ``/tmp`` in it.
"""

from pathlib import Path

# /bin and /lib of the root are links, as they are on the host; what they lead to is the table's.
_LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"}
TABLE = "/usr\t/usr\tro\n"


def make_root(path: Path) -> Path:
    """A root that sees the host's /usr by ``TABLE``, with ``/tmp``, ``/work`` and a place for scripts, ``/agents``."""
    for directory, mode in (("", 0o755), ("usr", 0o755), ("tmp", 0o777), ("work", 0o777), ("agents", 0o755)):
        (path / directory).mkdir()
        (path / directory).chmod(mode)
    for name, target in _LINKS.items():
        if Path(f"/{name}").exists():
            (path / name).symlink_to(target)
    return path


def script(root: Path, name: str, body: str) -> str:
    """An executable shell script in the root; its path there."""
    file = root / "agents" / name
    file.write_text(f"#!/bin/sh\n{body}")
    file.chmod(0o755)
    return f"/agents/{name}"
