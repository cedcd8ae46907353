"""Two-phase migration: all affected nodes switch to new operators once each knows that all have full windows.

    local-ready    the windows of the new operators are full at a node; the node tells all other affected nodes
    global-ready   a node has the local-ready of all nodes; the node tells all other affected nodes
    switch         a node has the global-ready of all nodes

With n affected nodes the migration takes 2 n (n - 1) messages. A node counts each sender once, so duplicated messages
have no effect, and a channel that repeats lost messages is enough for every node to switch. A node that has crashed
keeps the messages that it has received and sent (they are logged before they are acknowledged), and requests the
windows again.

Source: Tran, Lee, "Distributed adaptive windowed stream join processing", sec. 4.3.
"""

from __future__ import annotations

from bench.simulated.placement.messages import Sent
from bench.simulated.placement.pieces import GlobalReady, LocalReady


class TwoPhase:
    """One migration at one node.

    version    version of the new program
    node       this node
    affected   all nodes that take part
    """

    def __init__(self, version: int, node: int, affected: frozenset[int]) -> None:
        self.version, self.node, self.affected = version, node, affected
        self.local: set[int] = set()
        self.globally: set[int] = set()

    @property
    def switched(self) -> bool:
        """Whether the node runs the new operators."""
        return self.globally == self.affected

    def full(self) -> list[Sent]:
        """Record that the windows of this node are full; return the messages, without messages the second time."""
        if self.node in self.local:
            return []
        return [*self._all(LocalReady(self.version, self.node)), *self.handle(LocalReady(self.version, self.node))]

    def handle(self, message: LocalReady | GlobalReady) -> list[Sent]:
        """Take a message and return the messages to send."""
        if isinstance(message, GlobalReady):
            self.globally.add(message.node)
            return []
        self.local.add(message.node)
        if self.local != self.affected or self.node in self.globally:
            return []
        self.globally.add(self.node)
        return self._all(GlobalReady(self.version, self.node))

    def _all(self, message: LocalReady | GlobalReady) -> list[Sent]:
        return [Sent(node, message) for node in sorted(self.affected - {self.node})]
