"""The query: streams, predicates, filters, projection. docs/guide/semantics.md defines its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eddy.expressions.computed import ComputedExpression, compute, computed_type
from eddy.expressions.parser import column_place
from eddy.expressions.select import computed, computed_of_groups
from eddy.expressions.written import parse_predicates
from eddy.filters.conditions import Condition, Filter, Predicate, conditions
from eddy.filters.faults import Faults, others
from eddy.query.aggregation import Aggregate, Aggregation, Argument
from eddy.query.arguments import Select, check_streams, has_groups, listed, predicate_texts, selected
from eddy.query.as_of import AsOf, AsOfJoin, as_of_join, checked_as_of
from eddy.query.branch import Branch, checked_branches
from eddy.query.branch_nodes import BranchNode, Path
from eddy.query.branches import BranchTree
from eddy.query.clock_rule import ClockRule, WatermarkOf, checked_watermark, clock_rule
from eddy.query.comparisons import ColumnComparison, comparisons, scanned_pairs
from eddy.query.expiry import Expiry, checked_expiry
from eddy.query.group_outputs import GroupOutputs
from eddy.query.group_windows import GroupWindow
from eddy.query.intervals import Intervals, check_time_columns
from eddy.query.join_graph import (
    check_connected,
    check_times,
    join_graph,
    places_of_values,
    windows_in_numbers,
)
from eddy.query.partition_classes import with_versions
from eddy.query.predicates import AttributeClass, attribute_classes, primary_keys
from eddy.query.result_key import result_key
from eddy.query.top import Ranking, Top, ranking
from eddy.show.html import drawn
from eddy.show.planned import planned
from eddy.streams.event_time import ticks, unified_time
from eddy.streams.key_columns import HIDDEN, hidden
from eddy.streams.keyed import KeyedInput
from eddy.streams.late_options import (
    LATE_ROWS,
    Failed,
    Late,
    check_failed,
    check_late,
    checked_bound_of_rows,
    checked_span,
)
from eddy.streams.stream import PRESENCE, Stream, no_input, present, readable_name
from eddy.streams.table import Table
from eddy.streams.versioned_table import VersionedTable
from eddy.streams.windows import Range, Rows, Unbounded
from stairs.errors import InputError, QueryError
from stairs.graph import ComparedValue, JoinGraph, Window, WindowKind
from stairs.nearest import nearest
from stairs.plain_types import Column, taken


class Query:
    """A join of up to 128 windowed streams, or the rows of one stream, perhaps with aggregates.

    streams     the streams; rows of equal event time arrive in this order
    on          predicates as text: equalities such as "R.a = S.a", "(R.a, R.b) = (S.a, S.b)" and "LOWER(R.a) = S.a",
                and comparisons such as "R.x < S.y" and "R.at between S.at and S.at + 30 min"; AND joins several
                predicates in one text. Any other condition of SQL (docs/guide/sql.md) may be added, and filters results
    select      output columns: None = all, named "stream.column"; a list of such names; {output name: "stream.column"},
                where an expression may stand for a column: in SQL, "orders.amount * 2" (docs/guide/sql.md), or a
                pyarrow expression over columns named "stream.column"
    where       filter of results: a pyarrow expression over columns named "stream.column", selected or not; or a
                `Predicate` that declares the columns of its function; or a list of these, which must all be true
    lateness    a tuple still arrives if it is at most this much older than the newest tuple of the stream that the
                watermark follows: a timedelta, or ticks of integer event times; only in queries with a Range window. A
                stream can have its own lateness
    late        treatment of later rows: "keep" stores them until `Runtime.late()` returns them; "count" only counts
                them; a function of a stream's name and a table of late rows is called after the push has committed.
                A stream can override it (docs/guide/semantics.md)
    late_rows   upper bound on the stored late rows of each stream; beyond it the oldest are dropped
    failed      treatment of joined rows and groups for which an expression has no value, such as a division by zero or
                a sum that overflows: "keep" stores them until `Runtime.failed()` returns them; "count" only counts
                them; a function of a table of failed rows is called after the push has committed
    failed_rows  upper bound on the stored failed rows; beyond it the oldest are dropped
    watermark   "slowest": the watermark follows the stream that is furthest behind; "fastest": it follows the stream
                that is furthest ahead, so that a stream that lags loses rows
    idle_after  a stream without rows while the event time of others advances by more than this does not hold the
                watermark back: a timedelta, or ticks of integer event times; None = each stream always holds it back
    expiry      what becomes of a result when a row of it leaves its window, for the outputs that take results back:
                "retract" takes it back, so that the answer is what the windows hold; "final" keeps it for ever, so that
                only the changes of tables take results back
    branches    joins other than inner joins (`Branch`), which hang on the join of `streams`, their *core*; the core may
                then have a single stream
    as_of       as-of joins (`AsOf`): versioned tables of which each row gets the version at one of its event times. A
                row comes when the watermark has passed this time. There may be one stream
    group_by    group columns: a list of "stream.column", or {output name: "stream.column" or pyarrow expression}
    aggregates  {output name: function of `eddy.agg`}. With group_by or aggregates, the results are groups, one row
                each: the group columns, the bounds of the window, the aggregates; `select` names some of these, or
                expressions over them. There may be one stream (docs/guide/aggregates.md)
    having      filter of groups, as `where`, over the output columns
    group_window  windows of event time to aggregate over: `Tumbling`, `Hopping`, `Session`; the groups of a window come
                once, when the watermark has passed the window. None = aggregates over the results in the live windows,
                as a changelog, or over all results of input that ends
    top         the first rows of each group in an order (`Top`), of the results or of the rows of groups; there may be
                one stream

    Raises QueryError, naming the stream and the column, if the arguments do not fit together.

    >>> rows = pa.schema([("a", pa.int64())])
    >>> q = Query([Stream("R", rows), Stream("S", rows)], ["R.a = S.a"])
    >>> q.output_schema.names
    ['R.a', 'S.a']
    """

    _noun = "query"
    """The join, for warnings."""
    tables: Mapping[str, str] = MappingProxyType({})
    """Stream -> the table whose alias it is in a statement of SQL; a stream without an entry is itself a table."""
    group_texts: tuple[str, str] | None = None
    """The SELECT list and the GROUP BY of a query with groups that was made from SQL."""
    top_texts: Top | None = None
    """`top` of such a query, over the columns of the statement."""
    on_conditions: tuple[Condition, ...] = ()
    """The conditions in `on` that are no predicates: they filter results, as `where` does."""
    where_place = "where"
    """The name of the result filter, for errors."""

    def __init__(
        self,
        streams: Sequence[Stream],
        on: Sequence[str] = (),
        *,
        select: Select | None = None,
        where: Filter | None = None,
        lateness: int | timedelta = 0,
        late: Late = "keep",
        late_rows: int = LATE_ROWS,
        failed: Failed = "keep",
        failed_rows: int = LATE_ROWS,
        watermark: WatermarkOf = "slowest",
        idle_after: int | timedelta | None = None,
        expiry: Expiry = "retract",
        branches: Sequence[Branch] = (),
        as_of: Sequence[AsOf] = (),
        group_by: Sequence[str] | Mapping[str, Argument] = (),
        aggregates: Mapping[str, Aggregate] | None = None,
        having: Filter | None = None,
        group_window: GroupWindow | None = None,
        top: Top | None = None,
    ) -> None:
        self.top = top
        self._grouped = has_groups(group_by, aggregates, having, group_window)
        self._watermarked = group_window is not None
        self.branches = checked_branches(() if branches is None else branches)
        """The joins other than inner joins, which hang on the join of `streams`."""
        self.as_of = checked_as_of(() if as_of is None else as_of)
        """The as-of joins."""
        self.as_of_joins: tuple[AsOfJoin, ...] = ()
        """The same by the positions of their streams."""
        self.streams = tuple(listed(streams, "streams", "eddy.Stream objects"))
        self.tree: BranchTree[InnerJoin] | None = None
        """The branches with the inner joins that they need, None without branches."""
        self.on = predicate_texts(on)
        self.where = where
        self.lateness = checked_span(lateness, "lateness")
        self.watermark = checked_watermark(watermark, idle_after)
        self.idle_after = None if idle_after is None else checked_span(idle_after, "idle_after")
        self.expiry = checked_expiry(expiry, self.branches, self.as_of)
        check_late(late, "")
        self.late = late
        self.late_rows = checked_bound_of_rows(late_rows, "late_rows")
        check_failed(failed)
        self.failed = failed
        self.failed_rows = checked_bound_of_rows(failed_rows, "failed_rows")
        if self.branches or self.as_of:
            self._join_branches()
        else:
            check_streams(self.streams)
            self._join()
        self.late_by_stream = tuple(late if stream.late is None else stream.late for stream in self.streams)
        """The treatment of late rows of each stream."""
        self.aggregation: Aggregation | None = None
        """The groups and aggregates, None for the results of the join themselves."""
        self.outputs: dict[str, tuple[str, str] | ComputedExpression] = {}
        """Output column of joined rows -> (stream, column), or an expression."""
        if self._grouped:
            self.aggregation = Aggregation(self, group_by, aggregates or {}, having, group_window)
            # The rows of a table without columns cannot be counted.
            places = self.aggregation.places or ((self.shown[0].name, self.shown[0].schema.names[0]),)
            self.outputs = {readable_name(*place): place for place in places}
        else:
            self.outputs = self._outputs(select)
        self.hidden_outputs: dict[str, tuple[str, str] | ComputedExpression] = {}
        """Columns of joined rows that only `top` reads."""
        self.ranking: Ranking | None = None
        """`top` with the columns of the rows that it reads, None without."""
        if top is not None and not self._grouped:
            self.ranking = ranking(top, (), self._row_column)
        self.row_schema, self.select = self._read_outputs()
        """The schema of joined rows, and the columns that they are made of: name -> (stream, column)."""
        self.output_schema = self.row_schema
        """The schema of results."""
        self.group_outputs: GroupOutputs | None = None
        """The columns of groups that are selected, None = all of them, or no groups."""
        if self.aggregation is not None:
            self.output_schema = self.aggregation.schema
            if select is not None:
                self.group_outputs = GroupOutputs(select, self.aggregation.schema)
                self.output_schema = self.group_outputs.schema
        self.group_rows = self.group_outputs
        """The columns that rows of groups have for `top`, and for the output."""
        if top is not None and self.aggregation is not None:
            self._rank_groups(top, self.aggregation)
        if self.ranking is not None:
            rows = self.row_schema if self.group_rows is None else self.group_rows.schema
            self.ranking.check_types(rows)
            shown = self.output_schema if self._grouped else pa.schema([rows.field(name) for name in self.outputs])
            self.output_schema = self.ranking.with_rank(shown)
        self.conditions, self.where_columns = self._where()
        """The named conditions of `where`, and the (stream, column) pairs that they read."""

    def _join(self) -> None:
        """Read the predicates, and set the attributes that follow from them."""
        parsed = parse_predicates(self.on, self.streams)
        self.on_conditions = tuple(parsed.conditions)
        self.classes: tuple[AttributeClass, ...] = attribute_classes(self.streams, parsed.equalities)
        """The attribute classes that the equalities make."""
        self.partition_classes = self.classes
        """The classes by which a host may deal rows to partitions, with the keys of versioned tables."""
        self.time_type = self._time_type()
        """The type in which event times are compared; None if no stream has event times."""
        check_time_columns(self.streams, parsed.comparisons)
        self.comparisons: tuple[ColumnComparison, ...] = comparisons(self.streams, parsed.comparisons, self.time_type)
        """The predicates that are no equalities."""
        self.unretracted = len(self.streams) == 1 and self.streams[0].window is None
        """Whether the one stream has no window: its rows are aggregated when they arrive, and not kept."""
        if self.unretracted:
            # The kernels need a window, but each row alone is a result, whatever the contents of the window are.
            (alone,) = self.streams
            timed = alone.time is not None and self._ticking
            self.streams = (replace(alone, window=Range(0) if timed else Rows(1)),)
        self.scans = scanned_pairs([stream.name for stream in self.streams], self.classes, self.comparisons)
        """The pairs of streams that only comparisons connect; a probe scans all tuples of such a stream."""
        check_connected(self.streams, self.classes, self.scans, [*self.on_conditions, *self._listed_where()])
        self.intervals = Intervals(self.streams, self.classes, self.comparisons, self.time_type)
        """The comparisons of event times."""
        self.streams = self.intervals.with_windows(self._noun)
        self.derived = self.intervals.derived
        """Name of a stream whose window follows from the intervals -> the size of the window in ticks."""
        self.primary = primary_keys(self.streams)
        """Per stream the class of its primary key, None = it is no table."""
        self._check_tables()
        self.graph = self._graph()
        """The join graph in the form for the state modules."""
        self.clock_rule = self._clock_rule()
        """How the watermark follows the rows."""

    @property
    def _ticking(self) -> bool:
        """Whether the watermark matters to a single stream without a window."""
        return self._watermarked

    @property
    def lasting(self) -> bool:
        """Whether no joined row is ever taken back."""
        return self.unretracted or (self.expiry == "final" and not self.tables_changing)

    @property
    def tables_changing(self) -> list[str]:
        """The names of the streams that are tables: their rows are replaced and deleted."""
        looked_up = {as_of.table.name for as_of in self.as_of}
        return [stream.name for stream in self.streams if isinstance(stream, Table) and stream.name not in looked_up]

    @property
    def tables_at(self) -> list[int]:
        """The positions of the tables whose changes take results back."""
        names = frozenset(self.tables_changing)
        return [i for i, stream in enumerate(self.streams) if stream.name in names]

    @property
    def versioned_at(self) -> list[int]:
        """The positions of the tables of which rows get the version at an event time."""
        return [i for i, stream in enumerate(self.streams) if isinstance(stream, VersionedTable)]

    @property
    def timeless(self) -> list[int]:
        """The positions of the tables whose changes have no event time."""
        return [i for i, stream in enumerate(self.streams) if isinstance(stream, Table)]

    def _check_tables(self) -> None:
        """Raise QueryError for what a query with tables cannot have."""
        names = self.tables_changing
        versioned = [stream.name for stream in self.streams if isinstance(stream, VersionedTable)]
        if versioned and not self.as_of:
            raise QueryError(
                f"table {versioned[0]}: a versioned table is joined by event time; pass as_of=[AsOf(table, …)], or"
                " write FOR SYSTEM_TIME AS OF or ASOF JOIN in SQL"
            )
        if not names:
            return
        for has, what in (
            (
                self.looks_up,
                "a query that looks rows up at their arrival joins streams, because no row of it is taken back; look"
                " this table up as well, or make the other one a VersionedTable",
            ),
            (
                self._watermarked,
                "windows of event time take no table: their rows are final, and a change takes results back; leave"
                " group_window out, for groups that follow the changes",
            ),
        ):
            if has:
                raise QueryError(f"table {names[0]}: {what}")

    def _join_branches(self) -> None:
        """Make the inner joins of the core and of each branch, and set the attributes that follow from them.

        `classes` has a key that all streams share, if there is one; each inner join has its own predicates.
        """
        core = self.streams
        if not core:
            raise QueryError("a query has no stream; branches and as-of joins hang on one stream or more")
        below = [stream for branch in self.branches for stream in branch.all_streams()]
        for stream in (*core, *below):
            if isinstance(stream, VersionedTable):
                raise QueryError(
                    f"table {stream.name}: a versioned table belongs into as_of=[AsOf(table, …)]; in SQL, write FOR"
                    " SYSTEM_TIME AS OF or ASOF JOIN"
                )
        self.streams = (*core, *below, *self._versioned)
        check_streams(self.streams)
        if self.as_of:
            check_times(self.streams, self.lateness, self.idle_after, self._waits)
        # The inner joins index the keys of tables, and a table of an as-of join has its key in a log of versions.
        self.primary = (None,) * len(self.streams)
        self._check_tables()
        self.comparisons, self.scans = (), ()
        self.values: dict[tuple[str, str, pa.DataType], ComparedValue] = {}
        """The places of the values that comparisons read: by stream, column and type."""
        self.unretracted = False
        self.time_type = self._time_type()
        make = partial(_inner_join, self.time_type, bool(self._waits), self.expiry)
        tree = BranchTree(core, self.on, self.branches, self.time_type, make)
        self.on_conditions, self.classes = tree.on_conditions, tree.classes
        self.partition_classes = tree.partition_classes
        self._follow(tree)
        if self.as_of:
            self.unretracted = len(core) == 1 and core[0].window is None and not self.branches
            self.as_of_joins = tuple(
                as_of_join(as_of, tree.shown, self.index, self.time_type, len(tree.streams) + k)
                for k, as_of in enumerate(self.as_of)
            )
            joined = self.partition_classes if self.branches else tree.joins[tree.cores[0].path].classes
            self.partition_classes = with_versions(self.streams, joined, self.as_of_joins, not self.branches)
            if self.branches and self.looks_up:
                raise QueryError(
                    f"table {self.looks_up[0]}: rows of branches are certain when the watermark or a partner comes, and"
                    " not when they arrive; make it a VersionedTable, for the version at an event time"
                )

    @property
    def _versioned(self) -> tuple[VersionedTable | Table, ...]:
        return tuple(as_of.table for as_of in self.as_of)

    @property
    def _waits(self) -> list[str]:
        """The versioned tables, for which rows wait until the watermark has passed them."""
        return [as_of.table.name for as_of in self.as_of if isinstance(as_of.table, VersionedTable)]

    @property
    def looks_up(self) -> list[str]:
        """The tables of which rows get the version at their arrival."""
        return [as_of.table.name for as_of in self.as_of if isinstance(as_of.table, Table)]

    def _follow(self, tree: BranchTree[InnerJoin]) -> None:
        """Take the streams and windows of a tree of branches."""
        self.tree, self.streams, self.derived = tree, (*tree.streams, *self._versioned), tree.derived
        windows = self._windows()
        self.graph = JoinGraph(
            names=tuple(stream.name for stream in self.streams),
            windows=windows,
            attributes=tuple(() for _ in self.streams),
            widths=(),
            timed=bool(self._waits) or any(window.kind == WindowKind.RANGE for window in windows),
        )
        self.clock_rule = self._clock_rule()

    def __repr__(self) -> str:
        if self.tree is not None:
            joins = self.tree.joins.values()
            predicates = [dict.fromkeys(map(str, (*join.classes, *join.comparisons))) for join in joins]
            extended = [
                f"{as_of.table.name} [{as_of.table.extent}] as of {as_of.at or as_of.default_time}"
                for as_of in self.as_of
            ]
            return self._described("; ".join(filter(None, [str(self.tree), *map(" AND ".join, predicates), *extended])))
        kept = [stream.extent for stream in self.streams] if not self.unretracted else ["no row is kept"]
        streams = ", ".join(f"{stream.name} [{extent}]" for stream, extent in zip(self.streams, kept, strict=True))
        # A `between` is two comparisons of one text.
        texts = dict.fromkeys(str(predicate) for predicate in (*self.classes, *self.comparisons))
        return self._described("; ".join(filter(None, [streams, " AND ".join(texts)])))

    def _described(self, text: str) -> str:
        parts = [text, *(str(part) for part in (self.aggregation, self.top) if part is not None)]
        parts += ["expiry final"] if self.expiry == "final" else []
        return f"Query({'; '.join(parts)})"

    def _repr_html_(self) -> str:
        return drawn(
            "Query", repr(self), [planned(join, title=self._title(path)) for path, join in self.inner_joins().items()]
        )

    def inner_joins(self) -> Mapping[Path, Query]:
        """Return the inner joins that find the results, by the positions of their streams in this query."""
        return {tuple(range(len(self.streams))): self} if self.tree is None else self.tree.joins

    @property
    def cores(self) -> tuple[BranchNode, ...]:
        """The cores of the trees of nodes of a query with branches: one, or two for a full outer join; none without."""
        return () if self.tree is None else self.tree.cores

    @property
    def core_streams(self) -> tuple[Stream, ...]:
        """The streams on which branches hang, as they were given; all streams without branches."""
        return self.streams if self.tree is None else self.tree.core_streams

    def for_changelog(self) -> Query:
        """Return the query whose windows are long enough for a changelog (`BranchTree.lengthened`)."""
        if self.tree is None:
            return self
        longer = copy(self)
        longer._follow(self.tree.lengthened(max(self.clock_rule.lateness)))
        longer.clock_rule = self.clock_rule
        return longer

    def as_stream(self) -> Query:
        """Return the query, for a `Stream` that has its rows. Raises QueryError if some are taken back."""
        groups = self.aggregation is not None and not self._watermarked
        for has, what in (
            (self.tables_changing, f"table {', '.join(self.tables_changing)} changes"),
            (groups, "groups without group_window change with each row"),
            (self.top is not None, "the first rows of groups change"),
        ):
            if has:
                raise QueryError(
                    f"a stream of a query has rows that are never taken back, and {what}; make it a Table, which has"
                    " the answer of the query"
                )
        return self

    def as_table(self) -> tuple[Query, tuple[str, ...]]:
        """Return the query of a `Table` that has its answer, and the output columns that identify a row.

        Columns of the key that are not selected become hidden columns: group columns, those of `by`, and the number of
        a row in its group. Raises QueryError for results without a key.
        """
        if self._watermarked:
            raise QueryError(
                "a table of a query takes no group_window: its windows are final, and a table would keep each of them;"
                " make it a Stream, whose time is the column with the end of the window"
            )
        query = self
        if self.ranking is not None:
            query = self._with_keyed_rows(self.ranking)
        elif self.group_outputs is not None and self.aggregation is not None:
            shown = dict(self.group_outputs.outputs)
            lacking = [name for name, _ in self.aggregation.keys if name not in shown.values()]
            if lacking:
                query = copy(self)
                hidden_keys = {f"{HIDDEN}{name}": name for name in lacking}
                query.group_outputs = GroupOutputs({**shown, **hidden_keys}, self.aggregation.schema)
                query.group_rows, query.output_schema = query.group_outputs, query.group_outputs.schema
        try:
            return query, result_key(query, "a table of a query")
        except InputError as problem:
            raise QueryError(str(problem)) from problem

    def _with_keyed_rows(self, given: Ranking) -> Query:
        """Return a query with `top` whose rows have the columns of `by`, and numbers if a group has several."""
        query, by = copy(self), [name for name in given.by if name not in self.output_schema.names]
        if not given.keyed:
            query.top = replace(given.top, rank=f"{HIDDEN}row number")
            query.ranking = given._replace(top=query.top)
        elif not by:
            return self
        rows = self.row_schema if self.group_rows is None else self.group_rows.schema
        rank = given.top.rank
        shown = [rows.field(name) for name in (*self.output_schema.names, *by) if name != rank]
        assert query.ranking is not None
        query.output_schema = query.ranking.with_rank(pa.schema(shown))
        return query

    def with_inputs(self, inputs: Mapping[str, Stream]) -> Query:
        """Return the query with other inputs in place of those of the same names, for a host that makes it anew."""
        other = copy(self)
        other.streams = tuple(inputs.get(stream.name, stream) for stream in self.streams)
        if self.tree is not None:
            # What is made of the query, such as that of its joined rows, begins with the streams as they were given.
            given = {stream.name: stream for branch in self.branches for stream in branch.all_streams()}
            other.branches = tuple(branch.of_streams({**given, **inputs}) for branch in self.branches)
            other.tree = self.tree.with_inputs(inputs)
        return other

    def with_clock(self, rule: ClockRule) -> Query:
        """Return the query with another rule for the watermark."""
        other = copy(self)
        other.clock_rule = rule
        return other

    def _title(self, path: Path) -> str:
        """Return the title of one of several inner joins, "" for a single one."""
        return f"join of {' '.join(self.graph.names[i] for i in path)}" if self.branches else ""

    def inputs(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Return rows by stream, given the rows of tables: a query made from SQL may read a table as several streams.

        Tables that the query does not read are left out.
        """
        sources = {stream.name: self.tables.get(stream.name, stream.name) for stream in self.streams}
        given = {name: tables[table] for name, table in sources.items() if table in tables}
        for stream in self.streams:
            if isinstance(stream.source, Query):
                below = stream.source.inputs(tables)
                given.update({f"{stream.name}.{name}": rows for name, rows in below.items()})
        return given

    def index(self, name: str) -> int:
        """Return the position of a stream in the query. Raises QueryError for an unknown name."""
        for i, stream in enumerate(self.streams):
            if stream.name == name:
                return i
        raise QueryError(no_input(name, self.streams))

    def stream(self, name: str) -> Stream:
        """Return the stream of this name. Raises QueryError for an unknown name."""
        return self.streams[self.index(name)]

    @property
    def counted(self) -> frozenset[str]:
        """The names of the streams whose filter decides which rows have a place in a `Rows` window."""
        if self.unretracted:
            return frozenset()
        return frozenset(stream.name for stream in self.streams if isinstance(stream.window, Rows))

    @property
    def unwindowed(self) -> frozenset[str]:
        """The names of the streams that were given without a window, which follows from intervals."""
        if self.tree is not None:
            return self.tree.unwindowed
        return frozenset([*self.derived, *([self.streams[0].name] if self.unretracted else [])])

    @property
    def endless(self) -> list[str]:
        """The names of the streams whose rows never leave: those with `Unbounded` windows."""
        endless = [
            stream
            for stream in self.streams
            if isinstance(stream.window, Unbounded) and not isinstance(stream, KeyedInput)
        ]
        return [stream.name for stream in endless]

    def slack(self, time: int | None) -> int | None:
        """Return by how many ticks the event time of a later result may be below the watermark; None = by any number.

        time   position of the stream whose event time is that of the result; None = the greatest of all components

        The last component to arrive is not late, so the greatest event time is never below the watermark, and that of
        a component is at most as much below as its window is long.
        """
        window = None if time is None else self.graph.windows[time]
        joined = 0 if window is None else window.size if window.kind == WindowKind.RANGE else None
        slack = joined if self.tree is None or not self.branches else self.tree.slack(time, joined)
        if slack is None:
            return None
        # A row waits for its own event times; a component may be older than these by as much as its window is long.
        waits = [join.ahead if time in (None, join.at) else slack + join.ahead for join in self.as_of_joins]
        return max([slack, *waits])

    @property
    def spans(self) -> list[int | None]:
        """Per stream, the ticks for which later results may depend on a row; None = without limit.

        A row that is older than the watermark by more ticks can be dropped. ROWS windows have no limit in ticks.
        """
        sizes = [window.size if window.kind == WindowKind.RANGE else None for window in self.graph.windows]
        spans = sizes if self.tree is None else self.tree.spans(sizes)
        # A result waits until the watermark has passed the latest version that it may get.
        ahead = max((join.ahead for join in self.as_of_joins), default=0)
        return [None if span is None else span + ahead for span in spans]

    def payload_columns(self, selected: bool) -> list[list[str]]:
        """Return the columns of each stream that `where` reads, and with `selected` the selected columns."""
        columns: list[dict[str, None]] = [{} for _ in self.streams]
        for name, column in self.where_columns + (tuple(self.select.values()) if selected else ()):
            if column != PRESENCE:
                columns[self.index(name)][column] = None
        for join in self.as_of_joins:
            # A row looks its version up when the watermark comes, and a log of versions is made again by their keys.
            for i, names in (*join.probing().items(), (join.table, [key.key for key in join.keys])):
                columns[i].update(dict.fromkeys(names))
        return [list(stream_columns) for stream_columns in columns]

    # Time

    def _time_type(self) -> pa.DataType | None:
        timed = {stream.name: stream.type_of(stream.time) for stream in self.streams if stream.time is not None}
        if not timed:
            return None
        kind = unified_time(timed.values())
        if kind is None:
            listed = ", ".join(f"{name}.{self.stream(name).time} is {kind}" for name, kind in timed.items())
            raise QueryError(
                f"time columns must all be integers, all timestamps (with or without a zone) or all dates; {listed}"
            )
        return kind

    def ticks(self, span: int | timedelta, column_type: pa.DataType | None, what: str) -> int:
        """Return a span in ticks of the common time type (`eddy.streams.event_time.ticks`)."""
        assert self.time_type is not None
        return ticks(span, self.time_type, column_type, what)

    # The join as numbers

    def _windows(self) -> tuple[Window, ...]:
        """Return the windows as numbers. Raises QueryError for windows, times and lateness that do not fit together."""
        check_times(self.streams, self.lateness, self.idle_after, self._waits)
        return windows_in_numbers(self.streams, self.derived, self.time_type)

    def _graph(self) -> JoinGraph:
        windows = self._windows()
        timed = any(window.kind == WindowKind.RANGE for window in windows)
        self.values = places_of_values(self.streams, self.comparisons, self.time_type, timed)
        return join_graph(self.streams, windows, self.classes, self.comparisons, self.scans, self.values, self.primary)

    def _clock_rule(self) -> ClockRule:
        if not self.graph.timed:
            return ClockRule(self.watermark == "slowest", (0,) * len(self.streams))
        assert self.time_type is not None
        return clock_rule(self.streams, self.time_type, self.watermark, self.lateness, self.idle_after)

    # Output

    def place_of(self, text: object, what: str) -> tuple[str, str]:
        """Return the (stream, column) of "stream.column"; both may contain dots, or be quoted as in predicates."""
        if isinstance(text, str):
            self._check_hidden(text, what)
            for stream in self.shown:
                if text == present(stream.name) and self.may_lack(stream.name):
                    return stream.name, PRESENCE
            for stream in self.shown:
                if text.startswith(stream.name + ".") and text[len(stream.name) + 1 :] in stream.schema.names:
                    return stream.name, text[len(stream.name) + 1 :]
            place = column_place(text)
            if place is not None and any(stream.name == place[0] for stream in self.shown):
                self.stream(place[0]).type_of(place[1])
                return place
        known = [
            f"{stream.name}.{column}" for stream in self.shown for column in stream.schema.names if not hidden(column)
        ]
        near = nearest(text, known)
        raise QueryError(f"{what}: there is no column {text!r}{near}; the columns are {', '.join(known)}")

    def _check_hidden(self, text: str, what: str) -> None:
        """Raise QueryError for a column of a semi or anti branch."""
        for i in () if self.tree is None else self.tree.hidden:
            name = self.streams[i].name
            if text.startswith(f"{name}.") and all(stream.name != name for stream in self.shown):
                raise QueryError(
                    f"{what}: {text!r} is a column of stream {name}, whose semi or anti branch adds no columns to"
                    ' results; use how="left" for them'
                )

    @property
    def shown(self) -> tuple[Stream, ...]:
        """The streams whose columns results can have: not those of semi and anti branches."""
        return self.streams if self.tree is None else (*self.tree.shown, *self._versioned)

    def may_lack(self, name: str) -> bool:
        """Return whether results may have no component of a stream: those of left branches, and of full outer joins."""
        if self.tree is None:
            return False
        return self.index(name) in self.tree.nullable or any(
            as_of.how == "left" and as_of.table.name == name for as_of in self.as_of
        )

    @property
    def presences(self) -> frozenset[int]:
        """The positions of the streams of which `select`, `where` or aggregates read whether a result has a row."""
        read = (*self.select.values(), *self.where_columns)
        return frozenset(self.index(name) for name, column in read if column == PRESENCE)

    def readable(self) -> tuple[pa.Schema, list[tuple[str, str]]]:
        """Return the columns that expressions over results can read, "stream.column", and the place of each column.

        A stream whose component a result may lack also has the boolean column "PRESENT(stream)".
        """
        places = [(s.name, column) for s in self.shown for column in s.schema.names]
        fields = [pa.field(f"{s}.{column}", self.stream(s).type_of(column)) for s, column in places]
        for stream in self.shown:
            if self.may_lack(stream.name):
                places.append((stream.name, PRESENCE))
                fields.append(pa.field(present(stream.name), pa.bool_(), False))
        return pa.schema(fields), places

    def _output_field(self, name: str, place: tuple[str, str]) -> pa.Field:
        stream, column = place
        if column == PRESENCE:
            return pa.field(name, pa.bool_(), False)
        field = self.stream(stream).schema.field(column)
        return pa.field(name, field.type, field.nullable or self.may_lack(stream))

    def _read_outputs(self) -> tuple[pa.Schema, dict[str, tuple[str, str]]]:
        """Return the schema of results, and the columns to read: the selected columns, then those of expressions."""
        outputs = self._row_outputs
        plain = {name: output for name, output in outputs.items() if not isinstance(output, ComputedExpression)}
        fields, read = [], dict(plain)
        schema, places = self.readable()
        for name, output in outputs.items():
            if not isinstance(output, ComputedExpression):
                fields.append(self._output_field(name, output))
                continue
            kind, columns = computed_type(name, output, schema)
            fields.append(pa.field(name, kind))
            for column, place in zip(schema.names, places, strict=True):
                if column in columns and place not in read.values():
                    # The query chooses the names of its output columns.
                    read[f"{HIDDEN}{column}"] = place
        return pa.schema(fields), read

    @property
    def _row_outputs(self) -> dict[str, tuple[str, str] | ComputedExpression]:
        """The columns of joined rows: the selected ones, then those that only `top` reads."""
        return {**self.outputs, **self.hidden_outputs}

    def _row_column(self, text: str, what: str) -> str:
        """Return the name of a column of joined rows that `top` reads, "stream.column" or an expression of SQL."""
        output = self._output(text, True, what)
        for name, known in self._row_outputs.items():
            if known == output or (isinstance(known, ComputedExpression) and known.sql == text):
                return name
        name = f"{HIDDEN}{text}"
        self.hidden_outputs[name] = output
        return name

    def _rank_groups(self, top: Top, groups: Aggregation) -> None:
        """Set the ranking of the rows of groups, and the columns that these rows have for it."""
        shown: dict[str, Any] = {name: name for name in groups.schema.names}
        if self.group_outputs is not None:
            shown = dict(self.group_outputs.outputs)
        more: dict[str, Any] = {}

        def column(text: str, what: str) -> str:
            if text not in groups.schema.names:
                if text in shown:
                    return text
                if column_place(text) is not None or text.isidentifier():
                    known = [*groups.schema.names, *shown]
                    raise QueryError(
                        f"{what}: there is no column {text!r}{nearest(text, known)}; the columns of the groups are"
                        f" {', '.join(dict.fromkeys(known))}"
                    )
            for name, output in {**shown, **more}.items():
                if output == text:
                    return name
            name = f"{HIDDEN}{text}"
            more[name] = text if text in groups.schema.names else computed_of_groups(text, groups.schema)
            return name

        self.ranking = ranking(top, (name for name, _ in groups.keys), column)
        self.group_rows = GroupOutputs({**shown, **more}, groups.schema)

    @property
    def computes(self) -> bool:
        """Whether a column of results is the value of an expression."""
        return any(isinstance(output, ComputedExpression) for output in self._row_outputs.values())

    def output(self, columns: Sequence[Column], count: int) -> tuple[list[Column], Faults]:
        """Return the columns of results, given those of `select`, of `count` rows each; and the rows that fail.

        Rows on which an expression fails are left out of the columns.

        Cost: O(columns); with expressions, their evaluation.
        """
        outputs = self._row_outputs
        computed = {name: output for name, output in outputs.items() if isinstance(output, ComputedExpression)}
        if not computed:
            return list(columns), {}
        by_place = dict(zip(self.select.values(), columns, strict=True))
        named = {readable_name(*place): values for place, values in by_place.items()}
        values, faults = compute(computed, named, count)
        by_name = dict(zip(self.select, columns, strict=True))
        if faults:
            kept = others(faults, count)
            by_name = {name: taken(column, kept) for name, column in by_name.items()}
        return [values[name] if name in computed else by_name[name] for name in outputs], faults

    def _outputs(self, select: Select | None) -> dict[str, tuple[str, str] | ComputedExpression]:
        if select is None:
            places = [(s.name, column) for s in self.shown for column in s.schema.names if not hidden(column)]
            return {f"{name}.{column}": (name, column) for name, column in places}
        named = isinstance(select, Mapping)
        return {name: self._output(text, named) for name, text in selected(select)}

    def _output(self, text: Any, named: bool, what: str = "select") -> tuple[str, str] | ComputedExpression:
        """Return an output column; an expression must have a name."""
        if isinstance(text, ComputedExpression):
            return text
        if isinstance(text, pc.Expression):
            if not named:
                raise QueryError(f'select: the expression {text} has no name; write {{"name": expression}}')
            return ComputedExpression(text)
        try:
            return self.place_of(text, what)
        except QueryError:
            if not named or not isinstance(text, str) or column_place(text) is not None:
                raise
        return computed(text, self, what)

    def _listed_where(self) -> list[Condition]:
        where: Any = self.where
        return [] if where is None else list(where) if isinstance(where, list | tuple) else [where]

    def _where(self) -> tuple[tuple[Predicate, ...], tuple[tuple[str, str], ...]]:
        given = [*self.on_conditions, *self._listed_where()]
        if not given:
            return (), ()
        schema, pairs = self.readable()
        predicates = conditions(given if self.on_conditions else self.where, schema, self.where_place, declared=True)
        read = {name for predicate in predicates for name in predicate.read(schema)}
        return predicates, tuple(pair for pair, name in zip(pairs, schema.names, strict=True) if name in read)


class InnerJoin(Query):
    """The inner join of the streams on one path. Its event times are compared in the type of the whole query."""

    def __init__(
        self,
        streams: Sequence[Stream],
        on: Sequence[str],
        time_type: pa.DataType | None,
        waits: bool,
        expiry: Expiry,
        noun: str,
        where: Sequence[Condition],
    ) -> None:
        self._common, self._waited_for, self._noun = time_type, waits, noun
        self.where_place = f"where of the {noun}"
        super().__init__(streams, on, where=list(where), late="count", expiry=expiry)

    def _time_type(self) -> pa.DataType | None:
        return self._common

    @property
    def _ticking(self) -> bool:
        # The clock of the whole query also has the rows of a single stream.
        return self._waited_for

    def _join(self) -> None:
        super()._join()
        # The query and the branch have them among those that they are given.
        self.on_conditions = ()


def _inner_join(
    time_type: pa.DataType | None,
    waits: bool,
    expiry: Expiry,
    streams: Sequence[Stream],
    on: Sequence[str],
    noun: str,
    where: Sequence[Condition],
) -> InnerJoin:
    return InnerJoin(streams, on, time_type, waits, expiry, noun, where)
