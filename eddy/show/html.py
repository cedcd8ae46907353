"""The display in notebooks: a few lines of figures, the join graph, the plan, and the timeline of its changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eddy.show.description import Description, JoinPlan
from eddy.show.drawing import escaped
from eddy.show.graph_svg import graph_svg
from eddy.show.plan_svg import plan_svg
from eddy.show.sheet import Sheet
from eddy.show.text import bytes_text
from eddy.show.timeline_svg import timeline_svg

_BOX = '<div style="overflow-x:auto;margin:4px 0">'
_TABLE = '<table style="border-collapse:collapse;font:13px system-ui,sans-serif;margin:4px 0">'
_CELL = "padding:2px 10px 2px 0;text-align:left;vertical-align:top"


@dataclass(frozen=True)
class Timeline:
    """The rows of `Runtime.history` of one join, the arrivals so far, and the plan that runs now."""

    history: Sequence[Mapping[str, Any]]
    position: int
    plan: str


def as_html(shown: Description, timelines: Sequence[Timeline] = ()) -> str:
    """Return HTML without scripts and style sheets; `timelines` has one for each join, or none."""
    parts = [f"<b>{escaped(shown.title)}</b>"]
    figures = [
        ("query", shown.query),
        ("arrivals", _count(shown.arrivals)),
        ("results", _count(shown.results)),
        ("late rows", _count(shown.late)),
        ("state", None if shown.bytes is None else bytes_text(shown.bytes)),
        ("watermark", shown.watermark_time or _count(shown.watermark)),
    ]
    parts.append(table((), [(name, value) for name, value in figures if value is not None]))
    if shown.queries:
        rows = [(query.name, query.state, query.version, f"{query.results:,}", query.text) for query in shown.queries]
        parts.append(table(("query", "state", "version", "results", "text"), rows))
    for k, join in enumerate(shown.joins):
        if join.title:
            parts.append(f"<div><b>{escaped(join.title)}</b></div>")
        ways = [("plan", join.plan), ("strategy", join.strategy)]
        if join.reasons is not None:
            ways.append(("policy", f"{join.reasons.policy}, {join.reasons.decisions:,} decisions"))
        if join.pushes is not None and join.pushes.seconds:
            ways.append(("last pushes", _rate(join.pushes.arrivals, join.pushes.results, join.pushes.seconds)))
        parts.append(table((), [way for way in ways if way[1]]))
        parts += [f"{_BOX}{drawing(join)}</div>" for drawing in (graph_svg, plan_svg)]
        if timelines:
            timeline = timelines[k]
            parts.append(f"{_BOX}{timeline_svg(timeline.history, timeline.position, timeline.plan)}</div>")
    if below := (*shown.groups, *shown.filters):
        parts.append(f"<pre>{'<br>'.join(map(escaped, below))}</pre>")
    return f"<div>{''.join(parts)}</div>"


def drawn(title: str, text: str, joins: Iterable[JoinPlan]) -> str:
    """Return HTML of joins that do not run: a title, a text, and of each join its graph."""
    parts = [f"<b>{escaped(title)}</b>", table((), [(text,)])]
    for join in joins:
        parts.append(f"<div><b>{escaped(join.title)}</b></div>" if join.title else "")
        parts.append(f"{_BOX}{graph_svg(join)}</div>")
    return f"<div>{''.join(parts)}</div>"


def sheet_html(sheet: Sheet) -> str:
    """Return HTML of a sheet: its figures, plans and tables."""
    parts = [f"<b>{escaped(f'{sheet.title} {sheet.name}')}</b>", f"<div>{escaped(sheet.note)}</div>"]
    known = [
        (figure.text, figure.shown or f"{figure.value:,.6g}")
        for figure in sheet.figures
        if figure.value is not None and not figure.labels and figure.unit != "time"
    ]
    parts.append(table((), known))
    for plan in sheet.plans:
        parts.append(f"<div><b>{escaped(plan.title)}</b> {escaped(plan.plan)}</div>")
        parts += [f"{_BOX}{svg}</div>" for svg in plan.svgs]
    for page_table in sheet.tables:
        rows = [["" if cell is None else cell for cell in row] for row in page_table.rows]
        parts += [f"<div><b>{escaped(page_table.title)}</b></div>", f"{_BOX}{table(page_table.columns, rows)}</div>"]
    return f"<div>{''.join(parts)}</div>"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of HTML; every cell is escaped."""
    head = "".join(f'<th style="{_CELL}">{escaped(text)}</th>' for text in heads)
    cells = [[f'<td style="{_CELL}">{escaped(str(cell))}</td>' for cell in row] for row in rows]
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    return f"{_TABLE}{f'<tr>{head}</tr>' if head else ''}{body}</table>"


def _count(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _rate(arrivals: int, results: int, seconds: float) -> str:
    return f"{arrivals / seconds:,.0f} arrivals and {results / seconds:,.0f} results per second of pushing"
