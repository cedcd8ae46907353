"""Measured points on disk: raw points, from which an interrupted run resumes, and the figures that are committed.

Raw points stay out of the repository (`build/bench`): one file for each figure, one line of JSON for each point. The
committed file `figures.json` has the same rows without the long series of some plots, floats with five digits:

    machines  processor, memory, system, versions
    figures   name -> point: columns that identify a point; columns: point columns, `machine` (its index), `day`,
              `others`, and those of the rows; rows: one list each
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from bench.harness.figure import Figure, Point, Row, Scalar
from eddy import EddyError

FIGURES = "figures.json"
KEPT = ("machine", "day", "others")
"""Columns of `figures.json` beyond those of points and rows."""
PACKAGES = ("numba", "numpy", "pyarrow", "pyspark", "polars", "duckdb")
MEASURED = ("stairs", "jisc", "eddy", "bench")
"""Packages whose sources change what is measured; `bench.harness` only reports it."""


class StoreError(EddyError):
    """A file of points or figures cannot be read."""


def processor() -> str:
    """Return the number of cores and the name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} × {names[0]}" if names else f"{os.cpu_count()} × {platform.machine()}"


@cache
def machine() -> str:
    """Return processor, memory, operating system, and the versions of Python and the packages that are installed."""
    versions = [f"Python {'.'.join(map(str, sys.version_info[:3]))}"]
    for name in PACKAGES:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    return f"{processor()}, {memory:.0f} GiB, {system}, {', '.join(versions)}"


@cache
def sources() -> str:
    """Return a digest of the sources that are measured."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for package in MEASURED:
        for source in sorted((root / package).rglob("*.py")):
            if "harness" not in source.parts:
                digest.update(source.relative_to(root).as_posix().encode())
                digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


@dataclass(frozen=True)
class MeasuredPoint:
    """One measured point.

    machine  the machine and the versions, as `machine` returns them
    day      the date, YYYY-MM-DD
    others   cores that other processes used in the meantime, on average; None = not recorded
    sources  digest of the sources, empty for a record read from figures.json
    seconds  duration of the measurement
    """

    point: Point
    rows: Sequence[Row]
    machine: str
    day: str
    others: float | None = None
    sources: str = ""
    seconds: float = 0.0

    def merged(self) -> list[Row]:
        """Return the rows with the columns of the point."""
        return [{**self.point, **row} for row in self.rows]


def record_of(point: Point, rows: Sequence[Row], seconds: float, others: float) -> MeasuredPoint:
    """Return the record of a point measured just now."""
    day = datetime.now(UTC).date().isoformat()
    return MeasuredPoint(dict(point), [dict(row) for row in rows], machine(), day, round(others, 2), sources(), seconds)


class Store:
    """A folder of raw points. A point measured again replaces its record; files are replaced by renaming."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, figure: str) -> Path:
        """Return the file of a figure."""
        return self.folder / f"{figure}.jsonl"

    def records(self, figure: str) -> list[MeasuredPoint]:
        """Return the records of a figure, in the order of measurement. Raises StoreError for a damaged file."""
        path = self.path(figure)
        if not path.exists():
            return []
        records = []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            try:
                records.append(MeasuredPoint(**json.loads(line)))
            except (ValueError, TypeError) as error:
                raise StoreError(f"{path}, line {number} is no record of a point ({error}): delete the file") from error
        return records

    def add(self, figure: str, record: MeasuredPoint) -> None:
        """Keep a record, in place of an earlier one of the same point."""
        kept = [other for other in self.records(figure) if other.point != record.point]
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(figure)
        scratch = path.with_suffix(".new")
        scratch.write_text(
            "".join(json.dumps(asdict(measured), ensure_ascii=False) + "\n" for measured in [*kept, record])
        )
        scratch.replace(path)

    def of_points(self, figure: str, points: Sequence[Point]) -> list[MeasuredPoint]:
        """Return the records of these points, in their order; points without a record are left out."""
        kept = self.records(figure)
        return [record for point in points for record in kept if record.point == dict(point)]


