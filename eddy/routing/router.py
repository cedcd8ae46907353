"""The router: takes samples, asks the policy at intervals, and returns the plan of a change.

A decision happens between two arrivals: at the beginning of a push, or within a long push. An exception of the policy
leaves that push, which is undone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from time import thread_time
from typing import cast

import numpy as np

from eddy.routing.pace import LEAST, Pace
from eddy.routing.policies import POLICIES, Decision, Learning, Policy, PolicyName
from eddy.routing.preference import preference
from eddy.routing.strategies import resolve
from eddy.routing.view import View, tables_of
from eddy.storage.random_state import random_state, set_random_state
from jisc.plan.orders import has_choice, is_cyclic
from jisc.plan.routes import Preference
from jisc.plan.states import StateId, read_states, states_of
from jisc.plan.tree import Tree, parse
from jisc.strategies import Strategy
from jisc.strategies.base import COUNTERS
from stairs.descriptors import H_TARGET, M_ARRIVAL, M_ARRIVALS, S_BASE, S_NEXT
from stairs.errors import InputError, StateError
from stairs.modules import Modules
from stairs.nearest import nearest
from stairs.samples import Floats, Samples
from stairs.storage.parts import Parts, Plain

FADING = 0.7
"""Weight of the earlier shares of streams against those of a new sample."""


@dataclass(frozen=True)
class Choice:
    """A decision of the policy, resolved for the strategy."""

    tree: Tree
    store: frozenset[StateId]
    reason: str
    prefer: Preference | None


def policy_name(text: str) -> PolicyName:
    """Return the name of a policy with its literal type. Raises InputError for an unknown name."""
    if text not in POLICIES:
        near, names = nearest(text, POLICIES), ", ".join(POLICIES)
        raise InputError(f"there is no policy {text!r}{near}; choose one of {names}, or give an object")
    return cast(PolicyName, text)


def make_policy(policy: str | Policy | None, strategy: Strategy) -> Policy:
    """Return the policy of a name, or the given one; None = the default of the strategy. Raises InputError."""
    if policy is None:
        policy = "cost" if strategy.can_store else "fixed"
    if isinstance(policy, str):
        return POLICIES[policy_name(policy)]()
    if isinstance(policy, type):
        raise InputError(f"policy is an object, not the class {policy.__name__}: write {policy.__name__}()")
    if not callable(getattr(policy, "decide", None)) or not isinstance(getattr(policy, "name", None), str):
        raise InputError(
            f"a policy has a name and decide(view), {type(policy).__name__} has not; see eddy.routing.policies"
        )
    return policy


class Router:
    """Statistics and decisions of one engine.

    every       arrivals between two decisions; None = by time
    sampling    False = no statistics and no decisions
    shares      float64[streams], share of each stream in recent arrivals
    room        bytes that stored states may take
    view        the last view of the policy; None = the policy was not asked yet
    seconds     CPU time of sampling and deciding since the start
    """

    def __init__(
        self, modules: Modules, strategy: Strategy, policy: Policy, every: int | None = None, sampling: bool = True
    ) -> None:
        self.pace = Pace(every, modules.graph.n_streams)
        self.modules, self.strategy = modules, strategy
        self.sampling = sampling
        self.samples = Samples(modules)
        self.tables = tables_of(modules.graph)
        self.rng = np.random.default_rng(0)
        m = modules.graph.n_streams
        self.shares: Floats = np.full(m, 1.0 / m)
        self.room = float("inf")
        self.seconds = 0.0
        self.follow(policy)
        self._orders_matter = has_choice(strategy.masks)
        self._classes_matter = strategy.prefers and is_cyclic(strategy.masks)
        self._probed: Floats = np.zeros((m, 2))
        """Probes and matches, per stream probed, at the last decision."""

    def follow(self, policy: Policy) -> None:
        """Ask this policy from now on, as soon as at first."""
        self.policy = policy
        self.view: View | None = None
        self._deciding = self.sampling and policy.name != "fixed"
        self._settled = False
        """Whether the plan has stayed since the last decision, and since the previous one."""
        self.pace.hurry()

    def with_strategy(self, strategy: Strategy) -> Router:
        """Return a new router, without statistics, for another strategy over the same modules."""
        return Router(self.modules, strategy, self.policy, self.pace.every, self.sampling)

    # Sampling and deciding

    def note(self, arrivals: int, seconds: float | None) -> None:
        """Count arrivals that took this many seconds in the kernel, None = not measured (`Pace.unclocked`). O(1)."""
        self.pace.note(arrivals, seconds)

    def stretch(self, left: int) -> int:
        """Return the number of the `left` arrivals of a push before the next look."""
        if not self._deciding:
            return left
        return self.pace.stretch(left, self._orders_matter or bool(self.strategy.stairs))

    @property
    def due(self) -> bool:
        """Whether it is time for `look`."""
        return self.sampling and self.pace.look_due

    def look(self) -> Choice | None:
        """Take a sample and ask the policy, each if it is due; return the choice of the policy if it is a change."""
        began, deciding = thread_time(), self._deciding and self.strategy.changes
        try:
            if not self.pace.looked(deciding):
                return None
            fresh = self.samples.take()
            total = int(fresh.sum())
            if total:
                # The first sample replaces the initial shares.
                fading = FADING if self.pace.samples > 1 else 0.0
                self.shares = fading * self.shares + (1 - fading) * fresh / total
            if not deciding:
                self.pace.start_over()
                return None
            return self._ask() if self.pace.decision_due else None
        finally:
            self.seconds += thread_time() - began

    def _ask(self) -> Choice | None:
        began, pace = thread_time(), self.pace
        probed = self._probes()
        drifting = pace.drifting
        pace.drifts += self._settled and drifting
        self.view = view = self._view(probed - self._probed, pace.recent)
        decision = self.policy.decide(view)
        pace.decisions += 1
        choice = None if decision is None else self._choice(view, decision)
        # After a change, states and caches fill, so the cost until the next decision is not representative.
        self._settled = choice is None
        self._probed = probed
        pace.turnover = int((view.rows / np.maximum(view.shares, 1e-9)).max())
        pace.decided(choice is not None, drifting)
        pace.took(thread_time() - began)
        return choice

    def _view(self, probed: Floats | None = None, measured: float = float("nan")) -> View:
        strategy, modules = self.strategy, self.modules
        prefer = preference(modules.graph, self.samples, strategy.prefer) if self._classes_matter else None
        return View(
            graph=modules.graph,
            tree=strategy.tree,
            stored=strategy.stored,
            # Over tables, climbs take several times what they are predicted at (`eddy bench changes-drift`).
            storing=strategy.can_store and not (modules.graph.tables or modules.has_presence),
            # This includes the arrivals of the running push.
            position=int(modules.meta[M_ARRIVALS] + modules.meta[M_ARRIVAL]),
            shares=self.shares,
            rows=np.array([modules.live(i) for i in range(modules.graph.n_streams)], np.float64),
            probed=np.zeros((modules.graph.n_streams, 2)) if probed is None else probed,
            measured=measured,
            settled=self._settled and not self.pace.drifting,
            drifting=self.pace.drifting,
            turning=self.pace.drifting or self.pace.alert > 0,
            room=self.room,
            prefer=prefer,
            preferred=strategy.prefer,
            rng=self.rng,
            kept=strategy.kept,
            masks=strategy.masks,
            samples=self.samples,
            tables=self.tables,
        )

    def _choice(self, view: View, decision: Decision) -> Choice | None:
        if not isinstance(decision, Decision):
            raise InputError(f"policy {self.policy.name!r} decided {decision!r}; it returns a Decision or None")
        tree = view.tree_of(decision.plan)
        if decision.store is None:
            store = view.stored & frozenset(states_of(tree, view.masks))
        else:
            store = resolve(tree, view.graph, decision.store)
        if store:
            self.strategy.require_choice()
        same = (tree, store) == (view.tree, view.stored) and (bool(store) or view.prefer == view.preferred)
        return None if same else Choice(tree, store, decision.reason, view.prefer)

    def least_worth(self) -> StateId:
        """Return the stored state with the least benefit per byte; without a sample, the largest."""
        view = self._view()
        known = {benefit.state: benefit for benefit in view.benefits(view.tree)[1]} if len(view.picks) else {}
        sizes = {StateId.of(stair.streams, stair.by): max(stair.nbytes, 1) for stair in self.strategy.stairs}

        def worth(state: StateId) -> float:
            return known[state].net / sizes[state] if state in known else 1.0 / sizes[state]

        return min(self.strategy.stored, key=worth)

    def _probes(self) -> Floats:
        """Return probes and matches, per stream probed, since the start."""
        routes = self.strategy.routes
        counts = self.strategy.past.astype(np.float64)
        np.add.at(counts, routes.hops[:, H_TARGET], routes.counts[COUNTERS].T)
        return counts

    def plan_changed(self) -> None:
        """Start a new measurement, because the plan was changed, but not by the policy."""
        self.pace.start_over()
        self._settled = False

    def rolled_back(self, changed: bool) -> None:
        """Follow the undo of a push: reset its counters and, if the push `changed` plans, its plans."""
        self._probed = np.minimum(self._probed, self._probes())
        if changed:
            self.plan_changed()

    # Inspection

    @property
    def nanoseconds(self) -> float:
        """Current nanoseconds of CPU per arrival (without samples, since the start); nan = too few arrivals."""
        pace = self.pace
        if self.sampling:
            return pace.recent
        return 1e9 * pace.undecided / pace.arrivals if pace.arrivals >= LEAST else float("nan")

    @property
    def shares_now(self) -> Floats:
        """The shares of streams as a sample taken now would give them: float64[streams]."""
        streams = self.modules.streams
        fresh = streams[:, S_NEXT] + streams[:, S_BASE] - self.samples.progress[:-1, 0]
        if not fresh.any():
            return self.shares
        late: Floats = fresh / fresh.sum()
        return FADING * self.shares + (1 - FADING) * late if self.pace.samples else late

    def view_now(self) -> View:
        """Return the view that a policy would get now, for display; the samples for decisions do not change."""
        return replace(self._view(), shares=self.shares_now, _picks=self.samples.newest(self.shares_now))

    # Saved for another process (`eddy.live.engine_file`)

    def to_parts(self) -> Plain:
        """Return the state from which another process resumes, including the learnt state that the policy returns."""
        return {
            "samples": self.samples.to_parts(),
            "random": random_state(self.rng),
            "shares": self.shares,
            "probed": self._probed,
            "room": float(self.room),
            "seen": self._seen(),
            "pace": self.pace.to_parts(),
            "seconds": float(self.seconds),
            "settled": bool(self._settled),
            "learnt": self._learnt(),
        }

    def load_parts(self, parts: Parts) -> None:
        """Resume from the parts of `to_parts`. Call it after the modules and the strategy were loaded."""
        self.samples.load_parts(parts.part("samples"))
        set_random_state(self.rng, parts.part("random"))
        self.shares = parts.array("shares", np.float64, self.shares.shape)
        self._probed = parts.array("probed", np.float64, self._probed.shape)
        self.room, self._settled = parts.number("room"), parts.flag("settled")
        self.pace.load_parts(parts.part("pace"))
        self.seconds = parts.number("seconds")
        if parts.value("learnt") is not None and isinstance(self.policy, Learning):
            try:
                self.policy.resume(json.loads(parts.text("learnt")))
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                raise StateError(f"policy {self.policy.name!r} cannot resume what it had learnt: {error!r}") from error
        if parts.value("seen") is not None:
            self.view = self._read_view(parts.part("seen"))

    def _learnt(self) -> str | None:
        """Return the learnt state of the policy as JSON text, None if the policy does not return it."""
        policy = self.policy
        if not isinstance(policy, Learning):
            return None
        learnt = policy.learnt()
        try:
            return json.dumps(learnt)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"policy {policy.name!r} cannot be kept between processes: what learnt() returned is not JSON: {error};"
                " return None, booleans, numbers, strings, lists and dictionaries by strings"
            ) from error

    def _seen(self) -> Plain | None:
        """Return the plans that the policy considered last, with their predicted costs."""
        if self.view is None:
            return None
        names = self.modules.graph.names
        return {
            "position": self.view.position,
            "plans": [tree.text(names) for tree, _ in self.view.considered],
            "states": [{"stored": [list(state) for state in stored]} for _, stored in self.view.considered],
            "costs": [float(cost) for cost in self.view.considered.values()],
        }

    def _read_view(self, parts: Parts) -> View:
        graph, plans = self.modules.graph, parts.texts("plans")
        states = parts.items("states", len(plans))
        considered = {
            (parse(text, graph.names), frozenset(read_states(part, "stored", graph))): cost
            for text, part, cost in zip(plans, states, parts.numbers("costs", len(plans)), strict=True)
        }
        return replace(self._view(), position=parts.integer("position"), considered=considered)
