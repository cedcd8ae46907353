"""Keep a Delta table up to date on Spark, from change feeds of three tables, through restarts and changes of plan.

A shop writes its customers, products and carts to a database, and Debezium writes their changes to topics; here, to
files of JSON. Each start of the job takes what has come since the last one, joins it, and merges the changes into a
Delta table: who has what in the cart, and what it costs. Messages come twice and out of order, as after a restart of a
connector; the number of each change in the log of the database, its `lsn`, says which is newer. The program needs the
extras `spark` and `delta`.

Output:

    start 1: 64 changes, the table has 9 rows, as the database says
    start 2: 60 changes, the table has 14 rows, as the database says
    start 3: 60 changes, the table has 13 rows, as the database says
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from eddy import Query, Table
from eddy.spark import join, session

CUSTOMERS = pa.schema([("id", pa.int64()), ("name", pa.string())])
PRODUCTS = pa.schema([("id", pa.int64()), ("title", pa.string()), ("cents", pa.int64())])
CARTS = pa.schema([("id", pa.int64()), ("customer", pa.int64()), ("product", pa.int64())])
SCHEMAS = {"carts": CARTS, "products": PRODUCTS, "customers": CUSTOMERS}
COLUMNS = {
    "carts": "id long, customer long, product long",
    "products": "id long, title string, cents long",
    "customers": "id long, name string",
}
QUERY = Query(
    [Table(name, schema, key="id", version="lsn", ops="debezium") for name, schema in SCHEMAS.items()],
    ["carts.product = products.id", "carts.customer = customers.id"],
    select={"cart": "carts.id", "name": "customers.name", "title": "products.title", "cents": "products.cents"},
)
Row = dict[str, Any]


class Shop:
    """The tables of the shop, and a feed for each: files with the messages of Debezium, a line each."""

    def __init__(self, root: Path) -> None:
        self.root, self.random, self.lsn = root, random.Random(4), 0
        self.tables: dict[str, dict[int, Row]] = {name: {} for name in SCHEMAS}
        self.feed: dict[str, list[str]] = {name: [] for name in SCHEMAS}
        for k in range(8):
            self.put("customers", {"id": k, "name": f"customer {k}"})
        for k in range(16):
            self.put("products", {"id": k, "title": f"product {k}", "cents": 100 * k})

    def put(self, name: str, row: Row) -> None:
        """Insert or update a row."""
        before = self.tables[name].get(row["id"])
        self.tables[name][row["id"]] = row
        self._tell(name, {"op": "c" if before is None else "u", "before": before, "after": row})

    def delete(self, name: str, key: int) -> None:
        """Delete a row."""
        self._tell(name, {"op": "d", "before": self.tables[name].pop(key), "after": None})

    def work(self, changes: int) -> None:
        """Change carts and prices."""
        for _ in range(changes):
            key = self.random.randrange(20)
            if self.random.random() < 0.3:
                product = self.tables["products"][key % 16]
                self.put("products", {**product, "cents": product["cents"] + 1})
            elif key in self.tables["carts"] and self.random.random() < 0.5:
                self.delete("carts", key)
            else:
                cart = {"id": key, "customer": self.random.randrange(8), "product": self.random.randrange(16)}
                self.put("carts", cart)

    def write(self) -> int:
        """Add a file to each feed, with some messages twice and all in disorder; return the number of messages."""
        written = 0
        for name, messages in self.feed.items():
            lines = messages + self.random.sample(messages, len(messages) // 10)
            self.random.shuffle(lines)
            folder = self.root / name
            folder.mkdir(exist_ok=True)
            (folder / f"{self.lsn}.json").write_text("\n".join(lines))
            written += len(messages)
            messages.clear()
        return written

    def answer(self) -> list[Row]:
        """Return what the Delta table has to say."""
        products, customers = self.tables["products"], self.tables["customers"]
        return [
            {"cart": key, "name": customers[cart["customer"]]["name"]}
            | {column: products[cart["product"]][column] for column in ("title", "cents")}
            for key, cart in sorted(self.tables["carts"].items())
        ]

    def _tell(self, name: str, change: Row) -> None:
        self.lsn += 1
        self.feed[name].append(json.dumps({**change, "source": {"lsn": self.lsn}}))


def start(root: Path, plan: str) -> list[Row]:
    """Take the messages that have come, with a plan to begin with; return the rows of the Delta table."""
    spark = session("local[2]")
    frames = {}
    for name, columns in COLUMNS.items():
        row = f"struct<{columns.replace(' ', ':')}>".replace(",:", ",")
        schema = f"op string, before {row}, after {row}, source struct<lsn:long>"
        frames[name] = spark.readStream.schema(schema).json(str(root / name))
    joined = join(QUERY, frames, checkpoint=root / "checkpoint", plan=plan, key_groups=4)
    writer = joined.writeStream.format("delta").option("key", "cart").trigger(availableNow=True)
    writer.start(root / "table").awaitTermination()
    return sorted(pa.table(DeltaTable(root / "table").to_pyarrow_table()).to_pylist(), key=lambda row: row["cart"])


def main() -> None:
    """Change the database, and follow it, three times."""
    plans = ["(carts products) customers", "(carts customers) products", "carts products customers"]
    with TemporaryDirectory() as folder:
        root = Path(folder)
        database = Shop(root)
        database.work(40)
        for number, plan in enumerate(plans, 1):
            changes = database.write()
            table, answer = start(root, plan), database.answer()
            agrees = "as the database says" if table == answer else f"and the database says {len(answer)}"
            print(f"start {number}: {changes} changes, the table has {len(table)} rows, {agrees}")
            database.work(60)


if __name__ == "__main__":
    main()
