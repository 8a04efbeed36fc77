"""AGENTS.md and SKILLS.md as a run finds them: snapshots for people, best effort (spec 3.6).

Read in the view with the peer's ids (``identity.acting_as``). Nothing here fails a run, and nothing that is gathered
is ever read back as configuration.
"""

import os
import stat
from collections.abc import Iterator, Sequence

from ctxfs.agents.cwd import open_in_view

MAX_SNAPSHOT = 1 << 20
_MAX_SKILLS = 1000
_MAX_SKILL_HEAD = 64 << 10


def gather(root: int, cwd: str, home: str) -> dict[str, str]:
    """The snapshots of a run in ``cwd``: by name, their text, empty where nothing was found."""
    places = _places(cwd, home)
    return {"AGENTS.md": _joined(_rules(root, places)), "SKILLS.md": _joined(_skills(root, places))}


def _places(cwd: str, home: str) -> Sequence[str]:
    """The agent's home, then every directory from / down to the cwd, each once; as prefixes of paths."""
    parts = [part for part in cwd.split("/") if part]
    down = ["/".join(["", *parts[:depth]]) for depth in range(len(parts) + 1)]
    return list(dict.fromkeys([home.rstrip("/"), *down]))


def _rules(root: int, places: Sequence[str]) -> Iterator[str]:
    for place in places:
        text = _read(root, f"{place}/AGENTS.md", MAX_SNAPSHOT)
        if text:
            yield text if text.endswith("\n") else f"{text}\n"


def _skills(root: int, places: Sequence[str]) -> Iterator[str]:
    for place in places:
        for directory in _directories(root, f"{place}/skills"):
            path = f"{place}/skills/{directory}/SKILL.md"
            text = _read(root, path, _MAX_SKILL_HEAD)
            if text is not None:
                head = _front_matter(text)
                description = f": {head['description']}" if head.get("description") else ""
                yield f"- {head.get('name') or directory}{description} ({path})\n"


def _directories(root: int, path: str) -> Sequence[str]:
    try:
        descriptor = open_in_view(root, path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return ()
    try:
        names = sorted(os.listdir(descriptor))
    except OSError:
        return ()
    finally:
        os.close(descriptor)
    return [name for name in names if name.isprintable()][:_MAX_SKILLS]


def _read(root: int, path: str, limit: int) -> str | None:
    """The text of a regular file, at most ``limit`` bytes of it; None where there is none to be read."""
    try:
        descriptor = open_in_view(root, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return os.pread(descriptor, limit, 0).decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _front_matter(text: str) -> dict[str, str]:
    """``key: value`` lines between two ``---`` at the top; a value goes on over indented lines."""
    lines = iter(text.split("\n"))
    head: dict[str, str] = {}
    if next(lines, "").strip() != "---":
        return head
    key = ""
    for line in lines:
        if line.strip() == "---":
            return head
        if line[:1].isspace():
            head[key] = f"{head.get(key, '')} {line.strip()}".strip()
        else:
            key, _, value = (part.strip() for part in line.partition(":"))
            head[key] = "" if value in ("|", ">", "|-", ">-") else value.strip("\"'")
    return {}


def _joined(texts: Iterator[str]) -> str:
    """The texts one after another, as many as a snapshot takes."""
    joined, size = [], 0
    for text in texts:
        size += len(text.encode())
        if size > MAX_SNAPSHOT:
            break
        joined.append(text)
    return "".join(joined)
