"""`eddy.spark.sql` over views of batch DataFrames gives the results of Spark's own SQL; the rest is refused in time."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from eddy import Range, SqlError
from eddy.spark import SparkJoinError, sql

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
    for own in (text, LEFT, FULL, COMPUTED):
        found = Counter(tuple(row) for row in sql(views, own, times=times, partitions=2).collect())
        assert found == Counter(tuple(row) for row in views.sql(own).collect())
        assert found


@pytest.mark.spark
def test_what_does_not_fit_is_refused_before_anything_runs(views: SparkSession) -> None:
    with pytest.raises(SparkJoinError, match="there is no view 'click'"):
        sql(views, "SELECT * FROM click JOIN orders ON click.user = orders.user")
    with pytest.raises(SparkJoinError, match="times names 'other', which the statement does not read"):
        sql(views, JOIN, times={"other": "at"})
    with pytest.raises(SqlError, match="line 1, column 8: there is no relation 'b'") as found:
        sql(
            views,
            "SELECT b.x FROM clicks JOIN orders ON clicks.user = orders.user",
            windows={"clicks": Range(60)},
            times={"clicks": "at"},
        )
    assert (found.value.line, found.value.column) == (1, 8)


@pytest.mark.spark
def test_explain_says_how_the_join_would_run(views: SparkSession) -> None:
    text = sql(views, f"EXPLAIN {JOIN}", times={"clicks": "at", "orders": "at"})
    assert "partitions" in text
    assert "plan clicks orders" in text
