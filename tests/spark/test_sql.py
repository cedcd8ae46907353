"""`eddy.spark.sql` over views of batch DataFrames gives the results of Spark's own SQL; the rest is refused in time."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from eddy import Query, Range, SqlError, Stream
from eddy.spark import SparkJoinError, join, sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = dt.datetime(2026, 1, 1)
JOIN = """
    SELECT clicks.page, orders.amount * 2 AS twice, UPPER(clicks.page) || '!' AS shout
    FROM clicks JOIN orders ON clicks.user = orders.user
        AND orders.at BETWEEN clicks.at AND clicks.at + INTERVAL '10' MINUTE
    WHERE orders.amount > 1 AND clicks.page <> 'none'
"""
LEFT = """
    SELECT clicks.page, clicks.user, p.amount FROM clicks
    LEFT JOIN (SELECT user, at, amount FROM orders WHERE amount > 2) AS p ON clicks.user = p.user
        AND p.at BETWEEN clicks.at AND clicks.at + INTERVAL '5' MINUTE
    LEFT ANTI JOIN orders AS o ON o.user = clicks.user AND o.at BETWEEN clicks.at - INTERVAL '1' MINUTE AND clicks.at
"""
FULL = """
    SELECT c.page, c.one, o.two, COALESCE(o.late, FALSE) AS late
    FROM (SELECT user, at, page, 1 AS one FROM clicks) AS c
    FULL JOIN (SELECT user, at, 'order' AS two, amount IS NULL AS late FROM orders) AS o
        ON c.user = o.user AND o.at BETWEEN c.at AND c.at + INTERVAL '5' MINUTE
"""
COMPUTED = """
    SELECT clicks.page, clicks.user, o.amount, d.page AS other FROM clicks
    JOIN orders AS o ON CAST(clicks.user AS DOUBLE) = o.amount + 0.0
        AND o.at BETWEEN clicks.at AND clicks.at + INTERVAL '10' MINUTE
    JOIN clicks AS d ON UPPER(d.page) = UPPER(clicks.page) AND d.page <= clicks.page
        AND d.at BETWEEN o.at AND o.at + INTERVAL '10' MINUTE
"""


@pytest.fixture
def views(spark: SparkSession) -> SparkSession:
    clicks = [(i % 7 or None, START + dt.timedelta(minutes=i), ("home", "sale", "none")[i % 3]) for i in range(60)]
    orders = [(i % 5 or None, START + dt.timedelta(minutes=2 * i, seconds=i), i % 4) for i in range(30)]
    spark.createDataFrame(clicks, "user long, at timestamp_ntz, page string").createOrReplaceTempView("clicks")
    spark.createDataFrame(orders, "user long, at timestamp_ntz, amount int").createOrReplaceTempView("orders")
    return spark


@pytest.mark.spark
def test_results_are_those_of_spark(views: SparkSession) -> None:
    times = {"clicks": "at", "orders": "at"}
    text = f"{JOIN} UNION ALL SELECT c.page, CAST(c.user AS BIGINT), o.page FROM clicks AS c JOIN clicks AS o"
    text += " ON c.user = o.user AND o.at BETWEEN c.at AND c.at + INTERVAL '8' MINUTE"
    for statement in (text, LEFT, FULL, COMPUTED):
        counts = Counter(tuple(row) for row in sql(views, statement, times=times, partitions=2).collect())
        assert counts == Counter(tuple(row) for row in views.sql(statement).collect())
        assert counts


@pytest.mark.spark
def test_what_does_not_fit_is_refused_before_anything_runs(views: SparkSession) -> None:
    with pytest.raises(SparkJoinError, match="there is no view 'click'"):
        sql(views, "SELECT * FROM click JOIN orders ON click.user = orders.user")
    with pytest.raises(SparkJoinError, match="times names 'other', which the statement does not read"):
        sql(views, JOIN, times={"other": "at"})
    with pytest.raises(SqlError, match="line 1, column 8: there is no relation 'b'") as refusal:
        sql(
            views,
            "SELECT b.x FROM clicks JOIN orders ON clicks.user = orders.user",
            windows={"clicks": Range(60)},
            times={"clicks": "at"},
        )
    assert (refusal.value.line, refusal.value.column) == (1, 8)


@pytest.mark.spark
def test_explain_says_how_the_join_would_run(views: SparkSession) -> None:
    text = sql(views, f"EXPLAIN {JOIN}", times={"clicks": "at", "orders": "at"})
    assert "partitions" in text
    assert "plan clicks orders" in text


@pytest.mark.spark
def test_a_type_that_arrow_lacks_matters_only_where_it_is_used(views: SparkSession) -> None:
    views.sql("SELECT *, INTERVAL '1' YEAR AS span FROM clicks").createOrReplaceTempView("spans")
    on = "spans.user = orders.user AND orders.at BETWEEN spans.at AND spans.at + INTERVAL '5' MINUTE"
    text = f"SELECT spans.page, orders.amount, COUNT(*) AS n FROM spans JOIN orders ON {on} GROUP BY page, amount"
    times = {"spans": "at", "orders": "at"}
    counts = Counter(tuple(row) for row in sql(views, text, times=times).collect())
    assert counts == Counter(tuple(row) for row in views.sql(text).collect())
    for used in ("spans.span", "spans.*", "*"):
        with pytest.raises(SparkJoinError, match=r"view 'spans', column 'span': its type is interval year.*CAST it"):
            sql(views, f"SELECT {used} FROM spans JOIN orders ON {on}", times=times)


@pytest.mark.spark
def test_nested_nullability_converts_both_ways(spark: SparkSession) -> None:
    never = "ARRAY(k), NAMED_STRUCT('v', k), MAP(k, k)"
    views = {"a": never, "b": "ARRAY(k, NULL), NAMED_STRUCT('v', IF(k > 1, k, NULL)), MAP(k, IF(k > 1, k, NULL))"}
    for name, columns in views.items():
        frame = spark.sql(f"SELECT k, {columns} FROM VALUES (1L), (2L) AS t(k)").toDF("k", "many", "one", "by")
        frame.createOrReplaceTempView(f"nested_{name}")
    declared = pa.schema(
        [
            ("k", pa.int64()),
            ("many", pa.list_(pa.int64())),
            ("one", pa.struct([("v", pa.int64())])),
            ("by", pa.map_(pa.int64(), pa.int64())),
        ]
    )
    strict = pa.schema(
        [
            ("k", pa.int64()),
            ("many", pa.list_(pa.field("item", pa.int64(), False))),
            ("one", pa.struct([pa.field("v", pa.int64(), False)])),
            ("by", pa.map_(pa.int64(), pa.field("value", pa.int64(), False))),
        ]
    )
    text = "SELECT a.many, a.one, b.many AS other FROM nested_a AS a JOIN nested_b AS b ON a.k = b.k"
    assert sql(spark, text).count() == 2
    frames = {name: spark.table(f"nested_{name}") for name in "ab"}
    for schemas in ((declared, declared), (strict, declared)):
        streams = [Stream(name, schema) for name, schema in zip("ab", schemas, strict=True)]
        query = Query(streams, ["a.k = b.k"], select=["a.many", "a.one", "a.by", "b.many"])
        rows = join(query, frames).collect()
        assert sorted(tuple(row["a.many"]) for row in rows) == [(1,), (2,)]
