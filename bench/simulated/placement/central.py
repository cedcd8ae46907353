"""CNU, the central update of node operator sets: one node plans, and sends each affected node its new set.

Source: Tran, Lee, "Distributed adaptive windowed stream join processing", sec. 4.2.1, algorithm 2.
"""

from __future__ import annotations

from bench.simulated.placement.messages import Changed, NewOperators, Sent
from eddy.placement.costs import Model
from eddy.placement.operators import NOS, node_operator_sets
from eddy.placement.plan import JEP


class CentralNode:
    """The node that plans, with the figures of all streams.

    model       the figures of the streams, and the costs
    plan        the running plan
    version     version of this plan
    threshold   the violation of the invariant from which on the node makes a new plan; 1.0 = any violation
    """

    def __init__(self, model: Model, plan: JEP | None = None, threshold: float = 1.0) -> None:
        self.model = model
        self.plan = model.greedy() if plan is None else plan
        self.threshold = threshold
        self.version = 0

    def operators(self) -> list[NOS]:
        """Return the set of each node under the plan."""
        return node_operator_sets(self.plan)

    def handle(self, message: Changed) -> list[Sent]:
        """Take changed figures; return new sets for the nodes whose sets differ, no sets if the plan stays."""
        self.model = self.model.changed({message.stream: message.figures})
        if self.model.violation(self.plan) <= self.threshold:
            return []
        return self.adopt(self.model.greedy())

    def adopt(self, plan: JEP) -> list[Sent]:
        """Make a plan the running plan, and return the new sets of the affected nodes."""
        before, after = self.operators(), node_operator_sets(plan)
        self.plan = plan
        affected = frozenset(node for node, operators in enumerate(after) if operators != before[node])
        if not affected:
            return []
        self.version += 1
        return [Sent(node, NewOperators(self.version, after[node], affected)) for node in sorted(affected)]
