"""The demo's results against DuckDB and pandas, which read the same files."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from eddy.demo.command import JOBS, run_job

ROOT = Path(__file__).parent.parent.parent
FILES = ROOT / "eddy" / "demo" / "data"


@pytest.fixture(scope="module")
def demo(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Run both jobs as the command does; return the printed text and the folder of results."""
    out = tmp_path_factory.mktemp("demo")
    console = Console(record=True, width=160)
    for job in JOBS.values():
        assert run_job(console, job(), spark, out)["exact"]
    return console.export_text(), out


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_itineraries_are_those_of_duckdb(demo: tuple[str, Path]) -> None:
    connection = duckdb.connect()
    connection.execute(f"CREATE VIEW flights AS SELECT * FROM read_parquet('{FILES / 'flights.parquet'}')")
    expected = connection.execute(
        """
        SELECT a.origin, a.departed, b.origin, b.departed, c.origin, c.departed, c.destination,
               a.distance_mi, b.distance_mi, c.distance_mi
        FROM flights a, flights b, flights c
        WHERE a.destination = b.origin AND b.destination = c.origin
          AND b.departed BETWEEN a.departed + INTERVAL 30 MINUTE AND a.departed + INTERVAL 4 HOUR
          AND c.departed BETWEEN b.departed + INTERVAL 30 MINUTE AND b.departed + INTERVAL 4 HOUR
        """
    ).fetchall()
    assert len(expected) > 10_000
    assert rows(pq.read_table(demo[1] / "itineraries")) == sorted(expected)
    assert f"{len(expected):,} results" in demo[0]


def test_tweets_are_those_of_pandas(demo: tuple[str, Path]) -> None:
    merged: pd.DataFrame | None = None
    for path in sorted((FILES / "tweets").glob("*.parquet")):
        counts = pd.read_parquet(path).rename(columns={"value": path.stem})
        counts["at"] = counts.pop("timestamp").dt.floor("5min")
        merged = counts if merged is None else merged.merge(counts, on="at")
    assert merged is not None
    tweets = pq.read_table(demo[1] / "tweets")
    assert tweets.num_columns == 11
    assert tweets.num_rows > 15_000
    assert rows(tweets) == rows(pa.Table.from_pandas(merged[tweets.column_names], preserve_index=False))


def test_the_report_says_what_it_should(demo: tuple[str, Path]) -> None:
    printed = demo[0]
    for words in (
        "the engine alone",
        "the whole Spark job",
        "plan, with live figures",
        "longest itineraries",
        "loudest",
    ):
        assert words in printed
    assert printed.count("give the same rows") == 2
