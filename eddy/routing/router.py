"""The router: keeps statistics, asks the policy now and then, and says which plan to go over to.

Both cost time, so both are rationed by time: a sample is taken after SAMPLE seconds of pushing, the policy is asked
when WORTH times as long has passed as it took to decide the last time, sooner when the cost of an arrival has moved.
With `every` it is by arrivals instead, and then a run decides the same whenever it is repeated, but for policies that
go by measured time.

A decision is taken between two arrivals: when a push begins, or within one that is long. What a policy raises comes
out of that push, which is taken back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from time import thread_time

import numpy as np

from eddy.query.numbers import at_least
from eddy.routing.policies import POLICIES, Decision, Learning, Policy
from eddy.routing.transitions import no_choice, resolve
from eddy.routing.view import NOTHING, Tables, View
from eddy.storage.random_state import random_state, set_random_state
from jisc.plan.orders import has_choice, is_cyclic
from jisc.plan.routes import Preference
from jisc.plan.states import StateId, states_of
from jisc.plan.tree import Tree, parse
from jisc.strategies import Eddy, Strategy
from jisc.strategies.base import COUNTERS, read_states
from stairs.descriptors import H_TARGET, M_ARRIVAL, M_ARRIVALS, S_BASE, S_NEXT
from stairs.errors import InputError, StateError
from stairs.modules import Modules
from stairs.samples import Floats, Samples
from stairs.storage.parts import Parts, Plain

SAMPLE = 0.005
"""Seconds of pushing from one sample to the next: taking one costs some tens of microseconds."""
EARLY = 0.001
"""The same before the first decision."""
WORTH = 30.0
SOON = 8.0
"""The same once the cost of an arrival has moved by DRIFT, for ALERT decisions: the windows still have to turn over."""
ALERT = 6
DECIDING = 0.0015
"""Seconds that a decision is taken to last at most, for STREAMS streams or fewer; for more, so much more."""
STREAMS = 8
PREFERRED = 1.3
"""How many times shorter chains have to be by another class for it to be preferred."""
DRIFT = 0.25
PATIENCE = 16.0
"""How many times rarer looks may become while nothing changes."""
FIRST = 3
"""Samples before the first decision."""
FADING = 0.7
"""What a sample leaves of the shares of streams before it."""
LEAST = 256
"""Arrivals that a measurement needs."""
SHORT_STRETCH = 4096
"""Arrivals taken at most in one go where a drift may be dear."""
FIRST_STRETCH = 2048
"""Arrivals taken before anything is known of what they cost."""
_COUNTS = ("decisions", "drifts", "_taken", "_arrivals", "_since", "_alert")
_SECONDS = ("seconds", "_unsampled", "_undecided", "_last", "_recent", "_usual", "_patience")
"""Counts and measurements that go on in another process."""


@dataclass(frozen=True)
class Choice:
    """What the policy decided, worked out for the strategy."""

    tree: Tree
    store: frozenset[StateId]
    reason: str
    prefer: Preference | None


def make_policy(policy: str | Policy | None, strategy: Strategy) -> Policy:
    """Return the policy of a name, or the one given; None = the default of the strategy. Raises InputError."""
    if policy is None:
        policy = "cost" if isinstance(strategy, Eddy) else "fixed"
    if isinstance(policy, str):
        if policy not in POLICIES:
            raise InputError(f"there is no policy {policy!r}; choose one of {', '.join(POLICIES)}, or give an object")
        return POLICIES[policy]()
    if isinstance(policy, type):
        raise InputError(f"policy is an object, not the class {policy.__name__}: write {policy.__name__}()")
    if not callable(getattr(policy, "decide", None)) or not isinstance(getattr(policy, "name", None), str):
        raise InputError(
            f"a policy has a name and decide(view), {type(policy).__name__} has not; see eddy.routing.policies"
        )
    return policy


class Router:
    """Statistics and decisions of one runtime.

    every       arrivals from one decision to the next; None = by time
    sampling    False = no statistics and no decisions at all
    """

    def __init__(
        self, modules: Modules, strategy: Strategy, policy: Policy, every: int | None = None, sampling: bool = True
    ) -> None:
        self.every = None if every is None else at_least(1, every)
        if self.every is None and every is not None:
            raise InputError(f"decide_every is a number of arrivals, 1 or more, not {every!r}")
        self.modules, self.strategy, self.policy = modules, strategy, policy
        self.sampling = sampling
        self.samples = Samples(modules)
        self.tables = Tables(strategy.masks)
        self.rng = np.random.default_rng(0)
        m = modules.graph.n_streams
        self.shares: Floats = np.full(m, 1.0 / m)
        self.room = float("inf")
        """Bytes that stored states may take."""
        self.view: View | None = None
        """What the policy saw last."""
        self.decisions = 0
        """How often it was asked."""
        self.seconds = 0.0
        """CPU time of sampling and deciding, in all."""
        self.drifts = 0
        """How often the cost of an arrival moved while the plan stayed."""
        self._changes = bool(strategy.changes)
        self._orders_matter = has_choice(strategy.masks)
        self._classes_matter = is_cyclic(strategy.masks)
        self._taken = 0
        """Samples taken."""
        self._unsampled = self._undecided = 0.0
        """Seconds of pushing since the last sample, and decision."""
        self._arrivals = 0
        """Arrivals since the last decision."""
        self._since = 0
        """Arrivals since the last sample."""
        self._last = 0.0
        """Seconds that the last decision took, at most `_longest`."""
        self._longest = DECIDING * max(1.0, m / STREAMS)
        self._recent = self._usual = float("nan")
        """Nanoseconds per arrival of late, and when the policy was asked last."""
        self._patience = 1.0
        self._alert = 0
        """Decisions to come that should come soon."""
        self._settled = False
        """Whether the plan has stayed since the last decision, and for one before."""
        self._probed: Floats = np.zeros((m, 2))

    def with_strategy(self, strategy: Strategy) -> Router:
        """Return a router for another strategy over the same modules, which knows nothing yet."""
        return Router(self.modules, strategy, self.policy, self.every, self.sampling)

    # Time

    def note(self, arrivals: int, seconds: float) -> None:
        """Take down that so many arrivals took so long in the kernel. O(1)."""
        self._arrivals += arrivals
        self._since += arrivals
        self._unsampled += seconds
        self._undecided += seconds

    def stretch(self, left: int) -> int:
        """Return how many of the arrivals left in a push to take before the next look."""
        if not self.sampling or self.policy.name == "fixed":
            return left
        if self.every is not None:
            return min(left, max(self.every - self._arrivals, 1))
        if self._recent != self._recent:
            return min(left, FIRST_STRETCH)
        # What takes as long as it should be from sample to sample. Where another plan or what is stored makes a great
        # difference, a drift can make arrivals many times dearer, so there is a look before much has come.
        most = SHORT_STRETCH if self._orders_matter or self.strategy.stairs else left
        return min(left, most, max(int(1e9 * self._interval / self._recent), LEAST))

    @property
    def _interval(self) -> float:
        """Seconds of pushing from one sample to the next."""
        if self._taken < FIRST:
            return EARLY
        return SAMPLE if self._patience == 1 else 2 * SAMPLE

    @property
    def due(self) -> bool:
        """Whether `look` has something to do."""
        if not self.sampling or not self._since:
            return False
        return self._arrivals >= self.every if self.every is not None else self._unsampled >= self._interval

    # Looking

    def look(self) -> Choice | None:
        """Take a sample and, when it is time, ask the policy; return what it decided."""
        began = thread_time()
        try:
            fresh = self.samples.take()
            self._taken += 1
            if self._since >= LEAST:
                found = 1e9 * self._unsampled / self._since
                self._recent = found if self._recent != self._recent else 0.5 * (found + self._recent)
            self._since, self._unsampled = 0, 0.0
            total = int(fresh.sum())
            if total:
                # Before the first sample there is nothing to fade.
                fading = FADING if self._taken > 1 else 0.0
                self.shares = fading * self.shares + (1 - fading) * fresh / total
            if not self._changes or self.policy.name == "fixed":
                self._arrivals, self._undecided = 0, 0.0
                return None
            return self._ask() if self._ripe() else None
        finally:
            self.seconds += thread_time() - began

    def _ripe(self) -> bool:
        if self.every is not None:
            return True
        if self._taken < FIRST:
            return False
        wait = SOON if self.drifting or self._alert else WORTH * self._patience
        return self._undecided >= wait * self._last

    @property
    def drifting(self) -> bool:
        """Whether an arrival costs another amount than when the policy was asked last."""
        return bool(abs(self._recent / self._usual - 1) > DRIFT)

    def _ask(self) -> Choice | None:
        began = thread_time()
        probed = self._probes()
        drifting = self.drifting
        self.drifts += self._settled and drifting
        self.view = view = self._look_around(probed - self._probed, self._recent)
        decision = self.policy.decide(view)
        self.decisions += 1
        choice = None if decision is None else self._choice(view, decision)
        # The first stretch after a change fills states and caches: what it costs says little.
        self._settled = choice is None
        # While nothing changes there is less and less to look for.
        self._patience = 1.0 if choice is not None or drifting else min(2 * self._patience, PATIENCE)
        self._alert = ALERT if drifting else max(self._alert - 1, 0)
        self._probed, self._usual = probed, self._recent
        self._arrivals, self._undecided = 0, 0.0
        # The first ones make tables that are kept: later ones should not have to wait for that.
        self._last = min(thread_time() - began, self._longest)
        return choice

    def _look_around(self, probed: Floats | None = None, measured: float = float("nan")) -> View:
        strategy, modules = self.strategy, self.modules
        return View(
            graph=modules.graph,
            tree=strategy.tree,
            stored=strategy.stored if isinstance(strategy, Eddy) else NOTHING,
            storing=isinstance(strategy, Eddy),
            # Those of a push under way count.
            position=int(modules.meta[M_ARRIVALS] + modules.meta[M_ARRIVAL]),
            shares=self.shares,
            rows=np.array([modules.rows(i) for i in range(modules.graph.n_streams)], np.float64),
            probed=np.zeros((modules.graph.n_streams, 2)) if probed is None else probed,
            measured=measured,
            settled=self._settled and not self.drifting,
            drifting=self.drifting,
            room=self.room,
            prefer=self._preference(),
            preferred=strategy.prefer if isinstance(strategy, Eddy) else None,
            rng=self.rng,
            masks=strategy.masks,
            samples=self.samples,
            tables=self.tables,
        )

    def _preference(self) -> Preference | None:
        """Return by which class each stream is best probed: where its chains are shortest for recent tuples.

        Another class than now has to be better by PREFERRED. None where no stream has a choice.
        """
        strategy, graph = self.strategy, self.modules.graph
        if not isinstance(strategy, Eddy) or not self._classes_matter:
            return None
        partners: dict[tuple[int, int], list[float]] = {}
        for i, near in enumerate(self.samples.neighbours):
            profile = self.samples.profile(i)
            if len(profile):
                for (by, j), found in zip(near, profile.mean(axis=0).tolist(), strict=True):
                    partners.setdefault((j, by), []).append(found)
        chosen = []
        for j, own in enumerate(graph.attributes):
            mean = {c: sum(found) / len(found) for c in own if (found := partners.get((j, c)))}
            before = strategy.prefer[j] if strategy.prefer is not None else own
            if len(mean) == len(own) > 1:
                # What is preferred now counts as somewhat shorter than it is.
                ranked = sorted(own, key=lambda c: mean[c] * (1 if c == before[0] else PREFERRED))
                before = tuple(ranked) if ranked[0] != before[0] else before
            chosen.append(tuple(before))
        return tuple(chosen)

    def _choice(self, view: View, decision: Decision) -> Choice | None:
        if not isinstance(decision, Decision):
            raise InputError(f"policy {self.policy.name!r} decided {decision!r}; it returns a Decision or None")
        tree = view.tree_of(decision.plan)
        if decision.store is None:
            store = view.stored & frozenset(states_of(tree, view.masks))
        else:
            store = resolve(tree, view.graph, decision.store)
        if store and not view.storing:
            raise no_choice(self.strategy.name)
        same = (tree, store) == (view.tree, view.stored) and (bool(store) or view.prefer == view.preferred)
        return None if same else Choice(tree, store, decision.reason, view.prefer)

    def least_worth(self) -> StateId:
        """Return the stored state that saves least per byte, of those of which nothing is known the largest."""
        assert isinstance(self.strategy, Eddy)
        view = self._look_around()
        known = {one.state: one for one in view.benefits(view.tree)[1]} if len(view.picks) else {}

        def worth(state: StateId) -> float:
            n_bytes = max(self.strategy.states[state].nbytes, 1)  # type: ignore[attr-defined]
            return known[state].net / n_bytes if state in known else 1.0 / n_bytes

        return min(self.strategy.stored, key=worth)

    def _probes(self) -> Floats:
        """Return chains looked up and tuples matched, by stream, since the start."""
        hops = self.strategy.routes.hops
        found = self.strategy.past.astype(np.float64)
        np.add.at(found, hops[:, H_TARGET], hops[:, COUNTERS])
        return found

    # Looking in

    @property
    def taken(self) -> int:
        """Samples taken."""
        return self._taken

    @property
    def nanoseconds(self) -> float:
        """Nanoseconds of CPU per arrival of late, without samples since the start; nan = too few to tell."""
        if self.sampling:
            return self._recent
        return 1e9 * self._undecided / self._arrivals if self._arrivals >= LEAST else float("nan")

    @property
    def shares_now(self) -> Floats:
        """The shares of streams that a sample taken now would give: float64[streams]."""
        streams = self.modules.streams
        fresh = streams[:, S_NEXT] + streams[:, S_BASE] - self.samples.progress[:-1, 0]
        if not fresh.any():
            return self.shares
        late: Floats = fresh / fresh.sum()
        # Before the first sample there is nothing to fade.
        return FADING * self.shares + (1 - FADING) * late if self._taken else late

    def view_now(self) -> View:
        """Return what a policy would see if it were asked now, for showing; nothing is sampled for good."""
        return replace(self._look_around(), shares=self.shares_now, _picks=self.samples.newest(self.shares_now))

    # Kept for another process (`eddy.live.engine_file`)

    def to_parts(self) -> Plain:
        """Return all that goes on, with what the policy has learnt if it can tell."""
        return {
            "samples": self.samples.to_parts(),
            "random": random_state(self.rng),
            "shares": self.shares,
            "probed": self._probed,
            "room": float(self.room),
            "seen": self._seen(),
            "counts": [getattr(self, name) for name in _COUNTS],
            "seconds": [float(getattr(self, name)) for name in _SECONDS],
            "settled": bool(self._settled),
            "learnt": self._learnt(),
        }

    def load_parts(self, parts: Parts) -> None:
        """Go on from what a router of the same kind kept. After the modules and the strategy woke."""
        self.samples.load_parts(parts.part("samples"))
        set_random_state(self.rng, parts.part("random"))
        self.shares = parts.array("shares", np.float64, self.shares.shape)
        self._probed = parts.array("probed", np.float64, self._probed.shape)
        self.room, self._settled = parts.number("room"), parts.flag("settled")
        for name, count in zip(_COUNTS, parts.integers("counts", len(_COUNTS)), strict=True):
            setattr(self, name, count)
        for name, seconds in zip(_SECONDS, parts.numbers("seconds", len(_SECONDS)), strict=True):
            setattr(self, name, seconds)
        if parts.plain("learnt") is not None and isinstance(self.policy, Learning):
            try:
                self.policy.resume(json.loads(parts.text("learnt")))
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                raise StateError(f"policy {self.policy.name!r} cannot resume what it had learnt: {error!r}") from error
        if parts.plain("seen") is not None:
            self.view = self._read_view(parts.part("seen"))

    def _learnt(self) -> str | None:
        """Return what the policy has learnt as JSON text, None if it cannot tell."""
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
        """Return what the policy considered when it looked last."""
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
            (parse(text, graph.names), frozenset(read_states(own, "stored", graph))): cost
            for text, own, cost in zip(plans, states, parts.numbers("costs", len(plans)), strict=True)
        }
        return replace(self._look_around(), position=parts.integer("position"), considered=considered)

    # From outside

    def told(self) -> None:
        """The plan was changed by somebody else: measure anew."""
        self._arrivals, self._undecided, self._settled = 0, 0.0, False

    def undone(self, changed: bool) -> None:
        """A push was taken back, and with it its counters and, if it had `changed` any, its plans."""
        self._probed = np.minimum(self._probed, self._probes())
        if changed:
            self.told()
