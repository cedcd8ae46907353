"""`eddy bench as_of`: a star of three versioned tables, followed by a runtime and by other means.

Each bid gets the version of three tables at its event time, each by a key of its own. A push has bids and, for each
table, a twentieth as many versions, in order of event time. All ways know the versions of all pushes so far. Polars
and DuckDB join the bids of a push with all of them, on one thread; plain Python has a list of times for each key.
Polars, whole: one call for all bids of all pushes of a round, which a stream does not have.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from time import process_time
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.harness.figure import NAMED, Figure, Point, Row, Say
from bench.harness.turns import Work, speed, take_turns
from eddy import AsOf, Query, Runtime, Stream, VersionedTable

TABLES = "u", "v", "w"
BIDS = pa.schema([("t", pa.int64()), *((f"key_{name}", pa.int64()) for name in TABLES)])
VERSIONS = pa.schema([("key", pa.int64()), ("t", pa.int64()), ("value", pa.int64())])
Pushed = dict[str, pa.Table]


class StarWay(Protocol):
    """A way to follow the star: it takes pushes, and returns the sum of the values of all versions that rows got."""

    def push(self, tables: Pushed, end: int) -> int:
        """Take a push whose rows are all older than `end`."""


class EddyStar:
    """A runtime, which gets a watermark with each push."""

    def __init__(self) -> None:
        tables = [VersionedTable(name, VERSIONS, key="key", time="t") for name in TABLES]
        star = [AsOf(table, [f"bid.key_{table.name} = {table.name}.key"], how="left") for table in tables]
        select = ["bid.t", *(f"{name}.value" for name in TABLES)]
        self._runtime = Runtime(Query([Stream("bid", BIDS, time="t")], as_of=star, select=select))

    def push(self, tables: Pushed, end: int) -> int:
        """Take a push."""
        return summed(self._runtime.push(tables, watermark=end), [f"{name}.value" for name in TABLES])


class PythonStar:
    """Lists of times and values for each key, and a search for each bid."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[int, tuple[list[int], list[int]]]] = {name: {} for name in TABLES}

    def push(self, tables: Pushed, end: int) -> int:
        """Take a push."""
        total, rows = 0, []
        for name in TABLES:
            versions = self._tables[name]
            for key, at, value in zip(*(column.to_pylist() for column in tables[name].columns), strict=True):
                times, values = versions.setdefault(key, ([], []))
                times.append(at)
                values.append(value)
        for at, *keys in zip(*(column.to_pylist() for column in tables["bid"].columns), strict=True):
            row: list[int | None] = [at]
            for name, key in zip(TABLES, keys, strict=True):
                times, values = self._tables[name].get(key, ([], []))
                k = bisect_right(times, at)
                row.append(values[k - 1] if k else None)
                total += values[k - 1] if k else 0
            rows.append(row)
        return total


class PolarsStar:
    """`join_asof` of the bids of a push with all versions so far, table by table."""

    def __init__(self) -> None:
        self._tables: dict[str, Any] = {}

    def push(self, tables: Pushed, end: int) -> int:
        """Take a push."""
        import polars as pl

        rows: Any = pl.from_arrow(tables["bid"])
        for name in TABLES:
            new: Any = pl.from_arrow(tables[name])
            known = self._tables.get(name)
            self._tables[name] = new if known is None else pl.concat([known, new])
            rows = rows.join_asof(
                self._tables[name].rename({"value": name}), on="t", by_left=f"key_{name}", by_right="key",
                check_sortedness=False,
            )  # fmt: skip
        return summed(rows.select(["t", *TABLES]).to_arrow(), list(TABLES))


class DuckDBStar:
    """ASOF JOIN of the bids of a push with all versions so far."""

    def __init__(self) -> None:
        import duckdb

        self._connection = duckdb.connect(config={"threads": 1})
        for name in TABLES:
            self._connection.execute(f"CREATE TABLE {name} (key BIGINT, t BIGINT, value BIGINT)")
        joins = [f"ASOF LEFT JOIN {name} ON bid.key_{name} = {name}.key AND bid.t >= {name}.t" for name in TABLES]
        values = ", ".join(f"{name}.value AS {name}" for name in TABLES)
        self._text = f"SELECT bid.t, {values} FROM bid {' '.join(joins)}"

    def push(self, tables: Pushed, end: int) -> int:
        """Take a push."""
        for name in TABLES:
            self._connection.register("new", tables[name])
            self._connection.execute(f"INSERT INTO {name} SELECT * FROM new")
        self._connection.register("bid", tables["bid"])
        return summed(self._connection.sql(self._text).to_arrow_table(), list(TABLES))


