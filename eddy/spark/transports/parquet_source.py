"""The Parquet files behind a DataFrame, if workers can read them in place of Spark.

A DataFrame qualifies only if it is a plain scan: columns of Parquet files, at most renamed or left out, or with a
watermark. A filter, a limit, a cache, partition columns in the path, or a type that Spark reads in another way than
Arrow raises an UnsuitableError with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from eddy.spark.directories import StreamDirectory
from eddy.spark.environment.spark_version import arrow_type
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.pieces import PIECE_ROWS
from eddy.spark.transports.inputs import FilePart, StreamInput, UnsuitableError
from eddy.spark.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FOOTER_READERS = 8
# Old Spark versions, and new ones in legacy mode, write dates before 1900 in another calendar.
_LEGACY_KEYS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")

DECLARATIONS = ("EventTimeWatermark", "SubqueryAlias", "View")
"""Nodes of a plan that change neither rows nor columns."""


@dataclass(frozen=True)
class RowGroup:
    """One row group of one stream.

    columns       names in the file, in the order of the job's inputs
    stored_bytes  uncompressed size of these columns
    """

    stream: int
    uri: str
    group: int
    columns: tuple[str, ...]
    rows: int
    stored_bytes: int


class FileInput(StreamInput):
    """A stream of Parquet files in a `StreamDirectory`."""

    def read(self, part: FilePart, stream: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            opened = open_in(self.place.file_system(), part.path)
        except (OSError, pa.ArrowException) as problem:
            raise SparkJoinError(
                f"stream {stream!r}: {part.path} cannot be read ({problem}); the job has taken this file: restore"
                " it, or write it whole before it gets its name"
            ) from problem
        with opened as file:
            try:
                check_file(part.path, file.metadata, self.types)
            except UnsuitableError as why:
                raise SparkJoinError(
                    f"stream {stream!r}: {why}; rewrite the file, or pass transport='rows' to a new checkpoint to let"
                    " Spark read it"
                ) from why
            groups = file.metadata.num_row_groups
            chosen = range(groups * part.part // part.parts, groups * (part.part + 1) // part.parts)
            for batch in file.iter_batches(PIECE_ROWS, list(chosen), list(self.types), use_threads=False):
                yield pa.RecordBatch.from_arrays([batch.column(stored) for stored in self.columns], names=list(names))


class BatchInput:
    """A batch DataFrame, and the Parquet files behind it. Measuring and each round of a join use the same footers.

    frame  the DataFrame
    """

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame
        self._scan: tuple[dict[str, str], dict[str, pq.FileMetaData]] | None = None
        """The stored names of its columns, and the footers by address."""

    def row_groups(self, stream: int, names: Sequence[str]) -> list[RowGroup]:
        """Return the row groups behind the columns `names`, in file order, without empty ones.

        Raises UnsuitableError if the DataFrame is not a scan. The first call reads the footer of every file,
        eight at a time.
        """
        if self._scan is None:
            stored, scan = _stored_names(logical_plan(self.frame, "optimizedPlan"), "LogicalRelation")
            _require_parquet(scan)
            self._scan = stored, _footers(sorted(self.frame.inputFiles()))
        stored, footers = self._scan
        columns, types = _picked(self.frame, stored, names)
        groups = []
        for uri, metadata in footers.items():
            check_file(uri, metadata, types)
            for group in range(metadata.num_row_groups):
                content = metadata.row_group(group)
                if content.num_rows:
                    size = _stored_bytes(content, columns)
                    groups.append(RowGroup(stream, uri, group, columns, content.num_rows, size))
        return groups


def _footers(uris: Sequence[str]) -> dict[str, pq.FileMetaData]:
    if len(uris) <= 1:  # starting a thread would take longer than reading a footer
        return {uri: _footer(uri) for uri in uris}
    with ThreadPoolExecutor(_FOOTER_READERS) as pool:
        return dict(zip(uris, pool.map(_footer, uris), strict=True))


def _footer(uri: str) -> pq.FileMetaData:
    try:
        return open_file(uri).metadata
    except (OSError, pa.ArrowException, ValueError) as problem:
        raise UnsuitableError(f"{uri} cannot be read on the driver ({problem})") from problem


def read_group(group: RowGroup, rows: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group in batches of a given number of rows, with columns of these names."""
    with open_file(group.uri) as file:
        # Read by distinct stored name: a query may use one stored column under two names.
        wanted = list(dict.fromkeys(group.columns))
        for batch in file.iter_batches(rows, [group.group], wanted, use_threads=False):
            yield pa.RecordBatch.from_arrays([batch.column(stored) for stored in group.columns], names=list(names))


