"""What was measured, kept on disk point by point, so that a run that was interrupted goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from bench.harness.figure import Point, Row
from bench.harness.stamp import Stamp
from eddy import EddyError

ENDING = ".jsonl"


class StoreError(EddyError):
    """What is kept of a figure cannot be read."""


@dataclass(frozen=True)
class Record:
    """One point as it was measured: when, in how many seconds, on what, and what it gave.

    others  cores that other work took meanwhile, in the mean; None of points of which that was not looked at
    """

    point: Point
    rows: Sequence[Row]
    stamp: Stamp
    seconds: float
    at: str
    others: float | None = None

    def text(self) -> str:
        """Return it as a line."""
        content = {
            "point": dict(self.point),
            "rows": [dict(row) for row in self.rows],
            "stamp": self.stamp.row(),
            "seconds": self.seconds,
            "at": self.at,
            "others": self.others,
        }
        return json.dumps(content, ensure_ascii=False)


def record_of(point: Point, rows: Sequence[Row], stamp: Stamp, seconds: float, others: float | None = None) -> Record:
    """Return a point measured just now."""
    return Record(point, rows, stamp, seconds, datetime.now(UTC).isoformat(timespec="seconds"), others)


def columns(rows: Sequence[Row]) -> pa.Table:
    """Return rows as a table that has every column of any of them, in the order in which they come."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    data: dict[str, list[Any]] = {name: [row.get(name) for row in rows] for name in names}
    for values in data.values():
        if any(isinstance(value, float) for value in values):  # Arrow refuses a column of ints and floats
            values[:] = [float(value) if isinstance(value, int) else value for value in values]
    return pa.table(data)


class Store:
    """A folder with a file a figure; a line of it is a point.

    A point measured again replaces what was there. The file is written anew at each point and put in place by renaming,
    so it holds whole points only.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, figure: str) -> Path:
        """Return the file of a figure."""
        return self.folder / f"{figure}{ENDING}"

    def records(self, figure: str) -> list[Record]:
        """Return what was measured of a figure, in the order of measurement. Raises StoreError for a damaged file."""
        path = self.path(figure)
        if not path.exists():
            return []
        found = []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            try:
                content = json.loads(line)
                content["stamp"] = Stamp(**content["stamp"])
                found.append(Record(**content))
            except (ValueError, TypeError, KeyError) as error:
                raise StoreError(f"{path}, line {number} is no record of a point ({error}): delete the file") from error
        return found

    def add(self, figure: str, record: Record) -> None:
        """Keep a point, in place of what was there of the same one."""
        kept = [other for other in self.records(figure) if dict(other.point) != dict(record.point)]
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(figure)
        scratch = path.with_suffix(".new")
        scratch.write_text("".join(f"{other.text()}\n" for other in [*kept, record]))
        scratch.replace(path)

    def of_points(self, figure: str, points: Sequence[Point]) -> list[Record]:
        """Return what is kept of these points, in their order; those never measured are left out."""
        kept = self.records(figure)
        return [record for point in points for record in kept if dict(record.point) == dict(point)]


def write_data(name: str, rows: Sequence[Row], folder: Path) -> None:
    """Write rows as a CSV and a Parquet file of this name."""
    folder.mkdir(parents=True, exist_ok=True)
    table = columns(rows)
    pa.csv.write_csv(table, folder / f"{name}.csv")
    pq.write_table(table, folder / f"{name}.parquet")


def rows_of(records: Sequence[Record]) -> list[Row]:
    """Return the rows of records, each with the columns of its point and `origin` "here"."""
    return [{"origin": "here", **record.point, **row} for record in records for row in record.rows]
