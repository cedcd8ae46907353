"""Joins of several families over the same SteMs.

Families over different join graphs share their streams: each row is stored once, with its keys and its columns, and
each family walks its own routes over it (`stairs.shared`). A family is shared if another family reads one of its
streams, and if the strategy stores nothing by itself. These have SteMs of their own, in a `Runtime`:

- a family whose streams no other family reads: its no-good marks and stored states save it more;
- one with comparisons, which read values of their own;
- one with a filter below a window of rows, which counts the rows that pass;
- one whose filters keep rows out of its join, which stays small.

The shared SteMs know the attributes of the families for which they were made. A family that needs another attribute,
another stream or earlier rows makes them anew, from the rows that the engine keeps, at the next push: O(window), once
however many queries have started. A fresh start that finds its attributes costs nothing of that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from time import thread_time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.engine import Engine
from eddy.ingest.arrivals import Arrivals, Order, Times
from eddy.ingest.keys import KeyEncoder
from eddy.ingest.loader import Loader, Source
from eddy.ingest.validation import checked_times
from eddy.push.rings import fit_payload
from eddy.queries.kept import Kept
from eddy.queries.sources import POSITION, Push, Sources
from eddy.query.key_types import text_words, word_count
from eddy.query.query import Query
from eddy.routing.change import follow_router
from eddy.routing.router import Router, make_policy
from jisc.plan.tree import Tree, default_plan
from jisc.strategies.base import Strategy
from jisc.strategies.eddy import Unstored
from jisc.strategies.mjoin import MJoin
from stairs.descriptors import S_BASE
from stairs.graph import FOREVER, JoinGraph, Window, WindowKind
from stairs.payload import ColumnId, Payload
from stairs.shared import Place, Share, SharedStems
from stairs.stems import RENUMBER_AT

if TYPE_CHECKING:
    from eddy.queries.family import Family

STRATEGIES: dict[object, tuple[type[Strategy], str]] = {"eddy": (Unstored, "cost"), "mjoin": (MJoin, "fixed")}
"""Strategies that can share, by name, and their default policies."""


class _Attribute(NamedTuple):
    """A key of a stream: columns that are compared in some types, as in `AttributeClass`."""

    stream: str
    components: tuple[tuple[str, ...], ...]
    types: tuple[pa.DataType, ...]


def attributes_of(query: Query) -> list[list[_Attribute]]:
    """Return the attributes of each class of a query."""
    return [[_Attribute(name, own, one.types) for name, own in one.columns.items()] for one in query.classes]


def directories_of(queries: Iterable[Query]) -> list[list[_Attribute]]:
    """Return sets of attributes that share a key directory: those that some query sets equal, transitively."""
    group: dict[_Attribute, list[_Attribute]] = {}
    for query in queries:
        for equal in attributes_of(query):
            for one in equal:
                known, other = group.setdefault(equal[0], [equal[0]]), group.setdefault(one, [one])
                if known is not other:
                    known += other
                    group.update(dict.fromkeys(other, known))
    return list({id(known): known for known in group.values()}.values())


class SharedJoin:
    """The join of one family over shared SteMs.

    query     the query whose results are those of the family
    share     its windows over the shared SteMs
    columns   its output columns in the shared payload
    strategy, router   as in `eddy.engine.Engine`
    """

    def __init__(
        self,
        query: Query,
        share: Share,
        columns: Sequence[ColumnId],
        options: Mapping[str, Any],
        before: SharedJoin | Engine | None,
        tree: Tree | None,
    ) -> None:
        self.query, self.share, self._columns = query, share, tuple(columns)
        self.seconds = 0.0
        kind, policy = STRATEGIES[options.get("strategy", "eddy")]
        if before is not None:
            tree = before.strategy.tree
        self.strategy: Strategy = kind(share, tree or default_plan(query.graph))
        known = options.get("policy") or policy if before is None else before.router.policy
        self.router: Router = Router(
            share, self.strategy, make_policy(known, self.strategy), None, options.get("statistics", True)
        )

    def begin(self, order: Order, ends: Sequence[int]) -> None:
        """Open a push, given the order of arrivals of all shared streams, and where its chunks end."""
        number = np.full(256, 255, np.uint8)
        number[list(self.share.place.streams)] = np.arange(len(self.query.streams))
        mine = number[order]
        belongs = mine < 255
        self._order = mine[belongs]
        self._stops = np.cumsum(belongs)[np.array(ends, np.int64) - 1].tolist() if ends else []
        self._done = 0
        self._found: list[npt.NDArray[np.int32]] = []

    def probe(self, chunk: int) -> None:
        """Find the results of the arrivals of a chunk, which have been inserted."""
        stop = self._stops[chunk]
        if stop == self._done:
            return
        began = thread_time()
        found = self.share.probe(self.strategy.routes, self._order, self._done, stop)
        if len(found):
            self._found.append(found)
        seconds = thread_time() - began
        self.seconds += seconds
        self.router.note(stop - self._done, seconds)
        self._done = stop
        if self.router.due:
            follow_router(self)

    def results(self, payload: Payload) -> pa.Table:
        """Return the results of the push, in the order of their last components."""
        if not self._found:
            # Arrow cannot make empty arrays of every type.
            return pa.Table.from_batches([], schema=self.query.output_schema)
        own, m = self.share.place.streams, len(self.query.streams)
        ids = np.concatenate(self._found)
        bases = self.share.streams[:, S_BASE].copy()
        columns = payload.gather(ids, len(ids) // m, bases, streams=own, columns=frozenset(self._columns))
        return pa.Table.from_arrays([columns[one] for one in self._columns], schema=self.query.output_schema)

    def close(self) -> None:
        """Close the push."""
        self.share.close(sum(map(len, self._found)) // len(self.query.streams))
        self.strategy.after_push(self._done)


class Hub:
    """Shared SteMs with the columns of their rows, and the joins over them.

    names   the streams
    joins   by family
    """

    def __init__(self, sources: Sources, families: Iterable[Family], renumber_at: int = RENUMBER_AT) -> None:
        families = list(families)
        queries = [family.query for family in families]
        chosen = {pair for query in queries for pair in query.select.values()}
        used = {stream.name for query in queries for stream in query.streams}
        self.names = [name for name in sources.graph.names if name in used]
        self._sources = sources
        self._index = [sources.index(name) for name in self.names]
        directories = directories_of(queries)
        keys: list[list[tuple[int, _Attribute]]] = [
            [(c, one) for c, own in enumerate(directories) for one in own if one.stream == name] for name in self.names
        ]
        self._places = {one: (i, k, c) for i, own in enumerate(keys) for k, (c, one) in enumerate(own)}
        """By attribute its stream, its number within the stream, and its directory."""
        self.timed = any(query.graph.timed for query in queries)
        graph = JoinGraph(
            names=tuple(self.names),
            windows=tuple(Window(WindowKind.UNBOUNDED) for _ in self.names),
            attributes=tuple(tuple(c for c, _ in own) for own in keys),
            widths=tuple(sum(map(word_count, own[0].types)) for own in directories),
            texts=tuple(text_words(own[0].types) for own in directories),
            timed=self.timed,
        )
        self.stems = SharedStems(graph, renumber_at)
        schemas = [sources.streams[i].schema.append(pa.field(POSITION, pa.int64(), False)) for i in self._index]
        stored = [
            [column for column in schema.names if (name, column) in chosen]
            for name, schema in zip(self.names, schemas, strict=True)
        ]
        self._columns = {
            (name, column): (i, k)
            for i, (name, own) in enumerate(zip(self.names, stored, strict=True))
            for k, column in enumerate(own)
        }
        """By stream and name the columns of the rows that are here."""
        kinds = [[schema.field(column).type for column in own] for schema, own in zip(schemas, stored, strict=True)]
        self.payload = Payload(kinds, self.stems.capacity, self.stems.allowance)
        found, x = [], 0
        for name, schema, columns, own in zip(self.names, schemas, stored, keys, strict=True):
            encoders = [(x + k, c, KeyEncoder(name, one.components, one.types)) for k, (c, one) in enumerate(own)]
            found.append(Source(name, schema, columns, encoders))
            x += len(own)
        self._loader = Loader(found, self.stems, self.payload)
        self.joins: dict[Family, SharedJoin] = {}

    def has_place(self, query: Query) -> bool:
        """Return whether these SteMs have the streams and columns of a query, and one directory for each class."""
        if (query.graph.timed and not self.timed) or not {stream.name for stream in query.streams} <= set(self.names):
            return False
        found = [{self._places[one][2] if one in self._places else -1 for one in own} for own in attributes_of(query)]
        directories = all(len(own) == 1 and -1 not in own for own in found)
        return directories and self._columns.keys() >= set(query.select.values())

    def add(
        self, family: Family, options: Mapping[str, Any], time: int, earlier: bool, before: SharedJoin | Engine | None
    ) -> None:
        """Add the join of a family for which there is a place.

        time     the greatest event time so far of its streams
        earlier  whether it sees the rows that are here
        before   the join that it replaces
        """
        query, owned = family.query, attributes_of(family.query)
        by_class = [{one.stream: self._places[one] for one in own} for own in owned]
        place = Place(
            streams=tuple(self.names.index(stream.name) for stream in query.streams),
            directories=tuple(next(iter(own.values()))[2] for own in by_class),
            attributes=tuple(
                tuple(by_class[c][stream.name][1] for c in classes)
                for stream, classes in zip(query.streams, query.graph.attributes, strict=True)
            ),
        )
        share = self.stems.share(query.graph, place)
        share.see(time, earlier=earlier)
        columns = [self._columns[pair] for pair in query.select.values()]
        self.joins[family] = SharedJoin(query, share, columns, options, before, family.tree)

    def remove(self, family: Family) -> None:
        """Remove the join of a family."""
        self.stems.drop(self.joins.pop(family).share)

    def drop_strays(self) -> None:
        """Let go of windows without a join, which an interruption may have left."""
        known = [join.share for join in self.joins.values()]
        for share in [share for share in self.stems.shares if share not in known]:
            self.stems.drop(share)

    def fill(self, rows: Mapping[str, Kept]) -> None:
        """Insert rows that arrived earlier, with their positions."""
        batches: list[pa.RecordBatch | None] = []
        times: list[Times | None] = []
        places = [np.zeros(0, np.int64)]
        owners = [np.zeros(0, np.uint8)]
        for n, (name, i) in enumerate(zip(self.names, self._index, strict=True)):
            table = rows[name].table()
            batch = None if table is None else table.combine_chunks().to_batches()[0]
            batches.append(batch)
            times.append(None)
            if batch is not None:
                if self.timed:
                    times[n] = checked_times(self._sources.streams[i], batch, self._sources.time_type)
                places.append(np.asarray(batch.column(POSITION)))
                owners.append(np.full(len(batch), n, np.uint8))
        order = np.concatenate(owners)[np.argsort(np.concatenate(places), kind="stable")]
        self._open(Arrivals(batches, order, times, {}))
        self.stems.insert(order, len(order))
        self.stems.commit()
        self.payload.commit()

    def _open(self, arrivals: Arrivals) -> None:
        self.payload.begin()
        self.stems.begin(arrivals.rows)
        fit_payload(self.stems, self.payload)
        self._loader.load(arrivals)

    def prepare(self, push: Push) -> dict[Family, pa.Table]:
        """Compute the results of each join in a push, which has not happened yet: `settle` or `roll_back` follows."""
        number = np.full(256, 255, np.uint8)
        number[self._index] = np.arange(len(self._index))
        order = number[push.order]
        order = order[order < 255]
        times = [push.times[i] if self.timed else None for i in self._index]
        self._open(Arrivals([push.batches[i] for i in self._index], order, times, {}))
        ends = self.stems.chunks(order)
        for join in self.joins.values():
            join.begin(order, ends)
        for chunk, end in enumerate(ends):
            self.stems.insert(order, end)
            for join in self.joins.values():
                join.probe(chunk)
        return {family: join.results(self.payload) for family, join in self.joins.items()}

    def settle(self) -> None:
        """Let the prepared push happen. It may be repeated."""
        for join in self.joins.values():
            join.close()
        self.stems.commit()
        self.payload.commit()
        if self.payload.logged:
            self.payload.expire(self.stems.oldest().tolist())

    def roll_back(self) -> None:
        """Take back a push that has not happened; does nothing without one. It may be repeated."""
        self.stems.undo()
        self.payload.undo()
        fit_payload(self.stems, self.payload)

    @property
    def nbytes(self) -> int:
        """Bytes of rows, keys and columns, and of the windows of all joins."""
        return self.stems.nbytes + self.payload.nbytes

    def check(self) -> None:
        """Raise StateError unless all invariants hold. O(state), for tests."""
        self.stems.check()


class Sharing:
    """Decides which families of an engine share SteMs, and has these take pushes in.

    hub   the shared SteMs, None while no family shares
    """

    def __init__(self, sources: Sources, options: Mapping[str, Any], share: bool) -> None:
        self._sources, self._options = sources, options
        self._on = share and options.get("strategy", "eddy") in STRATEGIES
        self.hub: Hub | None = None

    def offer(self, family: Family, others: Collection[Family]) -> None:
        """Have a family share with those others that read one of its streams, from the next push on.

        To be called when a family has a new version: the filters of all versions decide.
        """
        if family.shared or not self._may_share(family):
            return
        near = [one for one in others if one is not family and not set(one.names).isdisjoint(family.names)]
        sharing = [one for one in near if one.shared or self._may_share(one)]
        for one in [family, *sharing] if sharing else ():
            one.shared = True

    def _may_share(self, family: Family) -> bool:
        query, own = family.query, family.query.graph
        return (
            self._on
            and not family.keeps_out
            and not own.comparisons
            and not own.scans
            and all(stream.filter is None for stream in query.streams)
            and (not own.timed or query.time_type == self._sources.time_type)
        )

    def prepare(
        self, push: Push, families: Iterable[Family], rows: Mapping[str, Kept], newest: Sequence[int]
    ) -> dict[Family, pa.Table]:
        """Compute the results of the families that share, in a push that has not happened yet.

        rows     per stream those that are kept
        newest   per stream its greatest event time so far
        """
        sharing = [family for family in families if family.shared]
        if not sharing:
            self.hub = None
            return {}
        self._follow(sharing, rows, newest)
        assert self.hub is not None
        return self.hub.prepare(push)

    def seconds(self, family: Family) -> float:
        """Return the seconds of the walks of a family over shared SteMs."""
        join = self.join(family)
        return 0.0 if join is None else join.seconds

    def join(self, family: Family) -> SharedJoin | None:
        """Return the shared join of a family, None if it has none, or none yet."""
        return None if self.hub is None else self.hub.joins.get(family)

    def settle(self) -> None:
        """Let the prepared push happen. It may be repeated."""
        if self.hub is not None:
            self.hub.settle()

    def roll_back(self) -> None:
        """Take back a push that has not happened. It may be repeated."""
        if self.hub is not None:
            self.hub.roll_back()

    def _follow(self, families: list[Family], rows: Mapping[str, Kept], newest: Sequence[int]) -> None:
        """Have the hub serve these families, and no others."""
        hub = self.hub
        if hub is not None:
            for family in [family for family in hub.joins if family not in families]:
                hub.remove(family)
            hub.drop_strays()
        known = {} if hub is None else hub.joins
        other = [one for one in families if one not in known or known[one].query is not one.query]
        anew = hub is None or any(not (one.fresh and hub.has_place(one.query)) for one in other)
        if hub is None or anew:
            hub = Hub(self._sources, families)
            hub.fill(rows)
            other = families
        for family in other:
            time = max((newest[self._sources.index(name)] for name in family.names), default=-FOREVER)
            alone = None if family.runtime is None else family.runtime._engine
            hub.add(family, self._options, time, anew, known.get(family, alone))
            family.released()
        self.hub = hub
