"""A simulated cluster that joins the streams of a query: real rows, real joins and exact results; simulated time.

Each push is an *epoch*. The rows of the push arrive at the nodes of their streams, go to all copies of their windows,
and probe by the plan of their stream. Between two epochs the cluster measures its streams, and may change its plans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bench.simulated.placement.admission import Admission, checked_query
from bench.simulated.placement.central import CentralNode
from bench.simulated.placement.change import ProgramChange, change_table
from bench.simulated.placement.choice import KINDS, PAYBACK, PlanKindChooser
from bench.simulated.placement.distributed import UpdatingNode
from bench.simulated.placement.figures import differ, statistics, synopses, unknown
from bench.simulated.placement.messages import Changed, Finished, Sent
from bench.simulated.placement.network import Faults, Network
from bench.simulated.placement.nodes import JoiningNode, QueryFacts
from bench.simulated.placement.options import check_options
from bench.simulated.placement.pace import StreamPace
from bench.simulated.placement.pieces import Base, BaseKeys, GlobalReady, Install, LocalReady, Request, TuplePiece
from eddy.placement.costs import Model, StreamStatistics, UnitCosts
from eddy.placement.operators import SITE, texts
from eddy.placement.places import Place
from eddy.placement.plan import JEP, jep
from eddy.placement.program import Program, Steps, program, sited_routes
from eddy.placement.routes import Planner
from eddy.placement.synopses import Synopsis
from eddy.placement.tuples import Tuples, merged
from eddy.query.query import Query
from eddy.uncopied import Uncopied
from stairs.errors import PlanError, StateError

DATA = (TuplePiece, BaseKeys, Request, Base, Install, LocalReady, GlobalReady)
"""Messages to the joining part of a node; all others are to the part that updates its operators."""
REPORT = 1.2
PLANNER = 0
"""The node that plans centrally."""


class PlacementSimulation(Uncopied):
    """Joins the streams of a query on a simulated cluster.

    query       an inner join on keys, with Range windows or without windows
    nodes       number of nodes that share all steps, under "grid", "hops" and "auto"; None = one node for each stream
    placement   "greedy" (the paper's plans, one node per stream, adapted while they run); a plan of your own,
                {head: [(stream, "ship" or "window"), …]}, which stays; "grid": one round over a hypercube; "hops":
                several rounds; "auto": whichever is predicted to be faster, measured after each epoch. None = "greedy"
                without `nodes`, else "auto"
    update      for "greedy": "central" (CNU), "distributed" (DNU), or "shared": central, where the cost model charges a
                copy of a window at a node once, as it is shipped once; the paper charges every plan for the copy
    migration   "log": nodes switch at once and complete their windows just in time; "track": windows are copied in
                advance, and all nodes switch together (two-phase migration)
    costs       seconds of the elementary steps and the links
    faults      lost, duplicated and reordered messages; None = a perfect network, on which nodes cannot crash
    count_only  return the numbers of results, not the results

    Raises QueryError for a query that cannot be placed, PlanError for a plan that does not fit, InputError for options.

    >>> from eddy import Query, Stream
    >>> chain = {"R": ["a"], "S": ["a", "b"], "T": ["b"]}
    >>> streams = [Stream(name, pa.schema([(c, pa.int64()) for c in columns])) for name, columns in chain.items()]
    >>> cluster = PlacementSimulation(Query(streams, ["R.a = S.a", "S.b = T.b"], select=["R.a", "T.b"]))
    >>> cluster.push({"R": {"a": [1]}, "S": {"a": [1], "b": [2]}, "T": {"b": [2, 3]}}).to_pylist()
    [{'R.a': 1, 'T.b': 2}]
    """

    _no_copy = "a PlacementSimulation: make another one and push the same rows"

    def __init__(
        self,
        query: Query,
        nodes: int | None = None,
        *,
        placement: str | Mapping[str, Sequence[tuple[str, str]]] | None = None,
        update: str = "central",
        migration: str = "log",
        costs: UnitCosts | None = None,
        faults: Faults | None = None,
        count_only: bool = False,
    ) -> None:
        self.query = checked_query(query)
        self.names = query.graph.names
        self.costs = UnitCosts() if costs is None else costs
        self._labels = [f"[{key_class}]" for key_class in query.classes]
        self._placement = placement if placement is not None else "greedy" if nodes is None else "auto"
        check_options(nodes, self._placement, update, migration)
        self._distributed, self._track = update == "distributed", migration == "track"
        self.report = REPORT
        """Factor by which a figure must change before its node reports it; infinity keeps the plan as it is."""
        self._admission = Admission(query, count_only=count_only)
        self.output_schema = self._admission.schema
        """The schema of the tables that `push` returns."""
        m = len(self.names)
        count = m if nodes is None else nodes
        self._arrival = tuple(((i,) if nodes is None else tuple(range(i % count, count, m))) for i in range(m))
        self._starts = tuple(Place(origins) for origins in self._arrival)
        self._choice = PlanKindChooser(Planner(query, count, self._starts, self.costs))
        self._network = Network(self._take, self.costs, lambda: self._admission.row_bytes, faults)
        self._epoch = 0
        self._pace = StreamPace(self._admission.spans)
        self._took: float | None = None
        self._jep: JEP | None = None
        self._history: list[ProgramChange] = []
        self._arrived: list[Tuples] = []
        self._reported = [unknown(len(query.classes), classes) for classes in self._admission.classes]
        model = Model(tuple(self._reported), self.costs, update == "shared")
        self._central = CentralNode(model)
        self._updating = [UpdatingNode(i, model, self._central.plan) for i in range(m)]
        self._newest = self._next_program(self._first_routes())
        shape = QueryFacts(self._admission.spans, self._admission.classes, self._arrival, count, self.costs)
        self.nodes = [JoiningNode(node, shape, self._newest) for node in range(count)]
        """The nodes, for inspection."""

    # The public face

    @property
    def clock(self) -> float:
        """Simulated seconds since the start."""
        return self._network.finish_time(dict.fromkeys(range(len(self.nodes))))

    @property
    def cost(self) -> float:
        """Simulated seconds of all work and all shipments so far, added up over nodes and links."""
        return self._network.cost

    @property
    def sent_bytes(self) -> float:
        """Bytes shipped so far between nodes and to the site of the query."""
        return self._network.sent_bytes

    @property
    def kind(self) -> str:
        """The kind of plan that runs: "greedy", "own", "grid" or "hops"."""
        return self._kind

    @property
    def late(self) -> dict[str, int]:
        """The number of late rows of each stream; late rows join no row."""
        return dict(zip(self.names, self._admission.late_rows, strict=True))

    def push(self, batches: Mapping[str, object]) -> pa.Table:
        """Insert the rows of an epoch, let the cluster run until no event is left, and return the results.

        Rows are given and validated as in `Runtime.push`; without time columns in all streams, the rows of a stream
        arrive before the rows of the next stream. The order of results has no meaning. Afterwards the cluster measures
        its streams and may change its plans. Raises InputError for rows that do not fit the query; the state is then
        unchanged.
        """
        began, told = self.clock, len(self._network.deliveries)
        self.feed(batches)
        table = self.drain()
        # An epoch in which windows move is no measurement for the next epochs.
        self._took = self.clock - began if told == len(self._network.deliveries) else None
        self._adapt()
        return table

    def feed(self, batches: Mapping[str, object], steps: int = 0) -> None:
        """Insert the rows of an epoch, and process `steps` events of the network. `drain` returns results."""
        admitted = self._admission.admit(batches)
        self._pace.note(admitted)
        if not self._epoch and self._placement == "auto" and not self._network.down:
            # The first rows are measured before they are shipped, because no other figures exist for a plan.
            self._choose([[rows] for rows in admitted])
            self._network.run()
            self._retire()
        for i, rows in enumerate(admitted):
            origins = self._arrival[i]
            for k, node in enumerate(origins):
                part = rows if len(origins) == 1 else rows.take(np.arange(k, rows.size, len(origins)))
                sent = self.nodes[node].arrive(i, self._epoch, part)
                self._network.send(node, sent)
        self._epoch += 1
        self._network.run(steps)

    def drain(self) -> pa.Table:
        """Let the network run until no event is left, and return the results since the last call.

        Raises StateError if tuples wait for a message that cannot come because a node is down.
        """
        self._network.run()
        stuck = [node.node for node in self.nodes if node.waits]
        if stuck or self._network.down:
            raise StateError(f"nodes {stuck} wait for nodes {sorted(self._network.down)}, which are down; restart them")
        parts, self._arrived = self._arrived, []
        everything = merged(parts).rows if parts else {i: np.zeros(0, np.int64) for i in range(len(self.names))}
        table = self._admission.table(everything)
        self._network.now = self.clock
        self._settle()
        return table

    def change(self, placement: str | Mapping[str, Sequence[tuple[str, str]]]) -> None:
        """Change the plan now, while tuples may be in transit; no result is lost, added or repeated.

        placement   "grid" or "hops" if nodes share all steps, else a plan of your own
        """
        if not isinstance(placement, str):
            routes, kind = self._own_routes(placement), "own"
        elif placement in KINDS:
            routes, kind = self._choice.routes(placement, self._synopses(self._logged())), placement
        else:
            raise PlanError(f'placement {placement!r}: give a plan of your own, "grid" or "hops"')
        self._kind = kind
        self._send_program(PLANNER, self._next_program(routes), "asked for", (0.0, 0.0))

    def plan(self) -> str:
        """Return the plan of each stream as head: the streams in their order, and the place of each join."""
        lines = []
        for head, steps in enumerate(self._newest.routes):
            hops = ", ".join(f"{self.names[j]} at {place.text(self._labels)}" for j, place in steps)
            lines.append(f"{self.names[head]}: {hops}")
        return "\n".join(lines)

    def modelled_cost(self) -> float:
        """Return the cost of the running plan by the cost model of the paper, with the current figures.

        The cost is in seconds per epoch, over all nodes and links. Raises StateError for a plan over nodes that share
        all steps.
        """
        if self._jep is None:
            raise StateError("the cost model of the paper has one node per stream; this cluster shares all steps")
        return Model(tuple(self._statistics()), self.costs).cost(self._jep)

    def operators(self) -> dict[int, dict[str, list[str]]]:
        """Return the operator set of each node, as text, by place."""
        return {
            node.node: {
                place.text(self._labels): texts(operators, self.names, self._labels)
                for place, operators in self._newest.at_node(node.node).items()
            }
            for node in self.nodes
        }

    def messages(self) -> pa.Table:
        """Return the messages between nodes that do not carry tuples: plans, windows, synchronisation.

        Columns: name, source, to, bytes, at (simulated seconds). Node -1 is the site of the query.
        """
        rows = self._network.deliveries
        fields = [("name", pa.string()), ("source", pa.int64()), ("to", pa.int64()), ("bytes", pa.float64())]
        return pa.table(
            {name: [row[k] for row in rows] for k, name in enumerate(("name", "source", "to", "bytes", "at"))},
            schema=pa.schema([*fields, ("at", pa.float64())]),
        )

    def history(self) -> pa.Table:
        """Return the changes of plan, oldest first, a row each with the fields of a `ProgramChange`."""
        return change_table(self._history)

    # Crashes

    def crash(self, node: int) -> None:
        """Stop a node: its windows are lost, and so are messages to it until `restart`.

        Raises StateError on a network without `faults`, which repeats no messages.
        """
        if not self._network.repeats:
            raise StateError("nodes of a perfect network do not crash; give faults=Faults()")
        self._network.down.add(node)

    def restart(self, node: int) -> None:
        """Start a stopped node again. The node requests its windows from the logs of the streams."""
        self._network.up(node)
        self._network.send(node, self.nodes[node].crash())

    # Messages

    def _take(self, node: int, message: Any) -> tuple[list[Sent], float]:
        """Pass a message to its node; return the messages that the node sends, and the seconds of its work."""
        if node == SITE:
            self._arrived.append(message.tuples)
            return [], 0.0
        if isinstance(message, DATA):
            joining = self.nodes[node]
            sent, seconds = joining.handle(message), joining.work
            joining.work = 0.0
            return sent, seconds
        if isinstance(message, Changed):
            before = self._central.plan
            if self._central.handle(message):
                model, after = self._central.model, self._central.plan
                costs = model.cost(before), model.cost(after)
                self._jep = after
                reason = f"figures of {self.names[message.stream]}"
                return self._installs(node, self._next_program(sited_routes(after)), reason, costs), 0.0
            return [], 0.0
        updating = self._updating[node]
        sent = updating.handle(message)
        if isinstance(message, Finished) and not updating.busy:
            sent += self._settled(node)
        return sent, 0.0

    def _settled(self, node: int) -> list[Sent]:
        """Return the messages with which a node makes the plans of all heads, settled by DNU, the new program."""
        settled = self._updating[node].settled
        plan = JEP(tuple(settled[i] for i in range(len(self.names))))
        self._jep = plan
        made = self._next_program(sited_routes(plan))
        if made.routes == self._newest.routes:
            return []
        return self._installs(node, made, f"figures of {self.names[node]}", (0.0, 0.0))

    # Programs

    def _next_program(self, routes: Sequence[Steps], *, bare: bool = False) -> Program:
        return program(self._starts, routes, getattr(self, "_newest", None), bare=bare)

    def _first_routes(self) -> list[Steps]:
        if not isinstance(self._placement, str):
            self._kind = "own"
            return self._own_routes(self._placement)
        if self._placement == "greedy":
            self._kind, self._jep = "greedy", self._central.plan
            return sited_routes(self._central.plan)
        self._kind = "grid" if self._placement == "auto" else self._placement
        return self._choice.routes(self._kind, self._synopses([[] for _ in self.names]))

    def _own_routes(self, placement: Mapping[str, Sequence[tuple[str, str]]]) -> list[Steps]:
        if self._choice.planner.nodes != len(self.names) or any(len(origins) > 1 for origins in self._arrival):
            raise PlanError("a plan of your own places steps at one node per stream: leave out `nodes`")
        plan = jep(placement, self.names)
        self._central.model.check(plan)
        self._jep = plan
        return sited_routes(plan)

    def _send_program(self, node: int, made: Program, reason: str, costs: tuple[float, float]) -> None:
        self._network.send(node, self._installs(node, made, reason, costs))

    def _installs(self, node: int, made: Program, reason: str, costs: tuple[float, float]) -> list[Sent]:
        """Make a program the newest one; return the message with which a node begins to install it."""
        self._newest = made
        self._history.append(ProgramChange(self._epoch, made.version, reason, self.plan(), *costs, self._network.now))
        return [Sent(node, Install(made, self._track, node))]

    # Between two epochs

    def _settle(self) -> None:
        """Drop rows that no tuple can join any longer, and programs with which no row is stamped."""
        horizon = self._admission.watermark
        for node in self.nodes:
            self._network.send(node.node, node.settle(horizon))
        self._retire()
        oldest = {}
        for i, origins in enumerate(self._arrival):
            firsts = [int(rows.rows[i].min()) for node in origins for rows in self.nodes[node].log.rows(i)]
            oldest[i] = min(firsts, default=self._admission.arrived(i))
        self._admission.forget(oldest)

    def _retire(self) -> None:
        """Drop programs with which no row is stamped, once all nodes run the newest program."""
        if all(node.current == self._newest.version for node in self.nodes):
            for node in self.nodes:
                for version in sorted(node.programs.keys() - {node.current}):
                    node.retire(version)

    def _adapt(self) -> None:
        """Measure the streams, and change plans that no longer fit."""
        if self._placement == "greedy":
            self._report_figures()
        elif self._placement == "auto":
            self._choose(self._logged())
        self._network.run()
        self._settle()

    def _report_figures(self) -> None:
        figures = self._statistics()
        for i, (old, new) in enumerate(zip(self._reported, figures, strict=True)):
            if not differ(old, new, self.report):
                continue
            self._reported[i] = new
            sent = self._updating[i].change(new) if self._distributed else [Sent(PLANNER, Changed(i, new))]
            self._network.send(i, sent)
            self._network.run()

    def _logged(self) -> list[list[Tuples]]:
        """Return the rows of each window."""
        return [
            [rows for node in origins for rows in self.nodes[node].log.rows(i)]
            for i, origins in enumerate(self._arrival)
        ]

    def _choose(self, windows: list[list[Tuples]]) -> None:
        """Change to the kind of plan that is predicted to be faster, if the gain exceeds the cost of the change."""
        figures = self._synopses(windows)
        ahead = self._pace.ahead(figures, PAYBACK)
        bare = not self._epoch
        chosen = self._choice.choose(self._kind, self._newest.routes, figures, ahead, self._took, bare)
        if chosen is not None:
            self._kind = chosen.kind
            made = self._next_program(chosen.routes, bare=bare)
            self._send_program(PLANNER, made, "predicted time", (chosen.before, chosen.after))

    def _synopses(self, windows: Sequence[Sequence[Tuples]]) -> list[Synopsis]:
        """Return the figures of all streams, from the rows of their windows."""
        return synopses(windows, self._pace.rates, self._admission.row_bytes, self._admission.classes)

    def _statistics(self) -> list[StreamStatistics]:
        """Return the figures of all streams in the form of the paper's cost model."""
        return statistics(self._synopses(self._logged()), len(self.query.classes))
