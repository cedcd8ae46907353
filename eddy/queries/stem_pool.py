"""The SteMs that several families share, with the columns of their rows, and the joins over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from eddy.ingest.arrivals import Arrivals, Times, counts
from eddy.ingest.keys import KeyEncoder
from eddy.ingest.loader import Loader, StreamLayout
from eddy.ingest.validation import checked_times
from eddy.join.join import Join
from eddy.join.payload_room import fit_payload, follow_compaction
from eddy.queries.bound import EngineBound
from eddy.queries.kept import KeptRows
from eddy.queries.shared_join import SharedJoin
from eddy.queries.sources import POSITION, EnginePush, Sources
from eddy.query.query import Query
from eddy.streams.key_types import text_words, word_count
from stairs.graph import JoinGraph, Window, WindowKind
from stairs.payload import Payload
from stairs.share import SharedPlace
from stairs.shared import SharedStems
from stairs.stems import RENUMBER_AT

if TYPE_CHECKING:
    from eddy.queries.family import Family


class _Attribute(NamedTuple):
    """A key of a stream: columns that are compared in some types, as in `AttributeClass`."""

    stream: str
    components: tuple[tuple[str, ...], ...]
    types: tuple[pa.DataType, ...]


def attributes_of(query: Query) -> list[list[_Attribute]]:
    """Return the attributes of each class of a query."""
    return [
        [_Attribute(name, components, attribute_class.types) for name, components in attribute_class.columns.items()]
        for attribute_class in query.classes
    ]


def directories_of(queries: Iterable[Query]) -> list[list[_Attribute]]:
    """Return sets of attributes that share a key directory: those that some query sets equal, transitively."""
    group: dict[_Attribute, list[_Attribute]] = {}
    for query in queries:
        for equal in attributes_of(query):
            for attribute in equal:
                known, other = group.setdefault(equal[0], [equal[0]]), group.setdefault(attribute, [attribute])
                if known is not other:
                    known += other
                    group.update(dict.fromkeys(other, known))
    return list({id(known): known for known in group.values()}.values())


class StemPool:
    """Shared SteMs with the columns of their rows, and the joins over them.

    names   the streams
    joins   by family
    """

    def __init__(
        self, sources: Sources, families: Iterable[Family], bound: EngineBound, renumber_at: int = RENUMBER_AT
    ) -> None:
        families = list(families)
        queries = [family.query for family in families]
        chosen = {pair for query in queries for pair in query.select.values()}
        used = {stream.name for query in queries for stream in query.streams}
        self.names = [name for name in sources.graph.names if name in used]
        self._sources = sources
        self._index = [sources.index(name) for name in self.names]
        directories = directories_of(queries)
        keys: list[list[tuple[int, _Attribute]]] = [
            [
                (c, attribute)
                for c, directory in enumerate(directories)
                for attribute in directory
                if attribute.stream == name
            ]
            for name in self.names
        ]
        self._places = {
            attribute: (i, k, c) for i, stream_keys in enumerate(keys) for k, (c, attribute) in enumerate(stream_keys)
        }
        """For each attribute its stream, its number within the stream, and its directory."""
        self.timed = any(query.graph.timed for query in queries)
        graph = JoinGraph(
            names=tuple(self.names),
            windows=tuple(Window(WindowKind.UNBOUNDED) for _ in self.names),
            attributes=tuple(tuple(c for c, _ in stream_keys) for stream_keys in keys),
            widths=tuple(sum(map(word_count, directory[0].types)) for directory in directories),
            texts=tuple(text_words(directory[0].types) for directory in directories),
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
            for i, (name, columns) in enumerate(zip(self.names, stored, strict=True))
            for k, column in enumerate(columns)
        }
        """(name of a stream, name of a column) -> (number of the stream, number of the column) in `payload`."""
        kinds = [
            [schema.field(column).type for column in columns] for schema, columns in zip(schemas, stored, strict=True)
        ]
        self.payload = Payload(kinds, self.stems.capacity, self.stems.allowance)
        self._bound = bound
        bound.cover_stems(self.stems)
        layouts, x = [], 0
        for name, schema, columns, stream_keys in zip(self.names, schemas, stored, keys, strict=True):
            place = f"stream {name}"
            encoders = [
                (x + k, c, KeyEncoder(place, attribute.components, attribute.types))
                for k, (c, attribute) in enumerate(stream_keys)
            ]
            layouts.append(StreamLayout(place, schema, columns, encoders))
            x += len(stream_keys)
        self._loader = Loader(layouts, self.stems, self.payload)
        self.joins: dict[Family, SharedJoin] = {}

    def has_place(self, query: Query) -> bool:
        """Return whether these SteMs have the streams and columns of a query, and one directory for each class."""
        if (query.graph.timed and not self.timed) or not {stream.name for stream in query.streams} <= set(self.names):
            return False
        directory_sets = [
            {self._places[attribute][2] if attribute in self._places else -1 for attribute in attributes}
            for attributes in attributes_of(query)
        ]
        directories = all(len(numbers) == 1 and -1 not in numbers for numbers in directory_sets)
        return directories and self._columns.keys() >= set(query.select.values())

    def add(
        self,
        family: Family,
        options: Mapping[str, Any],
        watermark: int,
        earlier: bool,
        before: SharedJoin | Join | None,
    ) -> None:
        """Add the join of a family for which there is a place.

        watermark  that before the next arrival, -FOREVER for none
        earlier  whether it sees the rows that are here
        before   the join that it replaces
        """
        query, owned = family.query, attributes_of(family.query)
        by_class = [{attribute.stream: self._places[attribute] for attribute in attributes} for attributes in owned]
        place = SharedPlace(
            streams=tuple(self.names.index(stream.name) for stream in query.streams),
            directories=tuple(next(iter(places.values()))[2] for places in by_class),
            attributes=tuple(
                tuple(by_class[c][stream.name][1] for c in classes)
                for stream, classes in zip(query.streams, query.graph.attributes, strict=True)
            ),
        )
        share = self.stems.share(query.graph, place)
        share.see(watermark, earlier=earlier)
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

    def fill(self, rows: Mapping[str, KeptRows]) -> None:
        """Insert rows that arrived earlier, with their positions."""
        batches: list[pa.RecordBatch | None] = []
        times: list[Times | None] = []
        places = [np.zeros(0, np.int64)]
        origins = [np.zeros(0, np.uint8)]
        for n, (name, i) in enumerate(zip(self.names, self._index, strict=True)):
            batch = rows[name].rows()
            batches.append(batch)
            times.append(None)
            if batch is not None:
                if self.timed:
                    times[n] = checked_times(self._sources.streams[i], batch, self._sources.time_type)
                places.append(np.asarray(batch.column(POSITION)))
                origins.append(np.full(len(batch), n, np.uint8))
        order = np.concatenate(origins)[np.argsort(np.concatenate(places), kind="stable")]
        self._open(Arrivals(batches, counts(batches), order, times, {}))
        self.stems.insert(order, len(order))
        self.stems.commit()
        self.payload.commit()

    def _open(self, arrivals: Arrivals) -> None:
        fit_payload(self.stems, self.payload)
        self.payload.begin()
        self.stems.begin(arrivals.rows)
        fit_payload(self.stems, self.payload)
        self._loader.load(arrivals)

    def prepare(self, push: EnginePush) -> dict[Family, pa.Table]:
        """Compute the results of each join in a push, which has not happened yet: `settle` or `roll_back` follows."""
        arrivals = push.arrivals.of(self._index, self.timed)
        order = arrivals.order
        self._bound.ask_for_rows(self.stems, self.payload, arrivals.rows)
        self._open(arrivals)
        self.stems.allowance.ask(0, "what was pushed")
        ends = self.stems.chunks(order)
        for join in self.joins.values():
            join.begin(order, ends, arrivals.reading)
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
        self._release_buffers()

    def roll_back(self) -> None:
        """Take back a push that has not happened; does nothing without one. It may be repeated."""
        self.stems.undo()
        self.payload.undo()
        follow_compaction(self.stems, self.payload)
        self._release_buffers()

    def _release_buffers(self) -> None:
        """Give back the buffers of a push if they count: those of a push that was refused would refuse the next one."""
        if self._bound.max_bytes is not None:
            self.stems.release_scratch()

    @property
    def nbytes(self) -> int:
        """Bytes of rows, keys and columns, and of the windows of all joins."""
        return self.stems.nbytes + self.payload.nbytes

    def check(self) -> None:
        """Raise StateError unless all invariants hold. O(state), for tests."""
        self.stems.check()
