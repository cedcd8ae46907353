"""A query written down, so that another process can tell whether its query is the same, and what differs."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eddy.query import Query
from stairs.graph import WindowKind

Text = dict[str, Any]
"""Text, numbers, lists and mappings only: what JSON can say."""


def query_text(query: Query) -> Text:
    """Return the query as JSON can say it: streams, classes, filters, projection, lateness. Equal queries, equal text.

    Predicates stand there as the classes they make, windows and lateness in ticks, so that another way to write the
    same makes no difference.
    """
    streams = []
    for stream, window in zip(query.streams, query.graph.windows, strict=True):
        streams.append(
            {
                "name": stream.name,
                "columns": [[field.name, _type_text(field)] for field in stream.schema],
                "window": [WindowKind(window.kind).name, window.size],
                "time": stream.time,
                "filter": _expression_text(stream.filter),
            }
        )
    return {
        "streams": streams,
        "classes": [
            [[name, *map(list, components)] for name, components in one.columns.items()] for one in query.classes
        ],
        "predicates": " AND ".join(map(str, query.classes)),
        "where": _expression_text(query.where),
        "select": [[name, *place] for name, place in query.select.items()],
        "lateness": query.graph.lateness,
    }


def _type_text(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"


def _expression_text(expression: pc.Expression | None) -> Text | None:
    """Return an expression as people read it, where long lists of values are cut, and as Arrow writes it, whole."""
    if expression is None:
        return None
    try:
        _, (whole,) = expression.__reduce__()
        written = base64.b64encode(whole).decode()
    except pa.ArrowException:
        # Options that Arrow cannot write; the text is all there is.
        written = ""
    return {"text": str(expression), "arrow": written}


def _same_expression(saved: Text | None, own: Text | None, expression: pc.Expression | None) -> bool:
    if saved is None or own is None or expression is None:
        return saved is own
    if saved == own:
        return True
    if not saved["arrow"] or not own["arrow"]:
        return False
    # Another version of Arrow may write the same expression in other bytes.
    read, _ = expression.__reduce__()
    try:
        return bool(expression.equals(read(pa.py_buffer(base64.b64decode(saved["arrow"])))))
    except (pa.ArrowException, OSError):
        return False


def _shown(text: Text | None) -> str:
    return "none" if text is None else str(text["text"])


def _columns(columns: list[list[str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def _window(window: list[Any]) -> str:
    kind, size = window
    return {"ROWS": f"ROWS {size}", "RANGE": f"RANGE {size} ticks"}.get(kind, kind)


def difference(saved: Text, query: Query) -> str | None:
    """Return the first thing in which the query that `saved` describes differs from this one, None for nothing."""
    own = query_text(query)

    def differ(what: str, theirs: object, mine: object) -> str:
        return f"{what}: {theirs} in the snapshot, {mine} in the query"

    names, own_names = ([stream["name"] for stream in text["streams"]] for text in (saved, own))
    if names != own_names:
        return differ("streams", ", ".join(names), ", ".join(own_names))
    for theirs, mine, stream in zip(saved["streams"], own["streams"], query.streams, strict=True):
        place = f"stream {stream.name}"
        if theirs["columns"] != mine["columns"]:
            return _column_difference(place, theirs["columns"], mine["columns"])
        if theirs["time"] != mine["time"]:
            return differ(f"{place}, time column", theirs["time"] or "none", mine["time"] or "none")
        if theirs["window"] != mine["window"]:
            return differ(f"{place}, window", _window(theirs["window"]), _window(mine["window"]))
        if not _same_expression(theirs["filter"], mine["filter"], stream.filter):
            return differ(f"{place}, filter", _shown(theirs["filter"]), _shown(mine["filter"]))
    if saved["classes"] != own["classes"]:
        return differ("predicates", saved["predicates"], own["predicates"])
    if not _same_expression(saved["where"], own["where"], query.where):
        return differ("where", _shown(saved["where"]), _shown(own["where"]))
    if saved["select"] != own["select"]:
        shown = [", ".join(f"{name} = {s}.{c}" for name, s, c in text["select"]) for text in (saved, own)]
        return differ("select", *shown)
    if saved["lateness"] != own["lateness"]:
        return differ("lateness", f"{saved['lateness']} ticks", f"{own['lateness']} ticks")
    return None


def _column_difference(place: str, theirs: list[list[str]], mine: list[list[str]]) -> str:
    saved, own = dict(theirs), dict(mine)
    for name in [*saved, *own]:
        if saved.get(name) != own.get(name):
            there, here = saved.get(name, "absent"), own.get(name, "absent")
            return f"{place}, column {name!r}: {there} in the snapshot, {here} in the query"
    return f"{place}: columns {_columns(theirs)} in the snapshot, {_columns(mine)} in the query"
