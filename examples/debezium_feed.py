"""Keep a report up to date from a change feed of three tables and a stream of page views, through restarts.

A shop writes its customers, products and carts to a database, and Debezium writes their changes to topics as JSON.
Views of product pages come as a stream. The report has a row for each of the last 500 views whose product lies in a
cart of a customer: who to call, and about what. The feed goes on for a while with many changes of carts, then prices
change all the time. The process is killed twice and resumes from a snapshot; the plan changes on the way.

Output:

    48 changes of tables, report of 0 rows
    after 20 messages: 155 rows, 252 came, 0 were replaced, 97 left
    killed, resumed
    after 40 messages: 222 rows, 574 came, 162 were replaced, 352 left
    the plan is ((views carts) customers) products
    killed, resumed
    after 60 messages: 288 rows, 830 came, 613 were replaced, 542 left
    the report is what the tables and the last 500 views say now
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from eddy import Query, Rows, Runtime, Stream, Table

CUSTOMERS = pa.schema([("id", pa.int64()), ("name", pa.string())])
PRODUCTS = pa.schema([("id", pa.int64()), ("title", pa.string()), ("cents", pa.int64())])
CARTS = pa.schema([("id", pa.int64()), ("customer", pa.int64()), ("product", pa.int64())])
VIEWS = pa.schema([("product", pa.int64()), ("second", pa.int64())])
Row = dict[str, Any]

QUERY = Query(
    [
        Stream("views", VIEWS, window=Rows(500)),
        Table("carts", CARTS, key="id", ops="debezium"),
        Table("products", PRODUCTS, key="id", ops="debezium"),
        Table("customers", CUSTOMERS, key="id", ops="debezium"),
    ],
    ["views.product = carts.product", "carts.product = products.id", "carts.customer = customers.id"],
    select=["customers.name", "products.title", "products.cents", "views.second"],
)


class Database:
    """The tables of the shop. Each change is a message of Debezium: JSON with the row before and the row after."""

    def __init__(self) -> None:
        self.random = random.Random(1)
        self.tables: dict[str, dict[int, Row]] = {"customers": {}, "products": {}, "carts": {}}

    def put(self, name: str, row: Row) -> str:
        """Insert or update a row; return the message."""
        before = self.tables[name].get(row["id"])
        self.tables[name][row["id"]] = row
        return json.dumps({"op": "c" if before is None else "u", "before": before, "after": row, "ts_ms": 0})

    def delete(self, name: str, key: int) -> str:
        """Delete a row; return the message."""
        return json.dumps({"op": "d", "before": self.tables[name].pop(key), "after": None, "ts_ms": 0})

    def first(self) -> dict[str, list[str]]:
        """Return the messages of a new shop."""
        return {
            "customers": [self.put("customers", {"id": k, "name": f"customer {k}"}) for k in range(8)],
            "products": [self.put("products", {"id": k, "title": f"product {k}", "cents": 100 * k}) for k in range(40)],
        }

    def messages(self, prices: bool) -> Iterator[tuple[str, str]]:
        """Yield a few messages with the names of their tables: mostly of carts, or mostly of prices."""
        for _ in range(4):
            key = self.random.randrange(40)
            if prices and self.random.random() < 0.8:
                product = self.tables["products"][key]
                yield "products", self.put("products", {**product, "cents": product["cents"] + 1})
            elif key in self.tables["carts"] and self.random.random() < 0.5:
                yield "carts", self.delete("carts", key)
            else:
                cart = {"id": key, "customer": self.random.randrange(8), "product": self.random.randrange(40)}
                yield "carts", self.put("carts", cart)


class Report:
    """The rows of the report, and what happened to them."""

    def __init__(self) -> None:
        self.rows, self.counts = Counter[tuple[Any, ...]](), Counter[str]()

    def follow(self, changes: pa.Table) -> None:
        """Apply the changes of a push."""
        for op, *row in zip(*changes.to_pydict().values(), strict=True):
            self.counts[op] += 1
            self.rows[tuple(row)] += 1 if op in ("+I", "+U") else -1
        self.rows += Counter()  # leaves out rows with a count of 0

    def __str__(self) -> str:
        """Return the report in numbers."""
        came, replaced, left = (self.counts[op] for op in ("+I", "+U", "-D"))
        return f"{self.rows.total()} rows, {came} came, {replaced} were replaced, {left} left"


def by_hand(database: Database, views: list[Row]) -> Counter[tuple[Any, ...]]:
    """Return the report as nested loops compute it."""
    tables = database.tables
    return Counter(
        (tables["customers"][cart["customer"]]["name"], product["title"], product["cents"], view["second"])
        for view in views[-500:]
        for cart in tables["carts"].values()
        if cart["product"] == view["product"]
        for product in [tables["products"][cart["product"]]]
    )


def main() -> None:
    """Follow the feed, with two restarts."""
    database, report, views = Database(), Report(), list[Row]()
    runtime = Runtime(QUERY, output="changelog")
    first = database.first()
    report.follow(runtime.push({name: [json.loads(line) for line in rows] for name, rows in first.items()}))
    print(f"{sum(map(len, first.values()))} changes of tables, report of {report.rows.total()} rows")
    for number in range(1, 61):
        seen = [{"product": database.random.randrange(40), "second": number} for _ in range(10)]
        pushed: dict[str, list[Row]] = {"views": seen}
        views += pushed["views"]
        for name, message in database.messages(prices=number > 30):
            pushed.setdefault(name, []).append(json.loads(message))
        report.follow(runtime.push(pushed))
        if number == 40:
            # The policy changes plans by itself once it has seen enough rows; this feed is short.
            runtime.transition("((views carts) customers) products")
        if number % 20 == 0:
            print(f"after {number} messages: {report}")
            saved, before = runtime.snapshot(), runtime.plan
            if number == 40:
                print(f"the plan is {before}")
            if number < 60:
                del runtime
                runtime = Runtime.restore(saved, QUERY)
                print("killed, resumed")
    assert report.rows == by_hand(database, views)
    print("the report is what the tables and the last 500 views say now")


if __name__ == "__main__":
    main()
