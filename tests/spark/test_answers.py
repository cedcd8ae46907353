"""Queries over queries in batch joins have the answer of a `Runtime`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import eddy
from eddy.spark import SparkJoinError, join, sql
from tests.spark.streaming.jobs import Inputs
from tests.spark.test_as_of import AT, counted, of_bids
from tests.spark.test_join import files_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BIDS, ASKS = (eddy.Stream(name, AT) for name in ("bid", "ask"))
ON = ["bid.k = ask.k"]
BEST = eddy.Query([BIDS, ASKS], ON, group_by={"k": "bid.k", "at": "ask.at"}, aggregates={"most": eddy.agg.max("bid.v")})
FIRST = eddy.Query([BIDS], top=eddy.Top(1, "bid.k", "bid.v desc"), select={"k": "bid.k", "v": "bid.v"})
TIMED = eddy.Stream("bid", AT, time="at")
WINDOWS = eddy.Query(
    [TIMED],
    aggregates={"most": eddy.agg.max("bid.v")},
    group_by=["bid.k"],
    group_window=eddy.Tumbling(10, time="bid.at"),
)
QUERIES = {
    "groups of groups": eddy.Query(
        [eddy.Table("best", BEST)], group_by=["best.k"], aggregates={"mean": eddy.agg.avg("best.most")}
    ),
    "a stream with groups": eddy.Query([BIDS, eddy.Table("best", BEST)], ["bid.k = best.k", "bid.v = best.most"]),
    "first rows": eddy.Query([ASKS, eddy.Table("first", FIRST)], ["ask.k = first.k"]),
    "a left join": eddy.Query(
        [ASKS], branches=[eddy.Branch([eddy.Table("first", FIRST)], ["ask.v = first.v"], "left")]
    ),
    "windows": eddy.Query(
        [TIMED, eddy.Stream("best", WINDOWS, time="window_end")],
        ["bid.v = best.most", "bid.at BETWEEN best.window_end - 10 AND best.window_end"],
    ),
}


@pytest.fixture(scope="module")
def frames(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, DataFrame]:
    *_, rows = of_bids()
    return files_of(spark, rows, tmp_path_factory.mktemp("answers"))


@pytest.mark.campaign(1)
@pytest.mark.parametrize("name", QUERIES)
def test_the_answer_is_that_of_a_runtime(frames: dict[str, DataFrame], name: str) -> None:
    query, (*_, rows) = QUERIES[name], of_bids()
    names = ["bid"] if name == "windows" else ["bid", "ask"]
    if name == "windows":
        runtime = eddy.Runtime(query)
        tables = [runtime.push({"bid": rows["bid"]}), runtime.finish()]
        expected = sum(map(counted, tables), Counter[Any]())
    else:
        runtime, expected = eddy.Runtime(query, output="changelog"), Counter[Any]()
        for op, *row in counted(
            runtime.push({stream_name: rows[stream_name] for stream_name in names}, atomic=True)
        ).elements():
            expected[tuple(row)] += 1 if op in ("+I", "+U") else -1
    joined = join(query, {stream_name: frames[stream_name] for stream_name in names}, partitions=3)
    assert counted(joined.toArrow()) == +expected
    assert expected


def test_a_dataframe_for_the_query_of_one_input_alone(frames: dict[str, DataFrame]) -> None:
    other = frames["bid"].where("v < 50")
    whole = join(QUERIES["first rows"], {"ask": frames["ask"], "bid": other}).toArrow()
    named = join(QUERIES["first rows"], {"ask": frames["ask"], "first.bid": other}).toArrow()
    assert counted(whole) == counted(named)
    with pytest.raises(SparkJoinError, match=r"'best', which is not a stream of the query \(ask, bid, first.bid\)"):
        join(QUERIES["first rows"], {"ask": frames["ask"], "bid": other, "best": other})
    with pytest.raises(SparkJoinError, match="stream 'bid' has no DataFrame"):
        join(QUERIES["first rows"], {"ask": frames["ask"]})


def test_a_statement_of_sql(frames: dict[str, DataFrame]) -> None:
    spark = frames["bid"].sparkSession
    for name in ("bid", "ask"):
        frames[name].createOrReplaceTempView(name)
    text = (
        "SELECT k, AVG(most) AS mean FROM (SELECT b.k AS k, a.at AS at, MAX(b.v) AS most FROM bid b JOIN ask a"
        " ON b.k = a.k GROUP BY b.k, a.at) GROUP BY k"
    )
    assert counted(sql(spark, text).toArrow()) == counted(spark.sql(text).toArrow())


def test_what_is_refused(spark: SparkSession, frames: dict[str, DataFrame], tmp_path: Path) -> None:
    timed = eddy.Query([eddy.Stream("ask", AT, eddy.Range(5), "at"), eddy.Table("first", FIRST)], ["ask.k = first.k"])
    with pytest.raises(
        SparkJoinError, match="table first: a batch join with Range windows takes no table that has the"
    ):
        join(timed, {name: frames[name] for name in ("bid", "ask")})
    inputs = Inputs(tmp_path / "in", bid=AT, ask=AT)
    with pytest.raises(
        SparkJoinError, match="table first has the rows of a query: a streaming join has no queries over"
    ):
        join(QUERIES["first rows"], inputs.frames(spark), checkpoint=tmp_path / "state")
