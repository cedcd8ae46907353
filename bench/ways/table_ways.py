"""Ways to follow bids, auctions, persons and categories that change: the answer is a join of all four.

A way takes changes of rows by key (upserts), and bids, of which the newest ones stay in the window. `push` returns the
changes of the answer in whatever form the way has them; `signed` sums them up.
"""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import eddy
from bench.workloads.sources import Order

INPUTS = "bid", "auction", "person", "category"
SCHEMAS = {
    "bid": pa.schema([("auction", pa.int64()), ("v", pa.int64())]),
    "auction": pa.schema([("id", pa.int64()), ("seller", pa.int64()), ("category", pa.int64()), ("v", pa.int64())]),
    "person": pa.schema([("id", pa.int64()), ("v", pa.int64())]),
    "category": pa.schema([("id", pa.int64()), ("v", pa.int64())]),
}
VALUES = [f"v_{name}" for name in INPUTS]
"""Columns of an answer. The value of a row is a number of its own."""
Pushed = tuple[Order, Mapping[str, pa.RecordBatch]]
Sums = tuple[int, ...]
"""The number of rows, and the sums of the values of the four inputs: of the changes of a push, or of an answer."""


class TableWay(Protocol):
    """A way to follow the answer."""

    def push(self, pushed: Any) -> Any:
        """Take changes in the form of `prepared`, and return those of the answer."""

    def prepared(self, pushed: Pushed) -> Any:
        """Return a push in the form in which this way takes it, which costs no time."""

    def signed(self, changes: Any) -> Sums:
        """Return by how much changes of the answer change its sums."""


class EddyWay:
    """A runtime over three tables and a stream; its policy chooses the plan. `atomic` pushes give net changes.

    left   persons and categories are joined by left joins, whose pushes are all atomic; the answer is the same
    """

    def __init__(self, window: int, atomic: bool = False, left: bool = False, **options: Any) -> None:
        self.atomic = atomic
        bid = eddy.Stream("bid", SCHEMAS["bid"], window=eddy.Rows(window))
        auction, *names = [eddy.Table(name, SCHEMAS[name], key="id") for name in INPUTS[1:]]
        on = ["bid.auction = auction.id", "auction.seller = person.id", "auction.category = category.id"]
        branches = [eddy.Branch([table], [text], "left") for table, text in zip(names, on[1:], strict=True)]
        query = eddy.Query(
            [bid, auction] if left else [bid, auction, *names],
            on[:1] if left else on,
            branches=branches if left else (),
            select=[f"{name}.v" for name in INPUTS],
        )
        self.runtime = eddy.Runtime(query, output="changelog", **options)

    def prepared(self, pushed: Pushed) -> Pushed:
        """As of a TableWay."""
        return pushed

    def push(self, pushed: Pushed) -> pa.Table:
        """As of a TableWay."""
        order, batches = pushed
        return self.runtime.push(batches, order, atomic=self.atomic)

    def signed(self, changes: pa.Table) -> Sums:
        """As of a TableWay."""
        signs = np.where(pc.is_in(changes["op"], pa.array(["+I", "+U"])).to_numpy(), 1, -1)
        return int(signs.sum()), *(int(signs @ changes[f"{name}.v"].to_numpy()) for name in INPUTS)


