"""Recorded streams: files as tables, a query over them, and pushes in the order of their event times."""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from eddy.expressions.parser import SECONDS
from eddy.query.query import Query
from eddy.streams.stream import Stream
from eddy.streams.windows import Range, Rows, Unbounded, Window
from stairs.errors import InputError
from stairs.nearest import no_stream

READERS = {".parquet": parquet.read_table, ".pq": parquet.read_table, ".csv": csv.read_csv, ".gz": csv.read_csv}
"""End of a file's name -> the function that reads the file."""


def read_streams(files: Sequence[str]) -> dict[str, pa.Table]:
    """Return tables by stream, of files given as "path" or "stream=path"; the default name is the name of the file.

    A directory is a set of Parquet files. Raises InputError for a file that cannot be read.
    """
    tables: dict[str, pa.Table] = {}
    for given in files:
        name, equals, text = given.partition("=")
        path = Path(text if equals else given)
        stream = name if equals else path.name.partition(".")[0]
        reader = parquet.read_table if path.is_dir() else READERS.get(path.suffix.lower())
        if reader is None:
            raise InputError(f"replay: {path} is neither Parquet nor CSV by its name; ends are {', '.join(READERS)}")
        if stream in tables:
            raise InputError(f"replay: two files are stream {stream!r}; name them, as in {stream}2={path}")
        try:
            tables[stream] = reader(path)
        except (OSError, pa.ArrowException) as problem:
            raise InputError(f"replay: {path} cannot be read: {problem}") from problem
    return tables


def query_of(
    text: str,
    tables: Mapping[str, pa.Table],
    times: Sequence[str] = (),
    windows: Sequence[str] = (),
    lateness: str | None = None,
) -> Query:
    """Return the query of a Python file that sets `query`, or one over whole tables with predicates as text.

    times     event times of a query given as text: "column", of all streams that have it, or "stream=column"
    windows   its windows: "stream=1000 rows", "stream=10 min" or "stream=unbounded"
    lateness  its lateness, such as "5 s"

    Raises InputError for a file without a query and options that do not fit, QueryError for what is no query.
    """
    if text.endswith(".py"):
        return _query_of_file(Path(text), bool(times or windows or lateness))
    time_of: dict[str, str] = {}
    for given in times:
        name, equals, column = given.partition("=")
        for stream in [_known(name, tables)] if equals else tables:
            if equals or given in tables[stream].column_names:
                time_of[stream] = column if equals else given
    window_of = {}
    for given in windows:
        name, _, window = given.partition("=")
        window_of[_known(name, tables)] = window_from(window)
    streams = [
        Stream(name, table.schema.remove_metadata(), window=window_of.get(name), time=time_of.get(name))
        for name, table in tables.items()
    ]
    return Query(streams, [text], lateness=0 if lateness is None else _span(lateness))


def _query_of_file(path: Path, options: bool) -> Query:
    if options:
        raise InputError(f"replay: --time, --window and --lateness are for a query given as text; {path} has its own")
    try:
        query = runpy.run_path(str(path)).get("query")
    except OSError as problem:
        raise InputError(f"replay: {path} cannot be read: {problem}") from problem
    if not isinstance(query, Query):
        raise InputError(f"replay: {path} does not set `query` to an eddy.Query, but to {type(query).__name__}")
    return query


def _known(name: str, tables: Mapping[str, pa.Table]) -> str:
    if name not in tables:
        raise InputError(f"replay: {no_stream(name, tables)}")
    return name


def window_from(text: str) -> Window:
    """Return a window given as text.

    >>> window_from("1000 rows"), window_from("10 min"), window_from("unbounded")
    (Rows(n=1000), Range(d=datetime.timedelta(seconds=600)), Unbounded())
    """
    words = text.split()
    if words == ["unbounded"]:
        return Unbounded()
    if len(words) == 2 and words[1] == "rows" and words[0].isdecimal():
        return Rows(int(words[0]))
    return Range(_span(text))


def _span(text: str) -> timedelta | int:
    """Return a span: a number of ticks, or a number and a unit. Raises InputError."""
    amount, _, unit = text.strip().partition(" ")
    if amount.isdecimal() and not unit:
        return int(amount)
    try:
        return timedelta(seconds=float(amount) * float(SECONDS[unit.strip()]))
    except (KeyError, ValueError, OverflowError) as problem:
        raise InputError(
            f"replay: {text!r} is no span; write a number of ticks, or a number and one of {', '.join(SECONDS)}"
        ) from problem


@dataclass(frozen=True)
class ReplayFeed:
    """Rows in the order in which they are replayed.

    tables   by stream, sorted
    order    uint8[rows], the stream of each row by its position in the query
    """

    names: tuple[str, ...]
    tables: tuple[pa.Table, ...]
    order: npt.NDArray[np.uint8]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.order)

    def pushes(self, size: int) -> Iterator[tuple[dict[str, pa.Table], npt.NDArray[np.uint8]]]:
        """Yield the arguments of pushes of `size` rows."""
        begin = np.zeros(len(self.names), np.int64)
        for start in range(0, self.rows, size):
            order = self.order[start : start + size]
            counts = np.bincount(order, minlength=len(self.names))
            yield (
                {
                    name: table.slice(int(low), int(count))
                    for name, table, low, count in zip(self.names, self.tables, begin, counts, strict=True)
                    if count
                },
                order,
            )
            begin += counts


def feed_of(query: Query, tables: Mapping[str, pa.Table], limit: int | None = None) -> ReplayFeed:
    """Return the rows of a query's streams by event time, or, without event times, evenly mixed in their own order.

    limit   upper bound on the rows of all streams together

    Ties come in the order of the streams. Raises InputError for a stream without a table, for tables that belong to no
    stream, and for rows without an event time. O(rows log rows).
    """
    names = tuple(stream.name for stream in query.streams)
    for name in names:
        _known(name, tables)
    strangers = [name for name in tables if name not in names]
    if strangers:
        raise InputError(
            f"replay: {', '.join(strangers)} is no stream of the query; its streams are {', '.join(names)}"
        )
    timed = all(stream.time is not None for stream in query.streams)
    chosen, keys = list[pa.Table](), list[npt.NDArray[Any]]()
    for stream in query.streams:
        table: Any = tables[stream.name]
        if timed:
            times = _times(query, stream, table)
            by = np.argsort(times, kind="stable")
            table, times = table.take(pa.array(by)), times[by]
            keys.append(times)
        else:
            keys.append((np.arange(len(table)) + 0.5) / max(len(table), 1))
        chosen.append(table)
    number = np.repeat(np.arange(len(names)), [len(stream_keys) for stream_keys in keys]).astype(np.uint8)
    order = number[np.argsort(np.concatenate(keys), kind="stable")][:limit]
    return ReplayFeed(names, tuple(chosen), order)


def _times(query: Query, stream: Stream, table: pa.Table) -> npt.NDArray[np.int64]:
    assert stream.time is not None
    if stream.time not in table.column_names:
        raise InputError(f"replay: the file of stream {stream.name} has no column {stream.time!r}, its event times")
    column = table[stream.time]
    if column.null_count:
        raise InputError(f"replay: {column.null_count} rows of stream {stream.name} have no event time")
    try:
        whole = column.cast(query.time_type)
        bits = pa.int32() if whole.type.bit_width == 32 else pa.int64()
        return np.asarray(whole.cast(bits).cast(pa.int64()))
    except pa.ArrowException as problem:
        raise InputError(f"replay: the event times of stream {stream.name} cannot be read: {problem}") from problem
