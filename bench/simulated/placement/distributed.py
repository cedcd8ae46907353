"""DNU, the distributed update of node operator sets: the nodes reorder the plans by messages to their neighbours.

A node knows the figures of its own stream. For each plan it also keeps the flow of tuples that reaches its position,
and its operators. When its figures change, every plan is put in order by a *walk*:

    the cost of its join has risen    from its position on, the nodes of the rest of the order find the cheapest join.
                                      The question is relayed to the end (Compare), the last node tells the cheapest
                                      node to take the position (Take), and the node of the next position continues
                                      (Continue)
    otherwise                         the nodes of the streams before it are asked in order, for the first stream that
                                      costs more (Seek). The changed stream takes that position; the nodes then decide
                                      all later positions as above

The new operators go to each node whose set for this plan has changed (Replace): the swapped nodes, their neighbours,
and the node that joins on behalf of one of them.

The algorithm in the paper (algorithm 3) compares costs at the position of the triggering stream. That leaves two gaps
(`tests/bench/simulated/placement/test_dnu.py` has a case of each):

- In the plan that this stream *heads* the stream has no position, and its rate changes the cost at every position. In
  this implementation the node of the head decides all positions of its own plan, from hop 1 on. Otherwise the
  distributed plan would differ from the central plan in most cases.
- The cost at the stream's own position may stay or rise while the cost at an earlier position falls: at the earlier
  position the placement at the source may be cheaper, and depend on the rate that has fallen. So a walk starts at the
  stream's own position only if no figure of the stream has fallen.

The result is the greedy plan, for any interleaving. Walks over different plans share no state. The head of a plan
starts the walks over this plan one after the other, and a node uses its new figures in a plan only from the start of
its own walk on. So each walk starts from a plan that is greedy except for the changed figures of one stream. Positions
before the first change stay greedy, and every position after it is decided again, as algorithm 1 does.

Source: Tran, Lee, "Distributed adaptive windowed stream join processing", sec. 4.2.2, algorithm 3.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import singledispatchmethod
from typing import Any

from bench.simulated.placement.messages import (
    Begin,
    Compare,
    Continue,
    Done,
    Finished,
    ModificationState,
    Replace,
    Seek,
    Sent,
    Take,
    Trigger,
)
from eddy.placement.costs import Flow, Model, StreamStatistics, UnitCosts, chosen, head_flow, joined, placements
from eddy.placement.operators import NOS, NOTHING, sep_operators
from eddy.placement.plan import JEP, SEP


def _none_falls(before: StreamStatistics, after: StreamStatistics) -> bool:
    """Return whether no figure is smaller than before; if so, no join with the stream costs less than before."""
    pairs = [(before.rate, after.rate), (before.window, after.window), (before.tuple_bytes, after.tuple_bytes)]
    pairs += [(a or 0.0, b or 0.0) for a, b in zip(before.selectivity, after.selectivity, strict=True)]
    return all(a <= b for a, b in pairs)


class UpdatingNode:
    """The node of one stream.

    stream     position of the stream
    figures    newest figures of the stream
    sep        the plan that the stream heads
    settled    the plans that their heads have reported since the last `change`
    """

    def __init__(self, stream: int, model: Model, plan: JEP) -> None:
        self.stream = stream
        self.costs: UnitCosts = model.costs
        self.figures: StreamStatistics = model.streams[stream]
        self.sep: SEP = plan.seps[stream]
        self.settled: dict[int, SEP] = {}
        # By head: the figures of this plan, the flow at this node's position, and the operators.
        self._used = dict.fromkeys(range(len(plan.seps)), self.figures)
        self._flow: dict[int, Flow] = {}
        self._operators: dict[int, tuple[tuple[int, int], NOS]] = {}
        self._waiting: deque[int] = deque()
        self._walking = False
        self._walks = 0
        self._after: StreamStatistics | None = None
        self._open = 0
        for sep in plan.seps:
            self._operators[sep.head] = (0, 0), sep_operators(sep).get(stream, NOTHING)
            if sep.head != stream:
                self._flow[sep.head] = model.flows(sep.head, sep.order)[sep.order.index(stream)]

    @property
    def operators(self) -> NOS:
        """The operator set of the node."""
        return frozenset().union(*(operators for _, operators in self._operators.values()))

    @property
    def busy(self) -> bool:
        """Whether walks that this node triggered have not ended."""
        return self._open > 0

    def change(self, figures: StreamStatistics) -> list[Sent]:
        """Take new figures of the stream and trigger the walks. While earlier walks run, the newest figures wait."""
        if self.busy:
            self._after = figures
            return []
        self.figures, self.settled, self._open = figures, {}, len(self._operators)
        return [Sent(head, Trigger(head, self.stream)) for head in self._operators]

    @singledispatchmethod
    def handle(self, message: Any) -> list[Sent]:
        """Take a message and return the messages to send."""
        raise TypeError(f"an updating node takes no {type(message).__name__}")

    # The head of a plan: one walk after the other

    @handle.register
    def _(self, message: Trigger) -> list[Sent]:
        self._waiting.append(message.stream)
        return self._next_walk()

    def _next_walk(self) -> list[Sent]:
        if self._walking or not self._waiting:
            return []
        self._walking = True
        self._walks += 1
        stream = self._waiting.popleft()
        walk = ModificationState(self.sep, stream, self._walks)
        if stream != self.stream:
            return [Sent(stream, Begin(walk))]
        # The paper does not treat this case: decide the plan headed by the changed stream from hop 1 on.
        self._used[self.stream] = self.figures
        return [Sent(self.sep.order[0], Continue(walk, head_flow(self.stream, self.figures)))]

    @handle.register
    def _(self, message: Done) -> list[Sent]:
        self.sep = message.walk.sep
        self._walking = False
        return [Sent(message.walk.stream, Finished(self.stream, self.sep)), *self._next_walk()]

    @handle.register
    def _(self, message: Finished) -> list[Sent]:
        self.settled[message.stream] = message.sep
        self._open -= 1
        if not self._open and self._after is not None:
            figures, self._after = self._after, None
            return self.change(figures)
        return []

    @handle.register
    def _(self, message: Replace) -> list[Sent]:
        if message.at > self._operators[message.head][0]:
            self._operators[message.head] = message.at, message.operators
        return []

    # A position of a plan

    @handle.register
    def _(self, message: Begin) -> list[Sent]:
        walk = message.walk
        head, k = walk.sep.head, walk.sep.order.index(self.stream)
        before, self._used[head] = self._used[head], self.figures
        if k and not _none_falls(before, self.figures):
            no_rise = _none_falls(self.figures, before)
            return [Sent(walk.sep.order[0], Seek(replace(walk, j=0), self.figures, no_rise))]
        return self._decide(replace(walk, j=k), self._flow[head])

    @handle.register
    def _(self, message: Seek) -> list[Sent]:
        walk, flow = message.walk, self._flow[message.walk.sep.head]
        if walk.stream == self.stream:
            # No stream before it costs more. If no figure has risen, no stream after it costs less.
            return self._take(walk, flow) if message.no_rise else self._decide(walk, flow)
        mover = chosen(placements(flow, walk.stream, message.figures, self.costs))[0], walk.stream
        if mover < (self._cost(walk.sep.head, flow), self.stream):
            return [Sent(walk.stream, Take(walk, flow))]
        walk = replace(walk, j=walk.j + 1)
        return [Sent(walk.sep.order[walk.j], replace(message, walk=walk))]

    @handle.register
    def _(self, message: Continue) -> list[Sent]:
        return self._decide(message.walk, message.flow)

    @handle.register
    def _(self, message: Compare) -> list[Sent]:
        walk = message.walk
        best = min(message.best, (self._cost(walk.sep.head, message.flow), self.stream))
        if message.following + 1 < len(walk.sep.order):
            following = message.following + 1
            return [Sent(walk.sep.order[following], replace(message, best=best, following=following))]
        return [Sent(best[1], Take(walk, message.flow))]

    @handle.register
    def _(self, message: Take) -> list[Sent]:
        return self._take(message.walk, message.flow)

    def _cost(self, head: int, flow: Flow) -> float:
        return chosen(placements(flow, self.stream, self._used[head], self.costs))[0]

    def _decide(self, walk: ModificationState, flow: Flow) -> list[Sent]:
        """Find the stream for position j, which this node has."""
        if walk.j == len(walk.sep.order) - 1:
            return self._take(walk, flow)
        best = self._cost(walk.sep.head, flow), self.stream
        following = walk.j + 1
        return [Sent(walk.sep.order[following], Compare(walk, flow, best, following))]

    def _take(self, walk: ModificationState, flow: Flow) -> list[Sent]:
        """Take position j in exchange for the own position, choose the placement there, and tell the affected nodes."""
        head, before = walk.sep.head, walk.sep
        self._flow[head] = flow
        order, placement = list(before.order), list(before.placement)
        mine = order.index(self.stream)
        order[walk.j], order[mine] = order[mine], order[walk.j]
        figures = self._used[head]
        placement[walk.j] = chosen(placements(flow, self.stream, figures, self.costs))[1]
        walk = replace(walk, sep=SEP(head, tuple(order), tuple(placement)), step=walk.step + 1)
        sent = self._replaced(before, walk)
        after = walk.j + 1
        if after == len(order):
            return [*sent, Sent(head, Done(walk))]
        return [*sent, Sent(order[after], Continue(replace(walk, j=after), joined(flow, self.stream, figures)))]

    @staticmethod
    def _replaced(before: SEP, walk: ModificationState) -> list[Sent]:
        if walk.sep == before:
            return []
        old, new = sep_operators(before), sep_operators(walk.sep)
        at = walk.number, walk.step
        nodes = sorted(node for node in old.keys() | new.keys() if old.get(node, NOTHING) != new.get(node, NOTHING))
        return [Sent(node, Replace(before.head, new.get(node, NOTHING), at)) for node in nodes]
