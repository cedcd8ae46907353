"""A transition: one change of plan, and its figures."""

from __future__ import annotations

from dataclasses import dataclass, fields

from jisc.plan.states import Difference, StateId, read_states
from jisc.plan.tree import Tree, parse
from stairs.graph import JoinGraph
from stairs.storage.parts import MOST, Parts, Plain


@dataclass
class Transition:
    """One change of the plan or of the stored states. The figures of its migration stage grow until the stage ends.

    position      arrivals before it
    strategy      name of the strategy that ran
    plans         old and new plan; `old` and `new` are their texts
    names         names of the streams, for texts
    seconds       duration of the call. The join emits nothing during the call: under an eager strategy, the stall
    kept … dropped   number of states by effect (`jisc.plan.states.Difference`)
    recomputed    states computed in whole within the call
    promoted      keys promoted in the call and in the stage
    computed      entries stored by those promotions
    intermediate  entries stored by arrivals in the stage
    duplicates    results that one plan found and left to another in the stage
    rate_before   results per second of pushing, over the AROUND pushes before it
    rate_after    results per second over the AROUND pushes after it (fewer if there were fewer yet), its own duration
                  included
    longest       seconds of the longest of those pushes after it
    ns_before     nanoseconds of wall time per arrival over the pushes before it; 0 = there were none
    ns_after      the same over the pushes after it, its own duration included
    reason        "asked for" (`Runtime.transition`), or the name of a policy and its reason, or that memory was short
    states        inner states stored from then on; `stored` is their text
    ended         arrivals when the stage ended: every state complete, or the old plan purged; None = it has not ended
    """

    position: int
    strategy: str
    plans: tuple[Tree, Tree]
    names: tuple[str, ...]
    seconds: float = 0.0
    kept: int = 0
    complete: int = 0
    incomplete: int = 0
    dropped: int = 0
    recomputed: int = 0
    promoted: int = 0
    computed: int = 0
    intermediate: int = 0
    duplicates: int = 0
    rate_before: float = 0.0
    rate_after: float = 0.0
    longest: float = 0.0
    ns_before: float = 0.0
    ns_after: float = 0.0
    ended: int | None = None
    reason: str = ""
    states: tuple[StateId, ...] = ()

    @property
    def stored(self) -> str:
        """The stored states as text: names of streams, states separated by commas."""
        return ", ".join(" ".join(self.names[j] for j in state.streams) for state in self.states)

    @property
    def old(self) -> str:
        """The old plan as text."""
        return self.plans[0].text(self.names)

    @property
    def new(self) -> str:
        """The new plan as text."""
        return self.plans[1].text(self.names)

    def count(self, change: Difference) -> None:
        """Set the numbers of states from the difference of the two plans."""
        self.kept, self.dropped = len(change.kept), len(change.dropped)
        self.complete, self.incomplete = len(change.complete), len(change.incomplete)

    def to_parts(self) -> Plain:
        """Return the transition as JSON values."""
        return {
            **{name: getattr(self, name) for name in (*_COUNTS, *_FIGURES, *_TEXTS)},
            "ended": self.ended,
            "plans": [self.old, self.new],
            "states": [list(state) for state in self.states],
        }

    @classmethod
    def from_parts(cls, parts: Parts, graph: JoinGraph) -> Transition:
        """Return the transition that `to_parts` wrote. Raises StateError or PlanError for parts that do not fit."""
        names, plans = graph.names, parts.texts("plans")
        parts.require(len(plans) == 2, f"{len(plans)} plans")
        done = cls(
            parts.integer("position"),
            parts.text("strategy"),
            (parse(plans[0], names), parse(plans[1], names)),
            names,
            ended=parts.optional("ended"),
            reason=parts.text("reason"),
            states=read_states(parts, "states", graph),
        )
        for name in _COUNTS:
            setattr(done, name, parts.integer(name, low=-MOST))
        for name in _FIGURES:
            setattr(done, name, parts.number(name))
        return done


_COUNTS = [field.name for field in fields(Transition) if field.type == "int"]
_FIGURES = [field.name for field in fields(Transition) if field.type == "float"]
_TEXTS = ["strategy", "reason"]
