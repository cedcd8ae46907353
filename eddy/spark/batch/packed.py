"""The transport for Parquet files: the workers read them, and no row ever passes through the JVM.

It stands in for a DataFrame only if that DataFrame is a plain scan: columns of Parquet files, renamed or left out at
most. A filter, a limit, a cache, partition columns in the path, a type that Spark reads in another way than Arrow:
any of these and `plain_scan` says why not, and the rows transport is used.

Work is dealt in row groups: neighbours stay together, as far as an even split over the tasks allows, so that files
written in time order reach the reduce side as few overlapping runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from eddy.spark.batch.rows import BLOB_COLUMNS
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.split import BLOB_ROWS, Splitter, as_batches
from eddy.spark.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TASK_BYTES = 128 << 20
_READ_BYTES = 32 << 20
_FOOTER_READERS = 8
# Written by old or legacy-mode Spark, whose dates before 1900 are in another calendar.
_LEGACY_KEYS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


@dataclass(frozen=True)
class Unit:
    """One row group of one stream.

    columns       names in the file, in the order of the job's inputs
    stored_bytes  of those columns, uncompressed
    """

    stream: int
    uri: str
    group: int
    columns: tuple[str, ...]
    rows: int
    stored_bytes: int


class NotPlain(Exception):
    """A DataFrame that is not a plain scan of Parquet files; the message says why."""


def _sequence(scala: Any) -> list[Any]:
    return [scala.apply(i) for i in range(scala.size())]


def columns_of(plan: Any, leaf: str) -> tuple[dict[int, str], Any]:
    """Map the ids of a plan's output columns to names in the source, and return the leaf of the plan, of class `leaf`.

    A column that is computed is left out. Raises NotPlain if the plan does more than pick and rename columns.
    """
    kind = plan.getClass().getSimpleName()
    if kind == "Project":
        below, source = columns_of(plan.child(), leaf)
        found = {}
        for expression in _sequence(plan.projectList()):
            picked = expression.child() if expression.getClass().getSimpleName() == "Alias" else expression
            if picked.getClass().getSimpleName() == "AttributeReference" and picked.exprId().id() in below:
                found[expression.exprId().id()] = below[picked.exprId().id()]
        return found, source
    if kind != leaf:
        raise NotPlain(f"its plan has a {kind}, not only a scan")
    return {column.exprId().id(): column.name() for column in _sequence(plan.output())}, plan


def stored_columns(
    frame: DataFrame, plan: Any, leaf: str, names: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, pa.DataType], Any]:
    """Return what columns of a frame are called in its source, the types Spark gives those, and the leaf of the plan.

    plan   a logical plan of the frame, analysed or more

    Raises NotPlain if a column is computed, or the plan more than `columns_of` allows.
    """
    from pyspark.sql.pandas.types import to_arrow_type

    read, source = columns_of(plan, leaf)
    ids = {column.name(): column.exprId().id() for column in _sequence(plan.output())}
    for name in names:
        if ids.get(name) not in read:
            raise NotPlain(f"column {name!r} is computed")
    columns = tuple(read[ids[name]] for name in names)
    types = [to_arrow_type(frame.schema[name].dataType, timezone="UTC") for name in names]
    return columns, dict(zip(columns, types, strict=True)), source


def logical_plan(frame: DataFrame, stage: str) -> Any:
    """Return the plan of a frame at a stage of Spark's, "analyzed" or "optimizedPlan". Raises NotPlain without one."""
    if not hasattr(frame, "_jdf"):
        raise NotPlain("it lives in Spark Connect, whose plans cannot be looked into")
    return getattr(frame._jdf.queryExecution(), stage)()


def _require_parquet(scan: Any) -> None:
    relation = scan.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        raise NotPlain("it does not read files")
    file_format = relation.fileFormat().getClass().getSimpleName()
    if file_format != "ParquetFileFormat":
        raise NotPlain(f"its files are read by {file_format}, not as Parquet")
    if relation.partitionSchema().size():
        raise NotPlain("its files are partitioned by columns in their paths")


def open_file(uri: str) -> pq.ParquetFile:
    """Open a file by its address, of any file system that Arrow knows."""
    filesystem, path = pyarrow.fs.FileSystem.from_uri(uri)
    return pq.ParquetFile(filesystem.open_input_file(path))


