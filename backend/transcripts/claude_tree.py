"""Where a line of Claude Code belongs: the tree of ``parentUuid`` as a session and its children (spec 4.2, import).

The first line that follows another goes on in its session; a later one that follows the same line begins a child there,
as rewinding in ctxfs would. So a file that grows never moves what was imported before. Side chains are children that
hold nothing of their parent. Pure.

Not every fork of ``parentUuid`` is one of the conversation: the results and further parts of one response, and whatever
goes on within a turn, name other lines than the last one. And not every line that is named is there.
"""

from collections.abc import Mapping
from typing import Any

from backend.transcripts.records import Child, Position, digest


class Chain:
    """A session to be: how long it is by now, and its turn."""

    __slots__ = (
        "cwd",
        "last",
        "length",
        "model",
        "number",
        "response",
        "responses",
        "run",
        "side",
        "step",
        "titles",
        "turn",
        "usage",
    )

    def __init__(self, number: int, side: bool, start: Position) -> None:
        self.number = number
        self.side = side
        self.length = start
        self.run = ""
        self.cwd = ""
        self.model = ""
        self.response: str | None = None
        self.usage: tuple[dict[str, Any], int | None] | None = None
        self.step = 0
        self.turn = 0
        self.responses: set[str] = set()
        self.last: Spot | None = None
        self.titles: list[Mapping[str, Any]] = []


class Spot:
    """A line that others may follow: the place behind it in its chain, and what it was."""

    __slots__ = ("at", "chain", "content", "is_prompt", "step", "turn")

    def __init__(self, chain: Chain, content: int, is_prompt: bool) -> None:
        self.chain = chain
        self.at = chain.length
        self.step = chain.step
        self.turn = chain.turn
        self.content = content
        self.is_prompt = is_prompt


class Line:
    """What the tree must know of a line of the conversation."""

    __slots__ = ("agent", "calls", "is_prompt", "is_result", "parent", "response", "side", "uuid")

    def __init__(self, record: Mapping[str, Any], parts: list[dict[str, Any]]) -> None:
        self.uuid = _text(record.get("uuid"))
        self.parent = _text(record.get("parentUuid"))
        self.side = record.get("isSidechain") is True
        self.agent = _text(record.get("agentId"))
        message = record["message"]
        self.response = _text(message.get("id")) if record["type"] == "assistant" else None
        self.calls = [part.get("tool_use_id") for part in parts if part.get("type") == "tool_result"]
        self.is_result = record["type"] == "user" and bool(parts) and len(self.calls) == len(parts)
        self.is_prompt = record["type"] == "user" and not self.is_result and record.get("isMeta") is not True


class Tree:
    """All chains of a file; chain 0 is the session that the file is."""

    def __init__(self) -> None:
        self.chains: list[Chain] = []
        self._spots: dict[str, Spot] = {}
        self._agents: dict[str, Chain] = {}
        self._current: dict[bool, Chain] = {}

    def repeats(self, line: Line, content: int) -> bool:
        """Whether the file had this very line already."""
        spot = self._spots.get(line.uuid or "")
        return spot is not None and spot.content == content

    def chain_of(self, line: Line, called_in: Chain | None) -> tuple[Chain, Child | None]:
        """The chain that a line goes on in, and that chain as a child if it begins with the line.

        ``called_in``: the chain with the call of which the line is the result.
        """
        if not self.chains:
            return self._begin(line.side, Position()), None
        followed = self._spots.get(line.parent or "")
        if line.is_result and called_in is not None:
            return called_in, None
        if followed is None or followed.chain.side != line.side:
            return self._unattached(line)
        return self._following(line, followed)

    def passed(self, line: Line, chain: Chain, content: int) -> None:
        """Notes a line whose entries are in its chain by now."""
        if not line.is_result:
            chain.step += 1
        chain.last = Spot(chain, content, line.is_prompt)
        self._current[line.side] = chain
        if line.uuid is not None:
            self._spots[line.uuid] = chain.last
        if line.is_prompt:
            chain.responses.clear()
        if line.response is not None:
            chain.responses.add(line.response)
        if line.agent is not None:
            self._agents[line.agent] = chain

    def see_through(self, record: Mapping[str, Any], parent: Any) -> None:
        """Notes a line that is not of the conversation: what follows it follows the line before it."""
        uuid, spot = _text(record.get("uuid")), self.spot(parent) or self.tip()
        if uuid is not None and spot is not None and uuid not in self._spots:
            self._spots[uuid] = spot

    def spot(self, uuid: Any) -> Spot | None:
        """The line of that uuid."""
        return self._spots.get(uuid) if isinstance(uuid, str) else None

    def tip(self) -> Spot | None:
        """The last line of the conversation, side chains apart."""
        return self._current[self.chains[0].side].last if self.chains else None

    def _following(self, line: Line, followed: Spot) -> tuple[Chain, Child | None]:
        chain = followed.chain
        goes_on = followed.step == chain.step or line.response in chain.responses
        in_turn = followed.turn == chain.turn and not line.is_prompt and not followed.is_prompt
        if line.is_result or goes_on or in_turn:
            return chain, None
        return self._child(line, chain, followed.at)

    def _unattached(self, line: Line) -> tuple[Chain, Child | None]:
        """A line that follows none: the beginning of a side chain, or one whose parent is missing."""
        if line.side == self.chains[0].side:
            return self._current[line.side], None
        known = self._agents.get(line.agent or "")
        if known is None and line.parent is not None and self.spot(line.parent) is None:
            known = self._current.get(line.side)
        return (known, None) if known else self._child(line, self._current[not line.side], Position())

    def _child(self, line: Line, parent: Chain, at: Position) -> tuple[Chain, Child]:
        chain = self._begin(line.side, at)
        key = digest(line.uuid or f"{chain.number} {at}")[:8]
        return chain, Child(chain.number, parent.number, at, key)

    def _begin(self, side: bool, at: Position) -> Chain:
        chain = Chain(len(self.chains), side, at)
        self.chains.append(chain)
        self._current[side] = chain
        return chain


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