def file_input(frame: DataFrame, names: Sequence[str]) -> FileInput:
    """Return the files behind a streaming DataFrame.

    Raises UnsuitableError if the DataFrame is not `spark.readStream.schema(…).parquet(path)` with columns renamed or
    left out, if an option has no counterpart in eddy, and if Arrow has no file system for the path.
    """
    columns, types, relation = stored_columns(frame, logical_plan(frame, "analyzed"), "StreamingRelation", names)
    described = relation.dataSource()
    if described.className().lower() != "parquet":
        raise UnsuitableError(f"its source is {described.className()!r}, not Parquet files")
    options = {name.lower(): value for name, value in _mapping(described.options()).items()}
    path = options.pop("path", None)
    if path is None:
        raise UnsuitableError("its source does not have exactly one path")
    if described.partitionColumns().size():
        raise UnsuitableError("its files are partitioned by columns in their paths")
    return FileInput(_directory(frame, path, options), columns, types)


def _directory(frame: DataFrame, path: str, options: dict[str, str]) -> StreamDirectory:
    """Return the place of a stream's files, given path and options of Spark's source."""
    names = options.pop("pathglobfilter", None)
    recursive = options.pop("recursivefilelookup", "false").lower() == "true"
    limits = [options.pop(name, None) for name in ("maxfilespertrigger", "maxbytespertrigger")]
    if options:
        raise UnsuitableError(f"its option {min(options)!r} is one of Spark's own file source only")
    if set("{}\\") & set(path + (names or "")):
        raise UnsuitableError(f"the pattern {path!r} uses more than *, ? and [ab]")
    try:
        files, bytes_ = (None if limit is None else int(limit) for limit in limits)
    except ValueError as problem:
        raise UnsuitableError(f"a limit of its files is no number ({problem})") from problem
    jvm: Any = frame.sparkSession._jvm
    session = frame.sparkSession._jsparkSession
    given = jvm.org.apache.hadoop.fs.Path(path)
    whole = given.getFileSystem(session.sessionState().newHadoopConf()).makeQualified(given)
    place = StreamDirectory(whole.toString(), names, recursive, files, bytes_)
    try:
        place.file_system()
    except (OSError, ValueError) as problem:
        raise UnsuitableError(f"Arrow cannot open {place.path!r} ({problem})") from problem
    return place


def open_file(uri: str) -> pq.ParquetFile:
    """Open a file by its address, on any file system that Arrow supports."""
    return open_in(*pyarrow.fs.FileSystem.from_uri(uri))


def open_in(system: pyarrow.fs.FileSystem, path: str) -> pq.ParquetFile:
    """Open a file in a file system."""
    return pq.ParquetFile(system.open_input_file(path))


def check_file(uri: str, metadata: pq.FileMetaData, columns: dict[str, pa.DataType]) -> None:
    """Raise UnsuitableError unless Arrow and Spark read the same values; `columns`: stored name -> type in Spark."""
    schema = metadata.schema.to_arrow_schema()
    legacy = any(key in (metadata.metadata or {}) for key in _LEGACY_KEYS)
    for name, wanted in columns.items():
        if schema.names.count(name) != 1:
            raise UnsuitableError(f"{uri} does not have exactly one column {name!r}")
        stored = schema.field(name).type
        if spark_type(stored) != wanted:
            raise UnsuitableError(f"column {name!r} has type {stored} in {uri}, but {wanted} in Spark")
        if legacy and pa.types.is_temporal(stored):
            raise UnsuitableError(f"column {name!r} uses the legacy calendar in {uri}")


