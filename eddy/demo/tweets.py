"""Ten series of tweet counts, joined on the five minutes that they count.

The times of the counts are not multiples of five minutes. Spark rounds them down, and all ten streams join on this one
attribute. Equal times need no more than the window RANGE 0.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table

from eddy import Query, Range, Stream
from eddy.demo.job import FILES, DemoJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from rich.console import RenderableType

COMPANIES = ("AAPL", "AMZN", "CRM", "CVS", "FB", "GOOG", "IBM", "KO", "PFE", "UPS")
GRID_MINUTES = 5
COUNTS = pa.schema([("at", pa.timestamp("us")), ("mentions", pa.int64())])


def query() -> Query:
    """Return the query: `at` and one column of mentions per company."""
    first, *others = COMPANIES
    return Query(
        streams=[Stream(company, COUNTS, window=Range(timedelta(0)), time="at") for company in COMPANIES],
        on=[f"{first}.at = {company}.at" for company in others],
        select={"at": f"{first}.at", **{company: f"{company}.mentions" for company in COMPANIES}},
    )


def frames(spark: SparkSession) -> dict[str, DataFrame]:
    """Return a DataFrame of each company's file, with times rounded down to the grid."""
    # date_trunc would interpret the times in the zone of the session; this arithmetic does not depend on zones.
    past = f"make_dt_interval(0, 0, minute(timestamp) % {GRID_MINUTES}, extract(SECOND FROM timestamp))"
    return {
        company: spark.read.parquet((FILES / "tweets" / f"{company}.parquet").as_uri()).selectExpr(
            f"timestamp - {past} AS at", "value AS mentions"
        )
        for company in COMPANIES
    }


def findings(results: pa.Table) -> list[RenderableType]:
    """Return the moments with most mentions, and how often each company leads, for printing."""
    counts = [results[company] for company in COMPANIES]
    total = counts[0]
    for column in counts[1:]:
        total = pc.add(total, column)
    loudest = Table("from", "most mentioned", "next", title="The loudest moments", title_justify="left")
    loudest.add_column("all ten", justify="right")
    ranked = results.append_column("all", total).sort_by([("all", "descending"), ("at", "ascending")])
    for row in ranked.slice(0, 5).to_pylist():
        first, second = sorted(COMPANIES, key=lambda company: -row[company])[:2]
        cells = [f"{company} {row[company]:,}" for company in (first, second)]
        loudest.add_row(f"{row['at']:%d %b %H:%M}", *cells, f"{row['all']:,}")

    leads = Table("company", title="Who leads", title_justify="left")
    leads.add_column("most mentioned, times", justify="right")
    leads.add_column("mentions in all", justify="right")
    highest = pc.max_element_wise(*counts)
    led = {company: pc.sum(pc.equal(results[company], highest)).as_py() or 0 for company in COMPANIES}
    for company in sorted(COMPANIES, key=lambda name: (-led[name], name))[:5]:
        leads.add_row(company, f"{led[company]:,}", f"{pc.sum(results[company]).as_py() or 0:,}")
    return [loudest, leads]


def job() -> DemoJob:
    """Return the job."""
    return DemoJob(
        "tweets",
        "Ten series of tweet counts on equal times",
        "ten companies, a count every five minutes for eight weeks, aligned to the full five minutes",
        query(),
        None,
        frames,
        findings,
    )