class PlainPython:
    """Dicts by key and by foreign key, row by row, as one writes it by hand."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.bids = deque[tuple[int, int]]()
        self.of_auction: dict[int, deque[int]] = defaultdict(deque)
        self.auctions: dict[int, tuple[int, int, int]] = {}
        self.of_person: dict[int, dict[int, None]] = defaultdict(dict)
        self.of_category: dict[int, dict[int, None]] = defaultdict(dict)
        self.persons: dict[int, int] = {}
        self.categories: dict[int, int] = {}

    def prepared(self, pushed: Pushed) -> list[tuple[int, tuple[int, ...]]]:
        """As of a TableWay: rows of Python numbers."""
        order, batches = pushed
        rows = [
            iter([*zip(*(column.to_pylist() for column in batches[name].columns), strict=True)])
            if name in batches
            else iter(())
            for name in INPUTS
        ]
        return [(i, next(rows[i])) for i in order.tolist()]

    def _results(self, out: list[tuple[int, ...]], sign: int, auction: int, bids: Iterable[int]) -> None:
        row = self.auctions.get(auction)
        if row is not None:
            seller, category, value = row
            person, name = self.persons.get(seller), self.categories.get(category)
            if person is not None and name is not None:
                out.extend([(sign, bid, value, person, name) for bid in bids])

    def push(self, pushed: list[tuple[int, tuple[int, ...]]]) -> list[tuple[int, ...]]:
        """As of a TableWay."""
        out: list[tuple[int, ...]] = []
        for i, row in pushed:
            if i == 0:
                self._bid(out, *row)
            elif i == 1:
                self._auction(out, *row)
            else:
                self._name(out, i, *row)
        return out

    def _bid(self, out: list[tuple[int, ...]], auction: int, value: int) -> None:
        if len(self.bids) == self.window:
            old, _ = self.bids.popleft()
            self._results(out, -1, old, [self.of_auction[old].popleft()])
        self._results(out, 1, auction, [value])
        self.bids.append((auction, value))
        self.of_auction[auction].append(value)

    def _auction(self, out: list[tuple[int, ...]], key: int, seller: int, category: int, value: int) -> None:
        before, bids = self.auctions.get(key), self.of_auction.get(key, ())
        if before is not None:
            self._results(out, -1, key, bids)
            del self.of_person[before[0]][key], self.of_category[before[1]][key]
        self.auctions[key] = seller, category, value
        self.of_person[seller][key] = self.of_category[category][key] = None
        self._results(out, 1, key, bids)

    def _name(self, out: list[tuple[int, ...]], i: int, key: int, value: int) -> None:
        values, auctions = (self.persons, self.of_person) if i == 2 else (self.categories, self.of_category)
        matching = auctions.get(key, ())
        for auction in matching:
            self._results(out, -1, auction, self.of_auction.get(auction, ()))
        values[key] = value
        for auction in matching:
            self._results(out, 1, auction, self.of_auction.get(auction, ()))

    def signed(self, changes: list[tuple[int, ...]]) -> Sums:
        """As of a TableWay."""
        if not changes:
            return (0,) * 5
        rows = np.array(changes, np.int64)
        return int(rows[:, 0].sum()), *(rows[:, 0] @ rows[:, 1:]).tolist()


class Recomputed:
    """The answer is computed anew after each push, and compared with the one before."""

    def prepared(self, pushed: Pushed) -> Mapping[str, pa.RecordBatch]:
        """As of a TableWay: the order within a push does not matter, since only the answer after it counts."""
        return pushed[1]


class PolarsWay(Recomputed):
    """Frames, joined anew."""

    def __init__(self, window: int) -> None:
        # One thread, as for all ways; Polars reads this setting once, when it is imported.
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
        import polars as pl

        self.pl, self.window = pl, window
        self.held: dict[str, Any] = {
            name: pl.DataFrame(schema=dict.fromkeys(schema.names, pl.Int64)) for name, schema in SCHEMAS.items()
        }
        self.answer: Any = pl.DataFrame(schema=dict.fromkeys(VALUES, pl.Int64))

    def push(self, pushed: Mapping[str, pa.RecordBatch]) -> tuple[Any, Any]:
        """As of a TableWay: the new rows, and the old ones."""
        pl = self.pl
        for name, batch in pushed.items():
            rows = pl.DataFrame(pl.from_arrow(batch))
            if name == "bid":
                self.held[name] = pl.concat([self.held[name], rows]).tail(self.window)
            else:
                rows = rows.unique("id", keep="last")
                self.held[name] = pl.concat([self.held[name].join(rows, on="id", how="anti"), rows])
        bid, auction, person, category = (self.held[name].lazy().rename({"v": f"v_{name}"}) for name in INPUTS)
        answer = (
            bid.join(auction, left_on="auction", right_on="id")
            .join(person, left_on="seller", right_on="id")
            .join(category, left_on="category", right_on="id")
            .select(VALUES)
            .collect()
        )
        before, self.answer = self.answer, answer
        return answer.join(before, on=VALUES, how="anti"), before.join(answer, on=VALUES, how="anti")

    def signed(self, changes: tuple[Any, Any]) -> Sums:
        """As of a TableWay."""
        new, old = changes
        return len(new) - len(old), *(int(new[name].sum()) - int(old[name].sum()) for name in VALUES)


JOINED = (
    f"SELECT {', '.join(f'{name}.v AS v_{name}' for name in INPUTS)} FROM bid JOIN auction ON bid.auction = auction.id "
    "JOIN person ON auction.seller = person.id JOIN category ON auction.category = category.id"
)


class DuckDBWay(Recomputed):
    """Tables in memory, joined anew by SQL."""

    def __init__(self, window: int) -> None:
        import duckdb

        self.database, self.window, self.next = duckdb.connect(config={"threads": 1}), window, 0
        for name, schema in SCHEMAS.items():
            columns = ", ".join(f"{column} BIGINT" for column in schema.names)
            self.database.execute(f"CREATE TABLE {name}({columns}{', n BIGINT' if name == 'bid' else ''})")
        self.database.execute(f"CREATE TABLE answer({', '.join(f'{name} BIGINT' for name in VALUES)})")

    def push(self, pushed: Mapping[str, pa.RecordBatch]) -> pa.Table:
        """As of a TableWay: rows with a column `sign`."""
        database = self.database
        for name, batch in pushed.items():
            rows = pa.Table.from_batches([batch])
            if name == "bid":
                numbers = pa.array(np.arange(self.next, self.next + len(batch)))
                self.next += len(batch)
                database.register("pushed", rows.append_column("n", numbers))
                database.execute("INSERT INTO bid SELECT * FROM pushed")
                database.execute(f"DELETE FROM bid WHERE n < {self.next - self.window}")
            else:
                database.register("pushed", rows)
                database.execute(f"DELETE FROM {name} WHERE id IN (SELECT id FROM pushed)")
                database.execute(
                    f"INSERT INTO {name} SELECT * FROM pushed"
                    " QUALIFY row_number() OVER (PARTITION BY id ORDER BY v DESC) = 1"
                )
        database.execute(f"CREATE OR REPLACE TABLE following AS {JOINED}")
        changes = database.sql(
            "SELECT 1 AS sign, * FROM (FROM following EXCEPT FROM answer) UNION ALL"
            " SELECT -1, * FROM (FROM answer EXCEPT FROM following)"
        ).to_arrow_table()
        database.execute("DROP TABLE answer; ALTER TABLE following RENAME TO answer")
        return changes

    def signed(self, changes: pa.Table) -> Sums:
        """As of a TableWay."""
        signs = changes["sign"].to_numpy()
        return int(signs.sum()), *(int(signs @ changes[name].to_numpy()) for name in VALUES)
