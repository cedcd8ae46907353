"""A query written down, so that another process can tell whether its query is the same, and what differs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eddy.filters.conditions import Predicate
from eddy.query.query import Query
from eddy.storage.json_form import either, fields, integer, list_of, one_of, optional, row_of, text
from stairs.graph import WindowKind

Text = dict[str, Any]
"""Text, numbers, lists and mappings only: what JSON can say."""

_CONDITION = fields({"text": text, "arrow": text, "values": text}, others=("function",))
FILTER_FORM = optional(either(list_of(_CONDITION), _CONDITION))
"""What `filter_text` gives, as JSON says it."""
QUERY_FORM = fields(
    {
        "streams": list_of(
            fields(
                {
                    "name": text,
                    "columns": list_of(row_of(text, text)),
                    "window": row_of(one_of(WindowKind.__members__), integer(0)),
                    "time": optional(text),
                    "filter": FILTER_FORM,
                }
            )
        ),
        "classes": list_of(list_of(row_of(text, rest=list_of(text)))),
        "predicates": text,
        "where": FILTER_FORM,
        "select": list_of(row_of(text, text, text)),
        "lateness": integer(0),
    }
)
"""What `query_text` gives, as JSON says it."""


def query_text(query: Query) -> Text:
    """Return the query as JSON can say it: streams, classes, filters, projection, lateness. Equal queries, equal text.

    Predicates stand there as the classes they make, windows and lateness in ticks, so that another way to write the
    same makes no difference. What a function does cannot be said: it stands there by its name.
    """
    streams = []
    for stream, window in zip(query.streams, query.graph.windows, strict=True):
        streams.append(
            {
                "name": stream.name,
                "columns": [[field.name, _type_text(field)] for field in stream.schema],
                "window": [WindowKind(window.kind).name, window.size],
                "time": stream.time,
                "filter": filter_text(stream.conditions),
            }
        )
    return {
        "streams": streams,
        "classes": [
            [[name, *map(list, components)] for name, components in one.columns.items()] for one in query.classes
        ],
        "predicates": " AND ".join(map(str, query.classes)),
        "where": filter_text(query.conditions),
        "select": [[name, *place] for name, place in query.select.items()],
        "lateness": query.graph.lateness,
    }


def _type_text(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"


def filter_text(conditions: Sequence[Predicate]) -> Text | list[Text] | None:
    """Return the conditions of a filter: None for none, one by itself, several as a list in the order written."""
    texts = [_condition_text(one) for one in conditions]
    return None if not texts else texts[0] if len(texts) == 1 else texts


def _condition_text(condition: Predicate) -> Text:
    """Return what tells an expression from others: its text, in which long lists of values are cut, a digest of it as
    this version of Arrow writes it, and a digest of all values in it; a function as its name.
    """
    if not isinstance(condition.function, pc.Expression):
        return {"text": condition.title, "arrow": "", "values": "", "function": condition.title}
    expression: Any = condition.function
    try:
        _, (whole,) = expression.__reduce__()
        # Its literals and options are the columns of one row.
        row = pa.ipc.open_file(whole).get_batch(0)
    except pa.ArrowException:
        # Options that Arrow cannot write; the text is all there is.
        return {"text": str(expression), "arrow": "", "values": ""}
    try:
        values = _digest("\n".join(f"{column.type}: {column.to_pylist()!r}" for column in row.columns).encode())
    except ValueError:
        # Nanoseconds are more than Python's own types hold.
        values = ""
    return {"text": str(expression), "arrow": _digest(whole), "values": values}


def _digest(data: bytes | pa.Buffer) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _listed(text: Text | list[Text] | None) -> list[Text]:
    return [] if text is None else text if isinstance(text, list) else [text]


def same_filter(saved: Text | list[Text] | None, conditions: Sequence[Predicate]) -> bool:
    """Say whether `filter_text` of these conditions would say the same; functions are compared by name only."""
    theirs = _listed(saved)
    return len(theirs) == len(conditions) and all(map(_same_condition, theirs, conditions))


def _same_condition(saved: Text, condition: Predicate) -> bool:
    own = _condition_text(condition)
    if saved == own:
        return True
    if not own["arrow"] or "function" in saved:
        return False
    # Another version of Arrow may write the same expression in other bytes, or show it as another text. What was saved
    # is only compared, never read as an expression: Arrow would follow whatever it says.
    if saved["arrow"] == own["arrow"]:
        return True
    return bool(own["values"]) and (saved["text"], saved["values"]) == (own["text"], own["values"])


def filter_shown(text: Text | list[Text] | None) -> str:
    """Return what `filter_text` gave as people read it."""
    return " and ".join(str(one["text"]) for one in _listed(text)) or "none"


def _columns(columns: list[list[str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def _window(window: list[Any]) -> str:
    kind, size = window
    return {"ROWS": f"ROWS {size}", "RANGE": f"RANGE {size} ticks"}.get(kind, kind)


def difference(saved: Text, query: Query, where: str = "the snapshot", results: bool = True) -> str | None:
    """Return the first thing in which the query that `saved` describes differs from this one, None for nothing.

    where    what holds `saved`, for the text
    results  compare what makes results of combinations, `where` and `select`, as well
    """
    own = query_text(query)

    def differ(what: str, theirs: object, mine: object) -> str:
        return f"{what}: {theirs} in {where}, {mine} in the query"

    names, own_names = ([stream["name"] for stream in text["streams"]] for text in (saved, own))
    if names != own_names:
        return differ("streams", ", ".join(names), ", ".join(own_names))
    for theirs, mine, stream in zip(saved["streams"], own["streams"], query.streams, strict=True):
        place = f"stream {stream.name}"
        if theirs["columns"] != mine["columns"]:
            return _column_difference(place, where, theirs["columns"], mine["columns"])
        if theirs["time"] != mine["time"]:
            return differ(f"{place}, time column", theirs["time"] or "none", mine["time"] or "none")
        if theirs["window"] != mine["window"]:
            return differ(f"{place}, window", _window(theirs["window"]), _window(mine["window"]))
        if not same_filter(theirs["filter"], stream.conditions):
            return differ(f"{place}, filter", filter_shown(theirs["filter"]), filter_shown(mine["filter"]))
    if saved["classes"] != own["classes"]:
        return differ("predicates", saved["predicates"], own["predicates"])
    if results and not same_filter(saved["where"], query.conditions):
        return differ("where", filter_shown(saved["where"]), filter_shown(own["where"]))
    if results and saved["select"] != own["select"]:
        shown = [", ".join(f"{name} = {s}.{c}" for name, s, c in text["select"]) for text in (saved, own)]
        return differ("select", *shown)
    if saved["lateness"] != own["lateness"]:
        return differ("lateness", f"{saved['lateness']} ticks", f"{own['lateness']} ticks")
    return None


def _column_difference(place: str, where: str, theirs: list[list[str]], mine: list[list[str]]) -> str:
    saved, own = dict(theirs), dict(mine)
    for name in [*saved, *own]:
        if saved.get(name) != own.get(name):
            there, here = saved.get(name, "absent"), own.get(name, "absent")
            return f"{place}, column {name!r}: {there} in {where}, {here} in the query"
    return f"{place}: columns {_columns(theirs)} in {where}, {_columns(mine)} in the query"
