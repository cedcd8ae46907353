"""The Spark examples of the documentation run unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.documents import DOCUMENTS, ROOT, CodeBlock, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = [block for document in DOCUMENTS for block in blocks(document) if block.spark]


def write_streams(folder: Path) -> None:
    """Write the streams of docs/guide/streaming.md: user 1 visits, orders and pays, user 2 pays something else."""
    schema = pa.schema([("user", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("item", pa.string())])
    for at, (name, items) in enumerate(
        {"visits": ("home", "home"), "orders": ("tea", "tea"), "payments": ("tea", "salt")}.items()
    ):
        (folder / name).mkdir()
        rows = pa.table({"user": [1, 2], "at": [at, at], "item": items}, schema=schema)
        pq.write_table(rows, folder / name / "0.parquet")


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda block: block.name)
def test_spark_examples_run(
    block: CodeBlock, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = pa.schema([("key", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("value", pa.float64())])
    for name in ("R", "S"):
        rows = pa.table({"key": [1, 2, 1], "at": [0, 10, 20], "value": [0.5, 1.5, 2.5]}, schema=schema)
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    write_streams(tmp_path)
    # The JVM has its own working directory, which tests cannot change.
    code = block.text.replace('f"{name}.parquet"', f'f"{tmp_path}/{{name}}.parquet"')
    code = code.replace('parquet("results")', f'parquet("{tmp_path}/results")')
    code = code.replace("/mnt/shared/shop", str(tmp_path))
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("\n" * (block.line - 1) + code, str(block.document), "exec"), names)
    if block.document == ROOT / "README.md":
        lines = capsys.readouterr().out.replace("|", " ").splitlines()
        assert [line.split() for line in lines if "9.5" in line or "3.0" in line] == [["1", "home", "9.5"]]
    if block.document == ROOT / "docs" / "guide" / "streaming.md":
        results = pq.read_table(tmp_path / "results", columns=["user", "item", "visited"])
        assert results.to_pylist() == [{"user": 1, "item": "tea", "visited": "home"}]


def test_there_are_examples() -> None:
    guide, reference = ROOT / "docs" / "guide", ROOT / "docs" / "reference"
    pages = ("filters", "hub", "spark", "sql", "streaming")
    expected = {ROOT / "README.md", *(guide / f"{page}.md" for page in pages)}
    assert {block.document for block in EXAMPLES} == {*expected, reference / "spark.md"}