def check_file(uri: str, metadata: pq.FileMetaData, columns: dict[str, pa.DataType]) -> None:
    """Raise NotPlain unless Arrow reads from the file what Spark does. `columns`: name in the file -> type in Spark."""
    schema = metadata.schema.to_arrow_schema()
    legacy = any(key in (metadata.metadata or {}) for key in _LEGACY_KEYS)
    for name, wanted in columns.items():
        if schema.names.count(name) != 1:
            raise NotPlain(f"column {name!r} is not, or not once, in {uri}")
        found = schema.field(name).type
        if spark_type(found) != wanted:
            raise NotPlain(f"column {name!r} is of type {found} in {uri}")
        if legacy and pa.types.is_temporal(found):
            raise NotPlain(f"column {name!r} is in the legacy calendar in {uri}")


def _stored_bytes(group: pq.RowGroupMetaData, columns: Sequence[str]) -> int:
    """Bytes of the named columns, with all that is nested in them."""
    inside = tuple(f"{name}." for name in columns)
    leaves = (group.column(i) for i in range(group.num_columns))
    return sum(leaf.total_uncompressed_size for leaf in leaves if f"{leaf.path_in_schema}.".startswith(inside))


def plain_scan(frame: DataFrame, stream: int, names: Sequence[str]) -> list[Unit]:
    """Return the row groups behind the columns `names` of `frame`, in file order, without empty ones.

    Raises NotPlain if the frame is anything but a scan. Reads the footer of every file, eight at a time.
    """
    columns, types, scan = stored_columns(frame, logical_plan(frame, "optimizedPlan"), "LogicalRelation", names)
    _require_parquet(scan)
    uris = sorted(frame.inputFiles())

    def footer(uri: str) -> pq.FileMetaData:
        try:
            return open_file(uri).metadata
        except (OSError, pa.ArrowException, ValueError) as problem:
            raise NotPlain(f"{uri} cannot be read from here ({problem})") from problem

    units = []
    with ThreadPoolExecutor(_FOOTER_READERS) as pool:
        for uri, metadata in zip(uris, pool.map(footer, uris), strict=True):
            check_file(uri, metadata, types)
            for group in range(metadata.num_row_groups):
                content = metadata.row_group(group)
                if content.num_rows:
                    size = _stored_bytes(content, columns)
                    units.append(Unit(stream, uri, group, columns, content.num_rows, size))
    return units


def deal(units: Sequence[Unit], tasks: int) -> list[list[Unit]]:
    """Split units into about `tasks` lists of even size in bytes, more if they get large; neighbours stay together."""
    total = sum(unit.stored_bytes for unit in units)
    tasks = max(1, tasks, -(-total // _TASK_BYTES))
    share = max(1, total) / tasks
    dealt: list[list[Unit]] = [[] for _ in range(tasks)]
    before = 0
    for unit in units:
        middle = before + unit.stored_bytes / 2
        dealt[min(tasks - 1, int(middle / share))].append(unit)
        before += unit.stored_bytes
    return [some for some in dealt if some]


class SplitFiles:
    """What a worker does with its task number: reads the row groups dealt to it and gives their blobs."""

    def __init__(self, job: Job, tasks: Sequence[Sequence[Unit]]) -> None:
        self._job = job
        self._tasks = tasks
        self.__name__ = "eddy_read_and_split"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return as_batches(self._blobs(batches))

    def _blobs(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[tuple[int, int, int, pa.Buffer]]]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                splitters: dict[int, Splitter] = {}
                for unit in self._tasks[task]:
                    splitter = splitters.setdefault(unit.stream, Splitter(self._job, unit.stream))
                    for rows in self._read(unit):
                        yield splitter.blobs(splitter.add(rows))
                for splitter in splitters.values():
                    yield splitter.blobs(splitter.finish())

    def _read(self, unit: Unit) -> Iterator[pa.RecordBatch]:
        names = self._job.inputs[unit.stream].names
        with open_file(unit.uri) as file:
            # Read by distinct stored name: a query may use one stored column under two names.
            wanted = list(dict.fromkeys(unit.columns))
            rows = max(1, min(BLOB_ROWS, _READ_BYTES * unit.rows // max(1, unit.stored_bytes)))
            for batch in file.iter_batches(rows, [unit.group], wanted, use_threads=False):
                yield pa.RecordBatch.from_arrays([batch.column(stored) for stored in unit.columns], names=names)


def blobs_of_files(job: Job, frame: DataFrame, units: Sequence[Unit], tasks: int) -> DataFrame:
    """Return the blobs of `units`, read by about `tasks` tasks; `frame` only lends its session."""
    dealt = deal(units, tasks)
    numbers = frame.sparkSession.range(0, len(dealt), 1, max(1, len(dealt)))
    return numbers.mapInArrow(SplitFiles(job, dealt), BLOB_COLUMNS)
