"""Files of results: whole, or an error that says why not."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eddy.spark.streaming.worker import output_files
from eddy.spark.streaming.worker.output_files import ResultFile

SCHEMA = pa.schema([("a", pa.int64())])


def some(rows: int) -> pa.Table:
    return pa.table({"a": np.random.default_rng(rows).integers(0, 1 << 60, rows)}, schema=SCHEMA)


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """Let no file grow beyond a size, as on a full disk: what fits is written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("group_bytes", [1 << 20, 1000])
@pytest.mark.parametrize("parts", [[1], [999, 1], [1000, 1, 5000], [50_000]])
def test_a_file_is_whole_or_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: list[int], group_bytes: int
) -> None:
    monkeypatch.setattr(output_files, "ROW_GROUP_BYTES", group_bytes)
    refused = 0
    for size in (10, 500, 2_000, 20_000, 100_000, 1 << 20):
        kept: list[Path] = []
        file = ResultFile(tmp_path / str(size), 3, SCHEMA, kept.append)
        try:
            with disk_of(size):
                for rows in parts:
                    file.write(some(rows))
                file.finish()
                file.finish()
                (entry,) = file.close()
        except OSError:
            refused += 1
            assert not kept
            continue
        (path,) = kept
        assert path == tmp_path / str(size) / entry.file
        assert (entry.rows, entry.bytes) == (sum(parts), path.stat().st_size)
        assert pq.read_table(path).equals(pa.concat_tables(map(some, parts)).combine_chunks())
    assert 1 <= refused <= 5


def test_without_results_or_without_a_place_there_is_no_file(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "none", 0, SCHEMA, None)
    file.write(some(0))
    assert (file.close(), file.rows) == ([], 0)
    counted = ResultFile(None, 0, SCHEMA, None)
    counted.write(some(7))
    assert (counted.close(), counted.rows) == ([], 7)
    assert not list(tmp_path.iterdir())
