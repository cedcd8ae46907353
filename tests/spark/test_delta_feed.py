"""The change data feed of a table of Delta Lake as the changes of a `Table`: the answer is that over its last rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

import eddy
from eddy.spark import SparkJoinError, delta_changes, join
from tests.spark.streaming.jobs import Inputs, run
from tests.spark.streaming.test_tables import total

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = pa.schema([("id", pa.int64()), ("ref", pa.int64()), ("name", pa.string())])
FEED = pa.schema([*ROWS, ("_change_type", pa.string()), ("_commit_version", pa.int64())])
VISITS = pa.schema([("who", pa.int64()), ("n", pa.int64())])
TABLE = eddy.Table("T", ROWS.append(pa.field("version", pa.int64())), key="id", version="version", ops="column")
QUERY = eddy.Query([eddy.Stream("S", VISITS), TABLE], ["S.who = T.id"], select=["S.n", "T.id", "T.ref", "T.name"])


@pytest.fixture(scope="module")
def delta(tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """A table with changes of each kind: also of a key, and a row that ends and begins in one commit."""
    place = tmp_path_factory.mktemp("delta")
    given = {"id": list(range(8)), "ref": [5, 6, 7] + 5 * [1], "name": list("abcdefgh")}
    write_deltalake(place, pa.table(given, schema=ROWS), configuration={"delta.enableChangeDataFeed": "true"})
    table = DeltaTable(place)
    table.update(predicate="id = 1", updates={"name": "'z'"})
    table.update(predicate="id = 2", updates={"id": "9"})
    table.delete("id = 3")
    source = pa.table({"id": [1, 4, 12], "ref": [8, 8, 8], "name": ["m", "n", "o"]}, schema=ROWS)
    merged = table.merge(source, "s.id = t.id", source_alias="s", target_alias="t")
    merged.when_matched_update_all().when_not_matched_insert_all().execute()
    again = pa.table({"id": [4, 5, 9], "ref": [1, 2, 3], "name": ["q", "r", None]}, schema=ROWS)
    write_deltalake(place, again, mode="overwrite", predicate="id > 2")
    table = DeltaTable(place)
    table.delete("id = 5")
    return table


def feed_of(delta: DeltaTable) -> list[pa.Table]:
    """Return the feed, as Spark reads it, commit by commit."""
    whole = pa.table(delta.load_cdf(starting_version=0)).select(FEED.names).cast(FEED)
    commits = pc.unique(whole["_commit_version"]).sort().to_pylist()
    return [whole.filter(pc.equal(whole["_commit_version"], commit)) for commit in commits]


def expected(delta: DeltaTable, visits: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    rows = pa.table(delta.to_pyarrow_table()).to_pylist()
    return Counter((s["n"], *t.values()) for s in visits for t in rows if s["who"] == t["id"])


@pytest.mark.campaign(1)
@pytest.mark.parametrize("commits", [1, 10])
def test_the_answer_is_that_of_the_last_rows(
    spark: SparkSession, tmp_path: Path, delta: DeltaTable, commits: int
) -> None:
    """In a stream with a commit in each micro-batch, or with all of them in one; and in a batch join."""
    inputs, feed = Inputs(tmp_path / "in", S=VISITS, T=FEED), feed_of(delta)
    kinds = Counter(kind for commit in feed for kind in commit["_change_type"].to_pylist())
    assert set(kinds) == {"insert", "update_preimage", "update_postimage", "delete"}
    inputs.add("S", [{"who": k % 13, "n": k} for k in range(40)])
    for start in range(0, len(feed), 3):
        for commit in feed[start : start + 3]:
            inputs.add("T", commit)
        frames = inputs.frames(spark, commits)
        run(QUERY, {**frames, "T": delta_changes(frames["T"])}, tmp_path / "state", tmp_path / "out")
    answer = expected(delta, inputs.rows("S"))
    assert total(tmp_path / "out") == answer
    batch = inputs.batch_frames(spark)
    joined = join(QUERY, {**batch, "T": delta_changes(batch["T"])}).toArrow()
    assert Counter(tuple(row.values()) for row in joined.to_pylist()) == answer
    assert answer


def test_what_is_no_feed_is_refused(spark: SparkSession) -> None:
    feed = spark.createDataFrame([(1, 2, "truncate", 5)], "id long, op long, _change_type string, _commit_version long")
    with pytest.raises(
        SparkJoinError, match=r"has the column '_change_type', .* has id, op, _commit_version; read the"
    ):
        delta_changes(feed.drop("_change_type"))
    with pytest.raises(SparkJoinError, match="the table has a column 'op', and the changes have one"):
        delta_changes(feed)
    with pytest.raises(SparkJoinError, match="the table has a column 'id', and the changes have one"):
        delta_changes(feed.drop("op"), version="id")
    with pytest.raises(
        Exception, match="unknown value in column '_change_type': _change_type = truncate, _commit_version"
    ):
        delta_changes(feed.drop("op")).collect()
