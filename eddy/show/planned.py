"""The description of a plan that does not run, and the parts that it shares with the description of a running plan."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from eddy.show.description import (
    ComparisonDescription,
    JoinDescription,
    JoinPlan,
    KeyDescription,
    Node,
    StairDescription,
    StemDescription,
    StemFigures,
)
from jisc.plan.tree import Tree, default_plan

if TYPE_CHECKING:
    from stairs.graph import JoinGraph


class DescribedQuery(Protocol):
    """The attributes of an `eddy.Query` that a description reads. This room does not import the class."""

    @property
    def graph(self) -> JoinGraph: ...
    @property
    def streams(self) -> Sequence[Any]: ...
    @property
    def derived(self) -> Container[str]: ...
    @property
    def classes(self) -> Sequence[Any]: ...
    @property
    def primary(self) -> Sequence[Any]: ...
    @property
    def comparisons(self) -> Sequence[Any]: ...
    @property
    def scans(self) -> Sequence[tuple[str, str]]: ...
    @property
    def conditions(self) -> Sequence[Any]: ...


class Probed(NamedTuple):
    """Probes, matches and nanoseconds of all hops to a state, and the share of these in the time of all hops."""

    probes: int
    matches: int
    time: float | None


class Live(NamedTuple):
    """The figures of a plan that runs: those of SteMs and stored states, and of the hops to each of them.

    words   whether presence words stand for the states
    """

    states: Mapping[str, Mapping[str, Any]]
    stairs: Mapping[frozenset[str], Mapping[str, Any]]
    probed: Mapping[frozenset[str], Probed]
    shares: Mapping[str, float]
    words: bool


def planned(query: DescribedQuery, tree: Tree | None = None, strategy: str = "", title: str = "") -> JoinPlan:
    """Return the description of a plan that does not run; None is the default plan. O(streams)."""
    chosen = default_plan(query.graph) if tree is None else tree
    return JoinPlan(
        title=title,
        plan=chosen.text(query.graph.names),
        strategy=strategy,
        streams=query.graph.names,
        old_plans=(),
        tree=node_of(query, chosen, None, True),
        keys=keys_of(query, None),
        comparisons=comparisons_of(query),
        where=tuple(condition.title for condition in query.conditions),
    )


def node_of(query: DescribedQuery, tree: Tree, live: Live | None, root: bool) -> Node:
    """Return a plan as a tree; `live` has its figures, None of a plan that does not run."""
    graph = query.graph
    streams = tuple(graph.names[i] for i in tree.leaves())
    probed = NEVER if live is None else live.probed.get(frozenset(streams), NEVER)
    if not tree.children:
        stream = query.streams[tree.stream]
        figures = None
        if live is not None:
            state = live.states[stream.name]
            counts = {name: state[name] for name in ("rows", "arrivals", "expired", "bytes", "marks")}
            figures = StemFigures(
                **counts, late=state.get("late"), **probed._asdict(), share=live.shares.get(stream.name)
            )
        return StemDescription(stream.name, stream.extent, stream.name in query.derived, figures)
    left, right = tree.children
    stair = None if live is None else live.stairs.get(frozenset(streams))
    return JoinDescription(
        streams,
        tuple(c + 1 for c in graph.shared(left.streams, right.streams)),
        node_of(query, left, live, False),
        node_of(query, right, live, False),
        root,
        None if stair is None else StairDescription(**stair, **probed._asdict()),
        live is not None and live.words and not root,
    )


NEVER = Probed(0, 0, None)


def keys_of(query: DescribedQuery, figures: Iterable[Mapping[str, int]] | None) -> tuple[KeyDescription, ...]:
    """Return the keys of a query, with the figures of a running join if there are any."""
    known = [{}] * query.graph.n_classes if figures is None else list(figures)
    scans: list[tuple[str, tuple[str, ...]]]
    scans = [(f"{a} × {b}, scanned: every tuple has its own key", (a, b)) for a, b in query.scans]
    if len(query.streams) == 1:
        name = query.streams[0].name
        scans = [(f"{name}, the only stream: every tuple has its own key", (name,))]
    equal = [(str(key_class), tuple(key_class.columns)) for key_class in query.classes]
    primary = [(f"{key}, the primary key", tuple(key.columns)) for key in query.primary if key is not None]
    scanned = range(len(equal), len(equal) + len(scans))
    return tuple(
        KeyDescription(c + 1, text, streams, c in scanned, **measured)
        for c, ((text, streams), measured) in enumerate(zip([*equal, *scans, *primary], known, strict=True))
    )


def comparisons_of(query: DescribedQuery) -> tuple[ComparisonDescription, ...]:
    """Return the comparisons of a query."""
    # A `between` is two comparisons of one text.
    return tuple(
        dict.fromkeys(
            ComparisonDescription(comparison.left[0], comparison.right[0], str(comparison))
            for comparison in query.comparisons
        )
    )
