"""The documents that a server sends: a sheet as JSON, with rates and drawings, and the page that shows it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections import deque
from functools import lru_cache
from importlib.resources import files
from typing import Any

from eddy.show.sheet import Metric, PageTable, Sheet
from eddy.show.values import as_values

POINTS = 300
"""Moments kept for the curves."""
AGO = 10.0
"""Seconds over which a rate is taken, at most."""


class RecentFigures:
    """The figures of the last moments, from which rates and curves follow. Any thread may use this object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moments: deque[tuple[float, dict[str, float]]] = deque(maxlen=POINTS)

    def note(self, sheet: Sheet) -> None:
        """Add a sheet, unless it was added before."""
        with self._lock:
            if not self._moments or sheet.at > self._moments[-1][0]:
                values = {
                    figure.name: figure.value for figure in sheet.figures if _tiled(figure) and figure.value is not None
                }
                self._moments.append((sheet.at, values))

    def rates(self) -> dict[str, float]:
        """Return the growth per second of each figure, over the last AGO seconds."""
        with self._lock:
            moments = list(self._moments)
        if len(moments) < 2:
            return {}
        now, values = moments[-1]
        then, before = next((moment for moment in moments if moment[0] >= now - AGO), moments[-2])
        if then >= now:
            then, before = moments[-2]
        return {name: (values[name] - before[name]) / (now - then) for name in values if name in before}

    def curves(self, names: tuple[str, ...]) -> dict[str, list[list[float]]]:
        """Return (Unix time, value) of each named figure, oldest first."""
        with self._lock:
            moments = list(self._moments)
        return {name: [[at, values[name]] for at, values in moments if name in values] for name in names}


CURVES = ("arrivals", "rows", "results", "state_bytes")
"""Figures of which the page shows curves; `rows` is what a streaming job calls arrivals."""


def document(sheet: Sheet, record: RecentFigures, drawings: bool) -> dict[str, Any]:
    """Return a sheet as JSON values, with or without its drawings and curves."""
    record.note(sheet)
    rates = record.rates()
    values: dict[str, Any] = {
        "title": sheet.title,
        "name": sheet.name,
        "at": sheet.at,
        "note": sheet.note,
        "figures": [_figure(figure, rates) for figure in sheet.figures if _tiled(figure)],
        "plans": [
            {"title": plan.title, "plan": plan.plan, **({"svgs": list(plan.svgs)} if drawings else {})}
            for plan in sheet.plans
        ],
        "tables": [_table(table) for table in sheet.tables],
    }
    return {**values, "curves": record.curves(CURVES)} if drawings else values


def _tiled(figure: Metric) -> bool:
    """Return whether the page shows a figure as a number of its own."""
    return not figure.labels and not figure.buckets


def _figure(figure: Metric, rates: dict[str, float]) -> dict[str, Any]:
    rate = rates.get(figure.name) if figure.counter else None
    return {
        "name": figure.name,
        "text": figure.text,
        "value": as_values(figure.value),
        "unit": figure.unit,
        "shown": figure.shown,
        "rate": rate,
    }


def _table(table: PageTable) -> dict[str, Any]:
    return {"title": table.title, "columns": table.columns, "rows": [as_values(list(row)) for row in table.rows]}


def as_bytes(values: dict[str, Any]) -> bytes:
    """Return JSON in one line."""
    return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(errors="replace")


@lru_cache(maxsize=1)
def page() -> bytes:
    """Return the page."""
    return files("eddy.show").joinpath("page.html").read_bytes()


@lru_cache(maxsize=1)
def page_policy() -> str:
    """Return the content security policy of the page: its own script and style, and requests to its own server only."""
    hashes = {}
    for kind in ("script", "style"):
        (inside,) = re.findall(rf"<{kind}>(.*?)</{kind}>", page().decode(), re.DOTALL)
        hashes[kind] = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{hashes['script']}'; style-src 'sha256-{hashes['style']}';"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
