"""CREATE TABLE: the input that a text declares, and the place of what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from eddy import QueryError, Rows, Runtime, SqlError, Stream, Table, VersionedTable, create_table, sql
from eddy.streams.keyed import KeyedInput

COLUMNS = "id BIGINT, kind STRING, price DECIMAL(10, 2) NOT NULL, at TIMESTAMP(3)"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("kind", pa.string()),
        pa.field("price", pa.decimal128(10, 2), False),
        ("at", pa.timestamp("ms")),
    ]
)
KEY, TIME = ", PRIMARY KEY (id) NOT ENFORCED", ", WATERMARK FOR at AS at - INTERVAL '5' SECOND"


@pytest.mark.parametrize(
    ("more", "kind", "key", "time", "lateness"),
    [
        ("", Stream, None, None, None),
        (TIME, Stream, None, "at", timedelta(seconds=5)),
        (", WATERMARK FOR at AS at", Stream, None, "at", None),
        (", watermark for AT as (`at`)", Stream, None, "at", None),
        (KEY, Table, ("id",), None, None),
        (", PRIMARY KEY (ID, kind) NOT ENFORCED", Table, ("id", "kind"), None, None),
        (KEY + TIME, VersionedTable, ("id",), "at", timedelta(seconds=5)),
        (TIME + KEY, VersionedTable, ("id",), "at", timedelta(seconds=5)),
    ],
)
def test_what_is_declared(more: str, kind: type, key: Any, time: str | None, lateness: Any) -> None:
    declared = create_table(f"CREATE TABLE `items` ({COLUMNS}{more})")
    assert type(declared) is kind
    assert (declared.name, declared.time, declared.lateness) == ("items", time, lateness)
    assert declared.schema == SCHEMA
    assert key is None or (isinstance(declared, KeyedInput) and declared.keys == key)


def test_what_sql_cannot_say_is_an_option() -> None:
    assert create_table("CREATE TABLE a (k INT, t BIGINT, WATERMARK FOR t AS t - 60)", window=Rows(3)).lateness == 60
    table = create_table(f"CREATE TABLE a ({COLUMNS}{KEY})", ops="column", version="at")
    assert isinstance(table, Table)
    assert table.version == "at"
    for name in ("key", "lateness"):
        with pytest.raises(QueryError, match=f"leave {name} out: the text declares it"):
            create_table(f"CREATE TABLE a ({COLUMNS})", **{name: "k"})
    with pytest.raises(QueryError, match="leave the window out"):
        create_table(f"CREATE TABLE a ({COLUMNS}{KEY})", window=Rows(3))


def test_declarations_are_the_inputs_of_a_statement() -> None:
    people = create_table("CREATE TABLE people (id BIGINT, city STRING, PRIMARY KEY (id) NOT ENFORCED)")
    visits = create_table("CREATE TABLE visits (who BIGINT, page STRING)")
    runtime = Runtime(
        sql("SELECT page, city FROM visits JOIN people ON who = id", [visits, people]), output="changelog"
    )
    table = runtime.push({"visits": [{"who": 1, "page": "/"}], "people": [{"id": 1, "city": "Oslo"}]})
    assert table.to_pylist() == [{"op": "+I", "page": "/", "city": "Oslo"}]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("SELECT a.k FROM a", "", "a declaration is CREATE TABLE name"),
        ("CREATE VIEW a AS SELECT b.k FROM b", "", "a declaration is CREATE TABLE name"),
        ("CREATE TABLE a AS SELECT b.k FROM b", "", "the columns are missing"),
        ("CREATE TABLE a (k BIGINT) WITH ('connector' = 'kafka')", "", "WITH .* is not supported in CREATE TABLE"),
        ("CREATE TABLE IF NOT EXISTS a (k BIGINT)", "", "EXISTS is not supported in CREATE TABLE"),
        ("CREATE TABLE a (k BIGINT, k INT)", "k INT", "two columns are named 'k'"),
        ("CREATE TABLE a (k BLOB)", "", "there is no type"),
        ("CREATE TABLE a (k BIGINT DEFAULT 3)", "k BIGINT", "column k: DEFAULT 3 is not supported"),
        ("CREATE TABLE a (k BIGINT PRIMARY KEY)", "k BIGINT", "column k: PRIMARY KEY of a column is not supported"),
        ("CREATE TABLE a (k BIGINT, PRIMARY KEY (k))", "k))", "write PRIMARY KEY .* NOT ENFORCED: a row with a known"),
        ("CREATE TABLE a (k BIGINT, PRIMARY KEY (z) NOT ENFORCED)", "z)", "no column 'z'; there are k"),
        ("CREATE TABLE a (k BIGINT,\nUNIQUE (k))", "", "UNIQUE .* is not supported here"),
        ("CREATE TABLE a (t BIGINT, WATERMARK FOR z AS z)", "z AS", "no column 'z'; there are t"),
        ("CREATE TABLE a (t BIGINT, u BIGINT, WATERMARK FOR t AS u)", "t AS", "the column less a span"),
        ("CREATE TABLE a (t BIGINT, WATERMARK FOR t AS t + 3)", "t AS", "the column less a span"),
        ("CREATE TABLE a (t BIGINT, WATERMARK FOR t AS t - t)", "t)", "behind by a constant span"),
        ("CREATE TABLE a (t BIGINT, WATERMARK FOR t AS t - INTERVAL '1' MONTH)", "", "a month has no fixed length"),
        ("CREATE TABLE a (t BIGINT, WATERMARK FOR t AS t, WATERMARK FOR t AS t)", "t AS t)", "WATERMARK stands there"),
        ("CREATE TABLE a (t STRING, WATERMARK FOR t AS t)", "t AS", "column 't' is string; an event time is"),
        ("CREATE TABLE a (t INT, PRIMARY KEY (t) NOT ENFORCED, WATERMARK FOR t AS t)", "", "no part of its key"),
    ],
)
def test_what_is_refused(text: str, place: str, message: str) -> None:
    with pytest.raises(SqlError, match=message) as caught:
        create_table(text)
    assert text.splitlines()[caught.value.line - 1][caught.value.column - 1 :].startswith(place)


def test_a_statement_says_what_reads_declarations() -> None:
    with pytest.raises(SqlError, match=r"eddy\.create_table"):
        sql("CREATE TABLE a (k BIGINT)", [Stream("a", SCHEMA)])