def best_known(figure: Figure, store: Store, carried: Mapping[str, list[MeasuredPoint]]) -> list[MeasuredPoint]:
    """Return the records of the full run, and those of the quick run if no full run exists or the figure shows both.

    carried  records read from figures.json, used for points that the store does not have
    """
    kept = [*store.records(figure.name), *carried.get(figure.name, [])]
    best: list[MeasuredPoint] = []
    for full in (True, False):
        if best and not figure.both:
            break
        points = [dict(point) for point in figure.points(full)]
        records = [next((record for record in kept if record.point == point), None) for point in points]
        best += [record for record in records if record is not None]
    return best


def _rounded(value: Scalar) -> Scalar:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def figures_text(figures: Mapping[str, tuple[Figure, Sequence[MeasuredPoint]]]) -> str:
    """Return the text of figures.json: one line for each row."""
    machines = list(dict.fromkeys(record.machine for _, records in figures.values() for record in records))
    tables = []
    for name, (figure, records) in figures.items():
        point = list(dict.fromkeys(column for record in records for column in record.point))
        kept = [(record, row) for record in records for row in record.rows if not figure.drawn_only(row)]
        # A value of None is not read back, so a column with only None is left out.
        filled = [column for _, row in kept for column, value in row.items() if value is not None]
        names = [*point, *KEPT, *dict.fromkeys(column for column in filled if column not in point)]
        lines = []
        for record, row in kept:
            cells: dict[str, Any] = {"machine": machines.index(record.machine), "day": record.day}
            # Points are compared, so they are not rounded.
            cells |= {"others": record.others, **{name: _rounded(value) for name, value in row.items()}, **record.point}
            lines.append(json.dumps([cells.get(column) for column in names], ensure_ascii=False))
        head = f'"point": {json.dumps(point)}, "columns": {json.dumps(names)}'
        tables.append(f' {json.dumps(name)}: {{{head}, "rows": [\n  ' + ",\n  ".join(lines) + "\n ]}")
    head = json.dumps(machines, ensure_ascii=False)
    return f'{{"machines": {head}, "figures": {{\n' + ",\n".join(tables) + "\n}}\n"


def read_figures(path: Path) -> dict[str, list[MeasuredPoint]]:
    """Return the records of a file of figures by figure, empty if there is no file. Raises StoreError."""
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text())
        return {name: _records(table, content["machines"]) for name, table in content["figures"].items()}
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        raise StoreError(f"{path} holds no figures of `eddy bench` ({type(error).__name__}: {error})") from error


def _records(table: Mapping[str, Any], machines: Sequence[str]) -> list[MeasuredPoint]:
    records: dict[str, MeasuredPoint] = {}
    for values in table["rows"]:
        row = {name: value for name, value in zip(table["columns"], values, strict=True) if value is not None}
        point = {name: row.pop(name) for name in table["point"] if name in row}
        at, day, others = (row.pop(name, None) for name in KEPT)
        key = json.dumps(point)
        if key not in records:
            records[key] = MeasuredPoint(point, [], machines[at], day, others)
        records[key].rows.append(row)  # type: ignore[attr-defined]
    return list(records.values())


class MeasuredFigure(NamedTuple):
    """A figure of one run; low and high are None for a figure that was measured once."""

    value: float
    low: float | None = None
    high: float | None = None


def flat(figure: str, records: Sequence[MeasuredPoint]) -> dict[str, MeasuredFigure]:
    """Return the figures of records by name, for a comparison of two runs.

    A row with columns `figure` and `value` names its own figure. Other rows give each column that has a spread, named
    after the figure, its point and the texts of the row.
    """
    figures = {}
    for record in records:
        for row in record.rows:
            if isinstance(row.get("figure"), str):
                columns = {"value": str(row["figure"])}
            else:
                texts = {name: value for name, value in row.items() if isinstance(value, str) and name != "skipped"}
                where = ",".join(f"{name}={value}" for name, value in {**record.point, **texts}.items())
                columns = {name: f"{figure}/{where}/{name}" for name in row if f"{name}_low" in row}
            for column, name in columns.items():
                value, low, high = (row.get(end) for end in (column, f"{column}_low", f"{column}_high"))
                if isinstance(value, int | float):
                    ends = [end if isinstance(end, int | float) else None for end in (low, high)]
                    figures[name] = MeasuredFigure(float(value), ends[0], ends[1])
    return figures
