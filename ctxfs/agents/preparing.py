"""What is checked of a send before anything is recorded, and the agent that is ready then (spec 3.3, 3.4, 3.6).

On trio's thread. The launcher builds an agent's view, with the peer's ids; here is only what it is to be built from.
"""

from collections.abc import Mapping
from typing import NamedTuple

from backend.errors import Missing
from ctxfs.agents.definition import ECHO, Definition
from ctxfs.agents.launch import Identity, Launch, View
from ctxfs.agents.ledger import Place
from ctxfs.agents.processes import Agent, Launcher
from ctxfs.agents.settings import Settings
from ctxfs.sockets.connection import Peer


class Order(NamedTuple):
    """An agent that is wanted: for whom, where, and whether ``peer`` has directories of this agent's own."""

    definition: Definition
    place: Place
    peer: Peer
    cwd: str
    run: str
    has_home: bool

    @property
    def is_echo(self) -> bool:
        """Nothing is to be executed."""
        return not self.definition.argv and (self.place.kind, self.place.name) == ("agent", ECHO)

    @property
    def is_ready(self) -> bool:
        """There is nothing to prepare."""
        return self.is_echo and self.cwd == "/"


class Preparing:
    """Of one mount, which is at ``mountpoint`` on the host."""

    def __init__(self, launcher: Launcher, mountpoint: str, settings: Settings) -> None:
        self.settings = settings
        self._launcher = launcher
        self._mountpoint = mountpoint

    async def prepare(self, order: Order) -> Agent | None:
        """An agent that could start; None for the echo, whose cwd was found (``OSError``, ``Missing``: why not)."""
        if not order.definition.argv and not order.is_echo:
            raise Missing(f"{order.place.kind} {order.place.name!r} has no executable: an admin sets its exec")
        if order.is_ready:
            return None
        agent = await self._launcher.prepare(self._launch(order))
        if order.is_echo:
            await agent.aclose()
            return None
        return agent

    def environment(self, order: Order, agent: Agent) -> Mapping[str, str]:
        """All that is in an agent's environment (spec 3.6)."""
        return {
            "CTX_ROOT": agent.ctx,
            "CTX_HOME": f"{agent.ctx}/home/{order.peer.uid}",
            "CTX_AGENT": order.place.name,
            "CTX_SESSION": order.place.session,
            "CTX_RUN": order.run,
            "HOME": self.settings.home,
            "PATH": self.settings.path,
            "LANG": self.settings.lang,
        }

    def _launch(self, order: Order) -> Launch:
        definition, peer = order.definition, order.peer
        home = f"{self._mountpoint}/home/{peer.uid}/agent/{order.place.name}" if order.has_home else None
        own = definition.root is None
        root = home and f"{home}/root" if own else definition.root
        return Launch(
            Identity(peer.uid, peer.gid, tuple(peer.groups - {peer.gid})),
            View(root, self._mountpoint, definition.rows, own),
            order.cwd,
            definition.argv,
            self.settings.path,
            self.settings.home,
            f"{home}/log/{order.run}.log" if home and order.place.scope != "temp" else None,
        )