def _sequence(scala: Any) -> list[Any]:
    return [scala.apply(i) for i in range(scala.size())]


def _mapping(scala: Any) -> dict[str, str]:
    mapping, items = {}, scala.iterator()
    while items.hasNext():
        item = items.next()
        mapping[str(item._1())] = str(item._2())
    return mapping


def logical_plan(frame: DataFrame, stage: str) -> Any:
    """Return the plan of a DataFrame at a stage of Spark's planner, "analyzed" or "optimizedPlan"."""
    if not hasattr(frame, "_jdf"):
        raise UnsuitableError("it lives in Spark Connect, which does not expose its plans")
    return getattr(frame._jdf.queryExecution(), stage)()


def _columns_of(plan: Any, leaf: str) -> tuple[dict[int, str], Any]:
    """Map the ids of a plan's output columns to names in the source, and return the leaf of the plan, of class `leaf`.

    Computed columns are left out. Raises UnsuitableError if the plan does more than select and rename columns.
    """
    kind = plan.getClass().getSimpleName()
    if kind == "Project":
        below, source = _columns_of(plan.child(), leaf)
        names = {}
        for expression in _sequence(plan.projectList()):
            picked = expression.child() if expression.getClass().getSimpleName() == "Alias" else expression
            if picked.getClass().getSimpleName() == "AttributeReference" and picked.exprId().id() in below:
                names[expression.exprId().id()] = below[picked.exprId().id()]
        return names, source
    if kind in DECLARATIONS:
        return _columns_of(plan.child(), leaf)
    if kind != leaf:
        raise UnsuitableError(f"its plan has a {kind}, not only a scan")
    return {column.exprId().id(): column.name() for column in _sequence(plan.output())}, plan


def stored_columns(
    frame: DataFrame, plan: Any, leaf: str, names: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, pa.DataType], Any]:
    """Return the stored names of a DataFrame's columns, the types of those in Spark, and the leaf of the plan.

    plan   a logical plan of the DataFrame, at least analysed

    Raises UnsuitableError if a column is computed, or if the plan does more than `_columns_of` allows.
    """
    stored, source = _stored_names(plan, leaf)
    return (*_picked(frame, stored, names), source)


def _stored_names(plan: Any, leaf: str) -> tuple[dict[str, str], Any]:
    """Return the stored names of a plan's output columns by their names, without computed ones, and its leaf."""
    read, source = _columns_of(plan, leaf)
    ids = {column.name(): column.exprId().id() for column in _sequence(plan.output())}
    return {name: read[number] for name, number in ids.items() if number in read}, source


def _picked(
    frame: DataFrame, stored: Mapping[str, str], names: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, pa.DataType]]:
    for name in names:
        if name not in stored:
            raise UnsuitableError(f"column {name!r} is computed")
    columns = tuple(stored[name] for name in names)
    types = [arrow_type(frame.schema[name].dataType) for name in names]
    return columns, dict(zip(columns, types, strict=True))


def _require_parquet(scan: Any) -> None:
    relation = scan.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        raise UnsuitableError("it does not read files")
    file_format = relation.fileFormat().getClass().getSimpleName()
    if file_format != "ParquetFileFormat":
        raise UnsuitableError(f"its files are read by {file_format}, not as Parquet")
    if relation.partitionSchema().size():
        raise UnsuitableError("its files are partitioned by columns in their paths")


def _stored_bytes(group: pq.RowGroupMetaData, columns: Sequence[str]) -> int:
    """Return the uncompressed size of the named columns, nested ones included."""
    inside = tuple(f"{name}." for name in columns)
    leaves = (group.column(i) for i in range(group.num_columns))
    return sum(leaf.total_uncompressed_size for leaf in leaves if f"{leaf.path_in_schema}.".startswith(inside))