def summed(table: pa.Table, columns: list[str]) -> int:
    """Return the sum of some columns."""
    return sum(int(pc.sum(table[name]).as_py() or 0) for name in columns)


WAYS: Mapping[str, Callable[[], StarWay]] = {
    "eddy": EddyStar,
    "python": PythonStar,
    "polars": PolarsStar,
    "duckdb": DuckDBStar,
}
LIBRARIES = "polars", "duckdb"


class StarFeed:
    """Seeded pushes. `keys`: of each table."""

    def __init__(self, keys: int) -> None:
        self.keys, self.now, self.rng = keys, 0, np.random.default_rng(1)

    def _versions(self, n: int, end: int) -> pa.Table:
        # Each has another time: DuckDB does not say which one of several is valid.
        times = self.now + np.sort(self.rng.choice(end - self.now, n, replace=False))
        return pa.table([self.rng.integers(0, self.keys, n), times, self.rng.integers(0, 1000, n)], schema=VERSIONS)

    def push(self, bids: int, versions: int) -> tuple[Pushed, int]:
        """Return a push, and the end of its event times."""
        end = self.now + max(bids, versions)
        keys = [self.rng.integers(0, self.keys, bids) for _ in TABLES]
        tables = {name: self._versions(versions, end) for name in TABLES}
        tables["bid"] = pa.table([np.arange(self.now, self.now + bids), *keys], schema=BIDS)
        self.now = end
        return tables, end


def points(full: bool) -> list[Point]:
    """Return a point for each size of a push."""
    return [
        {"keys": 10_000 if full else 1_000, "push": size, "pushes": 10, "rounds": 7 if full else 3}
        for size in ((100_000, 10_000, 1_000) if full else (1_000,))
    ]


def measure(point: Point, say: Say) -> list[Row]:
    """Return the rate of a runtime at a point, and its speed relative to the other ways."""
    size, count, pushes = int(point["push"]), int(point["rounds"]), int(point["pushes"])
    feed, name = StarFeed(int(point["keys"])), f"star.{size}"
    ways = {way: make() for way, make in WAYS.items() if way not in LIBRARIES or find_spec(way)}
    begin = feed.push(0, 5 * feed.keys)
    rounds = [[feed.push(size, size // 20) for _ in range(pushes)] for _ in range(count + 1)]

    def work(way: StarWay) -> Iterator[tuple[float, object]]:
        yield 0.0, way.push(*begin)
        for arrivals in rounds:
            start = process_time()
            total = sum(way.push(*push) for push in arrivals)
            yield process_time() - start, total

    works: dict[str, Work] = {}
    for way, runner in ways.items():
        works[way] = work(runner).__next__
        works[way]()
    taken = take_turns(name, works, count, say)
    rows: list[Row] = [
        {"figure": f"{name}.{way}_rows", "value": size * pushes / sorted(seconds)[len(seconds) // 2] / 1e6}
        for way, seconds in taken.items()
    ]
    rows += [{"figure": f"{name}.vs_{way}", **speed(taken, "eddy", way)} for way in ways if way != "eddy"]
    for way in WAYS.keys() - ways.keys():
        rows.append({"figure": f"{name}.vs_{way}", "skipped": f"{way}: not installed (pip install 'eddy-join[bench]')"})
    return rows


NAMES = [f"star.{size}" for size in (100_000, 10_000, 1_000)]
TITLES = {
    **{f"{name}.{way}_rows": f"{name}: million bids per second, {way}" for name in NAMES for way in WAYS},
    **{f"{name}.vs_{way}": f"{name}: speed of eddy, {way} = 1" for name in NAMES for way in WAYS if way != "eddy"},
}

FIGURES = (
    Figure(
        "as_of",
        "Bids with the versions of three tables at their event times: `star.N` has pushes of N bids and N / 20 versions"
        " of each table, of 10 000 keys with five versions each at first. A runtime with undo gets a watermark with"
        " each push. Polars (`join_asof`) and DuckDB (ASOF JOIN) join the bids of a push with all versions so far, on"
        " one thread. Plain Python searches lists, bid by bid. The sums of the values are compared after each round."
        " CPU times of the process.",
        points,
        measure,
        tables=(NAMED,),
        titles=TITLES,
        bars={
            **{f"{name}.vs_polars": "≥ 2" for name in NAMES},
            **{f"{name}.vs_duckdb": "≥ 1" for name in NAMES},
        },
    ),
)
