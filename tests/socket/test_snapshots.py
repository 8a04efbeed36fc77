"""Spec 3.6: AGENTS.md and SKILLS.md are gathered as they can be, and never fail a run, whatever stands there."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.socket.workshop import Workshop, types

MIB = 1 << 20


def unreadable(file: Path) -> None:
    file.write_text("secret\n")
    file.chmod(0o600)


RULES: dict[str, tuple[Callable[[Path], object], str | None]] = {
    "a FIFO": (os.mkfifo, None),
    "a directory": (os.mkdir, None),
    "what the peer may not read": (unreadable, None),
    "a link to itself": (lambda file: file.symlink_to("AGENTS.md"), None),
    "a link out of the view": (lambda file: file.symlink_to("../../../../../../etc/passwd"), None),
    "a link to an endless device": (lambda file: file.symlink_to("/dev/zero"), None),
    "a link in the view": (lambda file: file.symlink_to("/agents/rules"), "rules\n"),
    "what is no text": (lambda file: file.write_bytes(b"a\xff\0b"), "a\ufffd\ufffdb\n"),
    "more than a snapshot holds": (lambda file: file.write_bytes(b"x" * (MIB + 1)), None),
}


@pytest.mark.parametrize("what", RULES)
def test_rules_that_cannot_be_read_are_left_out(workshop: Workshop, what: str) -> None:
    make, expected = RULES[what]
    (workshop.root / "agents/rules").write_text("rules\n")
    place = workshop.root / f"work/{list(RULES).index(what)}"
    place.mkdir()
    make(place / "AGENTS.md")
    bot = workshop.bot()
    assert types(bot.send(cwd=f"/work/{place.name}")) == ["start", "message", "done"]
    snapshot = bot.session() / "AGENTS.md"
    assert (snapshot.read_text() if snapshot.exists() else None) == expected


def test_skills_are_listed_by_what_they_say_of_themselves(workshop: Workshop) -> None:
    place = workshop.root / "work/skilled"
    texts = {
        "plain": "no front matter\n",
        "named": "---\nname: Namer\ndescription: >\n  gives\n  names\n---\ntext\n",
        "endless": "---\nname: never closed\n",
        "empty": "",
    }
    for name, text in texts.items():
        (place / "skills" / name).mkdir(parents=True)
        (place / "skills" / name / "SKILL.md").write_text(text)
    (place / "skills/bare").mkdir()
    os.mkfifo(place / "skills/fifo")
    (place / "skills/out").symlink_to("/etc")
    bot = workshop.bot()
    assert bot.send(cwd="/work/skilled")[-1]["status"] == "ok"
    assert (bot.session() / "SKILLS.md").read_text() == "".join(
        f"- {said} (/work/skilled/skills/{name}/SKILL.md)\n"
        for name, said in (
            ("empty", "empty"),
            ("endless", "endless"),
            ("named", "Namer: gives names"),
            ("plain", "plain"),
        )
    )
