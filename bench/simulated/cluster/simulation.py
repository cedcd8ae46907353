"""A cluster in one process: real engines, simulated links and a simulated clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from bench.simulated.cluster.balancing import Balance, Balancer
from bench.simulated.cluster.carrier import Carrier
from bench.simulated.cluster.fragments import Fragment
from bench.simulated.cluster.hot_keys import most_frequent
from bench.simulated.cluster.links import Link, Links
from bench.simulated.cluster.loads import kept
from bench.simulated.cluster.machine import Machine, Node
from bench.simulated.cluster.manager import Manager
from bench.simulated.cluster.messages import MANAGER
from bench.simulated.cluster.moves import MoveOptions, Variants, checked_how
from bench.simulated.cluster.partitioning import Partitioned
from bench.simulated.cluster.protocols import PROTOCOLS
from bench.simulated.cluster.setting import EngineSetting
from bench.simulated.cluster.split import SplitOperator
from bench.simulated.cluster.union import Union
from bench.simulated.cluster.work import Costs
from eddy.errors import InputError
from eddy.query.query import Query
from eddy.routing.router import policy_name
from eddy.routing.strategies import strategy_name
from eddy.runtime import Runtime
from eddy.uncopied import Uncopied
from jisc.strategies import STRATEGIES
from stairs.nearest import no_stream


class ClusterSimulation(Uncopied):
    """Runs a query on simulated nodes, and moves partition groups between them.

    query     an inner join of streams with event times, Range windows and a key that all of them share
    nodes     the nodes, or their number
    links     latency and bandwidth of all links
    groups    number of partition groups, which the nodes run in turn; or per group the node that runs it at the start
    costs     seconds per unit of work
    variants  variants of the protocols
    turn_rows rows that a node joins before it handles control messages
    balance   when and how groups move automatically; None = only `move` moves groups

    A split per stream routes rows; each split is on its own machine. Rows of one stream arrive in the order in which
    they were pushed; a row that is older than the greatest event time of its stream by more than `Query.lateness` is
    late (`late_counts`). Results are those of one engine over all other rows, for any order of deliveries by the links.
    Raises QueryError for a query that cannot be partitioned, InputError for other arguments.

    >>> rows = pa.schema([("k", pa.int64()), ("t", pa.int64())])
    >>> from eddy import Range, Stream
    >>> streams = [Stream(name, rows, window=Range(10), time="t") for name in "RS"]
    >>> sim = ClusterSimulation(Query(streams, ["R.k = S.k"]), nodes=2, groups=4)
    >>> sim.push({"R": {"k": [1, 2], "t": [0, 1]}, "S": {"k": [2, 1], "t": [3, 4]}})
    >>> sim.run()
    >>> sim.results().num_rows
    2
    """

    _no_copy = "a ClusterSimulation: make another one and push the same rows"

    def __init__(
        self,
        query: Query,
        nodes: Sequence[Node] | int = 2,
        links: Link | None = None,
        *,
        groups: int | Sequence[int] = 16,
        costs: Costs | None = None,
        variants: Variants | None = None,
        turn_rows: int = 256,
        balance: Balance | None = None,
    ) -> None:
        self.nodes = [Node()] * nodes if isinstance(nodes, int) else list(nodes)
        if not self.nodes:
            raise InputError("a cluster needs at least 1 node")
        first = [group % len(self.nodes) for group in range(groups)] if isinstance(groups, int) else list(groups)
        if not first or turn_rows < 1:
            raise InputError(f"groups={groups}, turn_rows={turn_rows}: give 1 or more")
        if not all(0 <= node < len(self.nodes) for node in first):
            raise InputError(f"groups={groups}: name a node of 0 to {len(self.nodes) - 1} for each group")
        self.query = Partitioned(query, len(first))
        self.costs = costs if costs is not None else Costs()
        self._turn_rows = turn_rows
        self._links = Links(links if links is not None else Link())
        self._settings = [self._setting(node) for node in self.nodes]
        machines = [self._machine(i, first) for i in range(len(self.nodes))]
        splits = {
            f"split {name}": SplitOperator(i, first, len(self.nodes), partial(self.query.hashes, i))
            for i, name in enumerate(self.query.names)
        }
        self.union = Union(self.query.inner.output_schema, self.query.hidden)
        options = MoveOptions(variants or Variants(), tuple(self.query.spans), self._cheaper)
        manager = Manager(first, len(self.nodes), self.query.names, options, PROTOCOLS)
        self.carrier = Carrier(self._links, machines, splits, manager, self.union, partial(self._machine, owners=[]))
        self.late_counts = dict.fromkeys(self.query.names, 0)
        self._balancer = None if balance is None else Balancer(balance, first, len(self.nodes), self.costs)
        if balance is not None:
            self.carrier.at(balance.every, self._balance)

    def _setting(self, node: Node) -> EngineSetting:
        policy = None if node.policy is None else policy_name(node.policy)
        model = Runtime(self.query.inner, node.plan, strategy=strategy_name(node.strategy), policy=policy)
        return EngineSetting(model.plan, node.strategy, model.policy)

    def _cheaper(self, sender: int, receiver: int) -> bool:
        """Return whether a move includes stored states: some states match, and sending costs less than completing."""
        ours, theirs = self._settings[sender], self._settings[receiver]
        if ours[1:] != theirs[1:] or not STRATEGIES[ours.strategy].changes:
            return False
        matching = {(stair.streams, stair.by) for stair in self._model(ours).stairs}
        if not matching & {(stair.streams, stair.by) for stair in self._model(theirs).stairs}:
            return False
        entry_bytes = 8 * (1 + len(self.query.names))
        sent = self.costs.pack + self.costs.load + entry_bytes / self._links.link.bandwidth
        return sent < self.costs.entry

    def _model(self, setting: EngineSetting) -> Runtime:
        return Runtime(
            self.query.inner, setting.plan, strategy=strategy_name(setting.strategy), policy=policy_name(setting.policy)
        )

    def _machine(self, number: int, owners: list[int]) -> Machine:
        node = self.nodes[number]
        return Machine(self.query, number, self._settings[number], node.speed, self.costs, self._turn_rows, owners)

    # The public methods

    @property
    def time(self) -> float:
        """The simulated time in seconds."""
        return self.carrier.time

    @property
    def manager(self) -> Manager:
        """The distribution manager; after a loss it is another object."""
        return self.carrier.manager

    @property
    def owners(self) -> list[int]:
        """Per group, the node that runs it; -1 for a fragment of a hot key that has been gathered."""
        return list(self.manager.owners)

    def push(self, batches: Mapping[str, object], at: float | None = None) -> None:
        """Let rows arrive at the splits at a time of the simulated clock, which `run` reaches; None = now.

        batches   rows by stream, as for `Runtime.push`

        Raises InputError for rows that do not fit, and for a time that has passed.
        """
        at = self.carrier.time if at is None else at
        if at < self.carrier.time:
            raise InputError(f"at={at}: the simulated clock is at {self.carrier.time} already")
        for name, rows in batches.items():
            if name not in self.query.names:
                raise InputError(no_stream(name, self.query.names))
            i = self.query.names.index(name)
            self.carrier.at(at, self.carrier.when_up, f"split {name}", self._arrive, i, *self.query.admit(i, rows))

    def finish(self) -> None:
        """End the input: all windows end, so that moves that wait for them can end."""
        for address in self.carrier.splits:
            self.carrier.when_up(address, self._end, address)

    def run(self, until: float | None = None) -> None:
        """Advance the clock to a time, or until no event is left."""
        self.carrier.run(until)

    def move(self, groups: Sequence[int], to: int, how: str = "jit") -> list[int]:
        """Request a move of groups to a node; return the numbers of the moves, one for each node that sends.

        how   "parallel" (PTLB), "state" (MSLB) or "jit"

        A group that is in another move moves after the end of that move. Raises InputError for arguments that do not
        fit, and while the manager is down.
        """
        self._check_receiver(to)
        checked_how(how)
        wanted = sorted({self.query.check_group(group, self.owners) for group in groups})
        if not wanted:
            raise InputError("no groups to move; name at least one")
        ends = self._ends()
        numbers = []
        for sender in sorted({ends[group] for group in wanted}):
            numbers.append(self._request(how, sender, to, tuple(g for g in wanted if ends[g] == sender), None))
        return numbers

    def move_load(self, sender: int, to: int, rows: float, how: str = "jit") -> int:
        """Request a move of about `rows` rows of state, in groups that the sender chooses; return its number."""
        self._check_receiver(sender)
        self._check_receiver(to)
        checked_how(how)
        return self._request(how, sender, to, (), rows)

    def fragment(self, key: object, deal: str, to: Sequence[int]) -> list[int]:
        """Divide the rows of a hot key: add a fragment at each of these nodes; return the fragments' groups.

        key   a value, or a tuple of values if the key has several columns
        deal  the stream whose rows are dealt; rows of the other streams go to all fragments

        `bench/simulated/cluster/fragments.py` has the rules. Raises InputError for arguments that do not fit.
        """
        if deal not in self.query.names:
            raise InputError(no_stream(deal, self.query.names))
        dealt, hashed = self.query.names.index(deal), self.query.hash_of(key)
        if self.query.spans[dealt] is None:
            raise InputError(f"stream {deal} is unbounded, so its rows could never be gathered; deal another stream")
        other = {fragment.dealt for fragment in self._fragments(hashed).values()} - {dealt}
        if other:
            raise InputError(f"key {key!r} is in fragments by stream {self.query.names[other.pop()]}; deal that one")
        if not to:
            raise InputError("no node for a fragment; name at least one")
        for node in to:
            self._check_receiver(node)
        self._check_manager()
        return [self._fragment(hashed, dealt, node) for node in to]

    def gather(self, key: object) -> list[int]:
        """Gather all fragments of a key in its partition group; return the groups that end with their windows."""
        self._check_manager()
        groups = list(self._fragments(self.query.hash_of(key)))
        if not groups:
            raise InputError(f"key {key!r} is not in fragments")
        for group in groups:
            self.carrier.send(MANAGER, self.manager.gather(group))
        return groups

    def _fragments(self, key: int) -> dict[int, Fragment]:
        """Return the fragments of a key after the first one that are not gathered."""
        live = ("replicated", "dealt")
        return {
            group: fragment
            for group, fragment in self.manager.fragments.items()
            if fragment.key == key and fragment.state in live
        }

    def _fragment(self, key: int, dealt: int, node: int) -> int:
        of = int(self.query.groups_of(np.array([key], np.uint64))[0])
        since = min(split.progress for split in self.carrier.splits.values())
        number = len(self.manager.owners)
        self.carrier.moves.asked(len(self.manager.moves), self.carrier.time)
        self.carrier.send(MANAGER, self.manager.fragment(of, key, dealt, node, since))
        return number

    def transition(self, node: int, plan: str) -> None:
        """Change the plan of a node: of all its engines, and of groups that it receives later."""
        self._check_node(node)
        machine = self.carrier.machines[node]
        if machine is None:
            raise InputError(f"node {node} is down; its plan can change when it runs again")
        machine.processor.transition(plan)
        self._settings[node] = machine.processor.setting

    def lose(self, process: int | str, restart: float | None = None) -> None:
        """Lose a process now: a node by its number, "manager", or "split <stream>".

        restart   seconds until it runs again; None = never, which only a node may do

        A node loses its memory, its queue and all messages in transit to it. When the node is back, or at once if it
        never returns, the manager rebuilds its groups from the logs of the splits and from the results that the union
        has taken. A manager reads its journal again, and a split has its state in its log; messages to either of them
        arrive when it is back.
        """
        if isinstance(process, int):
            self._check_node(process)
            if self.carrier.machines[process] is None:
                raise InputError(f"node {process} is down already")
            if restart is None and sum(machine is not None for machine in self.carrier.machines) == 1:
                raise InputError(f"node {process} is the last one that runs")
            self.carrier.lose_node(process, restart)
        elif process == MANAGER or process in self.carrier.splits:
            if restart is None:
                raise InputError(f"{process} has to come back: say after how many seconds (restart=…)")
            if process in self.carrier.held:
                raise InputError(f"{process} is down already")
            self.carrier.hold(process, restart)
        else:
            raise InputError(
                f"there is no process {process!r}; there are nodes, 'manager' and {', '.join(self.carrier.splits)}"
            )

    def results(self) -> pa.Table:
        """Return all results that have reached the union, in the order of their arrival there."""
        return self.union.results()

    def messages(self) -> pa.Table:
        """Return the messages of all moves in the order in which they were sent; `records.MESSAGES` has the columns."""
        return self.carrier.log.table()

    def history(self) -> pa.Table:
        """Return one row per move; `records.MOVES` documents the columns."""
        return self.carrier.moves.table(self.manager.moves, self.carrier.log)

    def groups(self) -> pa.Table:
        """Return one row per partition group; `records.GROUPS` documents the columns. O(tracks + rows that wait)."""
        return self.carrier.loads.table(self.carrier.machines, self.manager, list(self.carrier.splits.values()))

    # Requests

    def _check_node(self, node: object) -> None:
        if not isinstance(node, int) or not 0 <= node < len(self.nodes):
            raise InputError(f"there is no node {node!r}; nodes are numbered from 0 to {len(self.nodes) - 1}")

    def _check_receiver(self, node: object) -> None:
        self._check_node(node)
        if node in self.carrier.gone:
            raise InputError(f"node {node} was lost and does not come back; choose another one")

    def _check_manager(self) -> None:
        if MANAGER in self.carrier.held:
            raise InputError("the manager is down; request the move when it runs again")

    @property
    def _away(self) -> set[int]:
        """The nodes that currently take no groups."""
        return self.carrier.gone | self.manager.down

    def _ends(self) -> list[int]:
        """Return per group the node that will run it after all requested moves."""
        ends = self.owners
        for move in self.manager.moves:
            if move.state in ("running", "waiting") and move.amount is None:
                for group in move.groups:
                    ends[group] = move.receiver
        return ends

    def _request(self, how: str, sender: int, to: int, groups: tuple[int, ...], amount: float | None) -> int:
        self._check_manager()
        if how == "parallel" and None in self.query.spans:
            endless = self.query.names[self.query.spans.index(None)]
            raise InputError(f"stream {endless} is unbounded, so PTLB would never end: move by 'state' or 'jit'")
        number = len(self.manager.moves)
        self.carrier.moves.asked(number, self.carrier.time)
        self.carrier.send(MANAGER, self.manager.request(how, sender, to, groups, amount))
        return number

    def _arrive(self, stream: int, rows: pa.RecordBatch, groups: np.ndarray) -> None:
        address = f"split {self.query.names[stream]}"
        split = self.carrier.splits[address]
        rows, groups, progress, late = self.query.on_time(stream, rows, groups, split.progress)
        self.late_counts[self.query.names[stream]] += late
        self.carrier.send(address, split.arrive(self.query.pieces(rows, groups), progress))

    def _end(self, address: str) -> None:
        """End the input of a split."""
        self.carrier.send(address, self.carrier.splits[address].arrive({}, self.query.end))

    # Balancing

    def _balance(self) -> None:
        """Decide after a period, and begin the next period as long as other events are scheduled."""
        assert self._balancer is not None
        balance = self._balancer.balance
        states, waiting = kept(self.carrier.machines, self.manager.owners)
        groups = [group for group, node in enumerate(self.owners) if node >= 0]
        if balance.measure == "time":
            measured = self.carrier.loads.in_time(groups, waiting, balance.every)
        else:
            measured = {g: float(states[g].rows + states[g].entries + waiting[g]) for g in groups}
        self.carrier.moves.measured(self.owners, measured, self.manager.moves, self.carrier.time)
        busy = frozenset(group for move in self.manager.running for group in move.groups)
        # Moving groups count for their receiver; a PTLB move lasts as long as the windows.
        for planned in self._balancer.plan(self._ends(), measured, states, busy):
            if MANAGER not in self.carrier.held and not {planned.sender, planned.receiver} & self._away:
                number = self._request(balance.how, planned.sender, planned.receiver, planned.groups, None)
                self.carrier.moves.predicted(self.manager.moves[number], planned.gain, planned.cost)
        if MANAGER not in self.carrier.held:
            self._divide_hot_keys(self._balancer)
        self.carrier.loads.next_period()
        if not self.carrier.idle:
            self.carrier.at(self.carrier.time + balance.every, self._balance)

    def _divide_hot_keys(self, balancer: Balancer) -> None:
        """Give hot keys fragments, and gather the fragments of keys whose load has fallen."""
        load = balancer.load.per_group
        nodes = {number: 0.0 for number in range(len(self.nodes)) if number not in self._away}
        for amount, host in zip(load, self.owners, strict=True):
            if host in nodes:
                nodes[host] += amount
        fragments: dict[int, list[int]] = {}
        for group, fragment in self.manager.fragments.items():
            if fragment.state == "dealt":
                fragments.setdefault(fragment.key, [fragment.of]).append(group)
        bound = balancer.hot_keys.bound(list(nodes.values()))
        watched = {group for group in range(self.query.groups) if load[group] > bound}
        watched |= {groups[0] for groups in fragments.values()}
        windowed = [i for i, span in enumerate(self.query.spans) if span is not None]
        splits = list(self.carrier.splits.values())
        hottest = {group: most_frequent(splits, group, windowed) for group in watched}
        frequent = {group: key for group, key in hottest.items() if key is not None}
        for own_split in splits:
            own_split.counted()
        made, cooled = balancer.hot_keys.plan(load, self.owners, nodes, frequent, fragments)
        for key, deal, to in made:
            for node in to:
                self._fragment(key, deal, node)
        for key in cooled:
            for group in fragments[key][1:]:
                self.carrier.send(MANAGER, self.manager.gather(group))
