"""`eddy replay`: recorded streams in several ways."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

import eddy
from eddy.replay.command import app
from eddy.replay.recorded import feed_of, query_of, read_streams

RUNNER = CliRunner(env={"COLUMNS": "200"})
ON = "R.k = S.k and S.j = T.j and S.at between R.at - 5 s and R.at + 5 s and T.at between S.at - 5 s and S.at + 5 s"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Return the files of three streams: Parquet, CSV, and a directory of Parquet files."""
    rng = np.random.default_rng(1)

    def rows(n: int, *columns: str) -> pa.Table:
        times = pa.array(rng.integers(0, 60, n), pa.timestamp("s"))
        return pa.table({**{c: rng.integers(0, 6, n) for c in columns}, "at": times})

    parquet.write_table(rows(60, "k"), tmp_path / "R.parquet")
    csv.write_csv(rows(50, "k", "j"), tmp_path / "S.csv")
    (tmp_path / "T").mkdir()
    for part in range(2):
        parquet.write_table(rows(20, "j"), tmp_path / "T" / f"{part}.parquet")
    return [str(tmp_path / "R.parquet"), str(tmp_path / "S.csv"), f"T={tmp_path / 'T'}"]


def nested_loops(files: list[str]) -> int:
    r, s, t = (table.to_pylist() for table in read_streams(files).values())
    near = timedelta(seconds=5)
    return sum(
        a["k"] == b["k"] and b["j"] == c["j"] and abs(a["at"] - b["at"]) <= near and abs(b["at"] - c["at"]) <= near
        for a in r
        for b in s
        for c in t
    )


def replay(*arguments: str) -> dict[str, Any]:
    done = RUNNER.invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.output)
    return report


def test_every_way_has_the_results_of_nested_loops(files: list[str]) -> None:
    report = replay(*files, "--query", ON, "--time", "at", "--batch", "37")
    expected = nested_loops(files)
    assert expected > 20
    assert report["rows"] == 150
    assert {way["results"] for way in report["ways"]} == {expected}
    assert [way["way"]["strategy"] for way in report["ways"]] == ["eddy", *["mjoin"] * (len(report["ways"]) - 1)]
    assert len(report["ways"]) >= 3
    for entry in report["ways"]:
        assert 0 < entry["longest"] <= entry["seconds"]
        assert entry["state_bytes"] > 0
        assert entry["late"] == 0


def test_ways_that_were_asked_for(files: list[str]) -> None:
    asked = ["--strategy", "jisc", "--strategy", "symmetric-hash", "--policy", "rank", "--policy", "fixed"]
    report = replay(*files, "--query", ON, "--time", "at", *asked, "--plan", "(S T) R", "--count", "--repeat", "2")
    ways = [(way["way"]["strategy"], way["policy"]) for way in report["ways"]]
    # A plan that cannot change needs no policy.
    assert ways == [("jisc", "rank"), ("jisc", "fixed"), ("symmetric-hash", "fixed")]
    assert report["ways"][1]["plan"] == "(S T) R"
    assert {way["results"] for way in report["ways"]} == {nested_loops(files)}


def test_a_query_in_a_file(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "asked.py").write_text(
        "from datetime import timedelta\nimport pyarrow as pa\nfrom eddy import Branch, Query, Range, Stream\n"
        "at = pa.timestamp('s')\n"
        "R = Stream('R', pa.schema([('k', pa.int64()), ('at', at)]), window=Range(timedelta(seconds=5)), time='at')\n"
        "S = Stream('S', pa.schema([('k', pa.int64()), ('at', at)]), window=Range(timedelta(seconds=5)), time='at')\n"
        "query = Query([R], branches=[Branch([S], ['R.k = S.k'], 'anti')])\n"
    )
    report = replay(*files[:2], "--query", str(tmp_path / "asked.py"))
    r, s = (table.to_pylist() for table in read_streams(files[:2]).values())
    near = timedelta(seconds=5)
    alone = sum(not any(a["k"] == b["k"] and abs(a["at"] - b["at"]) <= near for b in s) for a in r)
    assert {way["results"] for way in report["ways"]} == {alone}


def test_rows_come_by_time_or_evenly_mixed() -> None:
    tables = {"R": pa.table({"k": [1, 2, 3, 4], "at": [9, 1, 5, 5]}), "S": pa.table({"k": [7, 8], "at": [5, 0]})}
    feed = feed_of(query_of("R.k = S.k", tables, ["at"], ["R=9", "S=9"]), tables)
    assert feed.order.tolist() == [1, 0, 0, 0, 1, 0]
    assert [table["at"].to_pylist() for table in feed.tables] == [[1, 5, 5, 9], [0, 5]]
    pushes = [
        ({name: table["k"].to_pylist() for name, table in tables.items()}, list(order))
        for tables, order in feed.pushes(4)
    ]
    assert pushes == [({"R": [2, 3, 4], "S": [8]}, [1, 0, 0, 0]), ({"R": [1], "S": [7]}, [1, 0])]
    mixed = feed_of(query_of("R.k = S.k", tables), tables, limit=5)
    assert mixed.order.tolist() == [0, 1, 0, 0, 1]


def test_the_table_names_every_way(files: list[str]) -> None:
    done = RUNNER.invoke(app, [*files, "--query", ON, "--time", "at"])
    assert done.exit_code == 0
    for words in ("adaptive, the default", "the plan as written", "times the CPU time of", "150 rows"):
        assert words in done.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: ["no.parquet", *files[1:]], "no.parquet cannot be read"),
        (lambda files: ["R=no.txt", *files[1:]], "neither Parquet nor CSV"),
        (lambda files: [files[0], files[0], *files[1:]], "two files are stream 'R'"),
        (lambda files: files[:2], "T"),
        (lambda files: [*files, "--window", "U=5 s"], "there is no stream 'U'"),
        (lambda files: [*files, "--window", "R=5 parsecs"], "is no span"),
        (lambda files: [*files, "--strategy", "hash"], "there is no strategy 'hash'"),
        (lambda files: [*files, "--policy", "costs"], "there is no policy 'costs'"),
        (lambda files: [*files, "--plan", "R S"], "lacks T"),
    ],
)
def test_what_does_not_fit_is_named(files: list[str], change: Any, message: str) -> None:
    done = RUNNER.invoke(app, [*change(files), "--query", ON, "--time", "at"])
    assert done.exit_code == 1
    assert message in done.output


def test_a_file_without_a_query(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("query = 3\n")
    for extra, message in (([], "does not set `query`"), (["--time", "at"], "has its own")):
        done = RUNNER.invoke(app, [*files, "--query", str(tmp_path / "empty.py"), *extra])
        assert done.exit_code == 1
        assert message in done.output


def test_missing_event_times_are_named() -> None:
    tables = {"R": pa.table({"k": [1], "at": pa.array([None], pa.int64())}), "S": pa.table({"k": [1], "at": [1]})}
    with pytest.raises(eddy.InputError, match="1 rows of stream R have no event time"):
        feed_of(query_of("R.k = S.k", tables, ["at"], ["R=9", "S=9"]), tables)
