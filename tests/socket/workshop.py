"""Agents on a mount: shell scripts in a root that is not ``/``, defined as an admin does, spoken with as a user."""

import itertools
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.agents import TABLE, make_root, script
from tests.mounting import RunningMount
from tests.people import ALICE, Person
from tests.socket.client import Client, connected, request

MESSAGE = '{"type":"message","role":"assistant","content":[{"type":"text","text":"hi"}]}'
SAYS_HI = f"read -r line\nprintf '%s\\n' '{MESSAGE}'\n"


class Bot:
    """One agent, and ALICE who talks to it."""

    def __init__(self, mount: RunningMount, root: Path, name: str, directory: str = "agent") -> None:
        self.mount = mount
        self.root = root
        self.name = name
        self.path = mount.path / f"{directory}/{name}.sock"
        self.definition = mount.path / f"{directory}/{name}.d"
        self.home = mount.path / f"home/{ALICE.uid}" / directory / (name if directory == "agent" else f"{name}.d")
        self._ids = itertools.count()

    def define(self, **values: str) -> None:
        """Writes values of the definition, as an admin does."""
        for file, value in values.items():
            (self.definition / file.replace("meta", "meta.json")).write_text(value)

    def does(self, body: str) -> None:
        """Another script from now on."""
        script(self.root, self.name, body)

    @contextmanager
    def talk(self, person: Person = ALICE) -> Iterator[Client]:
        with connected(self.path, person) as client:
            yield client

    def send(self, input: str = "hello", person: Person = ALICE, **fields: Any) -> list[dict[str, Any]]:
        """The frames that answer one send, to its done or its refusal."""
        with self.talk(person) as client:
            client.send(self.sending(input, **fields))
            return to_the_end(client)

    def sending(self, input: str = "hello", **fields: Any) -> bytes:
        """A send with an id of its own, unless given."""
        return request("send", **{"id": f"id-{next(self._ids)}", "input": input, **fields}) + b"\n"

    def session(self, name: str = "default") -> Path:
        return self.home / "session" / name

    def log(self, name: str = "default") -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The messages and the events of a session."""
        return lines(self.session(name) / "messages.jsonl"), lines(self.session(name) / "events.jsonl")

    def kinds(self, name: str = "default") -> tuple[list[str], list[str]]:
        """The roles of the messages, and the types of the events."""
        messages, events = self.log(name)
        return [message["role"] for message in messages], [event["type"] for event in events]


def to_the_end(client: Client) -> list[dict[str, Any]]:
    """The frames of one send: up to a done, or an error that is not of a run."""
    found = []
    while frame := client.frame():
        found.append(frame)
        if frame["type"] == "done" or (frame["type"] == "error" and "run" not in frame):
            break
    return found


def types(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["type"] for frame in frames]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Workshop:
    """Makes bots on one mount, which share a root."""

    def __init__(self, mount: RunningMount) -> None:
        self.mount = mount
        self.root = make_root(mount.base / "root")
        self._numbers = itertools.count()

    def bot(self, body: str = SAYS_HI, *, root: bool = True, **values: str) -> Bot:
        """A new agent; ``root`` False: it has the peer's own."""
        bot = Bot(self.mount, self.root, f"bot{next(self._numbers)}")
        return self._defined(bot, body, {"root": str(self.root)} if root else {}, values)

    def model(self, body: str = SAYS_HI, **values: str) -> Bot:
        name = f"model{next(self._numbers)}"
        os.makedirs(self.mount.path / "model/acme", exist_ok=True)
        return self._defined(Bot(self.mount, self.root, name, "model/acme"), body, {"root": str(self.root)}, values)

    def _defined(self, bot: Bot, body: str, root: dict[str, str], values: dict[str, str]) -> Bot:
        bot.definition.mkdir()
        bot.define(**{"mount": TABLE, **root, **values, "exec": json.dumps([script(self.root, bot.name, body)])})
        return bot
